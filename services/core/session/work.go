package session

import (
	"encoding/json"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/attempt"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/internal/executor"
)

// The timeouts of rule 9.
const (
	silence     = executor.Heartbeat * 3 / 2 // after which an executor is asked
	askEvery    = time.Second
	askGone     = 500 * time.Millisecond // between requests, after the server reported no responders
	goneFor     = 400 * time.Millisecond // without responders: idempotent work goes elsewhere
	goneSurely  = 2 * time.Second        // without responders: the executor is dead, and not just reconnecting
	goneBounce  = 3 * time.Second        // the same, after this core's own connection was lost
	unreachable = 5 * time.Second        // of asking without an answer, while connected
	overrun     = 5 * time.Second        // past not_after and the skew: the attempt is stopped
)

// work is an attempt in progress at an executor.
type work struct {
	attempt.ID
	pool              string
	idempotent        bool
	startBy, notAfter time.Time
	own               bool // dispatched by this core, and by no other
	asks              int
	asked             time.Time // last
	silentSince       time.Time // first ask without an answer, or zero
	heard             time.Time
	answered          bool             // at least once
	goneSince         time.Time        // since when the server reports no responders, or zero
	stopping          bool             // this core has asked it to stop
	final             *executor.Answer // the final answer, to be decided
	ended             time.Time        // when final arrived
	byOthers          bool             // another core stopped it, and decides first
	again             bool             // final needs a new attempt, which cannot be made yet
	cancel            []func()         // of reply handlers
}

// current returns the attempts that are in progress according to a state, by call.
func (s *session) current(st *decide.State) map[string]*work {
	out := map[string]*work{}
	t := st.Turn
	if t == nil {
		return out
	}
	if t.Plan != nil {
		out[t.Plan.ID] = s.planWork(t.Plan)
	}
	for i := range t.Steps {
		if st := &t.Steps[i]; st.Status == decide.Assigned {
			out[st.Call] = &work{
				ID: s.attemptOf(st), pool: s.Directory.PoolOf(st.Tool),
				idempotent: st.Idempotent || !st.Probe.IsZero(),
				startBy:    st.StartBy, notAfter: st.NotAfter,
			}
		}
	}
	return out
}

func (s *session) planWork(p *decide.Plan) *work {
	return &work{
		ID:   attempt.ID{Ref: s.ref, Call: p.ID, Attempt: p.Attempt, Kind: subject.Provider, Instance: p.Provider},
		pool: executor.DefaultPool, idempotent: true, startBy: p.StartBy, notAfter: p.NotAfter,
	}
}

func (s *session) attemptOf(st *decide.Step) attempt.ID {
	return attempt.ID{Ref: s.ref, Call: st.Call, Attempt: st.Attempt, Kind: subject.Runner, Instance: st.Runner}
}

// follow updates the tracked work to the state. Ended attempts are released, and stopped
// if they may still run. New attempts are asked about. But if this core has just seen the
// acknowledgement of a commit, before has the attempts until then, and those that the commit
// has asked for are dispatched. No others may be (rule 7).
func (s *session) follow(before map[string]*work) {
	want := s.current(s.state)
	var ended []*work
	for id, w := range s.work {
		if n := want[id]; n != nil && n.Attempt == w.Attempt {
			delete(want, id)
			continue
		}
		s.drop(w)
		ended = append(ended, w)
	}
	if !s.driving() {
		s.dropWork() // another core takes care of open work
		want = nil
	}
	for id, w := range want {
		s.work[id] = w
		s.Directory.Reserve(s.claimant, w.Instance, w.pool)
		w.heard = time.Now()
		if old := before[id]; before != nil && (old == nil || old.Attempt != w.Attempt) {
			s.dispatch(w)
		} else {
			s.ask(w, executor.OpAsk)
		}
	}
	for _, w := range ended {
		if w.final == nil {
			s.Attempts.Stop(w.ID)
		}
		s.Attempts.Release(w.ID)
	}
}

func (s *session) drop(w *work) {
	if s.forget(w) {
		s.Directory.Free(w.Instance, w.pool)
	}
}

// forget stops following an attempt, and reports whether it had a slot.
func (s *session) forget(w *work) bool {
	for _, cancel := range w.cancel {
		cancel()
	}
	if s.work[w.Call] != w {
		return false
	}
	delete(s.work, w.Call)
	return w.final == nil
}

func (s *session) dropWork() {
	for _, w := range s.work {
		s.drop(w)
	}
}

// dispatch sends an attempt to its executor, for the first and only time.
func (s *session) dispatch(w *work) {
	w.own = true
	r := w.Request(executor.OpRun)
	r.StartBy, r.NotAfter = w.startBy, w.notAfter
	var tools json.RawMessage
	if w.Kind == subject.Provider {
		m := decide.Prompt(s.state, s.Plugins.Agent(s.ref.Agent))
		r.Model, r.Provider, r.Silent = &m, s.state.Turn.Plan.Use, s.state.Turn.Plan.Question != nil
		tools = s.Directory.Described(s.state.Turn.Plan.Tools)
	} else {
		st := s.step(w.Call)
		l := s.state.Leases[st.Sticky]
		principal, _, _ := s.state.Turn.Principal()
		r.Tool = &executor.ToolCall{
			Name: st.Tool, Args: st.Final, Turn: s.state.Turn.ID, Principal: principal, Spec: st.Spec,
			Lease: l.ID, Before: l.Ran, Key: st.Key, Commission: st.Commission, After: decide.Labels(s.state, s.Directory.Lookup, s.outside()),
		}
		if !st.Probe.IsZero() {
			r.Tool.Probe = &tool.Probe{NotAfter: st.Probe}
		}
	}
	body, err := executor.Encode(r, tools)
	if err != nil {
		panic(err)
	}
	s.send(w, body)
}

func (s *session) step(call string) *decide.Step {
	for i := range s.state.Turn.Steps {
		if s.state.Turn.Steps[i].Call == call {
			return &s.state.Turn.Steps[i]
		}
	}
	return nil
}

func (s *session) ask(w *work, op executor.Op) {
	w.asks++
	w.asked = time.Now()
	w.stopping = w.stopping || op == executor.OpStop
	s.send(w, w.Encode(op))
}

func (s *session) send(w *work, body []byte) {
	cancel, err := s.Attempts.Send(s.within(w.Call), w.ID, body, func(a attempt.Answer) { s.mailbox.put(a) })
	if err != nil {
		s.set.warn("sending to an executor", "session", s.ref, "call", w.Call, "executor", w.Instance, "error", err)
		return
	}
	w.cancel = append(w.cancel, cancel)
}

// early is a plan that was dispatched together with its commit.
type early struct {
	s *session
	w *work
}

// dispatchPlan sends the model call of a decision while its commit is in flight.
func (s *session) dispatchPlan(d *decide.Decision) *early {
	next := d.State()
	if next.Turn == nil || next.Turn.Plan == nil || s.held[next.Driver] == nil {
		return nil
	}
	p := next.Turn.Plan
	if s.state.Turn != nil && s.state.Turn.Plan != nil && s.state.Turn.Plan.ID == p.ID || s.work[p.ID] != nil {
		return nil // another attempt: the previous one is released only once this one is stored
	}
	w := s.planWork(p)
	w.heard = time.Now()
	prev := s.state
	s.state = next
	s.work[w.Call] = w
	s.Directory.Reserve(s.claimant, w.Instance, w.pool)
	s.dispatch(w)
	s.state = prev
	return &early{s, w}
}

// stop revokes a plan whose commit was not stored.
func (e *early) stop() {
	if e == nil {
		return
	}
	if e.s.forget(e.w) { // wakes no session, least of all its own
		e.s.Directory.GiveBack(e.s.claimant, e.w.Instance, e.w.pool)
	}
	e.s.Attempts.Stop(e.w.ID)
	e.s.Attempts.Release(e.w.ID)
}

// onAnswer handles an executor's answer. Late answers of old attempts change nothing.
func (s *session) onAnswer(a attempt.Answer) {
	w := s.work[a.Call]
	if w == nil || w.Attempt != a.Attempt {
		return
	}
	if a.Gone {
		s.Directory.Lost(w.Instance)
		s.onGone(w)
		return
	}
	w.heard, w.silentSince, w.goneSince, w.asks, w.answered = time.Now(), time.Time{}, time.Time{}, 0, true
	if a.State.Final() && w.final == nil {
		if a.State == executor.Refused && a.Reason == executor.RefusedFull {
			s.Directory.Refused(w.Instance, w.pool)
		}
		if w.endedByOthers(a.State) {
			s.note(w, &a.Answer)
			w.byOthers, w.asked = true, time.Now() // chase decides if the other core dies
			return
		}
		s.finish(w, &a.Answer)
	}
}

// conclude returns an answer that this core gives in place of the executor.
func (w *work) conclude(s executor.State, why string) *executor.Answer {
	return &executor.Answer{Call: w.Call, Attempt: w.Attempt, State: s, Message: why}
}

// endedByOthers reports whether another core has asked the executor to stop: it was
// delivered a cancel and is about to close the turn (rule 10). Continuing the turn now
// would defeat the cancel.
func (w *work) endedByOthers(s executor.State) bool {
	switch s {
	case executor.Stopped:
		return !w.stopping
	case executor.Never:
		return w.own && w.asked.IsZero()
	}
	return false
}

// note keeps the final answer of an attempt, and frees its slot.
func (s *session) note(w *work, a *executor.Answer) {
	if w.final == nil {
		s.Directory.Free(w.Instance, w.pool)
		w.ended = time.Now()
	}
	w.final = a
}

// patience is how long chase waits before it decides a final answer again.
func (w *work) patience() time.Duration {
	if w.again {
		return tickEvery / 2 // at each tick
	}
	return askEvery
}

// finish keeps the final answer of an attempt and decides it.
func (s *session) finish(w *work, a *executor.Answer) {
	s.note(w, a)
	s.deciding(s.state.Driver, func() bool { s.decideOn(w); return true })
}

// onGone handles an executor without responders.
func (s *session) onGone(w *work) {
	if w.own && w.asks == 0 && !w.answered {
		// Only this core may dispatch it, and did so once: it never ran (rule 9).
		s.finish(w, w.conclude(executor.Never, "its executor no longer exists"))
		return
	}
	now := time.Now()
	if w.goneSince.IsZero() {
		w.goneSince = now
	}
	if w.silentSince.IsZero() {
		w.silentSince = now
	}
	if w.final == nil && s.dead(w, now) {
		s.deciding(s.state.Driver, func() bool { s.giveUp(w); return true })
	}
}

// dead reports whether the executor has had no responders for long enough. An instance's
// name is never reused. Idempotent work waits only briefly; other work also waits until
// it certainly cannot start.
func (s *session) dead(w *work, now time.Time) bool {
	patience := goneSurely
	switch {
	case w.goneSince.IsZero():
		return false
	case now.Sub(s.bouncedAt) < goneBounce:
		patience = goneBounce
	case w.idempotent:
		patience = goneFor
	}
	return now.Sub(w.goneSince) >= patience && (w.idempotent || now.After(w.startBy.Add(executor.Skew)))
}

// decideOn decides a final answer and commits. If no executor can take the next attempt,
// the answer stays, and is decided again when one arrives or has a slot.
func (s *session) decideOn(w *work) {
	s.decideWork(w, func() (d *decide.Decision) {
		env := s.driverEnv()
		env.Heard = w.ended
		if w.Kind == subject.Provider {
			d, _ = decide.OnPlanAnswer(s.state, s.state.Driver, *w.final, env)
		} else {
			d, w.again = decide.OnCallAnswer(s.state, s.state.Driver, *w.final, env)
		}
		return d
	})
}

// decideWork commits what f decides about an attempt. While other cores win the fence, it
// decides again.
func (s *session) decideWork(w *work, f func() *decide.Decision) {
	for range maxDecisions {
		if !s.mayDrive(w.Call+" "+w.Attempt) || s.work[w.Call] != w {
			return
		}
		if d := f(); d == nil || s.commit(d) != lost {
			return
		}
	}
}
