package speech

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/services/internal/program"
	"skandha.dev/services/internal/providerapi"
	"skandha.dev/services/provider/adapter"
)

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
	out, err := program.Run(ctx, program.Program{
		Args: args, Env: program.Minimal(), Input: stdin, MaxOutput: limit, Within: s.cfg.Wait,
	})
	var start *program.StartError
	switch {
	case err == nil:
		return out.Out, nil
	case errors.As(err, &start):
		return nil, adapter.Errorf(contract.ErrUnavailable, "starting %s: %v", s.cfg.Model, err)
	case errors.Is(err, program.ErrTooMuch):
		return nil, adapter.Errorf(contract.ErrTooLong, "%s wrote more than %d bytes", s.cfg.Model, limit)
	case errors.Is(err, program.ErrTooSlow):
		return nil, adapter.Errorf(contract.ErrTimeout, "%s did not end within %s", s.cfg.Model, s.cfg.Wait)
	case ctx.Err() != nil:
		return nil, ctx.Err()
	}
	return nil, adapter.Errorf(contract.ErrInternal, "%s",
		s.api.Clean(fmt.Sprintf("%s failed: %s", s.cfg.Model, program.Reason(err, string(out.Errors)))))
}
