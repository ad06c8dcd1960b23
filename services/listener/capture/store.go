package capture

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/provider"
	"skandha.dev/services/listener/contract"
)

// Perception is what will be one input.
type Perception struct {
	ID    string // default: a random one
	At    time.Time
	Text  string
	Facts map[string]any // what text_template can use, beside listener and time
	Files []Recording
}

// Recording is a file of a perception.
type Recording struct {
	Type      string // the end of its name, e.g. jpg
	MediaType string
	Data      []byte
}

// waiting is a perception that waits to be stored.
type waiting struct {
	Perception
	leave func()
	until time.Time // nothing in it is younger
	void  bool      // it was switched off before that; guarded by the recorder's mutex
}

// run stores perceptions until ctx ends.
func (r *Recorder) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			r.drop()
			return
		case w := <-r.queue:
			err := r.take(ctx, w)
			r.release(w)
			if err == nil {
				r.store.Set(contract.StateOK, "")
			}
		}
	}
}

// drop gives up what waits.
func (r *Recorder) drop() {
	for {
		select {
		case w := <-r.queue:
			r.release(w)
		default:
			return
		}
	}
}

// take stores a perception, however long it takes. It fails only when ctx ends.
func (r *Recorder) take(ctx context.Context, w *waiting) error {
	p := w.Perception
	allowed, err := r.allowed(ctx, w)
	if err != nil {
		return err
	}
	if !allowed {
		r.stats.Off.Add(1)
		r.log.Info("a perception was discarded: it is not older than the switch", "at", p.At)
		return nil
	}
	if r.sense.Prepare != nil {
		ok, err := r.sense.Prepare(ctx, &p)
		if err != nil {
			return err
		}
		if !ok {
			r.stats.Nothing.Add(1)
			return nil
		}
	}
	source := r.sense.Media + ":" + string(r.name)
	in := contract.Input{
		Agent: r.Ref().Agent, Session: r.Ref().Session, Text: r.words(p), ID: p.ID, Source: source, Origin: event.Origin(source),
		Mode: r.cfg.Mode,
	}
	for i, f := range p.Files {
		file, err := r.record(ctx, p, i, f)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			r.stats.Unstored.Add(1)
			in.Text += fmt.Sprintf(" (A recording could not be stored: %s.)", strings.TrimSuffix(err.Error(), "."))
			continue
		}
		in.Files = append(in.Files, file)
	}
	return r.emit(ctx, in)
}

// words is the text of an input.
func (r *Recorder) words(p Perception) string {
	if r.text == nil {
		return p.Text
	}
	facts := map[string]any{"listener": string(r.name), "time": p.At.UTC().Format(time.RFC3339), "text": p.Text}
	maps.Copy(facts, p.Facts)
	out, err := r.text.Text(facts, event.MaxTextBytes/2)
	if err != nil || strings.TrimSpace(out) == "" {
		r.log.Warn("text_template cannot be applied; the usual text is used", "error", err)
		return p.Text
	}
	return strings.ToValidUTF8(out, "")
}

// record stores a file; while the bus is away it waits.
func (r *Recorder) record(ctx context.Context, p Perception, i int, f Recording) (provider.File, error) {
	name := r.kept.name(p, i, f.Type)
	file := provider.File{
		Ref: r.Ref().String() + "/uploads/" + name, Name: name, MediaType: f.MediaType, Bytes: int64(len(f.Data)),
	}
	for {
		err := r.bus.PutArtifact(ctx, file.Ref, f.Data)
		switch {
		case err == nil:
			r.kept.add(file.Ref, r.now())
			return file, nil
		case ctx.Err() != nil, !bus.Retryable(err):
			return file, err
		}
		r.waits("recordings wait: " + err.Error())
		pause(ctx, retryPause)
	}
}

func (r *Recorder) emit(ctx context.Context, in contract.Input) error {
	for {
		_, err := r.emitter.EmitInput(ctx, in)
		switch {
		case err == nil:
			r.stats.Perceived.Add(1)
			return nil
		case errors.Is(err, contract.ErrInvalid):
			r.stats.Invalid.Add(1)
			r.log.Error("an input was dropped", "id", in.ID, "error", err)
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		}
		r.waits("inputs wait: " + contract.Outage(err))
		pause(ctx, retryPause)
	}
}

// Wait reports why perceptions wait, and lets some time pass. It fails when ctx ends.
func (r *Recorder) Wait(ctx context.Context, reason string) error {
	r.waits(reason)
	pause(ctx, retryPause)
	return ctx.Err()
}

func (r *Recorder) waits(reason string) {
	if n := r.stats.Full.Load(); n > 0 {
		reason += fmt.Sprintf("; %d were dropped since the start", n)
	}
	if r.store.Set(contract.StateDegraded, reason) {
		r.log.Warn("perceptions wait; retrying", "reason", reason)
	}
}
