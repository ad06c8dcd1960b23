package session

import (
	"context"
	"fmt"
	"slices"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/decide"
)

// panicsAt is how many panics of this core, while it decides one cause, end the cause as
// poison (rule 13).
const panicsAt = 3

// patienceWithOthers is how long a core leaves a cause to another one that has begun to
// decide it and lives, but stalls.
const patienceWithOthers = 10 * time.Second

// mark is what the session is about to decide, alone and with a mark in the log.
type mark struct {
	seq   uint64        // 0: nothing
	what  []string      // see held.survived
	alone chan struct{} // the admission; nil: none
}

// trusts reports whether no other process can have died of deciding seq: it was delivered
// here for the first time, or this core has decided it, or its turn, and lives.
func (s *session) trusts(seq uint64) bool {
	if h := s.held[seq]; h != nil {
		return h.fresh
	}
	return seq > s.set.base.Load() // its delivery is on the way, or at another core
}

// begin checks whether this core may decide seq at the delivery h. What another process
// may have died of is marked in the log as begun, and is decided alone. The mark is removed
// by what is decided, or by endMark. Deliveries prove nothing: a restarting bus, a full
// disk, a stalled core or one that was stopped causes them, too.
//
// poison means that deciding has failed too often. ok is false if the result is unknown
// for now; the delivery must be retried.
func (s *session) begin(seq uint64, h *held, what string) (poison, ok bool) {
	switch {
	case s.panics(seq) >= panicsAt:
		return true, true
	case s.mark.seq == seq:
		s.mark.what = append(s.mark.what, what)
		return false, true
	case s.trusts(seq), h.survived[what]:
		return false, true
	}
	s.endMark()
	for range maxDecisions {
		marks := s.state.BegunBy(seq)
		switch {
		case s.state.Poisonous(seq, s.ended):
			return true, true
		case s.othersBegan(marks) && time.Since(h.since) < patienceWithOthers, !s.alone(len(marks)):
			return false, false
		case slices.Contains(marks, s.Bus.Instance()):
			s.mark.seq, s.mark.what = seq, []string{what}
			return false, true
		}
		switch s.commit(decide.OnBegin(s.state, h.Seq, seq, s.Bus.Instance(), s.env(h.NumDelivered))) {
		case committed:
			s.mark.seq, s.mark.what = seq, []string{what}
			return false, true
		case undecided:
			return false, false
		case lost:
			if s.state == nil {
				return false, false
			}
			if s.state.Driver != seq && max(s.state.Cursor, s.passed) >= seq {
				return false, true // decided by another core
			}
		}
	}
	return false, false
}

// ended reports whether a core has certainly ended, or stalls so long that it counts as
// dead.
func (s *session) ended(core subject.Instance) bool {
	return core != s.Bus.Instance() && !s.Directory.Lives(core)
}

func (s *session) othersBegan(marks []subject.Instance) bool {
	return slices.ContainsFunc(marks, func(core subject.Instance) bool {
		return core != s.Bus.Instance() && s.Directory.Lives(core)
	})
}

// endMark removes the mark of this core if nothing was decided, and lets the next suspect
// be decided.
func (s *session) endMark() {
	m := s.mark
	s.mark = mark{}
	if m.alone != nil {
		defer s.set.suspects.leave(m.alone)
	}
	if m.seq == 0 || s.state == nil {
		return
	}
	h := s.held[m.seq]
	if !slices.Contains(s.state.BegunBy(m.seq), s.Bus.Instance()) {
		if h != nil {
			h.fresh = true
		}
		return
	}
	if h != nil {
		if h.survived == nil {
			h.survived = map[string]bool{}
		}
		for _, what := range m.what {
			h.survived[what] = true
		}
	}
	s.withdraw(m.seq)
}

// withdraw removes the mark of this core from seq. If it fails, the mark counts only if
// this process dies before the cause or the turn goes on.
func (s *session) withdraw(seq uint64) {
	ctx := s.ctx
	s.ctx = context.WithoutCancel(ctx) // also while this core stops
	defer func() { s.ctx = ctx }()
	for range 3 {
		if s.state == nil || !slices.Contains(s.state.BegunBy(seq), s.Bus.Instance()) {
			return
		}
		if s.commit(decide.OnSurvived(s.state, seq, seq, s.Bus.Instance(), s.env(s.state.Delivery))) != lost {
			return
		}
	}
}

// withdrawAll removes the marks of this core, which hands its deliveries back.
func (s *session) withdrawAll() {
	if s.state == nil {
		return
	}
	for _, b := range []*decide.Begun{s.state.Begun, s.state.Driven} {
		if b != nil {
			s.withdraw(b.Sequence)
		}
	}
}

// deciding runs f, which decides seq. guard recovers a panic and counts it against
// seq.
func (s *session) deciding(seq uint64, f func() bool) bool {
	before := s.about
	s.about = seq
	ok := f()
	s.about = before
	return ok
}

// endPoison ends the cause m without parsing it.
func (s *session) endPoison(m bus.StoredMsg, h *held) bool {
	why := s.failures(m.Seq, "decided about it")
	s.Log.ErrorContext(s.ctx, "poison", "session", s.ref, "cause", m.Seq, "reason", why)
	if fresh, ok := s.fresh(m.Seq); !ok || !fresh && s.state.Cursor >= m.Seq {
		return ok
	}
	c := decide.Cause{Sequence: m.Seq, Time: m.Time}
	if at, err := subject.ParseCause(m.Subject); err == nil {
		c.Kind, c.Writer = at.Kind, at.Writer
	}
	d := decide.OnPoison(s.state, h.Seq, c, why, s.env(h.NumDelivered))
	if d == nil || s.commit(d) != committed {
		return false
	}
	s.set.stats.Poison.Add(1)
	s.set.panics.Remove(panicKey{s.ref, m.Seq})
	s.set.deadLetter(s.ctx, s.ref, m, why)
	return true
}

// failures describes how often deciding about seq has failed.
func (s *session) failures(seq uint64, doing string) string {
	if n := s.panics(seq); n >= panicsAt {
		return fmt.Sprintf("core panicked %d times while it %s", n, doing)
	}
	if b := s.state.Begun; b != nil && b.Sequence == seq && b.Times > 0 {
		return fmt.Sprintf("%d times, a core that %s failed", b.Times, doing)
	}
	return fmt.Sprintf("%d core processes ended while each %s alone", len(s.state.BegunBy(seq)), doing)
}

// mayDrive reports whether the driver may decide what now, and ends a turn that
// cores have repeatedly failed to drive.
func (s *session) mayDrive(what string) bool {
	if !s.driving() {
		return false
	}
	h := s.held[s.state.Driver]
	poison, ok := s.begin(h.Seq, h, what)
	if !ok || !s.driving() {
		return false
	}
	if poison {
		s.endPoisonedTurn()
	}
	return !poison
}

func (s *session) endPoisonedTurn() {
	h := s.held[s.state.Driver]
	why := s.failures(h.Seq, "drove the turn")
	s.Log.ErrorContext(s.ctx, "poison", "session", s.ref, "turn", s.state.Driver, "reason", why)
	closings, ok := s.closeCalls(s.state.Assigned())
	if !ok || !s.driving() {
		return
	}
	if d := decide.OnPoisonTurn(s.state, s.state.Driver, closings, why, s.driverEnv()); d != nil &&
		s.commit(d) == committed {
		s.set.stats.Poison.Add(1)
		s.set.panics.Remove(panicKey{s.ref, h.Seq})
	}
}

// panicKey names a cause of which panics are counted, for at most maxPanics causes.
type panicKey struct {
	ref subject.Ref
	seq uint64
}

const maxPanics = 4096

func (s *session) panics(seq uint64) int {
	n, _ := s.set.panics.Peek(panicKey{s.ref, seq})
	return n
}
