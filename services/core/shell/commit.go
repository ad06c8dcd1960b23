package shell

import (
	"context"
	"errors"
	"sync"
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
	undecided                // unknown for now, not attempted, or refused by the log: try again later
)

// commitWait is how long one publish of a commit waits for its acknowledgement.
const commitWait = 4 * time.Second

// commit appends a decision behind the revision it was made at (rule 2).
func (s *session) commit(d *decide.Decision) outcome {
	body, err := d.Commit.Encode()
	if err != nil {
		panic(err) // recovered by guard: a decision that cannot be encoded is a fault of decide
	}
	l := s.laneOf(d)
	if !s.enter(d, l) {
		return undecided
	}
	entered := time.Now()
	leave := sync.OnceFunc(func() { s.c.appends.leave(l, time.Since(entered)) })
	defer leave() // also when something panics
	ctx, cancel := context.WithTimeout(s.ctx, commitWait)
	defer cancel()
	p := s.c.bus.AppendCommitAsyncContext(ctx, s.ref, body, d.Commit.Header.Prev)
	early := s.dispatchPlan(d) // rule 11: beside the commit, and stopped if the fence fails
	var seq uint64
	s.patiently(func() { seq, err = p.Wait(ctx) })
	leave()
	if err == nil {
		s.c.stats.Commits.Add(1)
		s.doubt = doubt{}
		s.adopt(d.Stored(seq), d)
		s.c.dir.unclaimRest(s)
		s.queueUp() // before it looks at anything else, for others come meanwhile
		return committed
	}
	early.stop()
	switch {
	case errors.Is(err, bus.ErrFenceLost):
		return s.lostFence(err)
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
// the beginning. False means that there is none now: the bus can't be read, or the
// log is damaged and the session is not locked yet.
func (s *session) load() bool {
	if s.state == nil && time.Now().Before(s.doubt.next) {
		return false
	}
	from := s.state
	if from == nil {
		from = s.doubt.base
	}
	var next *decide.State
	var err error
	s.patiently(func() { next, err = s.c.loader.Load(s.ctx, s.ref, from) })
	var d *Damage
	if errors.As(err, &d) {
		return s.suspect(d)
	}
	if errors.Is(err, decide.ErrNewer) {
		s.newer(err)
		return false
	}
	if err != nil {
		s.c.log.Warn("loading a session", "session", s.ref, "error", err)
		return false
	}
	s.c.troubles.loaded(s.ref, next)
	s.state, s.doubt.base = next, nil
	s.looked = time.Now()
	s.follow(nil)
	return true
}

// trace makes the cause's trace context the one of what follows from it.
func (s *session) trace(m bus.StoredMsg) {
	s.ctx = telemetry.Extract(s.c.ctx, m.Header)
}
