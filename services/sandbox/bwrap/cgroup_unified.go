//go:build linux

package bwrap

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

var errNotDelegated = errors.New(
	"the service's cgroup is not delegated to it; run it as a systemd unit with Delegate=yes, or as root")

// unified finds a directory for sandboxes in a v2 hierarchy: the service's own subtree, if
// it has no other processes, or, as root, a subtree at the top, like Docker's.
func unified(m mount, own string) (*hierarchy, error) {
	if m.point == "" {
		return nil, errors.New("no cgroups are mounted")
	}
	base := m.dir(own)
	if filepath.Base(base) == ownLeaf { // another driver of this process created it
		base = filepath.Dir(base)
	}
	err := takeSubtree(base)
	if err != nil && os.Geteuid() == 0 {
		base = filepath.Join(m.point, "skandha")
		if err = enable(m.point); err == nil {
			if err = os.Mkdir(base, 0o755); errors.Is(err, os.ErrExist) { //nolint:gosec // the mode of cgroups
				err = nil
			}
		}
		if err == nil {
			err = enable(base)
		}
	}
	if err != nil {
		return nil, err
	}
	h := &hierarchy{v2: true, bases: map[string]string{}}
	for _, c := range controllers {
		h.bases[c] = base
	}
	return h, nil
}

// takeSubtree lets the service's own cgroup have children with limits. It may have no
// processes then, so the service moves to a leaf.
func takeSubtree(base string) error {
	text, err := os.ReadFile(filepath.Join(base, "cgroup.procs"))
	if err != nil {
		return fmt.Errorf("finding cgroups: %w", err)
	}
	self := strconv.Itoa(os.Getpid())
	others := slices.DeleteFunc(strings.Fields(string(text)), func(pid string) bool { return pid == self })
	if len(others) > 0 {
		return errNotDelegated
	}
	leaf := filepath.Join(base, ownLeaf)
	if err := os.Mkdir(leaf, 0o755); err != nil && !errors.Is(err, os.ErrExist) { //nolint:gosec // the mode of cgroups
		return fmt.Errorf("%w (%w)", errNotDelegated, err)
	}
	if len(strings.Fields(string(text))) > 0 {
		if err := os.WriteFile(filepath.Join(leaf, "cgroup.procs"), []byte(self), 0); err != nil {
			return fmt.Errorf("%w (%w)", errNotDelegated, err)
		}
	}
	return enable(base)
}

// enable enables the controllers for a cgroup's children.
func enable(dir string) error {
	file := filepath.Join(dir, "cgroup.subtree_control")
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("finding cgroups: %w", err)
	}
	for _, c := range controllers {
		if slices.Contains(strings.Fields(string(text)), c) {
			continue
		}
		if err := os.WriteFile(file, []byte("+"+c), 0); err != nil {
			return fmt.Errorf("the %s controller is not available to the service: %w", c, err)
		}
	}
	return nil
}
