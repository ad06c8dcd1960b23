//go:build linux

package bwrap

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// marker begins the name under which bubblewrap runs; instance and sandbox follow.
const marker = "skandha-bwrap:"

// Reap implements driver.Driver.
func (d *Driver) Reap(ctx context.Context) (int, error) {
	n := 0
	d.mu.Lock()
	stale := d.stale
	d.stale = nil
	d.mu.Unlock()
	var errs []error
	for _, g := range stale {
		if err := g.remove(); err != nil {
			errs = append(errs, err)
			d.mu.Lock()
			d.stale = append(d.stale, g)
			d.mu.Unlock()
			continue
		}
		n++
	}
	err := d.lease.dead(func(instance string, dirs []string) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		k, err := d.reapInstance(instance, dirs)
		n += k
		return err
	})
	if err := errors.Join(append(errs, err)...); err != nil {
		return n, fmt.Errorf("reaping sandboxes: %w", err)
	}
	return n, nil
}

// reapInstance removes what one dead service left.
func (d *Driver) reapInstance(instance string, dirs []string) (n int, err error) {
	var errs []error
	killed, err := killMarked(marker + instance + ":")
	n += killed
	errs = append(errs, err)
	sandboxes := map[string]bool{} // with v1 a sandbox has several cgroups, and counts once
	for _, dir := range dirs {
		found, err := filepath.Glob(filepath.Join(dir, cgroupPrefix+instance+"-*"))
		errs = append(errs, err)
		for _, cgroup := range found {
			if err := removeCgroup(cgroup); err != nil {
				errs = append(errs, err)
				continue
			}
			sandboxes[filepath.Base(cgroup)] = true
		}
	}
	half, err := d.sets.reap(instance)
	return n + len(sandboxes) + half, errors.Join(append(errs, err)...)
}

// killMarked kills the processes whose name has that prefix: bubblewraps that were
// interrupted between the fork and the moment when the kernel would have killed them.
func killMarked(prefix string) (n int, err error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, fmt.Errorf("listing processes: %w", err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || !named(pid, prefix) {
			continue
		}
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue // already ended
		}
		if named(pid, prefix) && unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) == nil {
			n++
		}
		_ = unix.Close(fd)
	}
	return n, nil
}

func named(pid int, prefix string) bool {
	line, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if err != nil {
		return false
	}
	first, _, _ := bytes.Cut(line, []byte{0})
	return strings.HasPrefix(string(first), prefix)
}
