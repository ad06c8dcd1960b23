package shell

import (
	"context"
	"errors"
	"fmt"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/telemetry"
	"skandha.dev/services/core/decide"
)

// outcome of an attempt to commit.
type outcome int

const (
	committed outcome = iota // stored; the state is the one after it
	lost                     // another came first; the state has been refolded
	undecided                // nobody can tell now, or the log takes nothing: try again later
)

// commitWait is how long one publish of a commit waits for its acknowledgement.
const commitWait = 4 * time.Second

// commit appends a decision behind the revision it was made at (rule 2).
func (s *session) commit(d *decide.Decision) outcome {
	body, err := d.Commit.Encode()
	if err != nil {
		panic(err) // recovered by guard: a decision that cannot be encoded is a fault of decide
	}
	ctx, cancel := context.WithTimeout(s.ctx, commitWait)
	defer cancel()
	p := s.c.bus.AppendCommitAsyncContext(ctx, s.ref, body, d.Commit.Header.Prev)
	early := s.dispatchPlan(d) // rule 11: beside the commit, and stopped if the fence fails
	seq, err := p.Wait(ctx)
	if err == nil {
		s.c.stats.Commits.Add(1)
		s.adopt(d.Stored(seq), d)
		return committed
	}
	early.stop()
	switch {
	case errors.Is(err, bus.ErrFenceLost):
		s.c.stats.FenceLost.Add(1)
		if !s.load() {
			return undecided
		}
		return lost
	case errors.Is(err, bus.ErrTooLarge):
		panic(err) // decide bounds what it writes; recovered, and poison in the end
	case errors.Is(err, bus.ErrRefused):
		s.c.log.Error("the log refuses a commit; it will be tried again", "session", s.ref, "error", err)
		return undecided
	}
	return s.readBack()
}

// readBack finds out whether a commit without acknowledgement was stored. If so
// this core goes on as a stranger: it asks, and dispatches nothing (rule 7).
func (s *session) readBack() outcome {
	s.c.log.Warn("a commit was not acknowledged; reading back", "session", s.ref)
	if !s.load() {
		return undecided
	}
	return lost // refolded, and asked: if it was stored, deciding again finds nothing left to do
}

// adopt takes over the state after a commit that this core has stored, and
// dispatches what it asks for.
func (s *session) adopt(next *decide.State, d *decide.Decision) {
	before := s.state
	s.state = next
	s.follow(func(w *work) bool { return !assigned(before, w) })
	s.c.after.jobs <- stored{s.ctx, s.ref, d, next}
}

// load brings the state up to the log: from the cached state, the snapshot, or
// the beginning. False means that the bus can't be read now.
func (s *session) load() bool {
	next, err := s.c.loader.Load(s.ctx, s.ref, s.state)
	if err != nil && mismatch(err) {
		next, err = s.lock(err)
	}
	if err != nil {
		s.c.log.Warn("loading a session", "session", s.ref, "error", err)
		if errors.Is(err, decide.ErrNewer) {
			s.handBack(2 * time.Second) // to a core that knows it
		}
		return false
	}
	s.state = next
	s.looked = time.Now()
	s.follow(nil)
	return true
}

// lock ends a session whose log cannot be folded: its open inputs fail, and it
// is locked until /reset (rule 15).
func (s *session) lock(why error) (*decide.State, error) {
	s.c.log.Error("ALARM: a session's log cannot be folded; locking it", "session", s.ref, "error", why)
	s.c.stats.Mismatches.Add(1)
	w, err := s.c.loader.Survey(s.ctx, s.ref, why)
	if err != nil {
		return nil, err
	}
	d := decide.OnMismatch(w, s.env(0))
	body, err := d.Commit.Encode()
	if err != nil {
		return nil, err
	}
	if _, err := s.c.bus.AppendCommit(s.ctx, s.ref, body, w.Last); err != nil {
		return nil, fmt.Errorf("locking %s: %w", s.ref, err) // if it was stored all the same, the next load finds it
	}
	return s.c.loader.Load(s.ctx, s.ref, nil)
}

// trace makes the cause's trace context the one of what follows from it.
func (s *session) trace(m bus.StoredMsg) {
	s.ctx = telemetry.Extract(s.c.ctx, m.Header)
}
