package model

// invariant is a property that must hold in every state.
type invariant struct {
	violated string // the message if it does not hold
	holds    func(m *Model, s *State, f *Fold) bool
}

// invariants in the order in which they are checked.
var invariants = []invariant{
	{"an input has two terminal events", func(_ *Model, _ *State, f *Fold) bool {
		return f.Terminals[1] <= 1 && f.Terminals[2] <= 1
	}},
	{"two results for one call", everyCall(func(_ *Model, _ *State, call Call, _ uint8) bool {
		return call.Results <= 1
	})},
	{"an effect that is not idempotent happened twice", everyCall(func(m *Model, _ *State, _ Call, effects uint8) bool {
		return m.cfg.Idempotent || effects <= 1
	})},
	{"succeeded without an effect", everyCall(func(_ *Model, _ *State, call Call, effects uint8) bool {
		return call.Result != Succeeded || effects > 0
	})},
	{"the result says that it did not run, but it ran", everyCall(func(m *Model, _ *State, call Call, effects uint8) bool {
		saysNo := call.Result == NotRun && !m.cfg.Idempotent || call.Result == Denied
		return !saysNo || effects == 0
	})},
	{"an approval was consumed twice", func(_ *Model, _ *State, f *Fold) bool {
		return f.Approvals <= 1
	}},
	{"an approval after expiry was accepted", func(_ *Model, _ *State, f *Fold) bool {
		return !f.LateApproval
	}},
	{"an effect without approval", everyEffect(func(m *Model, f *Fold) bool {
		return !m.cfg.Confirm || f.Approvals > 0
	})},
	{"an effect without the approval of two people", everyEffect(func(m *Model, f *Fold) bool {
		return !m.cfg.TwoPeople || f.Approvers == 1<<1|1<<2
	})},
	{"an effect began after its call was closed", func(_ *Model, s *State, _ *Fold) bool {
		return !s.LateEffect
	}},
	{"outcome_unknown although the reachable runner knew", func(_ *Model, s *State, _ *Fold) bool {
		return !s.NeedlessUnknown
	}},
	{"a cancel or an answer hit something that began after it", func(_ *Model, _ *State, f *Fold) bool {
		return !f.WrongTarget
	}},
	{"a healthy input or turn failed as poison", func(_ *Model, _ *State, f *Fold) bool {
		return !f.FalsePoison
	}},
	{"a turn ended with a call open", callsEndWithTheirTurn},
	{"a turn is open, every cause is acked, and no core works on it", someoneIsLeft},
	{"an acked cause still has an effect", ackedCausesAreDone},
	{"an answer was acked and is not audited", answersAreAudited},
	{"causes were committed out of order", causesInOrder},
	{"a turn is open and no core must drive it", openTurnsAreHeld},
	{"parked without a stored timer", parkedTurnsWake},
	{"a deleted session has a turn or a queued input", func(_ *Model, _ *State, f *Fold) bool {
		return f.Deletion == Kept || f.idle()
	}},
	{"a paused session has started something", func(_ *Model, _ *State, f *Fold) bool {
		return !f.PausedStart
	}},
	{"a tombstone of a session that is not deleted", func(_ *Model, _ *State, f *Fold) bool {
		return !f.EarlyTomb
	}},
	{"a session with a tombstone was undeleted", func(_ *Model, _ *State, f *Fold) bool {
		return !f.Revived
	}},
	{"the cursor is past a cause that nobody decided", cursorSkipsNothing},
	{"the session's last commit was purged: earlier fences are valid again", func(_ *Model, s *State, _ *Fold) bool {
		last := s.lastCommit()
		return last == 0 || !s.purged(last)
	}},
	{"a tombstone was purged", tombstonesStay},
	{"what was purged is not in the archive", func(_ *Model, s *State, _ *Fold) bool {
		return s.Purged&^s.Archive == 0
	}},
	{"the log alone does not fold to the state of archive and log", logIsEnough},
}

// check returns what is wrong with a state of fold f, or "".
func (m *Model) check(s *State, f *Fold) string {
	for _, i := range invariants {
		if !i.holds(m, s, f) {
			return i.violated
		}
	}
	return ""
}

// reached is the goal: all inputs are sent and have their one terminal event.
func (m *Model) reached(s *State, f *Fold) bool {
	if s.InputsSent < m.cfg.Inputs {
		return false
	}
	for input := uint8(1); input <= s.InputsSent; input++ {
		if f.Terminals[input] != 1 {
			return false
		}
	}
	return true
}

func everyCall(holds func(m *Model, s *State, call Call, effects uint8) bool) func(*Model, *State, *Fold) bool {
	return func(m *Model, s *State, f *Fold) bool {
		for i := range m.calls() {
			if !holds(m, s, f.Calls[i], s.Effects[i]) {
				return false
			}
		}
		return true
	}
}

func everyEffect(holds func(m *Model, f *Fold) bool) func(*Model, *State, *Fold) bool {
	return func(m *Model, s *State, f *Fold) bool {
		return s.Effects == [maxCalls]uint8{} || holds(m, f)
	}
}

// callsEndWithTheirTurn requires a result for every assigned call of an ended turn.
func callsEndWithTheirTurn(m *Model, _ *State, f *Fold) bool {
	for i := range m.calls() {
		call := f.Calls[i]
		if f.Inputs[m.caller()] == Ended && call.Attempt > 0 && call.Result == NoResult {
			return false
		}
	}
	return true
}

// someoneIsLeft replaces openTurnsAreHeld where no commit names a driver.
func someoneIsLeft(m *Model, s *State, f *Fold) bool {
	if !m.broken(NoDriver) || !f.driven() || s.Cores[0].Phase != Idle || s.Cores[1].Phase != Idle {
		return true
	}
	for at := uint8(1); at <= s.Len; at++ {
		if s.isCause(at) && !s.acked(at) {
			return true
		}
	}
	return false
}

// ackedCausesAreDone requires that an ack and the verdict "no effect" are permanent
// (rules 4 and 5), and that a cause is not purged before it is processed (rule 17).
func ackedCausesAreDone(m *Model, s *State, f *Fold) bool {
	if m.broken(NoDriver) || m.broken(NoFence) {
		return true
	}
	for at := f.Cursor + 1; at <= s.Len; at++ {
		if s.isCause(at) && (s.acked(at) || s.purged(at)) && m.hasEffect(s, *f, at, at) {
			return false
		}
	}
	return true
}

// answersAreAudited requires a commit with the outcome for every answer to an existing
// session (rule 5).
func answersAreAudited(m *Model, s *State, _ *Fold) bool {
	if m.broken(NoDriver) || m.broken(NoFence) || m.broken(StaleVerdict) {
		return true // they lose causes of every kind
	}
	first, committed := committedCauses(s)
	for at := uint8(1); at <= s.Len; at++ {
		if s.Log[at-1].Kind == AnswerEntry && s.acked(at) && committed&(1<<(at-1)) == 0 && first != 0 && first < at {
			return false
		}
	}
	return true
}

// committedCauses returns the first cause that was processed by a commit, and all of them.
func committedCauses(s *State) (first uint8, all uint16) {
	for _, e := range s.Log[:s.Len] {
		if e.Kind == CommitEntry && e.Commit.processesCause() {
			if first == 0 {
				first = e.Commit.Cause
			}
			all |= 1 << (e.Commit.Cause - 1)
		}
	}
	return first, all
}

// cursorSkipsNothing requires that every input and every command up to the cursor was decided (rules 2
// and 17).
func cursorSkipsNothing(_ *Model, s *State, f *Fold) bool {
	_, committed := committedCauses(s)
	for at := uint8(1); at <= f.Cursor; at++ {
		switch s.Log[at-1].Kind {
		case InputEntry, DeleteEntry, UndeleteEntry, PauseEntry, ResumeEntry:
			if committed&(1<<(at-1)) == 0 {
				return false
			}
		}
	}
	return true
}

func tombstonesStay(_ *Model, s *State, _ *Fold) bool {
	for at := uint8(1); s.Purged != 0 && at <= s.Len; at++ {
		if s.Log[at-1].Commit.Kind == Tombstone && s.purged(at) {
			return false
		}
	}
	return true
}

// logIsEnough requires that a core that has only the log comes to the same state (rule 17).
func logIsEnough(m *Model, s *State, f *Fold) bool {
	if m.cfg.Checkpoints == 0 {
		return true // it is the same fold
	}
	alone, ok := m.readable(s)
	return ok && alone == *f
}

// causesInOrder requires that cores process causes in log order (rule 2).
func causesInOrder(_ *Model, s *State, _ *Fold) bool {
	last := uint8(0)
	for _, e := range s.Log[:s.Len] {
		if e.Kind != CommitEntry || !e.Commit.processesCause() {
			continue
		}
		if e.Commit.Cause <= last {
			return false
		}
		last = e.Commit.Cause
	}
	return true
}

// openTurnsAreHeld requires that the driver's cause is not acked while its turn is
// driven (rules 3 and 4), so that it is always redelivered.
func openTurnsAreHeld(m *Model, s *State, f *Fold) bool {
	return m.breaksHolding() || !f.driven() || held(s, f)
}

// parkedTurnsWake requires that a parked turn has such a cause, or a stored timer
// (rules 4 and 12).
func parkedTurnsWake(m *Model, s *State, f *Fold) bool {
	return m.breaksHolding() || f.Phase != Parked || held(s, f) || s.TimerSet
}

func held(s *State, f *Fold) bool {
	return f.Driver != 0 && !s.acked(f.Driver) && !s.purged(f.Driver)
}

// breaksHolding reports whether the mutation violates the last two invariants by
// definition. For these, only the loss of an input counts.
func (m *Model) breaksHolding() bool {
	return m.broken(NoDriver) || m.broken(AckEarly) || m.broken(AckTimerLate) || m.broken(VolatileTimer)
}
