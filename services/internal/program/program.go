package program

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// KillWait is how long the output of a program that has ended or was killed is awaited: what it has started
// may hold it open.
const KillWait = time.Second

// MaxErrors is how many bytes of standard error are kept.
const MaxErrors = 4 << 10

// Ways in which a program ends that are not its own.
var (
	// ErrTooSlow: it took longer than Within, and was killed.
	ErrTooSlow = errors.New("the program takes too long")
	// ErrTooMuch: it wrote more than MaxOutput, and was killed.
	ErrTooMuch = errors.New("the program writes too much")
)

// StartError is the error of a program that did not start.
type StartError struct{ Err error }

// Error implements the error interface.
func (e *StartError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *StartError) Unwrap() error { return e.Err }

// Program is a program to run.
type Program struct {
	Args      []string      // program and arguments
	Dir       string        // working directory; default that of this process
	Env       []string      // all of its variables; see [Minimal]
	Input     []byte        // its standard input; nil: none
	MaxOutput int           // of standard output, in bytes
	Within    time.Duration // 0: until ctx ends
}

// Output is what a program has written.
type Output struct {
	Out    []byte
	Errors []byte // the first [MaxErrors] bytes of standard error
}

// Run runs the program to its end. The error is a [*StartError], [ErrTooSlow], [ErrTooMuch], that of ctx, or
// one of [exec.Cmd.Wait]; the output has what was written until then.
func Run(ctx context.Context, p Program) (Output, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if p.Within > 0 {
		defer time.AfterFunc(p.Within, func() { cancel(ErrTooSlow) }).Stop()
	}
	cmd := exec.CommandContext(ctx, p.Args[0], p.Args[1:]...) //nolint:gosec // the configuration names it
	f := newFamily()
	cmd.Dir, cmd.WaitDelay, cmd.Env = p.Dir, KillWait, append([]string{}, p.Env...) // not nil, which would mean all of ours
	f.mark(cmd)
	if p.Input != nil {
		cmd.Stdin = bytes.NewReader(p.Input)
	}
	out, errs := &output{limit: p.MaxOutput, full: func() { cancel(ErrTooMuch) }}, &output{limit: MaxErrors}
	cmd.Stdout, cmd.Stderr = out, errs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return killGroup(cmd) }
	if err := f.start(cmd); err != nil {
		return Output{}, &StartError{err}
	}
	err := cmd.Wait()
	_ = killGroup(cmd) // what it left running
	f.end(cmd)
	if out.over {
		err = ErrTooMuch
	} else if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	return Output{out.kept, errs.kept}, err
}

func killGroup(cmd *exec.Cmd) error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }

// Minimal is an environment without secrets: PATH, HOME and LANG of this process.
func Minimal() []string {
	env := []string{}
	for _, name := range []string{"PATH", "HOME", "LANG"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// Reason joins why a program failed and what it said; the latter may be empty.
func Reason(err error, said string) string {
	if said = strings.TrimSpace(said); said != "" {
		return fmt.Sprintf("%v: %s", err, said)
	}
	return err.Error()
}

// output keeps the first bytes that are written, takes the rest, and calls full when there is more. (A
// [bytes.Buffer] would take all by its ReadFrom.)
type output struct {
	kept  []byte
	limit int
	over  bool
	full  func()
}

// Write implements [io.Writer].
func (o *output) Write(p []byte) (int, error) {
	room := o.limit - len(o.kept)
	if len(p) > room && !o.over {
		o.over = true
		if o.full != nil {
			o.full()
		}
	}
	o.kept = append(o.kept, p[:min(len(p), room)]...)
	return len(p), nil
}
