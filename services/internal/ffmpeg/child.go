package ffmpeg

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"skandha.dev/services/internal/text"
)

// Inherited are the variables of this process that a child gets; others may be secrets. Those
// after the first three are how sound servers are found.
var Inherited = []string{
	"PATH", "HOME", "LANG", "XDG_RUNTIME_DIR", "PULSE_SERVER", "PULSE_COOKIE", "ALSA_CONFIG_PATH",
}

const (
	// maxTail is how much of the end of standard error is kept, and maxReason how much of that an
	// error quotes, in bytes.
	maxTail   = 4 << 10
	maxReason = 300
	// killWait is how long the output of a killed child is awaited.
	killWait = time.Second
)

// Ways in which a child ends.
var (
	// ErrStalled: it has written nothing for too long, and was killed.
	ErrStalled = errors.New("no data")
	// ErrEnded: it has ended without an error, because its source has.
	ErrEnded = errors.New("the source has ended")
)

// Child is a program to run.
type Child struct {
	Args    []string // program and arguments
	Dir     string   // working directory; default that of this process
	Input   []byte   // its standard input
	Secrets []string // what errors must not quote
	// Stall is how long it may write nothing; 0: for ever.
	Stall time.Duration
}

// Run runs the child, and passes its output to read, until it ends, stalls, read returns, or ctx
// ends; then the child is killed with its process group. The error is never nil: that of ctx,
// ErrStalled, that of read, or why the child ended.
func Run(ctx context.Context, c Child, read func(io.Reader) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	cmd := exec.CommandContext(ctx, c.Args[0], c.Args[1:]...) //nolint:gosec // the configuration names it
	cmd.Dir, cmd.WaitDelay, cmd.Env = c.Dir, killWait, environment()
	cmd.SysProcAttr = attributes()
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Stdin = bytes.NewReader(c.Input)
	said := &tail{}
	cmd.Stderr = said
	out, in, err := c.output()
	if err != nil {
		return fmt.Errorf("starting %s: %w", c.Args[0], err)
	}
	defer func() { _ = out.Close() }()
	cmd.Stdout = in
	ended := make(chan error, 1)
	started := make(chan error, 1)
	go func() {
		// The signal at this process's death is one at the death of the thread that has started the
		// child, so that thread must live as long as the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		_ = in.Close()
		if started <- err; err == nil {
			ended <- cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		if errors.Is(err, exec.ErrNotFound) {
			return fmt.Errorf("%s is not installed; install it, e.g. apt install %s", c.Args[0], c.Args[0])
		}
		return fmt.Errorf("starting %s: %w", c.Args[0], err)
	}
	// What the child has started, and it cannot be killed with, may hold the pipe open.
	defer context.AfterFunc(ctx, func() { _ = out.Close() })()
	w := newWatch(out, c.Stall, func() { cancel(fmt.Errorf("%w for %s", ErrStalled, c.Stall)) })
	readErr := read(w)
	w.stop()
	if readErr != nil && !errors.Is(readErr, io.EOF) && !errors.Is(readErr, io.ErrUnexpectedEOF) {
		cancel(readErr)
	}
	_ = out.Close() // a child that still writes gets SIGPIPE
	return c.outcome(ctx, <-ended, cmd, said)
}

// output is what the child writes to, and its other end.
func (c Child) output() (out, in *os.File, err error) {
	if c.Args[0] != Program {
		return os.Pipe() // a program may open /dev/stdout, which cannot be a socket
	}
	return deafSockets()
}

// outcome says why a child is gone.
func (c Child) outcome(ctx context.Context, err error, cmd *exec.Cmd, said *tail) error {
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what it left running
	last := c.redact(said.last())
	switch cause := context.Cause(ctx); {
	case cause != nil && last != "" && !errors.Is(cause, context.Canceled):
		return fmt.Errorf("%w; %s said: %s", cause, c.Args[0], last)
	case cause != nil:
		return cause
	case last != "":
		return fmt.Errorf("%s ended: %s", c.Args[0], last)
	case err != nil:
		return fmt.Errorf("%s ended: %w", c.Args[0], err)
	}
	return ErrEnded
}

func (c Child) redact(s string) string {
	for _, secret := range c.Secrets {
		if secret != "" {
			s = strings.ReplaceAll(s, secret, "…")
		}
	}
	return text.Cut(s, maxReason)
}

func environment() []string {
	env := []string{}
	for _, name := range Inherited {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// watch is a reader that notices when nothing comes.
type watch struct {
	r     io.Reader
	after time.Duration
	timer *time.Timer
}

func newWatch(r io.Reader, after time.Duration, stalled func()) *watch {
	w := &watch{r: r, after: after}
	if after > 0 {
		w.timer = time.AfterFunc(after, stalled)
	}
	return w
}

func (w *watch) Read(p []byte) (int, error) {
	n, err := w.r.Read(p)
	if n > 0 && w.timer != nil {
		w.timer.Reset(w.after)
	}
	return n, err
}

func (w *watch) stop() {
	if w.timer != nil {
		w.timer.Stop()
	}
}

// tail keeps the end of what is written.
type tail struct{ kept []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p[max(0, len(p)-maxTail):]...)
	t.kept = t.kept[max(0, len(t.kept)-maxTail):]
	return len(p), nil
}

// last returns the last lines in one.
func (t *tail) last() string {
	lines := strings.FieldsFunc(strings.ToValidUTF8(string(t.kept), "?"), func(r rune) bool { return r < ' ' })
	return strings.TrimSpace(strings.Join(lines[max(0, len(lines)-2):], "; "))
}
