//go:build linux

package bwrap

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"skandha.dev/services/sandbox/driver"
)

// hierarchy is where the cgroups of sandboxes are created.
type hierarchy struct {
	v2    bool
	bases map[string]string // by controller: "memory", "pids", "cpu"; all the same with v2
	home  map[string]string // v1: the cgroup of the service's own threads, by base
	// sockets reports that the memory controller counts the buffers of sockets.
	sockets bool
}

// group is the cgroup of one sandbox: a directory, or with v1 one per controller. A nil
// group means no cgroup.
type group struct {
	v2   bool
	dirs []string
	home map[string]string
	// memory is the directory with the count of processes killed for lack of memory.
	memory string
}

var controllers = []string{"memory", "pids", "cpu"}

// cgroupPrefix begins the names of our cgroups; instance and sandbox follow.
const cgroupPrefix = "skandha-"

// ownLeaf is the cgroup into which a service with a delegated v2 subtree moves itself,
// since only leaves may have processes.
const ownLeaf = "skandha-service"

// findHierarchy determines whether cgroups can be created, by creating one. If not, it
// returns why.
func findHierarchy(instance string) (*hierarchy, error) {
	mounts, err := cgroupMounts()
	if err != nil {
		return nil, err
	}
	own, err := ownCgroups()
	if err != nil {
		return nil, err
	}
	h := &hierarchy{bases: map[string]string{}, home: map[string]string{}}
	for _, c := range controllers {
		if m, ok := mounts[c]; ok {
			h.bases[c] = m.dir(own[c])
			h.home[h.bases[c]] = h.bases[c]
		}
	}
	if len(h.bases) == 0 {
		if h, err = unified(mounts[""], own[""]); err != nil {
			return nil, err
		}
	}
	g, err := h.create(instance+"-probe", driver.DefaultLimits())
	if err != nil {
		return nil, err
	}
	h.sockets = h.v2 && !bootedWith("nosocket") || h.holds("memory") && exists(filepath.Join(g.memory, socketMemory))
	return h, g.remove()
}

// socketMemory bounds the buffers of sockets with v1, which does not count them before.
const socketMemory = "memory.kmem.tcp.limit_in_bytes"

// bootedWith reports whether the kernel's parameter cgroup.memory has an option.
func bootedWith(option string) bool {
	text, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return false
	}
	for _, word := range strings.Fields(string(text)) {
		if list, ok := strings.CutPrefix(word, "cgroup.memory="); ok && slices.Contains(strings.Split(list, ","), option) {
			return true
		}
	}
	return false
}

// holds reports whether a controller bounds sandboxes.
func (h *hierarchy) holds(controller string) bool { return h != nil && h.bases[controller] != "" }

func (h *hierarchy) holdsSockets() bool { return h != nil && h.sockets }

// dirs returns all directories in which cgroups are created.
func (h *hierarchy) dirs() []string {
	if h == nil {
		return nil
	}
	var out []string
	for _, base := range h.bases {
		if !slices.Contains(out, base) {
			out = append(out, base)
		}
	}
	slices.Sort(out)
	return out
}

// create creates a sandbox's cgroup with its limits.
func (h *hierarchy) create(name string, l driver.Limits) (*group, error) {
	if h == nil {
		return nil, nil //nolint:nilnil // a nil group means no cgroup
	}
	g := &group{v2: h.v2, home: map[string]string{}}
	for _, base := range h.dirs() {
		dir := filepath.Join(base, cgroupPrefix+name)
		if err := os.Mkdir(dir, 0o755); err != nil { //nolint:gosec // the mode of cgroups
			return nil, errors.Join(fmt.Errorf("creating a cgroup: %w", err), g.remove())
		}
		g.dirs = append(g.dirs, dir)
		g.home[dir] = h.home[base]
	}
	for c, base := range h.bases {
		dir := filepath.Join(base, cgroupPrefix+name)
		if c == "memory" {
			g.memory = dir
		}
		for _, s := range settings(h.v2, c, l) {
			err := os.WriteFile(filepath.Join(dir, s.file), []byte(s.value), 0)
			if err != nil && (!s.optional || !errors.Is(err, os.ErrNotExist)) {
				return nil, errors.Join(fmt.Errorf("setting %s of a cgroup: %w", s.file, err), g.remove())
			}
		}
	}
	return g, nil
}

type setting struct {
	file, value string
	optional    bool // missing where the kernel does not count it
}

// settings returns a controller's files with their contents.
func settings(v2 bool, controller string, l driver.Limits) []setting {
	const period = 100_000 // microseconds
	memory, quota := strconv.FormatInt(l.Memory, 10), strconv.FormatInt(max(1000, int64(l.CPUs*period)), 10)
	pids := strconv.FormatInt(l.PIDs+1, 10) // plus bubblewrap itself
	switch {
	case controller == "pids":
		return []setting{{"pids.max", pids, false}}
	case controller == "memory" && v2:
		return []setting{{"memory.max", memory, false}, {"memory.swap.max", "0", true}}
	case controller == "memory":
		return []setting{
			{"memory.limit_in_bytes", memory, false},
			{"memory.memsw.limit_in_bytes", memory, true},
			{"memory.swappiness", "0", true},
			{socketMemory, strconv.FormatInt(l.SocketBuffers(), 10), true},
		}
	case v2:
		return []setting{{"cpu.max", quota + " " + strconv.Itoa(period), false}}
	}
	return []setting{{"cpu.cfs_period_us", strconv.Itoa(period), false}, {"cpu.cfs_quota_us", quota, false}}
}

// enter makes the next fork of this thread start in the cgroup: with v2 the fork does it,
// with v1 the thread itself enters it and, with leave, leaves it again. A thread may move
// itself without the lock that stops all forks of the host.
func (g *group) enter(attr *syscall.SysProcAttr) (leave func(), err error) {
	if g == nil {
		return func() {}, nil
	}
	if g.v2 {
		fd, err := unix.Open(g.dirs[0], unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, fmt.Errorf("opening the cgroup: %w", err)
		}
		attr.UseCgroupFD, attr.CgroupFD = true, fd
		return func() { _ = unix.Close(fd) }, nil
	}
	leave = func() {
		for _, dir := range g.dirs {
			// If it fails, the cgroup cannot be removed, and its removal reports that.
			_ = moveThread(g.home[dir])
		}
	}
	for _, dir := range g.dirs {
		if err := moveThread(dir); err != nil {
			leave()
			return nil, fmt.Errorf("entering the cgroup: %w", err)
		}
	}
	return leave, nil
}

// moveThread moves the calling thread.
func moveThread(dir string) error { return os.WriteFile(filepath.Join(dir, "tasks"), []byte("0"), 0) }

// outOfMemory reports whether a process of the sandbox was killed for lack of memory.
func (g *group) outOfMemory() bool {
	if g == nil || g.memory == "" {
		return false
	}
	file := "memory.oom_control"
	if g.v2 {
		file = "memory.events"
	}
	text, err := os.ReadFile(filepath.Join(g.memory, file))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(text)) {
		if n, ok := strings.CutPrefix(strings.TrimSpace(line), "oom_kill "); ok {
			return n != "0"
		}
	}
	return false
}

// removeWithin bounds the wait for killed processes of a cgroup.
const removeWithin = 5 * time.Second

// remove kills all processes in the cgroup, and removes it.
func (g *group) remove() error {
	if g == nil {
		return nil
	}
	var errs []error
	for _, dir := range g.dirs {
		if err := removeCgroup(dir); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func removeCgroup(dir string) error {
	for end := time.Now().Add(removeWithin); ; {
		err := unix.Rmdir(dir)
		switch {
		case err == nil, errors.Is(err, unix.ENOENT):
			return nil
		case !errors.Is(err, unix.EBUSY) || time.Now().After(end):
			return fmt.Errorf("removing cgroup %s: %w", dir, err)
		}
		killAll(dir)
		// The kernel reports an empty cgroup differently with v1 and v2, and it is
		// a matter of milliseconds.
		time.Sleep(time.Millisecond)
	}
}

// kill kills all processes in the cgroup except one, and reports whether there were any.
func (g *group) kill(but int) bool { return g != nil && killEach(g.dirs[0], but) }

func killAll(dir string) {
	if os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0) != nil {
		killEach(dir, os.Getpid())
	}
}

func killEach(dir string, but int) (found bool) {
	text, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return false
	}
	for _, field := range strings.Fields(string(text)) {
		if pid, err := strconv.Atoi(field); err == nil && pid > 1 && pid != os.Getpid() && pid != but {
			_ = unix.Kill(pid, unix.SIGKILL)
			found = true
		}
	}
	return found
}

// mount is a mount point of a hierarchy.
type mount struct{ root, point string }

// dir returns a cgroup's directory, from its path in /proc/self/cgroup.
func (m mount) dir(path string) string {
	if rel, err := filepath.Rel(m.root, path); err == nil && !strings.HasPrefix(rel, "..") {
		return filepath.Join(m.point, rel)
	}
	return m.point
}

// cgroupMounts returns the mounts by controller, v2's under "".
func cgroupMounts() (map[string]mount, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("finding cgroups: %w", err)
	}
	defer f.Close() //nolint:errcheck // read only
	out := map[string]mount{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		before, after, _ := strings.Cut(lines.Text(), " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if len(left) < 5 || len(right) < 3 {
			continue
		}
		m := mount{root: left[3], point: left[4]}
		switch right[0] {
		case "cgroup2":
			out[""] = m
		case "cgroup":
			for option := range strings.SplitSeq(right[2], ",") {
				if slices.Contains(controllers, option) {
					out[option] = m
				}
			}
		}
	}
	return out, lines.Err()
}

// ownCgroups returns the service's own cgroups by controller, v2's under "".
func ownCgroups() (map[string]string, error) {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, fmt.Errorf("finding cgroups: %w", err)
	}
	out := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if parts := strings.SplitN(strings.TrimSpace(line), ":", 3); len(parts) == 3 {
			for c := range strings.SplitSeq(parts[1], ",") {
				out[c] = parts[2]
			}
		}
	}
	return out, nil
}
