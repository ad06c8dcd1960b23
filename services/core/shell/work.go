package shell

import (
	"encoding/json"
	"fmt"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/internal/executor"
	"skandha.dev/services/internal/nesting"
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
	id, attempt       string
	kind              subject.ExecutorKind
	instance          subject.Instance
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

// current returns the attempts that are in progress according to the state.
func (s *session) current() map[string]*work {
	out := map[string]*work{}
	t := s.state.Turn
	if t == nil {
		return out
	}
	if p := t.Plan; p != nil {
		out[p.ID] = &work{
			id: p.ID, attempt: p.Attempt, kind: subject.Provider, instance: p.Provider,
			pool: executor.DefaultPool, idempotent: true, startBy: p.StartBy, notAfter: p.NotAfter,
		}
	}
	for i := range t.Steps {
		if st := &t.Steps[i]; st.Status == decide.Assigned {
			out[st.Call] = &work{
				id: st.Call, attempt: st.Attempt, kind: subject.Runner, instance: st.Runner,
				pool: s.c.dir.PoolOf(st.Tool), idempotent: st.Idempotent, startBy: st.StartBy, notAfter: st.NotAfter,
			}
		}
	}
	return out
}

// follow updates the tracked work to the state. Ended attempts are released, and stopped
// if they may still run. New attempts are asked about, except those that ours reports:
// this core has just seen the acknowledgement of the commit that asked for them. Only
// those may be dispatched (rule 7).
func (s *session) follow(ours func(*work) bool) {
	want := s.current()
	var ended []*work
	for id, w := range s.work {
		if n := want[id]; n != nil && n.attempt == w.attempt {
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
		s.c.dir.Reserve(s.claimant, w.instance, w.pool)
		w.heard = time.Now()
		if ours != nil && ours(w) {
			s.dispatch(w)
		} else {
			s.ask(w, executor.OpAsk)
		}
	}
	for _, w := range ended {
		if w.final == nil {
			s.c.stop(w, s.ref)
		}
		s.c.release.add(w, s.ref)
	}
}

// assigned reports whether a state already names the attempt.
func assigned(s *decide.State, w *work) bool {
	if s.Turn == nil {
		return false
	}
	if p := s.Turn.Plan; p != nil && p.ID == w.id && p.Attempt == w.attempt {
		return true
	}
	for i := range s.Turn.Steps {
		if st := &s.Turn.Steps[i]; st.Call == w.id && st.Status == decide.Assigned && st.Attempt == w.attempt {
			return true
		}
	}
	return false
}

func (s *session) drop(w *work) {
	if s.forget(w) {
		s.c.dir.Free(w.instance, w.pool)
	}
}

// forget stops following an attempt, and reports whether it had a slot.
func (s *session) forget(w *work) bool {
	for _, cancel := range w.cancel {
		cancel()
	}
	if s.work[w.id] != w {
		return false
	}
	delete(s.work, w.id)
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
	r := executor.Request{
		Op: executor.OpRun, Agent: s.ref.Agent, Session: s.ref.Session, Call: w.id, Attempt: w.attempt,
		StartBy: w.startBy, NotAfter: w.notAfter,
	}
	var tools json.RawMessage
	if w.kind == subject.Provider {
		m := decide.Prompt(s.state, s.c.agent(s.ref.Agent))
		r.Model, r.Provider = &m, s.state.Turn.Plan.Use
		tools = s.c.dir.Described(s.state.Turn.Plan.Tools)
	} else {
		st := s.step(w.id)
		l := s.state.Leases[st.Sticky]
		r.Tool = &executor.ToolCall{
			Name: st.Tool, Args: st.Final, Turn: s.state.Turn.ID, Principal: s.state.Turn.Writer, Spec: st.Spec,
			Lease: l.ID, Before: l.Ran,
		}
	}
	s.send(w, r, tools)
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
	s.send(w, executor.Request{Op: op, Agent: s.ref.Agent, Session: s.ref.Session, Call: w.id, Attempt: w.attempt}, nil)
}

func (s *session) send(w *work, r executor.Request, tools json.RawMessage) {
	body, err := executor.Encode(r, tools)
	if err != nil {
		panic(err)
	}
	asked := executor.Answer{Call: w.id, Attempt: w.attempt, Instance: w.instance}
	cancel, err := s.c.caller.Send(s.ctx, subject.Executor(w.kind, w.instance), string(w.instance), nil, body,
		func(m bus.Reply) {
			s.mailbox.put(answerOf(m, asked))
		})
	if err != nil {
		s.c.log.Warn("sending to an executor", "session", s.ref, "call", w.id, "executor", w.instance, "error", err)
		return
	}
	w.cancel = append(w.cancel, cancel)
}

// answerOf reads a reply about the attempt of asked, at its instance.
func answerOf(m bus.Reply, asked executor.Answer) answerMail {
	out := answerMail{call: asked.Call, attempt: asked.Attempt, gone: m.NoResponders, answer: asked}
	if m.NoResponders {
		return out
	}
	// When the request or its answer is lost, the executor still knows the attempt.
	// chase asks again.
	out.answer.State = executor.Running
	if m.Err != nil {
		out.answer.Message = m.Err.Error()
		return out
	}
	var a executor.Answer
	err := nesting.Check(m.Data)
	if err == nil {
		err = json.Unmarshal(m.Data, &a)
	}
	if err != nil {
		// An executor whose answer is invalid may or may not have run the attempt.
		out.answer.State, out.answer.Message = executor.Unknown, "invalid answer of the executor: "+err.Error()
		return out
	}
	if a.Call != asked.Call || a.Attempt != asked.Attempt || a.Instance != asked.Instance {
		out.answer.Message = fmt.Sprintf("the executor answered about attempt %q of %q at %q instead", a.Attempt, a.Call,
			a.Instance)
		return out
	}
	out.answer = a
	return out
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
	w := &work{
		id: p.ID, attempt: p.Attempt, kind: subject.Provider, instance: p.Provider, pool: executor.DefaultPool,
		idempotent: true, startBy: p.StartBy, notAfter: p.NotAfter, heard: time.Now(), own: true,
	}
	prev := s.state
	s.state = next
	s.work[w.id] = w
	s.c.dir.Reserve(s.claimant, w.instance, w.pool)
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
		e.s.c.dir.GiveBack(e.s.claimant, e.w.instance, e.w.pool)
	}
	e.s.c.stop(e.w, e.s.ref)
	e.s.c.release.add(e.w, e.s.ref)
}

// onAnswer handles an executor's answer. Late answers of old attempts change nothing.
func (s *session) onAnswer(m answerMail) {
	w := s.work[m.call]
	if w == nil || w.attempt != m.attempt {
		return
	}
	if m.gone {
		s.c.dir.Lost(w.instance)
		s.onGone(w)
		return
	}
	w.heard, w.silentSince, w.goneSince, w.asks, w.answered = time.Now(), time.Time{}, time.Time{}, 0, true
	if m.answer.State.Final() && w.final == nil {
		a := m.answer
		if a.State == executor.Refused && a.Reason == executor.RefusedFull {
			s.c.dir.Refused(w.instance, w.pool)
		}
		if w.endedByOthers(a) {
			s.note(w, &a)
			w.byOthers, w.asked = true, time.Now() // chase decides if the other core dies
			return
		}
		s.finish(w, &a)
	}
}

// endedByOthers reports whether another core has asked the executor to stop: it was
// delivered a cancel and is about to close the turn (rule 10). Continuing the turn now
// would defeat the cancel.
func (w *work) endedByOthers(a executor.Answer) bool {
	switch a.State {
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
		s.c.dir.Free(w.instance, w.pool)
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
		s.finish(w, &executor.Answer{
			Call: w.id, Attempt: w.attempt, State: executor.Never, Message: "its executor no longer exists",
		})
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
	for range maxDecisions {
		if !s.mayDrive() || s.work[w.id] != w || w.final == nil {
			return
		}
		env := s.env(s.held[s.state.Driver].NumDelivered)
		env.Heard = w.ended
		var d *decide.Decision
		if w.kind == subject.Provider {
			d, _ = decide.OnPlanAnswer(s.state, s.state.Driver, *w.final, env)
		} else {
			d, w.again = decide.OnCallAnswer(s.state, s.state.Driver, *w.final, env)
		}
		if d == nil || s.commit(d) != lost {
			return
		}
	}
}
