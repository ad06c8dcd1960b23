package enginetest

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Listen listens on an address that the engine's containers with a network can reach: for
// a private engine, in the engine's network. The listener is closed when the test ends.
func (e *Engine) Listen(t testing.TB, address string) net.Listener {
	t.Helper()
	type result struct {
		l   net.Listener
		err error
	}
	done := make(chan result)
	go func() {
		// The thread stays locked, so that it ends with the goroutine, in the other network.
		runtime.LockOSThread()
		if err := e.enter(); err != nil {
			done <- result{nil, err}
			return
		}
		l, err := net.Listen("tcp", address) //nolint:noctx // there is no name to resolve
		done <- result{l, err}
	}()
	r := <-done
	if r.err != nil {
		t.Fatalf("listening on %s of the engine's network: %v", address, r.err)
	}
	t.Cleanup(func() { _ = r.l.Close() })
	return r.l
}

// enter moves the thread to the engine's network.
func (e *Engine) enter() error {
	if e.PID == 0 {
		return nil
	}
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", e.PID))
	if err != nil {
		return err
	}
	defer func() { _ = ns.Close() }()
	if err := unix.Setns(int(ns.Fd()), syscall.CLONE_NEWNET); err != nil {
		return fmt.Errorf("entering the engine's network: %w", err)
	}
	return nil
}
