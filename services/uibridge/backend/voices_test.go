package backend_test

import (
	"errors"
	"strings"
	"testing"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/providerapi"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/uibridge/hub"
)

// The provider process of the system has neither a transcriber nor a speaker; another process, which
// comes later, has a transcriber.
func TestSpeechIsAskedOfAProcessThatHasIt(t *testing.T) {
	r := start(t, hub.Config{})
	ctx, q := natstest.Context(t), providerapi.TranscribeRequest{Audio: []byte("x"), MediaType: "audio/wav"}
	if _, err := r.Transcribe(ctx, q); !errors.Is(err, bus.ErrNotFound) || !strings.Contains(err.Error(), "SKANDHA_TRANSCRIBER") {
		t.Errorf("the error is %v", err)
	}
	if _, err := r.Speak(ctx, providerapi.SpeakRequest{Text: "hi"}); !errors.Is(err, bus.ErrNotFound) {
		t.Errorf("the error is %v", err)
	}
	other := natstest.Join(t, r.sys, "test")
	there, err := other.Respond(subject.Service(providerapi.TranscriberName, providerapi.VerbTranscribe), providerapi.TranscriberName,
		providerapi.TranscriberName, func(q *bus.Request) {
			coreapi.Answer(q, func(*bus.Request) (any, error) { return providerapi.Transcript{Text: "hello", Model: "a/b"}, nil })
		})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(there.Stop)
	if err := other.Conn().Flush(); err != nil {
		t.Fatal(err)
	}
	if got, err := r.Transcribe(ctx, q); err != nil || got.Text != "hello" {
		t.Errorf("%+v, %v", got, err)
	}
}
