package peers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// Engine is a program to measure.
type Engine struct {
	Name string
	Argv []string
	Dir  string // its working directory, where it stores everything
}

const (
	patience = 5 * time.Minute  // for one answer
	parting  = 20 * time.Second // for an engine and its servers to end
)

// running is an engine's program.
type running struct {
	Engine
	Hello
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	answers *json.Decoder
	stderr  bytes.Buffer
}

func start(ctx context.Context, e Engine) (*running, error) {
	// The end of its input ends it, so that it can end its servers; a signal would not.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), e.Argv[0], e.Argv[1:]...) //nolint:gosec // the caller's
	r := &running{Engine: e, cmd: cmd}
	cmd.Dir, cmd.Stderr = e.Dir, &r.stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for us alone
	var err error
	if r.stdin, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	r.answers = json.NewDecoder(out)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	if err := r.receive(ctx, &r.Hello); err != nil {
		r.stop()
		return nil, fmt.Errorf("%s did not start: %w", e.Name, r.explain(err))
	}
	return r, nil
}

// receive decodes the next line, or fails when the program takes too long.
func (r *running) receive(ctx context.Context, v any) error {
	type line struct {
		json json.RawMessage
		err  error
	}
	got := make(chan line, 1)
	go func() {
		var l line
		l.err = r.answers.Decode(&l.json)
		got <- l
	}()
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case l := <-got:
		if l.err != nil {
			return l.err
		}
		return json.Unmarshal(l.json, v)
	case <-ctx.Done():
		return ctx.Err()
	case <-late.C:
		return fmt.Errorf("no answer in %s", patience)
	}
}

// explain adds the end of what the program has written to standard error. It must have ended.
func (r *running) explain(err error) error {
	said := strings.TrimSpace(r.stderr.String())
	if said == "" {
		return err
	}
	return fmt.Errorf("%w: %s", err, said[max(0, len(said)-500):])
}

// ask has turns run.
func (r *running) ask(ctx context.Context, req Request) (Answer, error) {
	var a Answer
	err := json.NewEncoder(r.stdin).Encode(req)
	if err == nil {
		err = r.receive(ctx, &a)
	}
	if err == nil && a.Error != "" {
		err = errors.New(a.Error)
	}
	if err == nil && len(a.Took) != req.Sessions*req.Turns {
		err = fmt.Errorf("asked for %d turns, got %d", req.Sessions*req.Turns, len(a.Took))
	}
	if err != nil {
		return a, fmt.Errorf("%s: %w", r.Name, err)
	}
	return a, nil
}

// stop ends the program, whose servers end with it; if it takes too long, all of them are killed.
func (r *running) stop() {
	_ = r.stdin.Close() // it may be gone
	late := time.AfterFunc(parting, r.kill)
	defer late.Stop()
	_ = r.cmd.Wait() // nothing more is asked of it
}

// kill ends the program's process group.
func (r *running) kill() { _ = syscall.Kill(-r.cmd.Process.Pid, syscall.SIGKILL) }
