package decide

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/executor"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/planner"
)

// maxAttempts of a call: new ones are made only when the one before certainly
// did not run, or the tool is idempotent.
const maxAttempts = 8

// DefaultConfirm is how long a person may take to answer a confirmation request.
const DefaultConfirm = 15 * time.Minute

// advance moves every step on that can move, until none can; then, if all
// calls have their results, it asks the model again.
func (b *builder) advance() {
	for moved := true; moved && b.s.Turn != nil; {
		moved = false
		for i := 0; b.s.Turn != nil && i < len(b.s.Turn.Steps); i++ {
			if b.move(b.s.Turn.Steps[i]) {
				moved = true
			}
		}
	}
	if b.s.wantsPlan() {
		b.requestPlan()
	}
}

// move brings one step on and reports whether it did. st is a copy.
func (b *builder) move(st Step) bool {
	t := b.s.Turn
	switch st.Status {
	case Approved:
		return b.assign(st, st.Final)
	case Expanded:
		return b.composePlan(st)
	case Waiting:
	default:
		return false
	}
	if why, skip := t.skip(&st); skip {
		b.complete(st.Call, tool.Failure(tool.CodeSkipped, why))
		return true
	}
	if !t.ready(&st) {
		return false
	}
	spec, known := b.env.Tools.Lookup(st.Tool)
	if !known {
		return false // its runners are gone; deadlines end the wait
	}
	args, err := planner.Resolve(st.Args, t.dataOf(st.Parent))
	if err != nil {
		b.complete(st.Call, tool.Failure(tool.CodeInvalidArgs, "a reference cannot be resolved", planner.Reasons(err)...))
		return true
	}
	if !b.checked[st.Call] || string(args) != string(st.Args) {
		var errs []string
		if args, errs = b.env.Tools.Validate(st.Tool, args); len(errs) > 0 {
			b.complete(st.Call, tool.Failure(tool.CodeInvalidArgs, misfit, errs...))
			return true
		}
	}
	if _, free := b.env.Executors.PickRunner(spec, nil); !free {
		return false // hooks are asked when it can run
	}
	return b.act(st, spec, args)
}

const misfit = "the arguments do not fit the tool's schema"

// act passes one step through before_act and policy, then assigns it or asks.
func (b *builder) act(st Step, spec tool.Spec, args json.RawMessage) bool {
	d := b.hook(hook.BeforeAct, st.Call, hook.ActData{Call: st.Call, Tool: st.Tool, Args: args})
	switch d.Verb {
	case hook.DenyVerb:
		b.complete(st.Call, tool.Failure(tool.CodeDenied, d.Reason))
		return true
	case hook.AnswerFor:
		if len(d.Data) > 0 && !json.Valid(d.Data) {
			return b.garbage(st)
		}
		b.complete(st.Call, tool.Result{Success: true, Data: d.Data})
		return true
	case hook.Replace:
		var n hook.ActData
		if err := decodeInto(d.Data, &n); err != nil || len(n.Args) == 0 {
			return b.garbage(st)
		}
		args = n.Args
		var errs []string
		if args, errs = b.env.Tools.Validate(st.Tool, args); len(errs) > 0 {
			b.complete(st.Call, tool.Failure(tool.CodeInvalidArgs, "a before_act hook left arguments that do not fit", errs...))
			return true
		}
	case hook.Confirm, hook.Continue, hook.Stop, "":
	default:
		return b.garbage(st)
	}
	args = encode(args) // as the events carry them: what is hashed is what is shown and run
	r := b.env.Policy.Evaluate(Access{
		Principal: b.s.Turn.Writer, Action: "tool.call", Resource: spec, Args: args, Ref: b.s.Ref, Turn: b.s.Turn.ID,
	})
	warning := r.Warning
	switch {
	case r.Effect == Deny:
		b.complete(st.Call, tool.Failure(tool.CodeDenied, r.Reason))
		return true
	case d.Verb == hook.Confirm:
		warning = d.Warning
	case r.Effect == Ask:
	case b.s.Breaker.Consecutive >= errStreak:
		warning = &hook.Warning{Level: hook.LevelWarn, Message: fmt.Sprintf("the last %d tool calls failed; shall the agent go on?", b.s.Breaker.Consecutive)}
	default:
		return b.assign(st, args)
	}
	ttl := b.agent().Confirm
	if ttl <= 0 {
		ttl = DefaultConfirm
	}
	b.emit(event.ToolCallRequest{
		ToolName: st.Tool, Args: args, ConfirmationID: st.Call, Hash: Hash(st.Tool, args),
		ExpiresAt: b.head.Now.Add(ttl), SecurityWarning: warning,
	})
	return true
}

// garbage denies a step because nobody can know what a before_act hook wants.
func (b *builder) garbage(st Step) bool {
	b.complete(st.Call, tool.Failure(tool.CodeDenied, "a before_act hook answered something that cannot be understood"))
	return true
}

// assign gives the step to the least busy runner, if there is one.
func (b *builder) assign(st Step, args json.RawMessage, not ...subject.Instance) bool {
	spec, known := b.env.Tools.Lookup(st.Tool)
	if !known {
		return false
	}
	inst, free := b.env.Executors.PickRunner(spec, not)
	if !free {
		return false
	}
	notAfter := b.head.Now.Add(executor.StartWithin + spec.Timeout())
	if notAfter.After(b.s.Turn.Deadline) {
		notAfter = b.s.Turn.Deadline
	}
	b.touched = true
	b.emit(event.ActRequested{
		Call: st.Call, Tool: st.Tool, Args: args, Hash: Hash(st.Tool, args),
		Attempt: b.env.Nonce(), Attempts: st.Attempts + 1, Runner: inst,
		StartBy: b.head.Now.Add(executor.StartWithin), NotAfter: notAfter,
		Idempotent: spec.Idempotent, Uncertain: st.Uncertain, ApprovedBy: st.ApprovedBy,
	})
	return true
}

// complete gives a step its one result, if it has none yet.
func (b *builder) complete(call string, r tool.Result) {
	if st, err := b.s.open(call); err == nil {
		b.completeFrom(*st, r, executor.Answer{})
	}
}

func (b *builder) completeFrom(st Step, r tool.Result, a executor.Answer) {
	hash := st.Hash
	if hash == "" {
		hash = Hash(st.Tool, st.Args)
	}
	args := st.Final
	if args == nil {
		args = st.Args
	}
	if d := b.hook(hook.AfterAct, st.Call, hook.AfterActData{Call: st.Call, Tool: st.Tool, Args: args, Result: r}); d.Verb == hook.Replace {
		var n hook.AfterActData
		if decodeInto(d.Data, &n) == nil {
			r = amended(r, n.Result)
		}
	}
	r = b.bounded(r)
	p := event.ActCompleted{
		Call: st.Call, Tool: st.Tool, Hash: hash, Result: r, Attempt: st.Attempt, Runner: st.Runner, DurationMS: a.DurationMS,
	}
	if br := b.s.Breaker; !r.Success && !blameless(r) && br.Hash == hash && br.Same+1 >= sameFailures {
		p.Note = fmt.Sprintf("this exact call has failed %d times in a row; do something else", br.Same+1)
	}
	b.touched = true
	b.emit(p)
}

// maxCommitBytes is how much a commit may hold before results lose their data.
// Many calls may end in one, and the log takes 8 MiB.
const maxCommitBytes = 4 << 20

// bounded drops the data of a result that the commit has no room for.
func (b *builder) bounded(r tool.Result) tool.Result {
	const growth = 6 // of one byte, escaped
	if b.size+growth*len(r.Data) <= maxCommitBytes || b.size+len(encode(r.Data)) <= maxCommitBytes {
		return r
	}
	why := fmt.Sprintf("its result of %d bytes does not fit beside the others", len(r.Data))
	if r.Success {
		return tool.Failure(tool.CodeTooLarge, "it ran with success; "+why)
	}
	e := *r.Error
	e.Details = append(slices.Clone(e.Details), why)
	r.Data, r.Error = nil, &e
	return r
}

// skip reports whether a step can never run, and why.
func (t *Turn) skip(st *Step) (string, bool) {
	for _, d := range st.DependsOn {
		if dep := t.step(d); dep != nil && dep.Status == Done && !dep.Result.Success {
			return fmt.Sprintf("step %q, on which it depends, did not succeed", dep.CallID), true
		}
	}
	if st.Parent == "" {
		return "", false
	}
	if parent := t.step(st.Parent); parent == nil || !parent.StopOnFailure {
		return "", false
	}
	for _, s := range t.Steps {
		if s.Parent == st.Parent && s.Status == Done && !s.Result.Success {
			return fmt.Sprintf("step %q failed and the plan stops on failure", s.CallID), true
		}
	}
	return "", false
}

// dataOf looks up the data of finished steps by the model's own ids: those of
// the same plan, then those of the same answer.
func (t *Turn) dataOf(parent string) func(id string) (json.RawMessage, bool) {
	in := func(scope, id string) *Step {
		for i := range t.Steps {
			if s := &t.Steps[i]; s.Parent == scope && s.CallID == id {
				return s
			}
		}
		return nil
	}
	return func(id string) (json.RawMessage, bool) {
		s := in(parent, id)
		if s == nil {
			s = in("", id)
		}
		if s == nil || s.Status != Done || !s.Result.Success {
			return nil, false
		}
		return s.Result.Data, true
	}
}

// stepResult is what a plan:execute call's result says of one step.
type stepResult struct {
	Tool    string          `json:"tool"`
	Success bool            `json:"success"`
	Data    json.RawMessage `json:"data,omitempty"`
	Cut     bool            `json:"cut,omitempty"` // Data is a string: the beginning of the data, as text
	Error   *tool.Error     `json:"error,omitempty"`
}

// maxPlanData bounds what the steps of one plan:execute call return together, in bytes.
const maxPlanData = 256 << 10

// fit cuts the largest data, so that all of it stays within the bound.
func fit(steps map[string]stepResult) {
	total := 0
	for _, s := range steps {
		total += len(s.Data)
	}
	if total <= maxPlanData {
		return
	}
	for id, s := range steps {
		if share := maxPlanData / len(steps); len(s.Data) > share {
			s.Data, s.Cut = encode(cut(string(s.Data), share)), true
			steps[id] = s
		}
	}
}

// composePlan gives a plan:execute call its result once all its steps have theirs.
func (b *builder) composePlan(parent Step) bool {
	steps := map[string]stepResult{}
	failed := 0
	for _, s := range b.s.Turn.Steps {
		if s.Parent != parent.Call {
			continue
		}
		if s.Status != Done {
			return false
		}
		if !s.Result.Success {
			failed++
		}
		steps[s.CallID] = stepResult{Tool: s.Tool, Success: s.Result.Success, Data: s.Result.Data, Error: s.Result.Error}
	}
	fit(steps)
	data := encode(map[string]any{"steps": steps})
	r := tool.Result{Success: true, Data: data}
	if failed > 0 {
		r = tool.Failure(tool.CodeFailed, fmt.Sprintf("%d of %d steps did not succeed", failed, len(steps)))
		r.Data = data
	}
	b.completeFrom(parent, r, executor.Answer{})
	return true
}

// OnCallAnswer decides about what became of an attempt at a call. Nil means no
// effect: the attempt is not the current one, it goes on, or there is nowhere
// to run it again yet (retry is true then, and the shell comes back).
func OnCallAnswer(s *State, door uint64, a executor.Answer, env *Env) (d *Decision, retry bool) {
	if s.Turn == nil || !a.State.Final() {
		return nil, false
	}
	st := s.Turn.step(a.Call)
	if st == nil || st.Status != Assigned || st.Attempt != a.Attempt {
		return nil, false
	}
	b := start(s, door, event.Trigger{Kind: event.ByReply, Call: a.Call, Attempt: a.Attempt}, env.Now, env)
	b.touched = true
	c := *st
	switch a.State {
	case executor.Finished:
		b.completeFrom(c, resultOf(a), a)
	case executor.Never, executor.Refused:
		if !b.again(c, a) {
			return nil, true
		}
	case executor.Stopped:
		b.completeFrom(c, tool.Failure(tool.CodeOutcomeUnknown, "it was stopped while it ran"), a)
	default:
		b.completeFrom(c, tool.Failure(tool.CodeOutcomeUnknown, "it ran, and its result is gone"), a)
	}
	b.advance()
	return b.done(), false
}

// OnUnreachable decides about a call whose runner cannot be asked (rule 9). An
// idempotent one is attempted elsewhere; any other ends as outcome_unknown,
// which is final, so the shell waits for start_by and the skew before.
func OnUnreachable(s *State, door uint64, call, attempt string, env *Env) (d *Decision, retry bool) {
	if s.Turn == nil {
		return nil, false
	}
	st := s.Turn.step(call)
	if st == nil || st.Status != Assigned || st.Attempt != attempt {
		return nil, false
	}
	b := start(s, door, event.Trigger{Kind: event.ByReply, Call: call, Attempt: attempt}, env.Now, env)
	b.touched = true
	c := *st
	c.Uncertain = true
	if !c.Idempotent {
		b.completeFrom(c, c.notRun(""), executor.Answer{})
	} else if !b.again(c, executor.Answer{}) {
		return nil, true
	}
	b.advance()
	return b.done(), false
}

// again makes a new attempt, or gives up. False: no runner is free now.
func (b *builder) again(st Step, a executor.Answer) bool {
	switch {
	case st.Attempts >= maxAttempts:
	case b.assign(st, st.Final, st.Runner):
		return true
	case busy(a) && b.head.Now.Before(st.StartBy):
		return false // the runner that has just refused is the only one: let it breathe
	case b.assign(st, st.Final):
		return true
	case b.head.Now.Before(st.NotAfter.Add(runnerWait)):
		return false
	}
	b.completeFrom(st, st.notRun("no runner took it: "+string(a.Reason)+" "+a.Message), executor.Answer{})
	return true
}

// busy reports whether an executor refused what it would take later.
func busy(a executor.Answer) bool {
	return a.State == executor.Refused && (a.Reason == executor.RefusedFull || a.Reason == executor.RefusedDraining)
}

// notRun is the result of a call whose last attempt did not run, as why says; of
// an attempt before nobody may know.
func (st *Step) notRun(why string) tool.Result {
	if st.Uncertain {
		return tool.Failure(tool.CodeOutcomeUnknown, "its runner died or cannot be reached: it may have run")
	}
	return tool.Failure(tool.CodeNotRun, why)
}

// OnProgress moves on what waits for an executor. Nil: nothing can move.
func OnProgress(s *State, door uint64, env *Env) *Decision {
	if s.Turn == nil || s.Turn.Plan != nil {
		return nil
	}
	b := start(s, door, event.Trigger{Kind: event.ByProgress}, env.Now, env)
	before := len(b.events)
	if s.wantsPlan() {
		b.requestPlan()
		if len(b.events) == before && !env.Now.Before(s.Turn.Idle.Add(providerWait)) {
			b.failTurn(event.FailNoProvider, fmt.Sprintf("no provider has been there for %s", providerWait))
			b.next()
		}
	} else {
		b.advance()
		b.expire()
	}
	if len(b.events) == before {
		return nil
	}
	b.touched = true
	return b.done()
}

const (
	// runnerWait is how long a step waits for a runner that offers its tool at all.
	runnerWait = 30 * time.Second
	// timerWait is how late the timer of a confirmation request may come.
	timerWait = 30 * time.Second
)

// expire ends what has waited too long: steps whose tool nobody offers, and
// confirmation requests whose timer was lost.
func (b *builder) expire() {
	if b.s.Turn == nil {
		return
	}
	before := len(b.events)
	for _, st := range slices.Clone(b.s.Turn.Steps) {
		switch {
		case st.Status == Confirming && !b.head.Now.Before(st.ExpiresAt.Add(timerWait)):
			b.expireRequest(&st)
		case b.abandoned(&st):
			b.complete(st.Call, tool.Failure(tool.CodeNotRun, fmt.Sprintf("no runner offers %s any more: it did not run", st.Tool)))
		}
	}
	if len(b.events) > before {
		b.advance()
	}
}

// abandoned reports whether a step could run and nobody has offered its tool for
// too long.
func (b *builder) abandoned(st *Step) bool {
	if b.s.Turn == nil || b.head.Now.Before(b.s.Turn.Idle.Add(runnerWait)) {
		return false
	}
	_, known := b.env.Tools.Lookup(st.Tool)
	return !known && (st.Status == Approved || st.Status == Waiting && b.s.Turn.ready(st))
}
