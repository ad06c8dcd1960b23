package foreigntest

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"skandha.dev/services/test/natstest"
)

// Process is a program that runs.
type Process struct {
	Name string

	t    testing.TB
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  text
	errs text
	gone chan struct{} // closed when it has ended
	end  error         // once gone
}

// text is what a program has written so far.
type text struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (w *text) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(p)
}

func (w *text) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.String()
}

// Spawn starts a program in a directory, with further variables of its
// environment. It is killed at the end of the test at the latest, and what it
// wrote is shown if the test failed.
func Spawn(t testing.TB, dir string, env []string, program string, args ...string) *Process {
	t.Helper()
	p := &Process{Name: strings.Join(append([]string{program}, args...), " "), t: t, gone: make(chan struct{})}
	p.cmd = exec.Command(program, args...) //nolint:noctx // ends by its process id, in cleanup at the latest
	p.cmd.Dir, p.cmd.Env = dir, append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.errs
	dieWithParent(p.cmd)
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("starting %s: %v", p.Name, err)
	}
	go func() {
		p.end = p.cmd.Wait()
		close(p.gone)
	}()
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("--- %s\n%s%s", p.Name, p.Out(), p.Errs())
		}
	})
	return p
}

// Out is what it has written to standard output.
func (p *Process) Out() string { return p.out.String() }

// Errs is what it has written to standard error.
func (p *Process) Errs() string { return p.errs.String() }

// Say writes to its standard input.
func (p *Process) Say(s string) {
	p.t.Helper()
	if _, err := io.WriteString(p.in, s); err != nil {
		p.t.Fatalf("writing to %s: %v", p.Name, err)
	}
}

// CloseInput ends its standard input.
func (p *Process) CloseInput() { _ = p.in.Close() }

// Await waits until it has written the text to standard output or standard error.
func (p *Process) Await(what string) {
	p.t.Helper()
	natstest.Eventually(p.t, p.Name+" writes "+what, func() bool {
		if strings.Contains(p.Out(), what) || strings.Contains(p.Errs(), what) {
			return true
		}
		select {
		case <-p.gone:
			if !strings.Contains(p.Out()+p.Errs(), what) {
				p.t.Fatalf("%s has ended (%v) and not written %q", p.Name, p.end, what)
			}
			return true
		default:
			return false
		}
	})
}

// Signal sends it a signal.
func (p *Process) Signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("signal %v to %s: %v", s, p.Name, err)
	}
}

// Ended waits until it has ended by itself; the error is that of exec.Cmd.Wait.
func (p *Process) Ended() error {
	p.t.Helper()
	select {
	case <-p.gone:
		return p.end
	case <-time.After(natstest.Patience):
		p.t.Fatalf("%s did not end within %v", p.Name, natstest.Patience)
		return nil
	}
}

// Wait waits until it has ended by itself, and wants it to have ended well.
func (p *Process) Wait() {
	p.t.Helper()
	if err := p.Ended(); err != nil {
		p.t.Errorf("%s: %v", p.Name, err)
	}
}

// Leave ends it with a signal, and waits until it has ended cleanly.
func (p *Process) Leave(s syscall.Signal) {
	p.t.Helper()
	p.Signal(s)
	p.Wait()
}

// Kill ends it by SIGKILL.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.gone
}
