package program

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nuid"
	"golang.org/x/sys/unix"
)

// marker is the variable that tells the processes of one program from those of another.
const marker = "PROGRAM_FAMILY"

// adopted has the programs that run, once this process adopts what they leave.
var adopted struct {
	sync.Mutex
	on      bool
	running map[int]bool // by process id
}

// Adopt makes orphans of programs children of this process (PR_SET_CHILD_SUBREAPER), so that [Run] finds and
// kills them. Call it before the first Run, in a process that starts others by Run alone: it ends any other.
// A process without the environment that Run has set is killed once no program runs. The error says why the
// kernel does not offer it.
func Adopt() error {
	if _, err := children(); err != nil {
		return fmt.Errorf("listing child processes: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("adopting processes: %w", err)
	}
	adopted.Lock()
	defer adopted.Unlock()
	adopted.on, adopted.running = true, map[int]bool{}
	return nil
}

// family is a program with what it starts.
type family struct{ name string }

func newFamily() family { return family{marker + "=" + nuid.Next()} }

// mark gives the program's processes the name.
func (f family) mark(cmd *exec.Cmd) {
	adopted.Lock()
	defer adopted.Unlock()
	if adopted.on {
		cmd.Env = append(cmd.Env, f.name)
	}
}

// start starts the program. No other one may be ended meanwhile, which would take this for an orphan.
func (f family) start(cmd *exec.Cmd) error {
	adopted.Lock()
	defer adopted.Unlock()
	err := cmd.Start()
	if err == nil && adopted.on {
		adopted.running[cmd.Process.Pid] = true
	}
	return err
}

// endWithin bounds how long orphans may take to die: the kernel may hold one.
const endWithin = 2 * time.Second

// end kills what a program that has ended leaves. The orphans of an orphan are children of this process once
// it is dead.
func (f family) end(cmd *exec.Cmd) {
	adopted.Lock()
	defer adopted.Unlock()
	if !adopted.on {
		return
	}
	delete(adopted.running, cmd.Process.Pid)
	clean := 0 // lists in a row without orphans: one may lack some while others end
	for until := time.Now().Add(endWithin); clean < 2 && time.Now().Before(until); time.Sleep(time.Millisecond) {
		clean++
		pids, _ := children()
		for _, pid := range pids {
			if adopted.running[pid] {
				continue
			}
			if done, _ := unix.Wait4(pid, nil, unix.WNOHANG, nil); done == pid {
				clean = 0 // it may have had children
			} else if len(adopted.running) == 0 || f.has(pid) {
				clean = 0
				_ = unix.Kill(pid, unix.SIGKILL)
			}
		}
	}
}

// has reports whether a process has the name of the program.
func (f family) has(pid int) bool {
	env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return false
	}
	return slices.Contains(strings.Split(string(env), "\x00"), f.name)
}

// children returns the process ids of all children of this process.
func children() (pids []int, err error) {
	files, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil || len(files) == 0 {
		return nil, os.ErrNotExist
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		for _, word := range strings.Fields(string(b)) {
			if pid, err := strconv.Atoi(word); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids, nil
}
