//go:build linux

package bwrap

import (
	"errors"
	"fmt"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"

	"skandha.dev/services/sandbox/driver"
)

// dataSlack is how much a process may map beyond the sandbox's memory where a cgroup counts
// the memory in use: stacks of threads are mapped completely and used partly. Far larger
// allocations fail in the program with an error that it can handle, before the cgroup kills
// it.
const dataSlack = 1 << 30

// rlimits are the bounds of each process of a sandbox.
func (h *host) rlimits(l driver.Limits, fileSize int64) map[int]uint64 {
	if fileSize == 0 {
		fileSize = max(l.Workspace, l.Tmp)
	}
	out := map[int]uint64{
		unix.RLIMIT_CORE:   0,
		unix.RLIMIT_NOFILE: uint64(l.OpenFiles),
		unix.RLIMIT_FSIZE:  uint64(fileSize),
		unix.RLIMIT_DATA:   uint64(l.Memory),
	}
	if h.cgroups.holds("memory") {
		out[unix.RLIMIT_DATA] += dataSlack
	}
	if h.countsProcesses {
		out[unix.RLIMIT_NPROC] = uint64(l.PIDs)
		if !kernelAtLeast(5, 14) {
			out[unix.RLIMIT_NPROC]++ // counted per user, not per user namespace, and including bubblewrap
		}
	}
	return out
}

// limit bounds the sandbox's first process, whose children inherit the limits. It runs on
// the starter's thread, as the sandbox's user: root without CAP_SYS_RESOURCE, as in many
// containers, may not limit a process of another user.
func (h *host) limit(pid int, l driver.Limits, fileSize int64) error {
	for resource, n := range h.rlimits(l, fileSize) {
		var old unix.Rlimit
		if err := unix.Prlimit(pid, resource, nil, &old); err != nil {
			return fmt.Errorf("reading resource limit %d: %w", resource, err)
		}
		n = min(n, old.Max)
		if err := unix.Prlimit(pid, resource, &unix.Rlimit{Cur: n, Max: n}, nil); err != nil {
			return fmt.Errorf("setting resource limit %d: %w", resource, err)
		}
	}
	if !h.cgroups.holds("cpu") {
		// Nothing bounds the CPU; at least prefer the host's own work.
		if err := lower(pid); err != nil {
			return fmt.Errorf("lowering the priority: %w", err)
		}
	}
	return nil
}

const lowPriority = 10 // a nice value

// lower lowers a process's priority. A priority that is already lower, because the service
// itself was started with it, stays: only root could raise it.
func lower(pid int) error {
	raw, err := unix.Getpriority(unix.PRIO_PROCESS, pid)
	if err != nil {
		return err
	}
	if nice := 20 - raw; nice >= lowPriority { // the system call returns 1 to 40, to distinguish values from errors
		return nil
	}
	return unix.Setpriority(unix.PRIO_PROCESS, pid, lowPriority)
}

// countFiles bounds the number of files in a sandbox's tmpfs, from outside: bubblewrap has
// no option for it. It requires root on the host, and a sandbox that is set up.
func countFiles(pid int, dir string, n int64) error {
	name := "/proc/" + strconv.Itoa(pid) + "/root" + dir
	var is unix.Statfs_t
	if err := unix.Statfs(name, &is); err != nil {
		return fmt.Errorf("bounding the files of %s: %w", dir, err)
	}
	if is.Type != unix.TMPFS_MAGIC {
		return fmt.Errorf("bounding the files of %s: not a tmpfs", dir)
	}
	path, err := unix.BytePtrFromString(name)
	if err != nil {
		return fmt.Errorf("bounding the files of %s: %w", dir, err)
	}
	at := unix.AT_FDCWD
	fd, _, errno := unix.Syscall(unix.SYS_FSPICK, uintptr(at), uintptr(unsafe.Pointer(path)),
		unix.FSPICK_CLOEXEC|unix.FSPICK_NO_AUTOMOUNT|unix.FSPICK_SYMLINK_NOFOLLOW)
	if errno != 0 {
		return fmt.Errorf("bounding the files of %s: %w", dir, errno)
	}
	err = errors.Join(unix.FsconfigSetString(int(fd), "nr_inodes", strconv.FormatInt(n+1, 10)),
		unix.FsconfigReconfigure(int(fd)), unix.Close(int(fd)))
	if err != nil {
		return fmt.Errorf("bounding the files of %s: %w", dir, err)
	}
	return nil
}
