package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
)

// process is one run of the plugin.
type process struct {
	tap      *tap
	cmd      *exec.Cmd
	in       io.Closer
	gone     chan struct{} // closed when it has ended
	err      error         // of Wait; after gone
	reported bool          // its end is in the report already, or need not be
}

// startProcess runs the command in a new process group.
func startProcess(ctx context.Context, o Options, t *tap, url string, out *output) (*process, error) {
	p := &process{tap: t, gone: make(chan struct{})}
	//nolint:gosec // to run this is what the author asks for
	p.cmd = exec.CommandContext(ctx, o.Command[0], o.Command[1:]...)
	p.cmd.Dir = o.Dir
	p.cmd.Env = append(environment(), "SKANDHA_NATS="+url)
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.cmd.Cancel = func() error { return p.signal(syscall.SIGKILL) }
	p.cmd.WaitDelay = o.Leave // processes that it started may hold its output
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil { // stays open: some programs end when it closes
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", strings.Join(o.Command, " "), err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.gone)
	}()
	return p, nil
}

// environment returns this process's environment without the variables of another bus.
func environment() (out []string) {
	for _, e := range os.Environ() {
		switch name, _, _ := strings.Cut(e, "="); name {
		case "SKANDHA_NATS", "SKANDHA_TOKEN", "SKANDHA_CREDS", "SKANDHA_TLS_CA", "SKANDHA_DATA":
		default:
			out = append(out, e)
		}
	}
	return out
}

// signal signals the whole group, as a terminal and a service manager do.
func (p *process) signal(s syscall.Signal) error {
	err := syscall.Kill(-p.cmd.Process.Pid, s)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

// ended returns how it ended, if it has.
func (p *process) ended() (how string, over bool) {
	select {
	case <-p.gone:
		return p.how(), true
	default:
		return "", false
	}
}

func (p *process) how() string {
	if p.err == nil || errors.Is(p.err, exec.ErrWaitDelay) {
		return "exit status 0"
	}
	return p.err.Error()
}

// clean reports whether it ended as requested: status 0, or by the signal.
func (p *process) clean() bool {
	var e *exec.ExitError
	if !errors.As(p.err, &e) {
		return p.err == nil || errors.Is(p.err, exec.ErrWaitDelay)
	}
	s, ok := e.Sys().(syscall.WaitStatus)
	return ok && (s.Signaled() && s.Signal() == syscall.SIGTERM || s.ExitStatus() == 128+int(syscall.SIGTERM))
}

// kill ends it, the processes that it started, and its tap.
func (p *process) kill() {
	_ = p.signal(syscall.SIGKILL) // fails when nothing is left
	<-p.gone
	_ = p.in.Close()
	p.tap.down()
}

// output keeps the end of a plugin's output, and passes it on.
type output struct {
	to io.Writer // nil: nowhere

	mu   sync.Mutex
	last []byte
}

const keptOutput = 8 << 10

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last = append(o.last, b...)
	if n := len(o.last) - keptOutput; n > 0 {
		o.last = append(o.last[:0], o.last[n:]...)
	}
	if o.to != nil {
		_, _ = o.to.Write(b) // must not affect the plugin
	}
	return len(b), nil
}

func (o *output) tail() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.ToValidUTF8(string(o.last), "�")
}

// lastLine returns the last line that is not empty.
func (o *output) lastLine() string {
	lines := strings.Split(strings.TrimSpace(o.tail()), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}
