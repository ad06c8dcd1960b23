package peers

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of times in /proc/PID/stat: Linux reports 100 per second to every program.
const tick = 10 * time.Millisecond

// stat is what counts of a process.
type stat struct {
	parent int
	used   time.Duration // by itself, and by children that have ended and been waited for
}

// processorTime is what a process and its living descendants have used. A descendant that has ended counts once its
// parent has waited for it; one whose parent has ended is lost.
func processorTime(proc string, pid int) (time.Duration, error) {
	files, err := filepath.Glob(filepath.Join(proc, "[0-9]*", "stat"))
	if err != nil {
		return 0, err
	}
	all := make(map[int]stat, len(files))
	for _, f := range files {
		b, err := os.ReadFile(f) //nolint:gosec // of /proc
		if err != nil {
			continue // it has ended
		}
		id, err := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		if err != nil {
			return 0, err
		}
		if all[id], err = parseStat(string(b)); err != nil {
			return 0, fmt.Errorf("%s: %w", f, err)
		}
	}
	if _, ok := all[pid]; !ok {
		return 0, fmt.Errorf("process %d is not in %s", pid, proc)
	}
	var sum time.Duration
	for id, s := range all {
		if descends(all, id, pid) {
			sum += s.used
		}
	}
	return sum, nil
}

func descends(all map[int]stat, id, from int) bool {
	for range len(all) { // what was read at different times could be a circle
		if id == from {
			return true
		}
		s, ok := all[id]
		if !ok {
			return false
		}
		id = s.parent
	}
	return false
}

// parseStat reads a line of proc_pid_stat(5): after the name, which may contain anything, the third field is next.
func parseStat(line string) (stat, error) {
	const third, ppid, utime, cstime = 3, 4, 14, 17
	fields := strings.Fields(line[strings.LastIndexByte(line, ')')+1:])
	if len(fields) <= cstime-third {
		return stat{}, fmt.Errorf("%d fields after the name", len(fields))
	}
	parent, err := strconv.Atoi(fields[ppid-third])
	s := stat{parent: parent}
	for _, f := range fields[utime-third : cstime-third+1] {
		n, bad := strconv.ParseInt(f, 10, 64)
		if bad != nil {
			err = bad
		}
		s.used += time.Duration(n) * tick
	}
	return s, err
}
