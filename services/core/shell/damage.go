package shell

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"skandha.dev/pkg/bus"
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
	lost     uint64 // a commit known to have been stored, now missing; 0: the log itself is broken
	cause    error
}

// Error implements error.
func (d *Damage) Error() string { return d.Why }

// Unwrap returns the error of the fold.
func (d *Damage) Unwrap() error { return d.cause }

func mismatch(err error) bool {
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
			l.forget(ctx, k, "the session has since restarted from a checkpoint")
			continue
		}
		other, err := l.otherLog(ctx, k)
		if err != nil {
			return nil, err
		}
		if other {
			l.forget(ctx, k, "it belongs to another log: the stream SESSIONS was created later")
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
			Ref: best.Ref, Why: broken.Error(), Saved: best, Readable: f.state.Rev, Latest: latest, cause: broken,
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
		Ref: best.Ref, Why: why, Saved: lost, Readable: f.state.Rev, Latest: latest, lost: lost.Rev,
		cause: decide.ErrMismatch,
	}
}

// otherLog reports whether a state belongs to an earlier log than this one.
func (l *Loader) otherLog(ctx context.Context, s *decide.State) (bool, error) {
	log, err := l.Bus.LogState(ctx)
	if err != nil {
		return false, fmt.Errorf("checking whether the log of %s was replaced: %w", s.Ref, err)
	}
	return log.Created.After(s.Now.Add(clockSkew)), nil
}

// clockSkew is how far the clocks of cores and of the server may differ.
var clockSkew = 5 * time.Second

// forget deletes the snapshot of a state that the log does not hold.
func (l *Loader) forget(ctx context.Context, s *decide.State, why string) {
	l.Log.Warn("dropping a snapshot", "session", s.Ref, "revision", s.Rev, "reason", why)
	if l.Store == nil {
		return
	}
	if err := l.Store.DeleteSession(ctx,
		store.Key{Agent: string(s.Ref.Agent), Session: string(s.Ref.Session)}); err != nil {
		l.Log.Warn("dropping a snapshot; will retry", "session", s.Ref, "error", err)
	}
}

// Survey reads the log of a session that cannot be folded.
func (l *Loader) Survey(ctx context.Context, d *Damage) (decide.Wreck, error) {
	w := decide.Wreck{Ref: d.Ref, Why: d.Why, Saved: d.Saved, Latest: d.Latest}
	open := map[uint64]bool{}
	for m, err := range l.Bus.Commits(ctx, d.Ref, 0) {
		if err != nil {
			return w, fmt.Errorf("reading commits of %s: %w", d.Ref, err)
		}
		w.Last = m.Seq
		c, err := event.DecodeCommit(d.Ref, m.Data)
		if err != nil {
			continue
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
	return w, nil
}

// note tracks the open inputs. What cannot be read neither opens nor ends one.
func note(open map[uint64]bool, e event.Event) {
	_ = event.Visitor{
		Perceived: func(p event.Perceived) {
			if p.Disposition != event.EndedAtOnce {
				open[p.Sequence] = true
			}
		},
	}.Visit(e)
	delete(open, turn.EndOf(e).Sequence())
}

// doubt tracks suspected damage of a session's log. The log is read again before it
// counts as damaged: a replica may lag, and a leader may change.
type doubt struct {
	times   int
	rev     uint64        // the last commit that could be read
	base    *decide.State // the state that the log did not confirm
	next    time.Time     // earliest time to read again or to try to lock
	alarmed bool          // the alarm was raised
}

// How many reads establish the damage before the session is locked, and the pauses
// between reads: doubtPause doubles each time, up to lockPause.
const (
	sureAfter  = 4
	doubtPause = 250 * time.Millisecond
	lockPause  = 30 * time.Second
)

// suspect notes that the log seems to be damaged, and locks the session once that
// is certain. It reports whether there is a state to continue from.
func (s *session) suspect(d *Damage) bool {
	if s.state != nil { // it must not be used to decide or acknowledge anything
		s.doubt.base, s.state = s.state, nil
		s.dropWork()
	}
	now := time.Now()
	if now.Before(s.doubt.next) {
		return false
	}
	if s.doubt.rev != d.Readable {
		s.doubt.times, s.doubt.rev = 0, d.Readable
	}
	s.doubt.times++
	s.doubt.next = now.Add(min(doubtPause<<min(s.doubt.times, 10), lockPause))
	if s.doubt.times < sureAfter {
		s.c.log.Warn("a session's log seems to be damaged; reading it again", "session", s.ref, "error", d)
		return false
	}
	if err := s.lock(d); err != nil {
		s.c.log.Warn("locking a session whose log is damaged; will retry", "session", s.ref, "error", err)
		return false
	}
	return true
}

// lock locks a session whose log is damaged, until /repair or /reset, and fails its
// open inputs (rule 15).
func (s *session) lock(d *Damage) error {
	fence, err := s.c.bus.CommitFence(s.ctx, s.ref)
	if err != nil {
		return err
	}
	if fence != 0 && fence == d.lost {
		return fmt.Errorf("commit %d is in the log, though it could not be read just now", fence)
	}
	var w decide.Wreck
	s.patiently(func() { w, err = s.c.loader.Survey(s.ctx, d) })
	if err != nil {
		return err
	}
	if !s.doubt.alarmed {
		s.doubt.alarmed = true
		s.c.stats.Mismatches.Add(1)
		s.c.log.Error("ALARM: a session's log is damaged; locking the session until /repair or /reset", "session", s.ref,
			"error", d, "readable", w.Last, "fence", fence, "saved", savedAt(d), "open", len(w.Open))
	}
	dec := decide.OnMismatch(w, s.env(0))
	body, err := dec.Commit.Encode()
	if err != nil {
		return err
	}
	seq, err := s.c.bus.AppendCommit(s.ctx, s.ref, body, fence)
	if err != nil {
		return err // if it was stored nevertheless, the next load finds it
	}
	s.c.loader.forget(s.ctx, w.State(), "the session was locked; the checkpoint holds its state")
	s.adoptLock(dec.Stored(seq), dec)
	return nil
}

// adoptLock continues from a stored lock, which is published like any commit.
func (s *session) adoptLock(next *decide.State, d *decide.Decision) {
	s.state, s.looked, s.passed, s.doubt = next, time.Now(), 0, doubt{}
	s.follow(nil)
	s.c.troubles.loaded(s.ref, next)
	s.c.parked.forget(s.ref)
	s.c.live.stored(stored{s.ctx, s.ref, d, next})
}

func savedAt(d *Damage) uint64 {
	if d.Saved == nil {
		return 0
	}
	return d.Saved.Rev
}

// lostFence handles a lost fence. Normally another core committed first, and the log
// shows what it did. If the log shows nothing new, the last commit that the server
// counts is not the last that can be read.
func (s *session) lostFence(err error) outcome {
	s.c.stats.FenceLost.Add(1)
	before := s.state
	if !s.load() {
		return undecided
	}
	if s.state.Rev != before.Rev {
		return lost
	}
	var fence *bus.FenceError
	if errors.As(err, &fence) && fence.Last != before.Rev {
		s.suspect(&Damage{
			Ref: s.ref, Saved: before, Readable: before.Rev, Latest: before.Now, cause: err,
			Why: fmt.Sprintf("the server reports %d as the last commit, but the last readable commit is %d", fence.Last,
				before.Rev),
		})
	}
	return undecided
}
