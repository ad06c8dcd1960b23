//go:build linux

package bwrap

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// lease is a locked file that shows that a service is alive. The kernel releases the lock
// when the process ends. The file has a line for each directory in which the service
// creates cgroups.
type lease struct {
	dir, instance string
	file          *os.File
}

func takeLease(dir string) (*lease, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("creating a lease: %w", err)
	}
	for {
		id := make([]byte, 6)
		_, _ = rand.Read(id) // never fails
		l := &lease{dir: dir, instance: hex.EncodeToString(id)}
		var err error
		l.file, err = os.OpenFile(l.path(), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
		if err != nil {
			return nil, fmt.Errorf("creating a lease: %w", err)
		}
		if err := unix.Flock(int(l.file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil && l.linked() {
			return l, nil
		}
		// A reaper treated the new file as a dead service's.
		_ = l.file.Close()
	}
}

func (l *lease) path() string { return filepath.Join(l.dir, l.instance) }

func (l *lease) linked() bool {
	mine, err := l.file.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(l.path())
	return err == nil && os.SameFile(mine, there)
}

// note records where cgroups of this service will be.
func (l *lease) note(dirs []string) error {
	if err := l.file.Truncate(0); err != nil {
		return fmt.Errorf("writing the lease: %w", err)
	}
	if _, err := l.file.WriteAt([]byte(strings.Join(dirs, "\n")), 0); err != nil {
		return fmt.Errorf("writing the lease: %w", err)
	}
	return nil
}

// release ends the lease. Its file stays if the service leaves something, so that a reaper
// knows about it.
func (l *lease) release(leaves bool) error {
	if leaves {
		return l.file.Close()
	}
	return errors.Join(os.Remove(l.path()), l.file.Close())
}

// dead calls f for each service that is no longer alive, with the directories of its
// cgroups, and forgets the service when f reports that nothing is left.
func (l *lease) dead(f func(instance string, dirs []string) error) error {
	entries, err := os.ReadDir(l.dir)
	if err != nil {
		return fmt.Errorf("looking for dead services: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if e.Name() != l.instance {
			errs = append(errs, bury(filepath.Join(l.dir, e.Name()), func(dirs []string) error { return f(e.Name(), dirs) }))
		}
	}
	return errors.Join(errs...)
}

func bury(path string, f func(dirs []string) error) error {
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("looking for dead services: %w", err)
	}
	defer file.Close() //nolint:errcheck // read only
	if unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return nil // alive, or being reaped
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("looking for dead services: %w", err)
	}
	if err := f(strings.FieldsFunc(string(text), func(r rune) bool { return r == '\n' })); err != nil {
		return err
	}
	return os.Remove(path)
}
