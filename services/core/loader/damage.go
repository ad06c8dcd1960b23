package loader

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/internal/store"
	"skandha.dev/services/internal/turn"
)

// Damage reports that a session's log cannot be folded to its end, or lacks commits
// that it once held.
type Damage struct {
	Ref   subject.Ref
	Why   string
	Saved *decide.State // the latest state that verifies; nil: none

	// Readable is the last commit that can be folded. Latest is the time of the
	// latest known commit.
	Readable uint64
	Latest   time.Time
	Lost     uint64 // a commit known to have been stored, now missing; 0: the log itself is broken
	Cause    error  // the error of the fold
}

// Error implements error.
func (d *Damage) Error() string { return d.Why }

// Unwrap returns the error of the fold.
func (d *Damage) Unwrap() error { return d.Cause }

// Mismatch reports whether an error of a fold is due to the commits, and not to reading
// them.
func Mismatch(err error) bool {
	return errors.Is(err, decide.ErrMismatch) || errors.Is(err, event.ErrMalformed)
}

// compare checks a fold of the whole log against known states that did not fit it. Such
// a state may belong to another log, or be older than a checkpoint that the session
// restarted from. Otherwise the log has lost commits up to it.
func (l *Loader) compare(ctx context.Context, f folded, broken error, known []*decide.State) (*decide.State, error) {
	best := f.state
	latest := best.Now
	var lost *decide.State
	for _, k := range known {
		if !k.Now.After(f.anew) {
			l.Forget(ctx, k, "the session has since restarted from a checkpoint")
			continue
		}
		other, err := l.otherLog(ctx, k)
		if err != nil {
			return nil, err
		}
		if other {
			l.Forget(ctx, k, "it belongs to another log: the stream SESSIONS was created later")
			continue
		}
		if k.Now.After(latest) {
			latest = k.Now
		}
		if lost == nil || k.Rev > lost.Rev {
			lost = k
		}
	}
	switch {
	case broken != nil:
		if lost != nil && lost.Rev > best.Rev {
			best = lost
		}
		return nil, &Damage{
			Ref: best.Ref, Why: broken.Error(), Saved: best, Readable: f.state.Rev, Latest: latest, Cause: broken,
		}
	case lost == nil:
		return f.state, nil
	}
	why := fmt.Sprintf("commit %d was stored at %s and is not in the log any more, which ends at %d",
		lost.Rev, lost.Now.Format(time.RFC3339), f.state.Rev)
	if lost.Rev <= f.state.Rev {
		why = fmt.Sprintf("commit %d, stored at %s, is not in the log any more, which continued without it", lost.Rev,
			lost.Now.Format(time.RFC3339))
	}
	return nil, &Damage{
		Ref: best.Ref, Why: why, Saved: lost, Readable: f.state.Rev, Latest: latest, Lost: lost.Rev,
		Cause: decide.ErrMismatch,
	}
}

// otherLog reports whether a state belongs to an earlier log than this one.
func (l *Loader) otherLog(ctx context.Context, s *decide.State) (bool, error) {
	log, err := l.Bus.LogState(ctx)
	if err != nil {
		return false, fmt.Errorf("checking whether the log of %s was replaced: %w", s.Ref, err)
	}
	return log.Replaced(s.Now, ClockSkew), nil
}

// ClockSkew is how far the clocks of cores and of the server may differ. Only tests
// change it.
var ClockSkew = 5 * time.Second

// Forget deletes the snapshot of a state that the log does not hold.
func (l *Loader) Forget(ctx context.Context, s *decide.State, why string) {
	l.Log.Warn("dropping a snapshot", "session", s.Ref, "revision", s.Rev, "reason", why)
	if l.Store == nil {
		return
	}
	if err := l.Store.DeleteSession(ctx, store.KeyOf(s.Ref)); err != nil {
		l.Log.Warn("dropping a snapshot; will retry", "session", s.Ref, "error", err)
	}
}

// Survey reads the log of a session that cannot be folded.
func (l *Loader) Survey(ctx context.Context, d *Damage) (decide.Wreck, error) {
	w := decide.Wreck{Ref: d.Ref, Why: d.Why, Saved: d.Saved, Latest: d.Latest}
	open := map[uint64]subject.Writer{}
	for m, err := range l.Bus.Commits(ctx, d.Ref, 0) {
		if err != nil {
			return w, fmt.Errorf("reading commits of %s: %w", d.Ref, err)
		}
		w.Last = m.Seq
		c, err := event.DecodeCommit(d.Ref, m.Data)
		if err != nil {
			continue
		}
		if decide.IsCheckpoint(c) { // what was open before it may have ended in a commit that has left the log
			clear(open)
		}
		w.Cursor = max(w.Cursor, min(c.Header.Cursor, m.Seq)) // a commit cannot have processed later causes
		for i := range c.Events {
			note(open, c.Events[i])
		}
	}
	for seq := range open {
		w.Open = append(w.Open, seq)
	}
	slices.Sort(w.Open)
	w.Writers = open
	return w, nil
}

// note tracks the open inputs. What cannot be read neither opens nor ends one.
func note(open map[uint64]subject.Writer, e event.Event) {
	_ = event.Visitor{
		Perceived: func(p event.Perceived) {
			if p.Disposition != event.EndedAtOnce {
				open[p.Sequence] = p.Writer
			}
		},
	}.Visit(e)
	delete(open, turn.EndOf(e).Sequence())
}
