package microphone

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/ffmpeg"
	"skandha.dev/services/internal/senses"
	"skandha.dev/services/listener/capture"
	"skandha.dev/services/listener/contract"
)

// Deps are a listener's dependencies.
type Deps = capture.Deps

// Listener is a microphone.
type Listener struct {
	*capture.Recorder

	name   subject.Writer
	cfg    Config
	scribe *scribe
	now    func() time.Time
}

var _ contract.Sensing = (*Listener)(nil)

// New returns a listener and reads its password; an error names the field.
func New(name subject.Writer, cfg Config, deps Deps) (*Listener, error) {
	if _, err := subject.Parse[subject.Writer](string(name)); err != nil {
		return nil, err
	}
	if err := errors.Join(cfg.Validate(), cfg.CheckSecrets()); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	if deps.Now == nil {
		deps.Now = time.Now
	}
	l := &Listener{name: name, cfg: cfg, now: deps.Now}
	var err error
	l.Recorder, err = capture.New(name, cfg.Config, capture.Sense{
		Media: senses.MediaMicrophone, Read: l.read, Ends: cfg.Ends(), Prepare: l.prepare,
	}, deps)
	if err == nil {
		l.scribe, err = newScribe(deps.Bus, cfg)
	}
	return l, err
}

// OnStop implements [contract.Listener].
func (l *Listener) OnStop(ctx context.Context) error {
	defer l.scribe.close()
	return l.Recorder.OnStop(ctx)
}

// read reads the sound of the source.
func (l *Listener) read(ctx context.Context) error {
	child, err := l.cfg.child()
	if err != nil {
		return err
	}
	g := newGate(l.cfg.Speech, l.now())
	err = ffmpeg.Run(ctx, child, func(r io.Reader) error {
		frame := make([]byte, frameBytes)
		for {
			if _, err := io.ReadFull(r, frame); err != nil {
				return err
			}
			l.Receiving()
			if s, ok := g.hear(frame); ok {
				l.perceive(s)
			}
		}
	})
	if ctx.Err() == nil { // else it was switched off: what had not ended is not recorded
		if s, ok := g.end(); ok {
			l.perceive(s)
		}
	}
	return err
}

func (l *Listener) perceive(s segment) {
	l.Perceive(capture.Perception{
		At: s.began, Facts: map[string]any{"seconds": fmt.Sprintf("%.1f", length(s.pcm).Seconds())},
		Files: []capture.Recording{{Type: "wav", MediaType: "audio/wav", Data: wav(s.pcm)}},
	})
}

// prepare gives a segment its text.
func (l *Listener) prepare(ctx context.Context, p *capture.Perception) (bool, error) {
	began := time.Now()
	for {
		text, err := l.scribe.transcribe(ctx, p.Files[0].Data)
		switch {
		case ctx.Err() != nil:
			return false, ctx.Err()
		case err == nil && text == "":
			return false, nil
		case err == nil:
			p.Text = text
			return true, nil
		case permanent(err) || time.Since(began) >= l.cfg.Patience:
			p.Text = fmt.Sprintf("Microphone %s heard %.1f seconds of speech at %s that could not be transcribed: %s.",
				l.name, length(p.Files[0].Data).Seconds(), p.At.UTC().Format("2006-01-02 15:04:05 MST"), err)
			return true, nil
		}
		if err := l.Wait(ctx, "speech waits for a transcriber: "+err.Error()); err != nil {
			return false, err
		}
	}
}
