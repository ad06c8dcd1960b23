package decide

import (
	"slices"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
)

// PoisonAt is how many processes may end while they decide about one cause or turn. After
// that, it is ended as poison (rule 13). The first death leaves no mark: what is delivered
// for the first time is decided without one.
const PoisonAt = 2

// oldPoisonAt is the same for marks of fold version 11 and before, which do not say whose
// they are, and were also left by cores that lived on.
const oldPoisonAt = 5

// OnBegin records that a core is about to decide the cause at seq, or its turn if the
// cause is the driver. A core commits this before it decides what another process may have
// tried to decide before. The mark counts only if the process ends before the decision is
// over: waiting and deliveries prove nothing.
func OnBegin(s *State, delivery, seq uint64, core subject.Instance, env *Env) *Decision {
	return start(s, delivery, event.Trigger{Kind: event.ByBegin, Sequence: seq, Core: core}, env.Now, env).done()
}

// OnSurvived records that a core that was about to decide seq is done, without a decision:
// nothing had to be decided yet, or it hands the cause back.
func OnSurvived(s *State, delivery, seq uint64, core subject.Instance, env *Env) *Decision {
	t := event.Trigger{Kind: event.ByBegin, Sequence: seq, Core: core, Over: true}
	return start(s, delivery, t, env.Now, env).done()
}

// BegunBy lists the cores that have begun to decide seq and are not done.
func (s *State) BegunBy(seq uint64) []subject.Instance {
	for _, b := range []*Begun{s.Begun, s.Driven} {
		if b != nil && b.Sequence == seq {
			return b.Cores
		}
	}
	return nil
}

// Poisonous reports whether so many processes have ended while they decided seq that
// deciding itself must be failing.
func (s *State) Poisonous(seq uint64, ended func(subject.Instance) bool) bool {
	if s.Begun != nil && s.Begun.Sequence == seq && s.Begun.Times >= oldPoisonAt {
		return true
	}
	n := 0
	for _, core := range s.BegunBy(seq) {
		if ended(core) {
			n++
		}
	}
	return n >= PoisonAt
}

// begun keeps the marks of decisions that begin, and drops those of a cause that is
// settled, and of a turn that has gone on or changed its driver.
func (s *State) begun(by event.Trigger) {
	switch {
	case by.Kind != event.ByBegin:
		if s.Begun != nil && s.Begun.Sequence <= s.Cursor {
			s.Begun = nil
		}
		// An input that only queues proves nothing about the turn.
		if s.Driven != nil && (by.Kind != event.ByCause || s.Driven.Sequence != s.Driver) {
			s.Driven = nil
		}
	case by.Core == "" && s.Begun != nil && s.Begun.Sequence == by.Sequence:
		s.Begun = &Begun{Sequence: by.Sequence, Times: s.Begun.Times + 1, Cores: s.Begun.Cores}
	case by.Core == "":
		s.Begun = &Begun{Sequence: by.Sequence, Times: 1}
	case by.Sequence <= s.Cursor:
		s.Driven = s.Driven.marked(by)
	default:
		s.Begun = s.Begun.marked(by)
	}
}

// maxMarks bounds the marks of one cause; the earliest are dropped.
const maxMarks = 16

// marked returns the marks with that of a trigger, or without it if it is over.
func (b *Begun) marked(by event.Trigger) *Begun {
	n := Begun{Sequence: by.Sequence}
	if b != nil && b.Sequence == by.Sequence {
		n = *b
	}
	n.Cores = slices.DeleteFunc(slices.Clone(n.Cores), func(i subject.Instance) bool { return i == by.Core })
	if !by.Over {
		n.Cores = append(n.Cores, by.Core)
		n.Cores = n.Cores[max(0, len(n.Cores)-maxMarks):]
	}
	if len(n.Cores) == 0 && n.Times == 0 {
		return nil
	}
	return &n
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
