package decide

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/executor"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/planner"
)

// Bounds of the work on one model call.
const (
	maxPlanAttempts = 4                // model calls are idempotent: another attempt is only money
	providerWait    = 30 * time.Second // for a provider to be there at all
	maxAnswerBytes  = 200 << 10        // of text
)

// errStreak is how many failures in a row make core ask a person.
const errStreak = 5

// lockAt of the last breakerHistory calls failed: the session locks.
const lockAt = 8

// sameFailures of exactly the same call make core tell the model.
const sameFailures = 3

// wantsPlan reports whether the turn is waiting to ask the model.
func (s *State) wantsPlan() bool {
	return s.Turn != nil && s.Turn.Plan == nil && len(s.Turn.Steps) == 0
}

// requestPlan asks the model for the next round, unless a limit ends the turn.
// Without a live provider the turn keeps wanting, and [OnProgress] asks again.
func (b *builder) requestPlan() {
	if b.overLimit() {
		b.next()
		return
	}
	p, ok := b.env.Executors.PickProvider(nil)
	if !ok {
		return
	}
	t := b.s.Turn
	round := t.Round + 1
	id := fmt.Sprintf("%s-p%d", t.ID, round)
	req := event.PlanRequested{Plan: id, Round: round, Attempts: 1, Chain: b.s.Chain, Tools: b.offered()}
	if !b.beforePlan(&req) {
		b.next()
		return
	}
	b.assignPlan(req, p)
}

func (b *builder) assignPlan(req event.PlanRequested, p subject.Instance) {
	req.Provider, req.Attempt = p, b.env.Nonce()
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

// beforePlan runs the hook; false means that it ended the turn.
func (b *builder) beforePlan(req *event.PlanRequested) bool {
	data := hook.PlanData{Plan: req.Plan, Round: req.Round, System: b.agent().Guide.System(), Tools: req.Tools}
	d := b.hook(hook.BeforePlan, "", data)
	switch d.Verb {
	case hook.DenyVerb:
		b.failTurn(event.FailDenied, d.Reason)
		return false
	case hook.Replace:
		r := hook.PlanData{System: data.System, Tools: slices.Clone(req.Tools)} // what is not replaced stays
		if decodeInto(d.Data, &r) != nil {
			return true
		}
		if r.System != data.System {
			req.System = r.System
		}
		req.Tools = slices.DeleteFunc(req.Tools, func(t string) bool { return !slices.Contains(r.Tools, t) })
		req.Notes = r.Advice
	}
	return true
}

// overLimit ends the turn when a limit of the turn or the breaker says so.
func (b *builder) overLimit() bool {
	t, l := b.s.Turn, b.agent().Limits
	used := t.Usage.InputTokens + t.Usage.OutputTokens
	switch {
	case b.s.Breaker.failures() >= lockAt:
		why := fmt.Sprintf("%d of the last %d tool calls failed", b.s.Breaker.failures(), len(b.s.Breaker.Recent))
		b.emit(event.SessionLocked{Reason: why})
		b.failTurn(event.FailBreaker, why+"; the session is locked until /reset")
	case l.Rounds > 0 && t.Round >= l.Rounds:
		b.failTurn(event.FailLimitRounds, fmt.Sprintf("the model was asked %d times, the limit of a turn", t.Round))
	case l.Tokens > 0 && used >= l.Tokens:
		b.failTurn(event.FailLimitTokens, fmt.Sprintf("the turn used %d tokens, its limit is %d", used, l.Tokens))
	case l.CostMicroUSD > 0 && t.Usage.CostMicroUSD >= l.CostMicroUSD:
		b.failTurn(event.FailLimitCost, fmt.Sprintf("the turn cost %.4f USD, its limit is %.4f USD",
			float64(t.Usage.CostMicroUSD)/1e6, float64(l.CostMicroUSD)/1e6))
	default:
		return false
	}
	return true
}

// offered is the closed set of tools that the model may call in this round.
func (b *builder) offered() []string {
	only := b.agent().Tools
	public := b.env.Tools.Public()
	names := make([]string, 0, len(public)+1)
	for _, t := range public {
		if len(only) == 0 && only == nil || slices.Contains(only, t.Name) {
			names = append(names, t.Name)
		}
	}
	if len(names) > 0 && (only == nil || slices.Contains(only, planner.ExecuteName)) {
		names = append(names, planner.ExecuteName)
	}
	return names
}

// OnPlanAnswer decides about what became of an attempt at a model call. Nil
// means no effect: the attempt is not the current one, it goes on, or there is
// nowhere to try again yet (retry is true then, and the shell comes back).
func OnPlanAnswer(s *State, door uint64, a executor.Answer, env *Env) (d *Decision, retry bool) {
	if s.Turn == nil || s.Turn.Plan == nil || s.Turn.Plan.ID != a.Call || s.Turn.Plan.Attempt != a.Attempt || !a.State.Final() {
		return nil, false
	}
	b := start(s, door, event.Trigger{Kind: event.ByReply, Call: a.Call, Attempt: a.Attempt}, env.Now, env)
	b.touched = true
	switch {
	case a.State == executor.Finished && a.Response != nil:
		if !b.planned(a) {
			return nil, true
		}
	case a.State == executor.Finished && a.Error != nil:
		if !b.planFailed(a, *a.Error) {
			return nil, true
		}
	default:
		if !b.planFailed(a, provider.Error{Code: provider.ErrUnavailable, Retryable: true,
			Message: strings.TrimSpace(fmt.Sprintf("the provider answered %s %s %s", a.State, a.Reason, a.Message))}) {
			return nil, true
		}
	}
	return b.done(), false
}

// maxErrorBytes bounds what a provider may say of its failure.
const maxErrorBytes = 4000

// planFailed makes a new attempt, or ends the turn. It reports false if there
// is nowhere to try again now: the shell comes back when there is.
func (b *builder) planFailed(a executor.Answer, e provider.Error) bool {
	p := b.s.Turn.Plan
	e.Message = cut(e.Message, maxErrorBytes)
	limit, code := maxPlanAttempts, event.FailProvider
	if a.State == executor.Refused || a.State == executor.Never {
		limit *= 4 // these cost nothing
	} else if !e.Retryable {
		limit = 0
	}
	if p.Attempts < limit {
		if b.againPlan(a) {
			return true
		}
		if b.head.Now.Before(p.NotAfter.Add(providerWait)) {
			return false
		}
		code = event.FailNoProvider
	}
	b.emit(event.PlanCompleted{
		Plan: p.ID, Attempt: a.Attempt, Provider: p.Provider, Error: &e, Spent: spent(a), DurationMS: a.DurationMS,
	})
	b.failTurn(code, e.Error())
	b.next()
	return true
}

func (b *builder) againPlan(a executor.Answer) bool {
	p := *b.s.Turn.Plan
	inst, ok := b.env.Executors.PickProvider([]subject.Instance{p.Provider})
	if !ok && busy(a) && b.head.Now.Before(p.StartBy) {
		return false // the provider that has just refused is the only one: let it breathe
	}
	if !ok {
		if inst, ok = b.env.Executors.PickProvider(nil); !ok {
			return false
		}
	}
	b.assignPlan(event.PlanRequested{
		Plan: p.ID, Round: p.Round, Attempts: p.Attempts + 1, Chain: b.s.Chain,
		Tools: p.Tools, System: p.System, Notes: p.Notes, Spent: spent(a),
	}, inst)
	return true
}

// spent is what an answer of no use has cost all the same.
func spent(a executor.Answer) provider.Usage {
	if a.Response == nil {
		return provider.Usage{}
	}
	return a.Response.Usage
}

// planned takes over the model's answer. False as of planFailed.
func (b *builder) planned(a executor.Answer) bool {
	r := *a.Response
	p := *b.s.Turn.Plan
	d := b.hook(hook.AfterPlan, "", hook.AfterPlanData{Plan: p.ID, Response: r})
	if d.Verb == hook.Replace {
		var n hook.AfterPlanData
		if decodeInto(d.Data, &n) == nil {
			n.Response.ProviderState, n.Response.Usage = r.ProviderState, r.Usage
			r = n.Response
		}
	}
	r.TextContent = cut(r.TextContent, maxAnswerBytes)
	r.IsFinal = len(r.ToolCalls) == 0
	if r.IsFinal && strings.TrimSpace(r.TextContent) == "" && d.Verb != hook.DenyVerb {
		return b.planFailed(a, provider.Error{
			Code: provider.ErrGarbage, Message: "the model answered with neither text nor calls", Retryable: true,
		})
	}
	steps, refused := b.steps(p, r)
	calls := len(r.ToolCalls)
	r.ToolCalls = nil // they stand in the steps
	b.emit(event.PlanCompleted{
		Plan: p.ID, Attempt: a.Attempt, Provider: p.Provider, Response: &r, Steps: steps, DurationMS: a.DurationMS,
	})
	if d.Verb == hook.DenyVerb {
		for _, st := range slices.Backward(steps) { // a plan's steps before the plan
			b.complete(st.Call, tool.Failure(tool.CodeDenied, d.Reason))
		}
		b.failTurn(event.FailDenied, d.Reason)
		b.next()
		return true
	}
	if calls == 0 {
		b.finish(r.TextContent)
		return true
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
	return true
}

// steps turns the calls of an answer into steps, and says which are refused at
// once. The order is the answer's; the steps of a plan follow their plan.
func (b *builder) steps(p Plan, r provider.Response) (steps []event.Step, refused map[string]tool.Result) {
	refused = map[string]tool.Result{}
	ids := make(map[string]string, len(r.ToolCalls)) // the model's id -> ours
	nodes := make([]planner.Node, len(r.ToolCalls))
	names := callIDs(r.ToolCalls)
	for i, c := range r.ToolCalls {
		st := event.Step{Call: fmt.Sprintf("%s-c%d", p.ID, i), CallID: names[i], Tool: c.Tool, Args: c.Args}
		if len(st.Args) == 0 {
			st.Args = json.RawMessage("{}")
		}
		ids[st.CallID] = st.Call
		nodes[i] = planner.Node{ID: st.CallID, DependsOn: c.DependsOn}
		steps = append(steps, st)
	}
	for i, st := range steps {
		own := func(string) bool { return false }
		if st.Tool == planner.ExecuteName {
			plan, _ := planner.Parse(st.Args) // refused in expand
			own = plan.Has
		}
		known := func(id string) bool { _, ok := ids[id]; return ok && !own(id) }
		nodes[i].DependsOn = planner.Link(nodes[i].DependsOn, st.Args, known)
	}
	planErr := planner.Check(nodes)
	limit := b.agent().Limits.Calls
	for i := range steps {
		st := &steps[i]
		switch {
		case limit > 0 && i >= limit:
			refused[st.Call] = tool.Failure(tool.CodeNotRun, fmt.Sprintf("more than %d calls in one answer", limit))
		case planErr != nil:
			refused[st.Call] = tool.Failure(tool.CodeInvalidPlan, "the calls depend on each other in an impossible way", planner.Reasons(planErr)...)
		default:
			for _, d := range nodes[i].DependsOn {
				st.DependsOn = append(st.DependsOn, ids[d])
			}
			if res, bad := b.checkCall(p, st); bad {
				refused[st.Call] = res
			}
		}
	}
	return b.expand(p, steps, refused), refused
}

// callIDs gives every call an id of its own: the model's where it is one.
func callIDs(calls []provider.ToolCall) []string {
	given := make(map[string]bool, len(calls))
	for _, c := range calls {
		given[c.ID] = true
	}
	used := map[string]bool{"": true}
	ids := make([]string, len(calls))
	for i, c := range calls {
		id := c.ID
		for n := i; used[id]; n++ {
			if free := "call_" + strconv.Itoa(n); !given[free] {
				id = free
			}
		}
		used[id] = true
		ids[i] = id
	}
	return ids
}

// checkCall refuses what was not offered, and arguments that do not fit. What
// can't be checked now is checked before it runs.
func (b *builder) checkCall(p Plan, st *event.Step) (tool.Result, bool) {
	if !slices.Contains(p.Tools, st.Tool) {
		return tool.Failure(tool.CodeUnknownTool, fmt.Sprintf("no tool %q was offered", st.Tool), "offered: "+strings.Join(p.Tools, ", ")), true
	}
	if st.Tool == planner.ExecuteName {
		return tool.Result{}, false
	}
	spec, known := b.env.Tools.Lookup(st.Tool)
	if !known {
		return tool.Result{}, false // its runners are gone, and may come back
	}
	st.Idempotent = spec.Idempotent
	if len(planner.References(st.Args, func(string) bool { return true })) > 0 {
		return tool.Result{}, false // not what will run
	}
	args, errs := b.env.Tools.Validate(st.Tool, st.Args)
	if len(errs) > 0 {
		return tool.Failure(tool.CodeInvalidArgs, misfit, errs...), true
	}
	st.Args = args
	if b.checked == nil {
		b.checked = map[string]bool{}
	}
	b.checked[st.Call] = true
	return tool.Result{}, false
}

// expand puts the steps of each plan:execute call behind it.
func (b *builder) expand(p Plan, steps []event.Step, refused map[string]tool.Result) []event.Step {
	out := make([]event.Step, 0, len(steps))
	for _, st := range steps {
		if _, bad := refused[st.Call]; bad || st.Tool != planner.ExecuteName {
			out = append(out, st)
			continue
		}
		plan, err := planner.Parse(st.Args)
		subs, errs := b.substeps(p, st, plan)
		if err = errors.Join(err, errs); err != nil {
			refused[st.Call] = tool.Failure(tool.CodeInvalidPlan, "the plan was refused", planner.Reasons(err)...)
			out = append(out, st)
			continue
		}
		st.StopOnFailure = plan.StopOnFailure
		out = append(append(out, st), subs...)
	}
	return out
}

func (b *builder) substeps(p Plan, parent event.Step, plan planner.Plan) ([]event.Step, error) {
	ids := make(map[string]string, len(plan.Steps))
	for i, s := range plan.Steps {
		ids[s.ID] = fmt.Sprintf("%s-s%d", parent.Call, i)
	}
	var errs []error
	subs := make([]event.Step, len(plan.Steps))
	for i, s := range plan.Steps {
		st := event.Step{Call: ids[s.ID], CallID: s.ID, Parent: parent.Call, Tool: s.Tool, Args: s.Params}
		if s.Tool != planner.ExecuteName {
			if res, bad := b.checkCall(p, &st); bad {
				for _, d := range append([]string{res.Error.Message}, res.Error.Details...) {
					errs = append(errs, fmt.Errorf("step %q: %s", s.ID, d))
				}
			}
		}
		st.DependsOn = slices.Clone(parent.DependsOn)
		for _, d := range s.DependsOn {
			st.DependsOn = append(st.DependsOn, ids[d])
		}
		subs[i] = st
	}
	return subs, errors.Join(errs...)
}

func encode(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("decide: encoding %T: %v", v, err))
	}
	return b
}

func decodeInto(b json.RawMessage, v any) error { return json.Unmarshal(b, v) }
