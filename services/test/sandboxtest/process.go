package sandboxtest

import (
	"bufio"
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// namespace is a PID namespace, kept open so that its number is not reused while it is in
// use here.
type namespace struct {
	name string // pid:[4026532…]
	file *os.File
}

// findNamespace finds the namespace that a sandbox reports among the host's processes.
func findNamespace(name string) (namespace, error) {
	if own, err := os.Readlink("/proc/self/ns/pid"); err != nil || own == name {
		return namespace{}, fmt.Errorf("the sandbox is in PID namespace %s, the host in %s (%w)", name, own, err)
	}
	for _, pid := range pids() {
		path := "/proc/" + pid + "/ns/pid"
		if got, err := os.Readlink(path); err != nil || got != name {
			continue
		}
		if f, err := os.Open(path); err == nil {
			return namespace{name, f}, nil
		}
	}
	return namespace{}, fmt.Errorf("no process on this host is in %s; the suite requires sandboxes whose processes it sees", name)
}

func (n namespace) close() { _ = n.file.Close() } // only read

// process is a process of the host.
type process struct {
	pid, cmdline string
	threads      int
}

func (p process) String() string { return fmt.Sprintf("%s (%q)", p.pid, p.cmdline) }

// processes returns those in the namespace, including zombies.
func (n namespace) processes() (out []process) {
	for _, pid := range pids() {
		if got, err := os.Readlink("/proc/" + pid + "/ns/pid"); err != nil || got != n.name {
			continue
		}
		tasks, err := os.ReadDir("/proc/" + pid + "/task")
		if err != nil {
			continue // it has just ended
		}
		cmdline, _ := os.ReadFile("/proc/" + pid + "/cmdline")
		out = append(out, process{pid, strings.ReplaceAll(string(cmdline[:min(len(cmdline), 60)]), "\x00", " "), len(tasks)})
	}
	return out
}

// threads counts the processes and their threads.
func (n namespace) threads() (sum int) {
	for _, p := range n.processes() {
		sum += p.threads
	}
	return sum
}

// resident returns the memory that the processes hold, in bytes; shared memory counts once.
func (n namespace) resident() (sum int) {
	for _, p := range n.processes() {
		rollup, err := os.ReadFile("/proc/" + p.pid + "/smaps_rollup")
		if err != nil {
			continue // already ended
		}
		for line := range strings.Lines(string(rollup)) {
			var kib int
			if _, err := fmt.Sscanf(line, "Pss: %d kB", &kib); err == nil {
				sum += kib << 10
			}
		}
	}
	return sum
}

func pids() (out []string) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err == nil {
			out = append(out, e.Name())
		}
	}
	return out
}

// traces returns the host's processes, mounts and cgroups whose names contain the sandbox's.
func traces(name string) (out []string) {
	for _, pid := range pids() {
		cmdline, err := os.ReadFile("/proc/" + pid + "/cmdline")
		if err == nil && pid != strconv.Itoa(os.Getpid()) && bytes.Contains(cmdline, []byte(name)) {
			out = append(out, "process "+pid)
		}
	}
	if mounts, err := os.Open("/proc/self/mountinfo"); err == nil {
		defer func() { _ = mounts.Close() }() // only read
		for lines := bufio.NewScanner(mounts); lines.Scan(); {
			if strings.Contains(lines.Text(), name) {
				out = append(out, "mount "+lines.Text())
			}
		}
	}
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // cgroups may disappear; a removed one is not a trace
		}
		if d.IsDir() && strings.Contains(d.Name(), name) {
			out = append(out, "cgroup "+path)
		}
		return nil
	})
	return out
}
