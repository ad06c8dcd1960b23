package main

import (
	"context"
	"errors"
	"os"

	"skandha.dev/pkg/bus"
	contract "skandha.dev/pkg/provider"
	"skandha.dev/services/internal/providerapi"
	"skandha.dev/services/provider"
)

// voiceFindings report what turns speech into text, and text into speech: of the running system, or
// of one that this configuration would start.
func (g *globals) voiceFindings(ctx context.Context) []finding {
	none := map[string]finding{
		providerapi.TranscriberName: {what: "transcriber: none, so the page's microphone is of no use", advice: provider.TranscriberHint},
		providerapi.SpeakerName:     {what: "speaker: none, the page speaks with the browser's voice", advice: provider.SpeakerHint},
	}
	if g.running() {
		return []finding{
			g.runningVoice(ctx, providerapi.TranscriberName, none), g.runningVoice(ctx, providerapi.SpeakerName, none),
		}
	}
	cfg := provider.Config{
		Provider: g.Provider, BaseURL: g.BaseURL, Transcriber: g.Transcriber, Speaker: g.Speaker,
	}
	var err error
	if cfg.Settings, err = provider.ReadSettings(g.Config); err != nil {
		return []finding{{what: "transcriber and speaker", advice: "see the configuration"}}
	}
	var out []finding
	hears, why, err := provider.SelectTranscriber(cfg, os.Getenv)
	switch {
	case err == nil && hears == nil:
		out = append(out, none[providerapi.TranscriberName])
	default:
		out = append(out, voiceFinding(ctx, providerapi.TranscriberName, hears, why, err))
	}
	speaks, why, err := provider.SelectSpeaker(cfg, os.Getenv)
	switch {
	case err == nil && speaks == nil:
		out = append(out, none[providerapi.SpeakerName])
	default:
		out = append(out, voiceFinding(ctx, providerapi.SpeakerName, speaks, why, err))
	}
	return out
}

func voiceFinding(ctx context.Context, name string, m interface {
	Info() contract.Info
	Check(ctx context.Context) error
}, why string, err error,
) finding {
	if err != nil {
		return finding{need: true, what: name, advice: err.Error()}
	}
	f := finding{ok: true, what: name + ": " + m.Info().Name + "/" + m.Info().Model, advice: why}
	ctx, cancel := context.WithTimeout(ctx, embedderWait)
	defer cancel()
	if err := m.Check(ctx); err != nil {
		f.ok, f.advice = false, err.Error()
	}
	return f
}

func (g *globals) runningVoice(ctx context.Context, name string, none map[string]finding) finding {
	ctx, cancel := context.WithTimeout(ctx, embedderWait)
	defer cancel()
	var m providerapi.SpeechModel
	c, err := g.connectRunning(ctx)
	if err == nil {
		defer c.close()
		err = c.AskService(ctx, name, providerapi.VerbStatus, nil, &m)
		if errors.Is(err, bus.ErrUnavailable) {
			err = c.AskService(ctx, name, providerapi.VerbAbsent, nil, &m)
		}
	}
	switch {
	case errors.Is(err, bus.ErrNotFound):
		return none[name]
	case err != nil:
		return finding{what: name + ": no provider process answers", advice: err.Error()}
	}
	return finding{
		ok: m.Breaker.State == providerapi.Closed, what: name + ": " + line(m.Model, 100), advice: line(m.Breaker.Reason, 300),
	}
}
