package session

import (
	"slices"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/core/directory"
	"skandha.dev/services/internal/executor"
)

// drive does the driver's work for the session: it checks the log, schedules timers,
// chases silent executors, assigns waiting work and ends overdue turns. A core that
// does not drive only processes the deliveries it holds. Messages that the turn waits
// for are handled before inputs that wait for a decision.
func (s *session) drive() {
	if len(s.held) == 0 {
		s.poked = false
		return
	}
	if s.state == nil || time.Since(s.looked) > lookEvery {
		s.look()
	}
	turnFirst := s.poked || s.mailbox.urgent()
	if !turnFirst {
		s.retryHeld()
	}
	s.driveOn()
	s.poked = false
	if turnFirst && !s.mailbox.urgent() {
		s.retryHeld()
	}
}

func (s *session) driveOn() {
	if !s.driving() {
		s.dropWork()
		s.Directory.Leave(s.claimant)
		return
	}
	// The driver's delivery may have arrived after the session was loaded.
	s.follow(nil)
	s.schedule()
	s.deciding(s.state.Driver, s.driveTurn)
}

// driveTurn chases executors, assigns waiting work, and ends an overdue turn.
func (s *session) driveTurn() bool {
	if s.overdue() {
		return true
	}
	bounced := s.bounced()
	for _, w := range s.work {
		if bounced && w.final == nil {
			w.heard, w.asked = time.Time{}, time.Time{} // its answers were lost meanwhile
		}
		if s.work[w.Call] == w {
			s.chase(w)
		}
	}
	s.progress()
	return true
}

// bounced reports whether the bus has reconnected since the last call.
func (s *session) bounced() bool {
	n := s.Bus.Conn().Stats().Reconnects
	if n == s.reconnects {
		return false
	}
	s.reconnects, s.bouncedAt = n, time.Now()
	return true
}

// look reads the last commit (rule 3: every two seconds) and refolds if another
// core has committed.
func (s *session) look() {
	if s.state == nil {
		s.load()
		return
	}
	began := time.Now()
	last, err := s.Bus.LastCommitSeq(s.ctx, s.ref)
	if err != nil {
		s.Log.Debug("checking the last commit", "session", s.ref, "error", err)
		return
	}
	s.looked = time.Now()
	if last != s.state.Rev {
		s.load()
		return
	}
	s.verified = began
}

// retryHeld retries deliveries whose cause could not be decided yet.
func (s *session) retryHeld() {
	for s.state != nil {
		before := max(s.state.Cursor, s.passed)
		next := s.nextHeld(before)
		if next == 0 {
			return
		}
		s.processUpTo(next)
		if s.state == nil || max(s.state.Cursor, s.passed) == before || s.mailbox.urgent() {
			return
		}
	}
}

// nextHeld returns the held delivery, later than after, to decide up to: the last one
// that concerns the turn, or else the first input, if inputs are accepted now.
func (s *session) nextHeld(after uint64) uint64 {
	var last uint64
	for seq, h := range s.held {
		if seq > after && !h.queues {
			last = max(last, seq)
		}
	}
	if first := s.nextInput(after); last == 0 && first != 0 && s.takesInput(s.held[first]) {
		return first
	}
	return last
}

// nextInput returns the first held input, later than after, that does not affect a running
// turn; 0: none.
func (s *session) nextInput(after uint64) (first uint64) {
	for seq, h := range s.held {
		if seq > after && h.queues && (first == 0 || seq < first) {
			first = seq
		}
	}
	return first
}

// takesInput reports whether an input that does not affect a running turn is decided now.
// While more inputs arrive than the log can take, those that would only be queued wait:
// deciding them early takes time from turns. What is over the limits of the agent waits, too.
func (s *session) takesInput(h *held) bool {
	if s.state != nil && s.state.Turn != nil && !s.set.appends.room() {
		return false
	}
	return s.admitted(h)
}

// schedule stores a timer for the expiry of each confirmation (rule 12).
func (s *session) schedule() {
	asked := s.state.Confirmations()
	for _, st := range asked {
		if s.timers[st.Call] {
			continue
		}
		if err := s.Bus.ScheduleTimer(s.ctx, s.ref, st.Call, st.ExpiresAt); err != nil {
			s.Log.WarnContext(s.ctx, "scheduling a timer; will retry", "session", s.ref, "call", st.Call, "error", err)
			return
		}
		s.timers[st.Call] = true
	}
	if len(s.timers) > len(asked) {
		s.forgetTimers(asked)
	}
}

// forgetTimers cancels timers that are no longer needed. One that fires nevertheless
// finds nothing pending.
func (s *session) forgetTimers(asked []decide.Step) {
	for id := range s.timers {
		if slices.ContainsFunc(asked, func(st decide.Step) bool { return st.Call == id }) {
			continue
		}
		delete(s.timers, id)
		if err := s.Bus.CancelTimer(s.ctx, s.ref, id); err != nil {
			s.Log.Debug("cancelling a timer", "session", s.ref, "call", id, "error", err)
		}
	}
}

// overdue ends a turn that is past its deadline.
func (s *session) overdue() bool {
	t := s.state.Turn
	if t == nil || s.state.Paused != nil || time.Now().Before(t.Deadline) || s.state.Parked() {
		return false
	}
	if !s.mayDrive("deadline") {
		return true
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

func (s *session) driverEnv() *decide.Env {
	return s.env(s.held[s.state.Driver].NumDelivered)
}

// chase follows up on one attempt (rule 9).
func (s *session) chase(w *work) {
	now := time.Now()
	switch {
	case w.final != nil:
		if s.poked && !w.byOthers || now.Sub(w.asked) > w.patience() {
			w.byOthers, w.asked = false, now
			s.decideOn(w)
		}
	case !s.Bus.Connected():
		w.silentSince, w.goneSince = time.Time{}, time.Time{} // disconnected: the executor may not be silent
	case now.After(w.notAfter.Add(executor.Skew + overrun)):
		if now.Sub(w.asked) >= askEvery {
			s.chaseSilent(w, now, executor.OpStop)
		}
	case !w.goneSince.IsZero() && now.Sub(w.asked) >= askGone:
		s.chaseSilent(w, now, executor.OpAsk)
	case now.Sub(w.heard) < silence && (w.own || w.answered):
	case now.Sub(w.asked) < askEvery:
	default:
		s.chaseSilent(w, now, executor.OpAsk)
	}
}

func (s *session) chaseSilent(w *work, now time.Time, op executor.Op) {
	if w.silentSince.IsZero() {
		w.silentSince = now
	}
	if now.Sub(w.silentSince) > unreachable && w.asks >= 3 && (w.idempotent || now.After(w.startBy.Add(executor.Skew))) {
		s.giveUp(w)
		return
	}
	s.ask(w, op)
}

// giveUp decides on an attempt whose executor cannot be reached.
func (s *session) giveUp(w *work) {
	s.Log.WarnContext(s.ctx, "an executor cannot be reached", "session", s.ref, "call", w.Call, "executor", w.Instance)
	w.asked = time.Now()
	if w.Kind == subject.Provider {
		s.finish(w, w.conclude(executor.Unknown, "its provider cannot be reached"))
		return
	}
	s.decideWork(w, func() *decide.Decision {
		d, _ := decide.OnUnreachable(s.state, s.state.Driver, w.Call, w.Attempt, s.driverEnv())
		return d
	})
}

// progress assigns work that waits for an executor.
func (s *session) progress() {
	if !s.queueUp() || !s.state.Waits() {
		return
	}
	if !s.poked && time.Since(s.tried) < tickEvery {
		return
	}
	s.tried = time.Now()
	if !s.mayDrive("progress") {
		return
	}
	if d := decide.OnProgress(s.state, s.state.Driver, s.driverEnv()); d != nil && s.commit(d) == committed {
		s.Directory.Leave(s.claimant) // for anything else, it queues up again behind the others
		s.queueUp()
	}
}

// queueUp puts the session into the queue for executors, or removes it, and reports
// whether this core drives the session.
func (s *session) queueUp() bool {
	var needs []directory.Need
	var paused bool
	if s.driving() {
		needs, paused = s.needs()
	}
	if len(needs) == 0 {
		s.Directory.Leave(s.claimant)
		return s.driving()
	}
	if t := s.state.Turn; t != nil {
		writer, _, _ := t.Principal()
		s.claimant.For(writer, t.ForPerson())
	}
	s.Directory.Wait(s.claimant, needs, paused)
	return true
}

// needs returns what the turn waits for, including new attempts at what has failed. It
// is paused if it was just refused and could not take a slot now.
func (s *session) needs() (out []directory.Need, paused bool) {
	add := func(n directory.Need) {
		if !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	if s.state.Paused != nil {
		return nil, false
	}
	plan, tools := s.state.Wants()
	ready := plan || len(tools) > 0
	var failed *executor.Answer
	for _, w := range s.work {
		ready = ready || w.final != nil && !w.byOthers && !w.again
		switch {
		case w.final == nil || w.byOthers:
		case w.Kind == subject.Provider:
			plan, failed = true, w.final
		default:
			if st := s.step(w.Call); st != nil {
				tools = append(tools, st.Tool)
			}
		}
	}
	if plan {
		for _, name := range s.awaited(failed) {
			add(directory.Need{Kind: subject.Provider, Name: name})
		}
	}
	for _, t := range tools {
		add(directory.Need{Kind: subject.Runner, Name: t, At: s.claimant.Bound(t)})
	}
	return out, !ready
}

// awaited returns the providers that the turn waits for, after an attempt that failed if there
// was one: a slot of the first that is offered, or any of them to appear.
func (s *session) awaited(failed *executor.Answer) []string {
	all := s.state.Providers(s.Plugins.Agent(s.ref.Agent), failed)
	for i, name := range all {
		if s.Directory.WithoutProvider(name) == 0 {
			return all[i : i+1]
		}
	}
	return all
}
