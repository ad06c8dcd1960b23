package system

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"skandha.dev/pkg/bus"

	"skandha.dev/services/internal/buildinfo"
)

// ErrLocked means that another process runs a system on the same data directory.
var ErrLocked = errors.New("another process uses this data directory")

// Run describes a running system, so that other processes can join it.
type Run struct {
	PID   int    `json:"pid"`
	URL   string `json:"url"`
	Token string `json:"token"`
	HTTP  string `json:"http,omitempty"`
}

const (
	lockFile = "lock"
	busFile  = "bus.json" // the address and token that the bus keeps across restarts
)

// lock locks the data directory until this process ends. The lock file contains its
// process id.
func lock(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	// A process that only checks ([Running]) holds the lock for a moment.
	for try := 0; ; try++ {
		if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil ||
			!errors.Is(err, syscall.EWOULDBLOCK) || try == 10 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err == nil {
		if err = f.Truncate(0); err == nil {
			_, err = fmt.Fprintln(f, os.Getpid())
		}
	}
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = locked(f, dir)
	}
	if err != nil {
		_ = f.Close() // err has the reason
		return nil, err
	}
	return f, nil
}

// locked returns [ErrLocked] with the process that holds the lock and how to join it.
func locked(f io.Reader, dir string) error {
	who := ""
	if b, err := io.ReadAll(io.LimitReader(f, 32)); err == nil && len(bytes.TrimSpace(b)) > 0 {
		who = " (process " + string(bytes.TrimSpace(b)) + ")"
	}
	return fmt.Errorf("%w: %s%s; join it with: %s chat --data %s", ErrLocked, dir, who, buildinfo.Command(), dir)
}

// Running returns the system that runs on the data directory; os.ErrNotExist if none
// does, [ErrLocked] if it is starting. It creates nothing.
func Running(dir string) (Run, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR, 0)
	if err != nil {
		return Run{}, err
	}
	defer func() { _ = f.Close() }() // which unlocks
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
	if err == nil { // run.json is stale
		return Run{}, os.ErrNotExist
	}
	if !errors.Is(err, syscall.EWOULDBLOCK) {
		return Run{}, err
	}
	b, err := os.ReadFile(filepath.Join(dir, bus.RunFile))
	if errors.Is(err, os.ErrNotExist) {
		return Run{}, locked(f, dir)
	}
	if err != nil {
		return Run{}, err
	}
	var r Run
	if err := json.Unmarshal(b, &r); err != nil {
		return Run{}, fmt.Errorf("%s: %w", bus.RunFile, err)
	}
	return r, nil
}

// AwaitRunning waits until the system that holds the lock publishes its address.
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
			return Run{}, fmt.Errorf("another process holds %s and does not publish its address: %w", dir, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func writeRun(dir string, r Run) error { return writeJSON(dir, bus.RunFile, r) }

func writeJSON(dir, name string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	tmp := filepath.Join(dir, name+".new")
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, filepath.Join(dir, name))
}

// kept is the state of the bus that a data directory keeps across restarts, so that clients that were
// attached find it again. Values of flags are not kept.
type kept struct {
	Address string `json:"address,omitempty"`
	Token   string `json:"token,omitempty"`
}

func readKept(dir string) (k kept, err error) {
	b, err := os.ReadFile(filepath.Join(dir, busFile))
	if errors.Is(err, os.ErrNotExist) {
		return k, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &k)
	}
	if err != nil {
		return k, fmt.Errorf("reading %s: %w; remove it to get a new address and token", filepath.Join(dir, busFile), err)
	}
	return k, nil
}

// free reports whether a server can listen at addr.
func free(ctx context.Context, addr string) bool {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return false
	}
	_ = l.Close() // it was only a test
	return true
}
