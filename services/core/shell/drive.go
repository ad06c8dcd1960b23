package shell

import (
	"time"

	"skandha.dev/pkg/executor"
	"skandha.dev/services/core/decide"
)

// drive does what the driver owes the session: look at the log, schedule
// timers, chase silent executors, give out what waits, end what is overdue.
// Whoever does not drive only looks after the deliveries it holds.
func (s *session) drive() {
	if len(s.held) == 0 {
		return
	}
	if s.state == nil || time.Since(s.looked) > lookEvery {
		s.look()
	}
	s.retryHeld()
	if !s.driving() {
		s.dropWork()
		return
	}
	// A delivery alone makes a driver of one that had loaded the session without it.
	s.follow(nil)
	s.schedule()
	if s.overdue() || s.poisonedTurn() {
		return
	}
	for _, w := range s.work {
		if s.work[w.id] == w {
			s.chase(w)
		}
	}
	s.progress()
}

// look reads the last commit (rule 3: every two seconds at most) and refolds
// if another core has committed.
func (s *session) look() {
	if s.state == nil {
		s.load()
		return
	}
	last, err := s.c.bus.LastCommitSeq(s.ctx, s.ref)
	if err != nil {
		s.c.log.Debug("looking at the last commit", "session", s.ref, "error", err)
		return
	}
	s.looked = time.Now()
	if last != s.state.Rev {
		s.load()
	}
}

// retryHeld comes back to deliveries whose cause could not be decided yet.
func (s *session) retryHeld() {
	if s.state == nil {
		return
	}
	for seq := range s.held {
		if max(s.state.Cursor, s.passed) < seq {
			s.processUpTo(seq)
			return
		}
	}
}

// schedule makes every confirmation's expiry durable (rule 12).
func (s *session) schedule() {
	asked := s.state.Confirmations()
	for _, st := range asked {
		if s.timers[st.Call] {
			continue
		}
		if err := s.c.bus.ScheduleTimer(s.ctx, s.ref, st.Call, st.ExpiresAt); err != nil {
			s.c.log.Warn("scheduling a timer; it will be tried again", "session", s.ref, "call", st.Call, "error", err)
			return
		}
		s.timers[st.Call] = true
	}
	if len(s.timers) > len(asked) {
		s.forgetTimers(asked)
	}
}

// forgetTimers takes back what need not fire any more. One that fires all the
// same finds nothing pending.
func (s *session) forgetTimers(asked []decide.Step) {
	for id := range s.timers {
		pending := false
		for _, st := range asked {
			pending = pending || st.Call == id
		}
		if pending {
			continue
		}
		delete(s.timers, id)
		if err := s.c.bus.CancelTimer(s.ctx, s.ref, id); err != nil {
			s.c.log.Debug("cancelling a timer", "session", s.ref, "call", id, "error", err)
		}
	}
}

// overdue ends a turn whose wall time is over.
func (s *session) overdue() bool {
	t := s.state.Turn
	if t == nil || time.Now().Before(t.Deadline) || s.state.Parked() {
		return false
	}
	closings, ok := s.closeCalls(s.state.Assigned())
	if !ok || !s.driving() {
		return true
	}
	d := decide.OnDeadline(s.state, s.state.Driver, closings, s.driverEnv())
	if d == nil {
		return false
	}
	s.commit(d)
	return true
}

// poisonedTurn ends a turn that core after core has died of (rule 13).
func (s *session) poisonedTurn() bool {
	h := s.held[s.state.Driver]
	if s.state.Delivery == 0 || h.NumDelivered < s.state.Delivery+poisonDrives {
		return false
	}
	closings, ok := s.closeCalls(s.state.Assigned())
	if !ok || !s.driving() {
		return true
	}
	d := decide.OnPoisonTurn(s.state, s.state.Driver, closings, "driving the turn failed again and again", s.driverEnv())
	if d == nil {
		return false
	}
	s.c.stats.Poison.Add(1)
	s.commit(d)
	return true
}

func (s *session) driverEnv() *decide.Env {
	return s.env(s.held[s.state.Driver].NumDelivered)
}

// chase looks after one attempt (rule 9).
func (s *session) chase(w *work) {
	now := time.Now()
	switch {
	case w.final != nil:
		if s.poked || now.Sub(w.asked) > askEvery {
			w.asked = now
			s.decideOn(w)
		}
	case !s.c.bus.Connected():
		w.silentSince = time.Time{} // it is not the executor that is silent
	case now.After(w.notAfter.Add(executor.Skew + overrun)):
		s.stopOverrun(w, now)
	case now.Sub(w.heard) < silence && (w.own || w.answered):
	case now.Sub(w.asked) < askEvery:
	default:
		s.chaseSilent(w, now)
	}
}

func (s *session) chaseSilent(w *work, now time.Time) {
	if w.silentSince.IsZero() {
		w.silentSince = now
	}
	if now.Sub(w.silentSince) > unreachable && w.asks >= 3 && (w.idempotent || now.After(w.startBy.Add(executor.Skew))) {
		s.giveUp(w)
		return
	}
	s.ask(w, executor.OpAsk)
}

// giveUp decides about an attempt that nobody can be asked about.
func (s *session) giveUp(w *work) {
	s.c.log.Warn("an executor cannot be reached", "session", s.ref, "call", w.id, "executor", w.instance)
	w.asked = time.Now()
	if _, plan := s.planWork(w); plan {
		s.finish(w, &executor.Answer{Call: w.id, Attempt: w.attempt, State: executor.Unknown, Message: "its provider cannot be reached"})
		return
	}
	for range maxDecisions {
		if !s.driving() || s.work[w.id] != w {
			return
		}
		d, _ := decide.OnUnreachable(s.state, s.state.Driver, w.id, w.attempt, s.driverEnv())
		if d == nil || s.commit(d) != lost {
			return
		}
	}
}

func (s *session) planWork(w *work) (*decide.Plan, bool) {
	if t := s.state.Turn; t != nil && t.Plan != nil && t.Plan.ID == w.id {
		return t.Plan, true
	}
	return nil, false
}

// stopOverrun stops an attempt whose time is over and which still says that it runs.
func (s *session) stopOverrun(w *work, now time.Time) {
	if now.Sub(w.asked) < askEvery {
		return
	}
	if w.silentSince.IsZero() {
		w.silentSince = now
	}
	if now.Sub(w.silentSince) > unreachable && w.asks >= 3 {
		s.giveUp(w)
		return
	}
	s.ask(w, executor.OpStop)
}

// progress gives out what waits for an executor.
func (s *session) progress() {
	poked := s.poked
	s.poked = false
	if !s.driving() || !s.state.Waits() {
		s.c.dir.notify(s, false)
		return
	}
	s.c.dir.notify(s, true)
	if !poked && time.Since(s.tried) < tickEvery {
		return
	}
	s.tried = time.Now()
	if d := decide.OnProgress(s.state, s.state.Driver, s.driverEnv()); d != nil {
		s.commit(d)
	}
}
