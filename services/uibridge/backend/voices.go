package backend

import (
	"context"
	"errors"

	"skandha.dev/pkg/bus"
	"skandha.dev/services/internal/providerapi"
)

// Transcribe asks the provider service for the text of speech. The error is that of the bus:
// [bus.ErrNotFound] if no transcriber is configured.
func (b *Backend) Transcribe(
	ctx context.Context, q providerapi.TranscribeRequest,
) (out providerapi.Transcript, err error) {
	return out, b.askVoice(ctx, providerapi.TranscriberName, providerapi.VerbTranscribe, q, &out)
}

// Speak asks the provider service for a text as speech. The error is that of the bus:
// [bus.ErrNotFound] if no speaker is configured.
func (b *Backend) Speak(ctx context.Context, q providerapi.SpeakRequest) (out providerapi.Speech, err error) {
	return out, b.askVoice(ctx, providerapi.SpeakerName, providerapi.VerbSpeak, q, &out)
}

// askVoice asks a provider process that has a transcriber or a speaker, which stops if ctx is cancelled. If none answers, any process
// without one says so.
func (b *Backend) askVoice(ctx context.Context, name, verb string, question, answer any) error {
	err := b.client.AskOrStop(ctx, name, verb, question, answer)
	if !errors.Is(err, bus.ErrUnavailable) {
		return err
	}
	if e := b.client.AskService(ctx, name, providerapi.VerbAbsent, nil, nil); errors.Is(e, bus.ErrNotFound) {
		return e
	}
	return err
}
