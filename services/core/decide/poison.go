package decide

import "skandha.dev/pkg/event"

// PoisonAt is how many decisions about one cause or turn may begin without a commit.
// After that, it is ended as poison (rule 13).
const PoisonAt = 5

// OnBegin records that a core is about to decide the cause at seq, or its turn if the
// cause is the driver. A core commits this before it decides a cause that was delivered
// several times without a commit. Deliveries alone do not prove that deciding failed:
// broken connections and stalled processes also cause them.
func OnBegin(s *State, delivery, seq uint64, env *Env) *Decision {
	b := start(s, delivery, event.Trigger{Kind: event.ByBegin, Sequence: seq}, env.Now, env)
	return b.done()
}

// Poisonous reports whether so many decisions about seq began without a commit that
// deciding itself must be failing.
func (s *State) Poisonous(seq uint64) bool {
	return s.Begun != nil && s.Begun.Sequence == seq && s.Begun.Times >= PoisonAt
}

// begun counts a decision that begins. A commit that settles the cause resets the
// counter.
func (s *State) begun(by event.Trigger) {
	switch {
	case by.Kind != event.ByBegin:
		if s.Begun != nil && s.Begun.Sequence <= s.Cursor {
			s.Begun = nil
		}
	case s.Begun != nil && s.Begun.Sequence == by.Sequence:
		s.Begun = &Begun{by.Sequence, s.Begun.Times + 1}
	default:
		s.Begun = &Begun{by.Sequence, 1}
	}
}

// OnPoison ends the cause c without reading what it says, and without hooks (rule 13). It
// returns nil if the cause is already processed.
func OnPoison(s *State, delivery uint64, c Cause, why string, env *Env) *Decision {
	if c.Sequence <= s.Cursor {
		return nil
	}
	b := start(s, delivery, event.Trigger{Kind: event.ByPoison, Sequence: c.Sequence}, c.Time, env)
	b.head.Cursor = c.Sequence
	b.quiet, b.sender = true, c.Writer
	x := &causeDecider{builder: b, c: Cause{Sequence: c.Sequence}}
	x.fail(event.FailPoison, why)
	b.touched = b.s.expired() // if this was the timer, a core must drive until OnProgress ends the request
	return b.done()
}

// OnPoisonTurn ends a turn that several cores in a row have failed to drive (rule 13).
func OnPoisonTurn(s *State, delivery uint64, closings Closings, why string, env *Env) *Decision {
	if s.Turn == nil {
		return nil
	}
	b := start(s, delivery, event.Trigger{Kind: event.ByPoison}, env.Now, env)
	b.touched, b.quiet = true, true
	b.closeTurn(event.FailPoison, why, closings, false)
	b.quiet = false // the next turn is not poison, so its hooks run
	b.next()
	return b.done()
}
