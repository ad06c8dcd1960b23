package model

import (
	"fmt"
	"slices"
)

// step is one transition: the next state and a description.
type step struct {
	next  State
	label label
}

// label describes what happened in a step. It is kept in parts, because only the few
// steps of a trace are ever formatted.
type label struct {
	core, delivery uint8 // core: 1 + index of the acting core, 0 if none
	format         string
	args           [4]uint8
	n              int
	plan           Commit
}

func (l label) String() string {
	args := make([]any, l.n)
	for i := range args {
		args[i] = l.args[i]
	}
	text := fmt.Sprintf(l.format, args...)
	if l.core > 0 {
		text = fmt.Sprintf("core%d[#%d]: ", l.core-1, l.delivery) + text
	}
	if l.plan.Kind != NoCommit {
		text += " -> " + l.plan.String()
	}
	return text
}

// world collects the possible steps of one state.
type world struct {
	*Model
	s     *State
	f     Fold
	steps []step
}

// next appends to steps everything that may happen in s, whose fold is f.
func (m *Model) next(s *State, f Fold, steps []step) []step {
	w := world{Model: m, s: s, f: f, steps: steps}
	w.people()
	w.time()
	w.bus()
	w.retention()
	for r := range uint8(runners) {
		if !s.Runners[r].Dead {
			w.runner(r)
		}
	}
	for c := range uint8(cores) {
		w.core(c)
	}
	return w.steps
}

// emit records a step, unless it changes nothing.
func (w *world) emit(n State, format string, args ...uint8) {
	l := label{format: format}
	l.n = copy(l.args[:], args)
	w.record(n, l)
}

func (w *world) record(n State, l label) {
	w.canonical(&n)
	if n != *w.s {
		w.steps = append(w.steps, step{n, l})
	}
}

// canonical merges states that no future can tell apart.
func (w *world) canonical(s *State) {
	// A core that only looks at an unacked delivery is equivalent to an idle one: any
	// core may take that delivery at any time.
	for c := range s.Cores {
		k := &s.Cores[c]
		looks := k.Phase == Looking && k.Sent == [maxCalls]uint8{} && !k.Handed
		if looks && !s.acked(k.Delivery) && !w.countsDeliveries() {
			*k = Core{}
		}
	}
	if s.Cores[0].compare(&s.Cores[1]) > 0 {
		s.Cores[0], s.Cores[1] = s.Cores[1], s.Cores[0]
	}
	slices.Sort(s.Workers[:])
}

// countsDeliveries reports whether the number of deliveries matters (rule 13).
func (m *Model) countsDeliveries() bool {
	return m.cfg.Poison || m.cfg.Redelivered || m.broken(PoisonByDeliveries)
}

// store appends to the log. A full log is counted, and ends this future.
func (w *world) store(s *State, e Entry) bool {
	if s.Len >= maxLog {
		w.overflow++
		return false
	}
	s.Log[s.Len] = e
	s.Len++
	return true
}

// people adds the inputs, cancels and answers that users may send. Each is a cause once
// it is stored (rule 1).
func (w *world) people() {
	s, cfg := w.s, &w.cfg
	if s.InputsSent < cfg.Inputs {
		n := *s
		n.InputsSent++
		if w.store(&n, Entry{Kind: InputEntry, Input: n.InputsSent, Interrupt: cfg.Interrupt && n.InputsSent == 2}) {
			w.emit(n, "user: input %d stored", n.InputsSent)
		}
	}
	if s.InputsSent == 0 && !cfg.Early {
		return
	}
	if cfg.Cancel && !s.CancelSent {
		for input := uint8(1); input <= s.InputsSent; input++ {
			n := *s
			n.CancelSent = true
			if w.store(&n, Entry{Kind: CancelEntry, Input: input}) {
				w.emit(n, "user: cancel of input %d stored", input)
			}
		}
	}
	w.deletes()
	w.pauses()
	if s.AnswersSent < cfg.Answers {
		switch {
		case !cfg.TwoPeople:
			w.answer(0, false, true)
		case s.AnswersSent == 0: // without loss of generality
			w.answer(1, true)
		default:
			w.answer(1, false, true)
			w.answer(2, true)
		}
	}
}

// answer adds the answers that a person may give.
func (w *world) answer(person uint8, approvals ...bool) {
	e := Entry{Kind: AnswerEntry, Expired: w.s.Expired, Person: person}
	for _, e.Approve = range approvals {
		n := *w.s
		n.AnswersSent++
		if !w.store(&n, e) {
			continue
		}
		if e.Approve {
			w.emit(n, "user: approval stored")
		} else {
			w.emit(n, "user: denial stored")
		}
	}
}

// time lets confirmations expire, timers fire and start_by pass.
func (w *world) time() {
	s := w.s
	pending := w.f.Confirmation == Pending
	if w.cfg.Confirm && pending && !s.Expired {
		n := *s
		n.Expired = true
		w.emit(n, "time: the confirmation expires")
	}
	// Rule 12: a timer that fires is copied into the log at least once.
	if s.TimerSet && (s.TimerFired == 0 || s.TimerFired == 1 && pending) {
		n := *s
		n.TimerFired++
		if w.store(&n, Entry{Kind: TimerEntry}) {
			w.emit(n, "timer: fires, stored as a cause")
		}
	}
	if w.broken(VolatileTimer) && s.TimerSet && s.TimerFired == 0 {
		n := *s
		n.TimerSet = false
		w.emit(n, "fault: the timer is lost")
	}
	// Rule 8: start_by is checked at the moment of starting; rule 9: a core
	// waits for the skew on top.
	for call := range w.calls() {
		a := w.f.Calls[call].Attempt
		if w.f.open(call) && s.Attempts[call][a].StartBy < PassedAtCore {
			n := *s
			n.Attempts[call][a].StartBy++
			if n.Attempts[call][a].StartBy == PassedAtRunner {
				w.emit(n, "time: start_by of call %d, attempt %d passes at the runner", call, a)
			} else {
				w.emit(n, "time: start_by of call %d, attempt %d and the skew pass at the cores", call, a)
			}
		}
	}
}

// bus forgets acks, as a consumer with its state in memory does (rule 3), and stores what nobody has written
// (rule 1).
func (w *world) bus() {
	if w.s.Left.Noise > 0 {
		n := *w.s
		n.Left.Noise--
		if w.store(&n, Entry{Kind: NoiseEntry}) {
			w.emit(n, "fault: noise stored on the subject of the commits")
		}
	}
	if w.s.Left.ForgottenAcks > 0 && w.s.Acks != 0 {
		n := *w.s
		n.Left.ForgottenAcks--
		n.Acks = 0
		w.emit(n, "fault: the bus forgets all acks")
	}
}
