package capture

import (
	"context"
	"time"

	"skandha.dev/services/internal/senses"
)

// The times of reading the switch.
const (
	readWait = 5 * time.Second       // for the bus to tell the switch
	lagPause = 20 * time.Millisecond // while the watch is behind it
)

// consent is what people have decided, as this process knows it, and what waits to be stored. The
// recorder's mutex guards it.
type consent struct {
	known   bool // the bus has answered
	last    senses.Position
	epoch   int    // counts the times at which it was off, or may have been
	given   bool   // perceptions are accepted
	why     string // they are not
	waiting map[*waiting]struct{}
}

func (c *consent) await(w *waiting) {
	if c.waiting == nil {
		c.waiting = map[*waiting]struct{}{}
	}
	c.waiting[w] = struct{}{}
}

// void discards what waits and is not certainly older than a time.
func (c *consent) void(at time.Time) {
	for w := range c.waiting {
		w.void = w.void || !w.until.Before(at)
	}
}

// position is what is to be done, and why.
type position struct {
	on       bool
	why      string
	revision uint64 // of the switch; 0: there is none
	epoch    int    // of the consent
	cut      bool   // off because the bus cannot be reached
}

func (r *Recorder) position(p senses.Position) position {
	epoch := r.consent.epoch
	switch {
	case p.Switched:
		return position{on: p.On, why: p.String(), revision: p.Revision, epoch: epoch}
	case r.cfg.Start == StartOff:
		return position{why: senses.StartsOff, epoch: epoch}
	}
	return position{on: true, why: "nobody has switched it off", epoch: epoch}
}

// learn takes the position of the switch, discards at once what must not be stored, and has the source
// follow.
func (r *Recorder) learn(p senses.Position, turned chan position) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := &r.consent
	same := c.known && p.Revision == c.last.Revision && p.At.Equal(c.last.At)
	missed := p.Missed && c.known
	c.known, c.last = true, p
	if same {
		return
	}
	want := r.position(p)
	switch {
	case !want.on:
		c.void(p.At)
	case missed: // it may have been off in between
		c.void(time.Time{})
	}
	if !want.on || missed { // what is perceived now, and has not ended, must not be stored, either
		c.epoch++
		c.given, c.why = false, want.why
	}
	want.epoch = c.epoch
	select {
	case <-turned: // the older position is void
	default:
	}
	turned <- want
}

// permit accepts perceptions, unless it was switched meanwhile.
func (r *Recorder) permit(p position) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.consent.given = p.epoch == r.consent.epoch
}

// Settle waits until the last switch that the bus has stored is known here, so that nothing is used that
// was perceived after it. It fails when ctx ends.
func (r *Recorder) Settle(ctx context.Context) error { return r.settle(ctx, func(error) {}) }

func (r *Recorder) settle(ctx context.Context, failed func(error)) error {
	for {
		revision, err := r.readSwitch(ctx)
		r.mu.Lock()
		knows := r.consent.known && r.consent.last.Revision == revision
		r.mu.Unlock()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			failed(err)
			pause(ctx, retryPause)
		case knows:
			return nil
		default:
			pause(ctx, lagPause)
		}
	}
}

func (r *Recorder) readSwitch(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, readWait)
	defer cancel()
	return senses.SwitchRevision(ctx, r.bus, r.name)
}

// allowed reports whether a perception may be stored. The switch that it reads is younger than the
// perception, so that any later one does not concern it.
func (r *Recorder) allowed(ctx context.Context, w *waiting) (bool, error) {
	err := r.settle(ctx, func(err error) {
		r.waits("perceptions wait until the bus says whether it was switched off: " + err.Error())
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	return !w.void, err
}

// release ends the wait of a perception.
func (r *Recorder) release(w *waiting) {
	r.mu.Lock()
	delete(r.consent.waiting, w)
	r.mu.Unlock()
	w.leave()
}
