package decide_test

import (
	"encoding/json"

	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/internal/executor"
)

// attempt is one attempt at a call, as its runner sees it.
type attempt struct {
	decide.Step
	began  bool
	tomb   bool             // it never will
	cut    bool             // its runner can't be reached
	answer *executor.Answer // final
}

// close asks the runners to stop, as the shell does (rule 10).
func (s *simulation) close(steps []decide.Step) decide.Closings {
	out := decide.Closings{}
	for _, st := range steps {
		a := s.known[st.Attempt]
		switch {
		case a.cut || chance(s.r, 12):
			a.cut = true
			out[st.Call] = decide.Closing{Unreachable: true}
			continue
		case a.answer != nil:
		case a.began:
			a.answer = s.ended(a, oneOf(s.r, executor.Stopped, executor.Finished, executor.Running))
		default:
			a.tomb = true
			a.answer = s.ended(a, executor.Never)
		}
		if chance(s.r, 20) {
			continue // not asked
		}
		out[st.Call] = decide.Closing{Answer: *a.answer}
		for _, old := range s.attempts { // the answer about an earlier attempt
			if old.Call == a.Call && old != a && old.answer != nil && chance(s.r, 3) {
				out[st.Call] = decide.Closing{Answer: *old.answer}
			}
		}
		if a.answer.State == executor.Running {
			a.answer = nil
		}
	}
	return out
}

func (s *simulation) ended(a *attempt, state executor.State) *executor.Answer {
	out := &executor.Answer{Call: a.Call, Attempt: a.Attempt, Instance: a.Runner, State: state, DurationMS: 7}
	switch state {
	case executor.Finished:
		r := s.toolResult()
		if a.probes() {
			r = s.probed(a)
		}
		out.Result = &r
		if !a.probes() && chance(s.r, 30) {
			out.Result = nil
		}
	case executor.Refused:
		out.Reason = oneOf(s.r, executor.RefusedFull, executor.RefusedDraining, executor.RefusedLate, executor.RefusedUnknown)
		s.seen.refusedBy[a.Attempt] = true
	case executor.Never:
		s.seen.refusedBy[a.Attempt] = true
	}
	return out
}

// probes reports whether the attempt has no effect, but finds out what became of earlier ones.
func (a *attempt) probes() bool { return !a.Probe.IsZero() }

// probed is what a probe truthfully finds out: which earlier attempts had an effect. If none had,
// none can have one any more.
func (s *simulation) probed(a *attempt) tool.Result {
	for _, old := range s.attempts {
		if old.Call == a.Call && old.began && !old.probes() {
			return oneOf(s.r, tool.OK("it happened"), tool.OK("it happened"),
				tool.Failure(tool.CodeOutcomeUnknown, "the other system does not answer"))
		}
	}
	for _, old := range s.attempts {
		if old.Call == a.Call && !old.probes() {
			old.tomb = true
		}
	}
	return tool.Failure(tool.CodeNotRun, "it was given up before it began")
}

// execute lets one runner take a random step.
func (s *simulation) execute() {
	if len(s.attempts) == 0 {
		return
	}
	a := s.attempts[len(s.attempts)-1-min(s.r.IntN(4)*s.r.IntN(3), len(s.attempts)-1)]
	for _, b := range s.attempts {
		if s.current(b) && chance(s.r, 2) {
			a = b
		}
	}
	switch {
	case a.answer != nil:
		s.deliver(a)
	case a.cut:
		if !a.tomb && chance(s.r, 4) {
			a.began = true // unknown to core
		}
		s.unreachable(a)
	case !a.began:
		switch s.r.IntN(14) {
		case 0:
			a.tomb = true
			a.answer = s.ended(a, oneOf(s.r, executor.Refused, executor.Never))
			s.deliver(a)
		case 1:
			a.cut = true
		case 2:
			s.deliverState(a, executor.Running)
		default:
			a.began = true
		}
	default:
		switch s.r.IntN(16) {
		case 0:
			a.cut = true
		case 1:
			a.answer = s.ended(a, oneOf(s.r, executor.Unknown, executor.Stopped, "gibberish"))
		default:
			a.answer = s.ended(a, executor.Finished)
		}
		if a.answer != nil {
			s.deliver(a)
		}
	}
}

// current reports whether the state waits for the attempt.
func (s *simulation) current(a *attempt) bool {
	for _, st := range s.state.Assigned() {
		if st.Attempt == a.Attempt {
			return true
		}
	}
	return false
}

func (s *simulation) deliver(a *attempt) {
	current := s.current(a)
	stored := s.store(s.state.Driver, func() *decide.Decision {
		d, retry := decide.OnCallAnswer(s.state, s.state.Driver, *a.answer, s.env())
		if (d != nil || retry) && !current {
			s.fail("an answer about the old attempt %s of %s has an effect", a.Attempt, a.Call)
		}
		if d == nil && current && !retry {
			s.fail("an answer about %s has no effect: %+v", a.Call, a.answer)
		}
		return d
	})
	if stored {
		s.logf("  after %s said %s of %s", a.Runner, a.answer.State, a.Call)
	}
}

func (s *simulation) deliverState(a *attempt, state executor.State) {
	if d, retry := decide.OnCallAnswer(s.state, s.state.Driver,
		executor.Answer{Call: a.Call, Attempt: a.Attempt, State: state}, s.env()); d != nil || retry {
		s.fail("%s is not final, and has an effect", state)
	}
}

func (s *simulation) unreachable(a *attempt) {
	s.store(s.state.Driver, func() *decide.Decision {
		d, retry := decide.OnUnreachable(s.state, s.state.Driver, a.Call, a.Attempt, s.env())
		if (d != nil || retry) != s.current(a) {
			s.fail("unreachable %s of %s: current %t, decided %t, retry %t", a.Attempt, a.Call, s.current(a), d != nil, retry)
		}
		return d
	})
}

// provide lets a provider answer.
func (s *simulation) provide() {
	if len(s.plans) > 0 && chance(s.r, 8) { // too late
		a := oneOf(s.r, s.plans...)
		if s.state.Turn == nil || s.state.Turn.Plan == nil || s.state.Turn.Plan.Attempt != a.Attempt {
			if d, retry := decide.OnPlanAnswer(s.state, s.state.Driver, a, s.env()); d != nil || retry {
				s.fail("a late answer to %s has an effect", a.Call)
			}
		}
		return
	}
	if s.state.Turn == nil || s.state.Turn.Plan == nil {
		return
	}
	p := s.state.Turn.Plan
	a := executor.Answer{Call: p.ID, Attempt: p.Attempt, Instance: p.Provider, State: executor.Finished, DurationMS: 5}
	switch s.r.IntN(14) {
	case 0:
		a.Error = &provider.Error{Code: provider.ErrRateLimited, Message: "slow down\xff", Retryable: true}
	case 1:
		if chance(s.r, 3) {
			a.Error = &provider.Error{Code: provider.ErrAuth, Message: "no key"}
		}
	case 2:
		a.State, a.Reason = executor.Refused, oneOf(s.r, executor.RefusedFull, executor.RefusedLate)
	case 3:
		a.State = oneOf(s.r, executor.Never, executor.Unknown, executor.Stopped, executor.Running)
	default:
		r := s.response()
		a.Response = &r
	}
	s.plans = append(s.plans, a)
	s.store(s.state.Driver, func() *decide.Decision {
		d, retry := decide.OnPlanAnswer(s.state, s.state.Driver, a, s.env())
		if d == nil && !retry && a.State.Final() {
			s.fail("an answer to %s has no effect", p.ID)
		}
		return d
	})
}

func (s *simulation) provideFinal(p *decide.Plan) {
	s.store(s.state.Driver, func() *decide.Decision {
		d, _ := decide.OnPlanAnswer(s.state, s.state.Driver, executor.Answer{
			Call: p.ID, Attempt: p.Attempt, State: executor.Finished, Response: &provider.Response{TextContent: "done"},
		}, s.env())
		return d
	})
}

func (s *simulation) bringHome(a *attempt) {
	switch {
	case a.answer != nil:
		s.deliver(a)
	case a.cut:
		s.unreachable(a)
	default:
		a.began = true
		a.answer = s.ended(a, executor.Finished)
		s.deliver(a)
	}
}

func (s *simulation) toolResult() tool.Result {
	switch s.r.IntN(20) {
	case 0:
		return tool.Failure(tool.CodeFailed, "it broke", "line 1")
	case 1: // a tool that lies
		return tool.Failure(oneOf(s.r, tool.CodeCancelled, tool.CodeNotRun, tool.CodeSkipped, tool.CodeDenied,
			tool.CodeExpired), "I never ran")
	case 2:
		return tool.Result{}
	case 3:
		return tool.Result{
			Success: true, Error: &tool.Error{Code: tool.CodeFailed},
			Metadata: map[string]any{"n": 1.5, "s": "x", "l": []any{true, nil}},
		}
	case 4:
		return tool.Result{Success: true, Data: json.RawMessage(`null`)}
	}
	return tool.Result{Success: true, Data: json.RawMessage(oneOf(s.r,
		`{"text": "<b>&\u2028", "list":[{"n":1e3},2], "n":12345678901234567890}`, `"plain"`, `[1,[2,3]]`, `7`,
		"{\"raw\":\"\xff\"}"))}
}
