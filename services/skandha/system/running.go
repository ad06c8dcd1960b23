package system

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// ErrLocked says that another process runs a system on the same data directory.
var ErrLocked = errors.New("another process runs on this data directory")

// Run describes a system that runs on a data directory, so that others can join.
type Run struct {
	PID   int    `json:"pid"`
	URL   string `json:"url"`
	Token string `json:"token"`
	HTTP  string `json:"http,omitempty"`
}

const (
	lockFile = "lock"
	runFile  = "run.json"
)

// lock takes the data directory for this process, until it ends.
func lock(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close() // the lock is what failed
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w: %s", ErrLocked, dir)
		}
		return nil, err
	}
	return f, nil
}

// Running says which system runs on the data directory; os.ErrNotExist if none does.
func Running(dir string) (Run, error) {
	f, err := lock(dir)
	if err == nil {
		_ = f.Close() // which unlocks: what run.json says is old
		return Run{}, os.ErrNotExist
	}
	if !errors.Is(err, ErrLocked) {
		return Run{}, err
	}
	b, err := os.ReadFile(filepath.Join(dir, runFile))
	if err != nil {
		return Run{}, err
	}
	var r Run
	if err := json.Unmarshal(b, &r); err != nil {
		return Run{}, fmt.Errorf("%s: %w", runFile, err)
	}
	return r, nil
}

// AwaitRunning waits until the system that holds the lock says where it is.
func AwaitRunning(ctx context.Context, dir string) (Run, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for {
		r, err := Running(dir)
		if err == nil {
			return r, nil
		}
		select {
		case <-ctx.Done():
			return Run{}, fmt.Errorf("another process holds %s and does not say where it listens: %w", dir, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func writeRun(dir string, r Run) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	tmp := filepath.Join(dir, runFile+".new")
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, filepath.Join(dir, runFile))
}
