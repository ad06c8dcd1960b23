package effect

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Attempts records in a directory of this machine which attempts have not passed the point of no
// return, and which are certain to have had their effect. An attempt that is open acts only after
// it has renamed its file; a probe renames the file, too. Only one of the two succeeds, so what a
// probe has closed never acts, even if its process was only frozen.
//
// The bus has the same record, but it takes a while to answer: a process that dies meanwhile has
// begun without having acted, or has acted without having recorded it. Here nothing is waited for.
// In return the record is lost with the machine: files of an earlier boot prove nothing.
type Attempts struct {
	dir string // empty: nothing is recorded
	log *slog.Logger
}

// NewAttempts returns the records in a directory; without one, nothing is recorded.
func NewAttempts(dir string, log *slog.Logger) Attempts {
	return Attempts{dir, cmp.Or(log, slog.Default())}
}

const (
	suffixOpen   = ".open"
	suffixPassed = ".passed"
	suffixDone   = ".done"
	suffixClosed = ".closed"
)

// keptFor is how long files are kept whose attempts nobody asked about.
const keptFor = 7 * 24 * time.Hour

// Attempt is the record of one attempt; nil if there is none.
type Attempt struct{ path string }

func (a Attempts) path(id string) string {
	sum := sha256.Sum256([]byte(id))
	return filepath.Join(a.dir, hex.EncodeToString(sum[:16]))
}

// boot identifies the time since the machine started; "" if that is not known.
func boot() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// Open records an attempt. Without a record, it may go on: a probe then knows less.
func (a Attempts) Open(id string) *Attempt {
	if a.dir == "" || id == "" || boot() == "" {
		return nil
	}
	a.sweep()
	path := a.path(id)
	err := os.MkdirAll(a.dir, 0o700)
	if err == nil {
		err = os.WriteFile(path+suffixOpen, []byte(boot()), 0o600)
	}
	if err != nil {
		a.log.Warn("cannot record an attempt", "error", err)
		return nil
	}
	return &Attempt{path}
}

// Pass passes the point of no return. After an error, the attempt must not go on.
func (t *Attempt) Pass() error {
	if t == nil {
		return nil
	}
	if err := os.Rename(t.path+suffixOpen, t.path+suffixPassed); err != nil {
		return fmt.Errorf("the attempt was given up, or its record is lost: %w", err)
	}
	return nil
}

// Done records that an attempt has had its effect.
func (t *Attempt) Done() {
	if t != nil {
		_ = os.Rename(t.path+suffixPassed, t.path+suffixDone) // without it, a probe knows less
	}
}

// Forget removes the record of an attempt whose outcome is known.
func (t *Attempt) Forget() {
	if t != nil {
		_ = os.Remove(t.path + suffixOpen)
		_ = os.Remove(t.path + suffixPassed)
		_ = os.Remove(t.path + suffixDone)
	}
}

// Close reports whether an attempt has certainly not passed the point of no return, and never
// will.
func (a Attempts) Close(id string) bool {
	if a.dir == "" || id == "" {
		return false
	}
	path := a.path(id)
	b, err := os.ReadFile(path + suffixOpen)
	if err == nil && string(b) == boot() {
		err = os.Rename(path+suffixOpen, path+suffixClosed)
		if err == nil {
			return true
		}
	}
	b, err = os.ReadFile(path + suffixClosed) // by an earlier probe, whose answer was lost
	return err == nil && string(b) == boot()
}

// Done reports whether an attempt is known to have had its effect.
func (a Attempts) Done(id string) bool {
	if a.dir == "" || id == "" {
		return false
	}
	_, err := os.Stat(a.path(id) + suffixDone)
	return err == nil
}

// sweep removes old files.
func (a Attempts) sweep() {
	entries, err := os.ReadDir(a.dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		a.log.Warn("cannot list recorded attempts", "error", err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > keptFor {
			_ = os.Remove(filepath.Join(a.dir, e.Name()))
		}
	}
}
