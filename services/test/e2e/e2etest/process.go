package e2etest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Patience is how long what must happen may take on a machine that has other
// things to do.
const Patience = 2 * time.Minute

// Proc is a process that plays a role.
type Proc struct {
	Role Role

	t        testing.TB
	expected map[string]bool // that it writes, although none should
	log      string          // file of its standard error
	mu       sync.Mutex
	cmd      *exec.Cmd
	in       io.Closer
	stopped  bool          // it was stopped on purpose
	gone     chan struct{} // closed when it has ended
}

func newProc(t testing.TB, dir string, r Role) *Proc {
	p := &Proc{Role: r, t: t, log: filepath.Join(dir, r.Name+".log")}
	t.Cleanup(p.Kill)
	return p
}

// Start runs the process; it does not wait until it is ready.
func (p *Proc) Start() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		p.t.Fatalf("%s runs already", p.Role.Name)
	}
	if err := p.start(); err != nil {
		p.t.Fatalf("starting %s: %v", p.Role.Name, err)
	}
}

func (p *Proc) start() error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	role, err := json.Marshal(p.Role)
	if err != nil {
		return err
	}
	out, err := os.OpenFile(p.log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = out.Close() }()
	cmd := exec.Command(exe) //nolint:noctx // lives until Kill
	if p.Role.Kind == Redis {
		if cmd, err = p.Role.redisCommand(); err != nil {
			return err
		}
	}
	cmd.Env = append(os.Environ(), envRole+"="+string(role))
	cmd.Stdout, cmd.Stderr = out, out
	dieWithParent(cmd)
	if p.in, err = cmd.StdinPipe(); err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	p.cmd, p.stopped, p.gone = cmd, false, make(chan struct{})
	go p.wait(cmd, p.gone)
	return nil
}

// wait notices a process that ends by itself.
func (p *Proc) wait(cmd *exec.Cmd, gone chan struct{}) {
	err := cmd.Wait()
	p.mu.Lock()
	crashed := !p.stopped
	p.mu.Unlock()
	close(gone)
	if crashed {
		p.t.Errorf("%s ended by itself: %v\n%s", p.Role.Name, err, p.Tail(40))
	}
}

// end tells the process to end by a signal, and waits until it has.
func (p *Proc) end(how syscall.Signal) {
	p.mu.Lock()
	cmd, in, gone := p.cmd, p.in, p.gone
	p.cmd, p.stopped = nil, true
	p.mu.Unlock()
	if cmd == nil {
		return
	}
	_ = cmd.Process.Signal(how) // fails only if it has ended
	select {
	case <-gone:
	case <-time.After(Patience):
		p.t.Errorf("%s did not end within %v of signal %v; killing it\n%s", p.Role.Name, Patience, how, p.Tail(40))
		_ = cmd.Process.Kill()
		<-gone
	}
	_ = in.Close()
}

// Kill ends the process by SIGKILL.
func (p *Proc) Kill() { p.end(syscall.SIGKILL) }

// Stop ends the process cleanly, by SIGTERM.
func (p *Proc) Stop() { p.end(syscall.SIGTERM) }

// Stall stops the process in the middle of whatever it does, and returns once none of its
// threads runs; its connections stay open. [Proc.Resume] lets it continue.
func (p *Proc) Stall() {
	p.t.Helper()
	p.signal(syscall.SIGSTOP)
	for deadline := time.Now().Add(Patience); !p.stalls(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			p.t.Fatalf("%s still runs %v after SIGSTOP", p.Role.Name, Patience)
		}
	}
}

// stalls reports whether all threads of the process are stopped, or gone.
func (p *Proc) stalls() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return true
	}
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.cmd.Process.Pid))
	if err != nil || len(threads) == 0 {
		return err == nil
	}
	for _, file := range threads {
		stat, err := os.ReadFile(file)
		// The state follows the name of the program, which is in parentheses: proc(5).
		if after := bytes.LastIndexByte(stat, ')') + 2; err == nil && !strings.ContainsRune("TtZX", rune(stat[after])) {
			return false
		}
	}
	return true
}

// Resume lets a stalled process go on.
func (p *Proc) Resume() { p.signal(syscall.SIGCONT) }

func (p *Proc) signal(s syscall.Signal) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		p.t.Fatalf("%s does not run", p.Role.Name)
	}
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("signal %v to %s: %v", s, p.Role.Name, err)
	}
}

// Running reports whether the process was started and not ended.
func (p *Proc) Running() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd != nil
}

// inspect fails the test for what no process may ever write, however it ended.
func (p *Proc) inspect() {
	all := p.Log()
	for _, never := range []string{"WARNING: DATA RACE", "core panicked", "ALARM", "fatal error: ", "\npanic: "} {
		if i := strings.Index(all, never); i >= 0 && !p.expected[never] {
			p.t.Errorf("%s wrote %q:\n%.3000s", p.Role.Name, never, all[max(0, i-200):])
		}
	}
}

// Expect lets the process write what none may else; see inspect.
func (p *Proc) Expect(what string) {
	if p.expected == nil {
		p.expected = map[string]bool{}
	}
	p.expected[what] = true
}

// Log is everything that the process wrote in all its runs.
func (p *Proc) Log() string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// Tail is the last lines of what the process wrote.
func (p *Proc) Tail(lines int) string {
	all := strings.Split(strings.TrimRight(p.Log(), "\n"), "\n")
	return fmt.Sprintf("--- %s\n%s", p.Role.Name, strings.Join(all[max(0, len(all)-lines):], "\n"))
}
