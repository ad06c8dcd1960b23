package decide

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/planner"
	"skandha.dev/services/internal/executor"
	"skandha.dev/services/internal/text"
)

// Bounds of one model call.
const (
	maxPlanAttempts = 4                // model calls are idempotent: another attempt only costs money
	maxRefused      = 128              // refusals of busy providers that are not failures
	maxLost         = 15               // failures of provider processes that are not failures of the model
	providerWait    = 30 * time.Second // for a provider to be present
	maxAnswerBytes  = 200 << 10        // of text
)

// wantsPlan reports whether the turn is waiting to ask the model.
func (s *State) wantsPlan() bool {
	return s.Turn != nil && s.Turn.Plan == nil && len(s.Turn.Steps) == 0 && s.Paused == nil
}

// requestPlan asks the model for the next round, unless a limit ends the turn, or the session is paused.
// Without a live provider the turn waits, and [OnProgress] asks again.
func (b *builder) requestPlan() {
	if b.s.Paused != nil {
		return
	}
	if b.mustEnd() {
		b.next()
		return
	}
	b.join()
	req := b.nextPlan()
	out := b.decision()
	if out != nil && out.Selection != nil && b.respond(req, *out) {
		return
	}
	c, p, ok := b.pickProvider(b.s.choices(b.env.Agent), nil)
	if !ok {
		return
	}
	if q := b.question(req, out); q != nil {
		req.Question, req.Tools = q, []string{}
		b.assignPlan(req, c, p)
		return
	}
	var why *event.PlanConsidered
	req.Tools, why = b.offer(req.Plan)
	remembered := b.recall(req.Plan)
	if !b.beforePlan(&req, remembered) {
		b.next()
		return
	}
	b.explain(req, why, out)
	if remembered != nil {
		b.emit(*remembered)
	}
	b.assignPlan(req, c, p)
}

// nextPlan returns the request for the turn's next plan, without its provider and tools.
func (b *builder) nextPlan() event.PlanRequested {
	t := b.s.Turn
	round := t.Round + 1
	return event.PlanRequested{
		Plan: fmt.Sprintf("%s-p%d", t.ID, round), Round: round, Attempts: 1, Chain: b.s.Chain, Project: b.project(),
	}
}

func (b *builder) assignPlan(req event.PlanRequested, c Choice, p subject.Instance) {
	req.Provider, req.Use, req.Model, req.Attempt = p, c.Provider, c.Model, b.env.Nonce()
	req.StartBy = b.head.Now.Add(executor.StartWithin)
	req.NotAfter = b.head.Now.Add(b.modelCall())
	b.touched = true
	b.emit(req)
}

func (b *builder) modelCall() time.Duration {
	if d := b.agent().Limits.ModelCall; d > 0 {
		return d
	}
	return DefaultLimits().ModelCall
}

// beforePlan runs the hook, which may also remove memories. False means that the hook
// ended the turn.
func (b *builder) beforePlan(req *event.PlanRequested, remembered *event.Recalled) bool {
	data := hook.PlanData{Plan: req.Plan, Round: req.Round, System: b.agent().Guide.System(), Tools: req.Tools}
	if remembered != nil {
		data.Memories = remembered.Memories
	}
	d := ask(b, hook.BeforePlan, "", data)
	switch d.Verb {
	case hook.DenyVerb:
		b.failTurn(event.FailDenied, d.Reason)
		return false
	case hook.Replace:
		// Fields that the hook omits keep their values.
		r := hook.PlanData{System: data.System, Tools: slices.Clone(req.Tools), Memories: slices.Clone(data.Memories)}
		if decodeInto(d.Data, &r) != nil {
			return true
		}
		if r.System != data.System {
			req.System = r.System
		}
		req.Tools = slices.DeleteFunc(req.Tools, func(t string) bool { return !slices.Contains(r.Tools, t) })
		req.Notes = r.Advice
		if remembered != nil {
			remembered.Memories = kept(remembered.Memories, r.Memories)
		}
	}
	return true
}

// mustEnd ends the turn, and reports so, if it has reached a limit, the breaker has
// tripped, or a required guide is missing.
func (b *builder) mustEnd() bool {
	t, l := b.s.Turn, b.agent().Limits
	used, held := t.Usage.InputTokens+t.Usage.OutputTokens, b.s.reserved()
	all, kept := b.s.Usage.InputTokens+b.s.Usage.OutputTokens, ""
	if held != (event.Budget{}) {
		kept = ", besides what is reserved for the sessions that work for it"
	}
	why, tripped := b.s.Breaker.tripped()
	switch {
	case tripped:
		b.lock(why)
	case l.Rounds > 0 && t.Round-t.Questions >= l.Rounds:
		b.failTurn(event.FailLimitRounds, fmt.Sprintf("the turn reached its limit of %d model calls", l.Rounds))
	case l.Tokens > 0 && used+held.Tokens >= l.Tokens:
		b.failTurn(event.FailLimitTokens, fmt.Sprintf("the turn used %d tokens%s, its limit is %d", used, kept, l.Tokens))
	case l.SessionTokens > 0 && all+held.Tokens >= l.SessionTokens:
		b.failTurn(event.FailLimitTokens, fmt.Sprintf("the session used %d tokens%s, its limit is %d", all, kept, l.SessionTokens))
	case l.CostMicroUSD > 0 && t.Usage.CostMicroUSD+held.CostMicroUSD >= l.CostMicroUSD:
		b.failTurn(event.FailLimitCost, fmt.Sprintf("the turn cost %s%s, its limit is %s",
			t.Usage.Cost(), kept, provider.USD(l.CostMicroUSD)))
	case l.SessionCostMicroUSD > 0 && b.s.Usage.CostMicroUSD+held.CostMicroUSD >= l.SessionCostMicroUSD:
		b.failTurn(event.FailLimitCost, fmt.Sprintf("the session cost %s%s, its limit is %s",
			b.s.Usage.Cost(), kept, provider.USD(l.SessionCostMicroUSD)))
	case b.agent().Unguided != "":
		b.failTurn(event.FailNoGuide, b.agent().Unguided)
	default:
		return false
	}
	return true
}

// offered returns the closed set of tools that the model may call in this round.
func (b *builder) offered() []string {
	agent := b.agent()
	public := b.env.Tools.Public()
	names := make([]string, 0, len(public)+1)
	for _, t := range public {
		if agent.Offers(t.Name) && b.s.Turn.excludes(t.Name) == "" {
			names = append(names, t.Name)
		}
	}
	if len(names) > 0 && agent.Offers(planner.ExecuteName) {
		names = append(names, planner.ExecuteName)
	}
	return names
}

// OnPlanAnswer decides about the outcome of an attempt at a model call. Nil means no
// effect: the attempt is not the current one, it is still running, or no provider is
// free for another attempt yet. In the last case retry is true, and the shell calls
// again later.
func OnPlanAnswer(s *State, delivery uint64, a executor.Answer, env *Env) (d *Decision, retry bool) {
	if s.Turn == nil || s.Turn.Plan == nil || s.Turn.Plan.ID != a.Call || s.Turn.Plan.Attempt != a.Attempt ||
		!a.State.Final() {
		return nil, false
	}
	b := start(s, delivery, event.Trigger{Kind: event.ByReply, Call: a.Call, Attempt: a.Attempt}, env.Now, env)
	b.touched = true
	var done bool
	if a.State == executor.Finished && a.Response != nil {
		done = b.planned(a)
	} else {
		done = b.planFailed(a, planError(a))
	}
	if !done {
		return nil, true
	}
	return b.done(), false
}

// planError returns the error of an attempt at a model call that has no usable response.
func planError(a executor.Answer) provider.Error {
	if a.State == executor.Finished && a.Error != nil {
		return *a.Error
	}
	return provider.Error{
		Code: provider.ErrUnavailable, Retryable: true,
		Message: strings.TrimSpace(fmt.Sprintf("the provider answered %s %s %s", a.State, a.Reason, a.Message)),
	}
}

// maxFailedBytes bounds the reason of a failed attempt that another one follows.
const maxFailedBytes = 500

// maxErrorBytes bounds a provider's error message.
const maxErrorBytes = 4000

// planFailed makes a new attempt, or ends the turn. It reports false if no provider is
// free for another attempt now; the shell calls again when one is.
func (b *builder) planFailed(a executor.Answer, e provider.Error) bool {
	p := *b.s.Turn.Plan
	e.Message = text.Cut(e.Message, maxErrorBytes)
	next := p.next(b.s.choices(b.env.Agent), a, e)
	code := event.FailProvider
	if e.Code == provider.ErrOverBudget {
		code = event.FailLimitCost
	}
	if len(next) > 0 {
		if b.s.Paused != nil {
			return false
		}
		if b.againPlan(p, a, e, next) {
			return true
		}
		// A failure that may pass is worth waiting for a provider; one that cannot pass is worth
		// only a provider that is there, and busy.
		passing := a.State != executor.Finished || e.Retryable
		if b.anyOffered(next) || passing && !b.noProviderSince(p.NotAfter, next) {
			return false
		}
		if passing {
			code = event.FailNoProvider
		}
	}
	b.emit(event.PlanCompleted{
		Plan: p.ID, Attempt: a.Attempt, Provider: p.Provider, Error: &e, Spent: spent(a), DurationMS: a.DurationMS,
		Purpose: p.purpose(),
	})
	if p.Question != nil { // the turn goes on without the answer
		b.requestPlan()
		return true
	}
	b.failTurn(code, e.Error())
	b.next()
	return true
}

// next returns those of the providers that are for another attempt, in order; there are none
// after too many failures. It counts in p what kind of attempt has ended. A provider that is busy
// or whose process failed is asked again, until that has happened too often in this plan; then it
// is a failure like the model's own, so that the list goes on. A provider that failed for good is
// not asked again.
func (p *Plan) next(all []Choice, a executor.Answer, e provider.Error) []Choice {
	switch {
	case busy(a) && p.Refused < maxRefused:
		p.Refused++
		return p.from(all)
	case a.State != executor.Finished && !busy(a) && p.Lost < maxLost:
		p.Lost++
		return p.from(all)
	case a.State == executor.Finished && !e.Retryable:
		p.Not = append(slices.Clone(p.Not), p.Use)
	}
	if p.failures() >= maxPlanAttempts+len(all)-1 {
		return nil
	}
	return p.after(all)
}

// failures returns how many attempts failed, including the current one.
func (p *Plan) failures() int { return p.Attempts - p.Refused - p.Lost }

func (b *builder) againPlan(p Plan, a executor.Answer, e provider.Error, next []Choice) bool {
	not := []subject.Instance{p.Provider}
	var c Choice
	var inst subject.Instance
	ok := false
	if a.State != executor.Finished && !busy(a) { // the process failed: it comes last
		c, inst, ok = b.pickOther(next, not)
	}
	if !ok {
		c, inst, ok = b.pickProvider(next, not)
	}
	if !ok {
		return false
	}
	b.assignPlan(event.PlanRequested{
		Plan: p.ID, Round: p.Round, Attempts: p.Attempts + 1, Refused: p.Refused, Lost: p.Lost,
		Chain: b.s.Chain, Not: p.Not,
		Tools: p.Tools, System: p.System, Notes: p.Notes, Question: p.Question, Spent: spent(a),
		Failed: text.Cut(string(e.Code)+": "+e.Message, maxFailedBytes),
	}, c, inst)
	return true
}

// spent returns the cost of an answer that cannot be used. It is unknown if the model may have
// worked and its provider cannot say any more what became of that.
func spent(a executor.Answer) provider.Usage {
	switch {
	case a.Response != nil:
		return a.Response.Usage
	case a.State == executor.Unknown || a.State == executor.Stopped:
		return provider.Usage{Uncounted: 1, Unpriced: 1}
	}
	return a.Spent
}

// planned applies the model's answer. It reports false like planFailed.
func (b *builder) planned(a executor.Answer) bool {
	r := *a.Response
	p := *b.s.Turn.Plan
	if p.Question != nil {
		return b.answered(p, a, r)
	}
	d := ask(b, hook.AfterPlan, "", hook.AfterPlanData{Plan: p.ID, Response: r})
	if d.Verb == hook.Replace {
		var n hook.AfterPlanData
		if decodeInto(d.Data, &n) == nil {
			n.Response.ProviderState, n.Response.Usage = r.ProviderState, r.Usage
			r = n.Response
		}
	}
	r.TextContent = text.Cut(r.TextContent, maxAnswerBytes)
	r.IsFinal = len(r.ToolCalls) == 0
	switch why := r.Usable(); {
	case why == nil:
	case d.Verb == hook.DenyVerb:
		r.ToolCalls, r.ProviderState = nil, nil
	default:
		return b.planFailed(a,
			provider.Error{Code: provider.ErrGarbage, Message: "the model's answer " + why.Error(), Retryable: true})
	}
	b.apply(p, a, r, d)
	return true
}

// apply ends a plan with a usable response, on which the hooks at after_plan decided d.
func (b *builder) apply(p Plan, a executor.Answer, r provider.Response, d hook.Decision) {
	steps, refused := b.steps(p, r)
	calls := len(r.ToolCalls)
	r.ToolCalls = nil // the steps contain them
	b.emit(event.PlanCompleted{
		Plan: p.ID, Attempt: a.Attempt, Provider: p.Provider, Response: &r, Steps: steps, DurationMS: a.DurationMS,
	})
	if d.Verb == hook.DenyVerb {
		for _, st := range slices.Backward(steps) { // a plan's steps before the plan
			b.complete(st.Call, tool.Failure(tool.CodeDenied, d.Reason))
		}
		b.failTurn(event.FailDenied, d.Reason)
		b.next()
		return
	}
	if calls == 0 {
		b.finish(r.TextContent)
		return
	}
	if r.TextContent != "" {
		b.message(r.TextContent)
	}
	for _, st := range steps {
		if res, bad := refused[st.Call]; bad {
			b.complete(st.Call, res)
		}
	}
	b.advance()
}

func encode(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("decide: encoding %T: %v", v, err))
	}
	return b
}

func decodeInto(b json.RawMessage, v any) error { return json.Unmarshal(b, v) }
