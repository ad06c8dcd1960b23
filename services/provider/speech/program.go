package speech

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/services/internal/providerapi"
	"skandha.dev/services/provider/adapter"
)

const (
	killWait  = time.Second // for the output of a program that was killed
	maxReason = 4 << 10     // bytes of a program's messages
)

// inherited are the variables of this process that a program gets; others may be secrets.
var inherited = []string{"PATH", "HOME", "LANG"}

// recognise runs the program on a recording.
func (s *source) recognise(ctx context.Context, audio []byte, name string) (text string, err error) {
	args, stdin := s.cfg.Command, audio
	if strings.Contains(strings.Join(args, "\n"), FilePlaceholder) {
		dir, err := os.MkdirTemp("", "skandha-speech-") // for this user alone
		if err != nil {
			return "", adapter.Errorf(contract.ErrUnavailable, "storing the audio: %v", err)
		}
		defer func() { _ = os.RemoveAll(dir) }()
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, audio, 0o600); err != nil {
			return "", adapter.Errorf(contract.ErrUnavailable, "storing the audio: %v", err)
		}
		args, stdin = replaced(args, FilePlaceholder, file), nil
	}
	out, err := s.run(ctx, args, stdin, providerapi.MaxTranscriptBytes)
	return string(out), err
}

// synthesise runs the program on a text.
func (s *source) synthesise(ctx context.Context, text, voice string) ([]byte, error) {
	return s.run(ctx, replaced(s.cfg.Command, VoicePlaceholder, voice), []byte(text), providerapi.MaxAudioBytes)
}

func replaced(args []string, placeholder, value string) []string {
	out := make([]string, len(args))
	for i, a := range args {
		out[i] = strings.ReplaceAll(a, placeholder, value)
	}
	return out
}

// run starts the program, and returns what it writes.
func (s *source) run(ctx context.Context, args []string, stdin []byte, limit int) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.cfg.Wait, errTooSlow)
	defer cancel()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...) //nolint:gosec // the configuration names it
	cmd.WaitDelay, cmd.Env = killWait, []string{}
	for _, name := range inherited {
		if v, ok := os.LookupEnv(name); ok {
			cmd.Env = append(cmd.Env, name+"="+v)
		}
	}
	if stdin != nil {
		cmd.Stdin = bytes.NewReader(stdin)
	}
	over := func() {}
	out, said := &output{limit: limit, full: func() { over() }}, &output{limit: maxReason}
	cmd.Stdout, cmd.Stderr = out, said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return killGroup(cmd) }
	over = cancel // what it writes after that is of no use
	if err := cmd.Start(); err != nil {
		return nil, adapter.Errorf(contract.ErrUnavailable, "starting %s: %v", s.cfg.Model, err)
	}
	err := cmd.Wait()
	_ = killGroup(cmd) // what it left running
	switch {
	case out.over:
		return nil, adapter.Errorf(contract.ErrTooLong, "%s wrote more than %d bytes", s.cfg.Model, limit)
	case errors.Is(context.Cause(ctx), errTooSlow):
		return nil, adapter.Errorf(contract.ErrTimeout, "%s did not end within %s", s.cfg.Model, s.cfg.Wait)
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, adapter.Errorf(contract.ErrInternal, "%s", s.api.Clean(fmt.Sprintf("%s failed: %v: %s", s.cfg.Model, err, said.kept)))
	}
	return out.kept, nil
}

var errTooSlow = errors.New("the program takes too long")

func killGroup(cmd *exec.Cmd) error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }

// output keeps the first bytes that are written, takes the rest, and calls full when there is more.
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
