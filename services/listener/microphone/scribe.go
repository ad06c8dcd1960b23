package microphone

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/providerapi"
	"skandha.dev/services/internal/text"
)

// transcribeWait is how long the transcription of one segment may take.
const transcribeWait = 2 * time.Minute

// scribe asks the transcriber.
type scribe struct {
	cfg    Config
	caller *bus.Caller
}

func newScribe(j *journal.Journal, cfg Config) (*scribe, error) {
	caller, err := j.NewCaller()
	if err != nil {
		return nil, fmt.Errorf("asking for transcriptions: %w", err)
	}
	return &scribe{cfg, caller}, nil
}

func (s *scribe) close() { _ = s.caller.Close() }

// transcribe returns what is said; empty: nothing.
func (s *scribe) transcribe(ctx context.Context, audio []byte) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, transcribeWait)
	defer cancel()
	body, err := json.Marshal(providerapi.TranscribeRequest{
		Audio: audio, MediaType: "audio/wav", Language: s.cfg.Language, Prompt: s.cfg.Prompt,
	})
	if err != nil {
		return "", err
	}
	reply, err := s.caller.RequestOrStop(ctx, subject.Service(providerapi.TranscriberName, providerapi.VerbTranscribe),
		providerapi.TranscriberName, body)
	if errors.Is(err, nats.ErrNoResponders) {
		return "", errNoTranscriber
	}
	if err != nil {
		return "", err
	}
	var t providerapi.Transcript
	if err := json.Unmarshal(reply, &t); err != nil {
		return "", fmt.Errorf("reading the transcript: %w", err)
	}
	return text.Cut(strings.TrimSpace(strings.ToValidUTF8(t.Text, "")), event.MaxTextBytes/2), nil
}

// errNoTranscriber: no provider process offers to transcribe.
var errNoTranscriber = errors.New("no provider process has a transcriber; set providers.transcriber in the configuration")

// permanent reports whether asking again does not help.
func permanent(err error) bool {
	return errors.Is(err, bus.ErrInvalidArgument) || errors.Is(err, bus.ErrTooLarge) || errors.Is(err, bus.ErrDenied)
}
