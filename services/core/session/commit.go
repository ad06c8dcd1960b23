package session

import (
	"context"
	"errors"
	"sync"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/core/loader"
)

// outcome of an attempt to commit.
type outcome int

const (
	committed outcome = iota // stored; the state includes it
	lost                     // another commit came first, or this one is unacknowledged; refolded
	undecided                // not attempted, refused, or not known to be stored; a later tick decides again
)

// commitWait is how long one publish of a commit waits for its acknowledgement.
const commitWait = 4 * time.Second

// commit appends a decision after the revision that it was made at (rule 2).
func (s *session) commit(d *decide.Decision) outcome {
	body, err := d.Commit.Encode()
	if err != nil {
		panic(err) // recovered by guard: a decision that cannot be encoded is a bug in decide
	}
	l := s.laneOf(d)
	if !s.enter(d, l) {
		return undecided
	}
	entered := time.Now()
	leave := sync.OnceFunc(func() { s.set.appends.leave(l, time.Since(entered)) })
	defer leave() // also after a panic
	ctx, cancel := context.WithTimeout(s.ctx, commitWait)
	defer cancel()
	outgoing := d.Outgoing || s.Outbox.Wants(d.Commit)
	if outgoing {
		if err := s.Outbox.Ensure(ctx); err != nil {
			s.Log.WarnContext(s.ctx, "a commit has to be delivered, and the outbox is not available; will retry", "session", s.ref,
				"error", err)
			return undecided
		}
	}
	p := s.Bus.AppendCommitAsync(ctx, s.ref, body, d.Commit.Header.Prev, outgoing)
	early := s.dispatchPlan(d) // rule 11: sent with the commit, and stopped if the fence fails
	var seq uint64
	s.patiently(func() { seq, err = p.Wait(ctx) })
	leave()
	if err == nil {
		s.set.stats.Commits.Add(1)
		s.doubt = doubt{}
		s.verified = entered // the fence has compared the state with the log
		s.adopt(d.Stored(seq), d)
		s.Directory.UnclaimRest(s.claimant)
		s.queueUp() // first of all, because other sessions queue up meanwhile
		return committed
	}
	early.stop()
	switch {
	case errors.Is(err, bus.ErrFenceLost):
		return s.lostFence(err)
	case errors.Is(err, bus.ErrTooLarge):
		panic(err) // decide bounds its commits; guard recovers, and the cause ends as poison
	case errors.Is(err, bus.ErrRefused):
		s.Log.ErrorContext(s.ctx, "the log refused a commit; will retry", "session", s.ref, "error", err)
		return undecided
	}
	return s.readBack()
}

// readBack finds out whether an unacknowledged commit was stored. If so, this core
// asks about the commit's attempts and dispatches none of them (rule 7).
func (s *session) readBack() outcome {
	s.set.warn("a commit was not acknowledged; reading back", "session", s.ref)
	if !s.load() {
		return undecided
	}
	return lost // refolded: if it was stored, deciding again finds nothing left to do
}

// adopt takes the state after a commit that this core has stored, and dispatches
// what the commit asks for.
func (s *session) adopt(next *decide.State, d *decide.Decision) {
	before := s.state
	s.state = next
	if before.Damage != nil { // /repair or /reset has opened the session
		s.Troubles.Loaded(s.ref, next)
	}
	s.follow(s.current(before))
	s.counts(d.Commit.Header.Trigger)
	s.Live.Stored(s.ctx, s.ref, d, next)
	if s.Traces != nil {
		s.Traces.Stored(s.ref, d.Commit, next.Rev, next.Turn == nil && len(next.Queue) == 0)
	}
}

// load brings the state up to date with the log, from the cached state, the snapshot
// or the first commit. It returns false if there is no state now: the log cannot be
// read, is damaged and not locked yet, or was written by a newer core. It does not try
// more often than every [loadPause] while it fails.
func (s *session) load() bool {
	if s.state == nil && time.Now().Before(s.doubt.next) {
		return false
	}
	if s.ctx.Err() != nil || time.Since(s.failed) < loadPause {
		return false
	}
	began := time.Now()
	from := s.state
	if from == nil {
		from = s.doubt.base
	}
	var next *decide.State
	var err error
	s.patiently(func() { next, err = s.Loader.Load(s.ctx, s.ref, from) })
	if d, ok := errors.AsType[*loader.Damage](err); ok {
		return s.suspect(d)
	}
	if errors.Is(err, decide.ErrNewer) {
		return s.newer(err)
	}
	if err != nil {
		s.failed = time.Now()
		s.set.warn("loading a session", "session", s.ref, "error", err)
		return false
	}
	s.Troubles.Loaded(s.ref, next)
	s.state, s.doubt.base = next, nil
	s.looked, s.verified, s.failed = time.Now(), began, time.Time{}
	s.follow(nil)
	return true
}
