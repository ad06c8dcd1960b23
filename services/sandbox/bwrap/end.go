//go:build linux

package bwrap

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"skandha.dev/services/sandbox/driver"
)

// goneWithin bounds the wait for the end of killed processes.
const goneWithin = 5 * time.Second

// kill ends the sandbox: its PID namespace ends with its first process, and bubblewrap
// waits for that. If there is no first process yet, it kills bubblewrap itself. A process
// dies when it gets the processor, so everything that competes for it is killed too, until
// nothing is left. It spares bubblewrap, which collects the first process; without it
// others would, later.
func (b *sandbox) kill() {
	if b.bwrap == nil {
		return
	}
	if b.first.signal(unix.SIGKILL) != nil {
		_ = b.bwrap.Kill() // fails if it has ended
	}
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for end := time.Now().Add(goneWithin); b.group.kill(b.bwrap.Pid) && time.Now().Before(end); {
		select {
		case <-b.done:
			return
		case <-again.C:
		}
	}
}

// wait waits for the end of bubblewrap, and of everything in the sandbox, and releases the
// sandbox's resources.
func (b *sandbox) wait() {
	state, err := b.bwrap.Wait()
	memory := b.group.outOfMemory()
	b.left = errors.Join(b.gone(), b.free())
	b.first.close()
	select {
	case <-b.destroyed:
		b.err = driver.ErrDestroyed
	default:
		b.err = b.reason(state, err, memory)
	}
	close(b.done)
}

// gone waits until the first process has ended. It already has, unless something else
// killed bubblewrap; then the kernel is about to kill it.
func (b *sandbox) gone() error {
	if b.first.signal(unix.SIGKILL) == nil && !b.first.ended(goneWithin) {
		return fmt.Errorf("sandbox %s was killed and has not ended within %s", b.launch.name, goneWithin)
	}
	return nil
}

// free releases a sandbox's resources after everything in it has ended.
func (b *sandbox) free() error {
	err := b.group.remove()
	left := b.group
	if err == nil {
		left = nil
	}
	b.d.forget(b, left)
	if b.uid != b.launch.uid {
		b.d.uids.give(b.uid)
	}
	if b.launch.release != nil {
		b.launch.release()
	}
	return err
}

// reason returns why a sandbox ended by itself.
func (b *sandbox) reason(state *os.ProcessState, err error, memory bool) error {
	if err != nil {
		return fmt.Errorf("waiting for sandbox %s: %w", b.launch.name, err)
	}
	status, ok := state.Sys().(syscall.WaitStatus)
	const signalled = 128 // bubblewrap's exit code, plus the signal, if a signal ended the first process
	switch {
	case !ok:
		return fmt.Errorf("the sandbox has ended: %s", state)
	case status.Signaled():
		return fmt.Errorf("bubblewrap was ended by %s", unix.SignalName(status.Signal()))
	case memory && status.ExitStatus() == signalled+int(unix.SIGKILL):
		return driver.ErrMemory
	case status.ExitStatus() > signalled:
		return fmt.Errorf("the sandbox's first process was ended by %s",
			unix.SignalName(syscall.Signal(status.ExitStatus()-signalled)))
	}
	b.exit = status.ExitStatus()
	return fmt.Errorf("%w with exit code %d", errExit, b.exit)
}

var errExit = errors.New("the sandbox's first process ended")

// process is a process that is identified by a descriptor, since its number may be reused.
// The zero value is one that has ended.
type process struct {
	pid int

	mu    sync.Mutex
	fd    int
	named bool
}

func (p *process) open(pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pid, p.fd, p.named = pid, fd, true
	return nil
}

// signal fails when the process has ended; signal 0 only checks.
func (p *process) signal(s unix.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.named {
		return unix.ESRCH
	}
	return unix.PidfdSendSignal(p.fd, s, nil, 0)
}

// ended waits for the end.
func (p *process) ended(within time.Duration) bool {
	for end := time.Now().Add(within); ; {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}}, int(time.Until(end).Milliseconds()))
		if !errors.Is(err, unix.EINTR) {
			return err == nil && n > 0
		}
	}
}

func (p *process) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.named {
		_ = unix.Close(p.fd)
		p.named = false
	}
}
