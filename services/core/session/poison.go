package session

import (
	"fmt"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/decide"
)

// The limits of rule 13.
const (
	suspectAt = 3 // deliveries without a commit after which a core stores that it begins to decide
	panicsAt  = 3 // panics of this core while it decided one cause
)

// begin checks whether this core may decide seq at the delivery h. A cause that was
// delivered often without a commit may kill the cores that decide it, so this core first
// stores that it begins. Deliveries alone prove nothing: a restarting bus, a full disk or
// a stalled core causes them, too.
//
// poison means that deciding has failed too often. ok is false if the result is unknown
// for now; the delivery must be retried.
func (s *session) begin(seq uint64, h *held, suspected bool) (poison, ok bool) {
	if s.state.Poisonous(seq) || s.panics(seq) >= panicsAt {
		return true, true
	}
	if !suspected || h.begun == seq {
		return false, true
	}
	for range maxDecisions {
		switch s.commit(decide.OnBegin(s.state, h.Seq, seq, s.env(h.NumDelivered))) {
		case committed:
			h.begun = seq // once is enough for this delivery, even if the next fence is lost
			return false, true
		case undecided:
			return false, false
		case lost:
			if s.state == nil || s.state.Poisonous(seq) {
				return s.state != nil, s.state != nil
			}
			if s.state.Begun != nil && s.state.Begun.Sequence == seq || max(s.state.Cursor, s.passed) >= seq {
				h.begun = seq // stored, by this core or a concurrent one
				return false, true
			}
		}
	}
	return false, false
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
	why := fmt.Sprintf("cores began to decide about it %d times and failed each time", s.failures(m.Seq))
	s.Log.Error("poison", "session", s.ref, "cause", m.Seq, "reason", why)
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

func (s *session) failures(seq uint64) int {
	n := s.panics(seq)
	if b := s.state.Begun; b != nil && b.Sequence == seq {
		n = max(n, b.Times)
	}
	return n
}

// mayDrive reports whether the driver may decide its turn now. It ends a turn that
// cores have repeatedly failed to drive.
func (s *session) mayDrive() bool {
	if !s.driving() {
		return false
	}
	h := s.held[s.state.Driver]
	poison, ok := s.begin(h.Seq, h, s.state.Delivery > 0 && h.NumDelivered >= s.state.Delivery+suspectAt)
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
	why := fmt.Sprintf("cores began to drive the turn %d times and failed each time", s.failures(h.Seq))
	s.Log.Error("poison", "session", s.ref, "turn", s.state.Driver, "reason", why)
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
