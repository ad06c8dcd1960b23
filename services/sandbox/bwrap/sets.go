//go:build linux

package bwrap

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"skandha.dev/services/sandbox/driver"
)

// sets are the package sets below a directory: for each a directory named after its id, and
// a file "<id>.set" with its size in bytes. A user of a set holds a shared lock on the
// file; the file's time is the set's last use. Names that begin with a dot belong to
// incomplete or partly removed sets, and name the service that works on them.
type sets struct {
	dir, instance string

	mu   sync.Mutex
	held map[string]*hold
}

// hold is this service's lock on a set, and how many sandboxes need it.
type hold struct {
	file *os.File
	n    int
}

func newSets(dir, instance string) *sets {
	return &sets{dir: dir, instance: instance, held: map[string]*hold{}}
}

func (s *sets) path(id string) string { return filepath.Join(s.dir, id) }
func (s *sets) file(id string) string { return filepath.Join(s.dir, id+".set") }
func (s *sets) there(id string) bool  { return exists(s.path(id)) && exists(s.file(id)) }

// use prevents the removal of a set until release is called.
func (s *sets) use(id string) (release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.held[id]
	if h == nil {
		file, err := os.Open(s.file(id))
		if errors.Is(err, fs.ErrNotExist) {
			return nil, driver.ErrNoSet
		}
		if err != nil {
			return nil, fmt.Errorf("opening it: %w", err)
		}
		if unix.Flock(int(file.Fd()), unix.LOCK_SH|unix.LOCK_NB) != nil || !s.there(id) {
			_ = file.Close()
			return nil, driver.ErrNoSet // it is being removed
		}
		h = &hold{file: file}
		s.held[id] = h
	}
	h.n++
	now := time.Now()
	if err := os.Chtimes(s.file(id), now, now); err != nil {
		s.drop(id, h)
		return nil, fmt.Errorf("recording its use: %w", err)
	}
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.drop(id, h)
	}), nil
}

func (s *sets) drop(id string, h *hold) {
	if h.n--; h.n == 0 {
		_ = h.file.Close()
		delete(s.held, id)
	}
}

// Sets implements driver.Driver.
func (d *Driver) Sets(context.Context) ([]driver.Set, error) {
	entries, err := os.ReadDir(d.sets.dir)
	if err != nil {
		return nil, fmt.Errorf("listing package sets: %w", err)
	}
	var out []driver.Set
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), ".set")
		if !ok || !goodSet.MatchString(id) || !d.sets.there(id) {
			continue
		}
		info, err := e.Info()
		text, errRead := os.ReadFile(d.sets.file(id))
		if err != nil || errRead != nil {
			continue // removed in the meantime
		}
		bytes, _ := strconv.ParseInt(string(text), 10, 64) // 0: unknown
		out = append(out, driver.Set{ID: id, Bytes: bytes, Used: info.ModTime()})
	}
	return out, nil
}

// RemoveSet implements driver.Driver.
func (d *Driver) RemoveSet(_ context.Context, id string) error {
	if !goodSet.MatchString(id) {
		return fmt.Errorf("removing package set %q: want %s", id, goodSet)
	}
	if err := d.sets.remove(id); err != nil {
		return fmt.Errorf("removing package set %s: %w", id, err)
	}
	return nil
}

func (s *sets) remove(id string) error {
	file, err := os.Open(s.file(id))
	if errors.Is(err, fs.ErrNotExist) {
		return driver.ErrNoSet
	}
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // only for the lock
	if unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return driver.ErrInUse
	}
	if !s.there(id) {
		return driver.ErrNoSet
	}
	old, err := os.MkdirTemp(s.dir, ".old-"+s.instance+"-")
	if err != nil {
		return err
	}
	return errors.Join(os.Remove(s.file(id)), os.Rename(s.path(id), filepath.Join(old, "set")), removeTree(old))
}

// publish makes a directory a set, unless another service was faster.
func (s *sets) publish(id, dir string, bytes int64) error {
	// The file first: a set exists when both do.
	if err := os.WriteFile(s.file(id), []byte(strconv.FormatInt(bytes, 10)), 0o600); err != nil {
		return err
	}
	err := os.Rename(dir, s.path(id))
	if errors.Is(err, fs.ErrExist) || errors.Is(err, unix.ENOTEMPTY) {
		return nil
	}
	return err
}

// half lists a service's incomplete work.
func (s *sets) half(instance string) ([]string, error) {
	made, err := filepath.Glob(filepath.Join(s.dir, ".new-"+instance+"-*"))
	removed, err2 := filepath.Glob(filepath.Join(s.dir, ".old-"+instance+"-*"))
	return slices.Concat(made, removed), errors.Join(err, err2)
}

// reap removes a dead service's incomplete work.
func (s *sets) reap(instance string) (n int, err error) {
	found, err := s.half(instance)
	errs := []error{err}
	for _, dir := range found {
		if err := removeTree(dir); err != nil {
			errs = append(errs, err)
			continue
		}
		n++
	}
	return n, errors.Join(errs...)
}

// removeTree removes a directory, even if its mode forbids that.
func removeTree(dir string) error {
	if err := os.RemoveAll(dir); err == nil {
		return nil
	}
	_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			_ = os.Chmod(path, 0o700) //nolint:gosec // a directory
		}
		return nil
	})
	return os.RemoveAll(dir)
}
