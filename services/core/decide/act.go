package decide

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/planner"
	"skandha.dev/services/internal/executor"
)

// maxAttempts bounds the attempts at a call. A new attempt is made only if the
// previous one certainly did not run, or the tool is idempotent.
const maxAttempts = 8

// DefaultConfirm is how long a person may take to answer a confirmation request.
const DefaultConfirm = 15 * time.Minute

// advance moves every step that can move, until none can. Then, if all calls have
// their results, it asks the model again.
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

// move advances one step and reports whether it did. st is a copy.
func (b *builder) move(st Step) bool {
	t := b.s.Turn
	if b.s.Paused != nil && st.Status != Expanded {
		return false
	}
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
	if st.Tool == planner.FindName { // it needs no runner, and says nothing about tools that fail
		if args, ok := b.resolved(st); ok {
			b.find(st, args)
		}
		return true
	}
	if _, tripped := b.s.Breaker.tripped(); tripped && b.s.Breaker.HalfOpen {
		b.complete(st.Call, tool.Failure(tool.CodeNotRun,
			"the trial tool call before it failed"))
		return true
	}
	if b.s.holds() {
		return false
	}
	spec, known := b.env.Tools.Lookup(st.Tool)
	if !known {
		return false // its plugin or runners have stopped; OnProgress ends the wait
	}
	args, ok := b.resolved(st)
	if !ok {
		return true
	}
	if !b.checked[st.Call] || string(args) != string(st.Args) {
		var errs []string
		if args, errs = b.env.Tools.Validate(st.Tool, args); len(errs) > 0 {
			b.complete(st.Call, tool.Failure(tool.CodeInvalidArgs, schemaMismatch, errs...))
			return true
		}
	}
	runner, free := b.pick(spec, nil)
	if !free {
		return false // hooks are asked once it can run
	}
	return b.act(st, spec, args, runner)
}

// resolved returns the arguments of a step with the results that they refer to. Without one of
// them the step fails, and ok is false.
func (b *builder) resolved(st Step) (args json.RawMessage, ok bool) {
	args, err := planner.Resolve(st.Args, b.s.Turn.dataOf(st.Parent))
	if err != nil {
		b.complete(st.Call, tool.Failure(tool.CodeInvalidArgs, "a reference cannot be resolved", planner.Reasons(err)...))
	}
	return args, err == nil
}

const schemaMismatch = "the arguments do not match the tool's schema"

// act passes one step through before_act and policy, then assigns it to the runner or
// asks a person. Plugins first shape the call, then judge it in its final form. A
// plugin's answer instead of the tool counts only if all of them let the call pass.
func (b *builder) act(st Step, spec tool.Spec, args json.RawMessage, runner subject.Instance) bool {
	if spec.Internal { // since it was offered
		why := fmt.Sprintf("the tool %s is now internal: only services and plugins may call it", st.Tool)
		b.complete(st.Call, tool.Failure(tool.CodeUnknownTool, why))
		return true
	}
	if b.cannotSend(st, args) {
		return true
	}
	shaped := asked(b, hook.BeforeAct, st.Call, hook.ActData{Call: st.Call, Tool: st.Tool, Args: args},
		func(env hook.Envelope) hook.Decision {
			return b.env.Hooks.Shape(env, func(args json.RawMessage) (json.RawMessage, error) {
				args, errs := b.env.Tools.Validate(st.Tool, args)
				if len(errs) > 0 {
					return nil, errors.New(strings.Join(errs, "; "))
				}
				return args, nil
			})
		})
	args, refusal := b.shape(&st, shaped, args)
	if refusal == nil {
		args = encode(args) // as the events carry them, so that the hash covers what is shown and run
		judged := asked(b, hook.BeforeAct, st.Call, hook.ActData{Call: st.Call, Tool: st.Tool, Args: args},
			func(env hook.Envelope) hook.Decision { return b.env.Hooks.Judge(env, shaped) })
		switch judged.Verb {
		case hook.DenyVerb:
			refusal = failure(tool.CodeDenied, judged.Reason)
		case hook.Confirm:
			shaped.Verb, shaped.Warning = hook.Confirm, shaped.Warning.Join(hookWarning(judged))
		case hook.Continue, "":
		default:
			refusal = invalidAnswer()
		}
	}
	if refusal != nil {
		b.complete(st.Call, *refusal)
		return true
	}
	v := b.judge(st, spec, args, shaped)
	b.emit(v.Audited)
	switch v.Effect {
	case Allow:
		st.Obligations = v.Obligations
		b.pass(st, spec, args, runner)
	case Ask:
		b.askPerson(st, spec, args, v)
	default:
		b.complete(st.Call, tool.Failure(tool.CodeDenied, v.Reason))
	}
	return true
}

// shape applies the decision of the shaping plugins to a call: its arguments, and the
// answer instead of the tool. A non-nil refusal is the result of a call that must not
// run.
func (b *builder) shape(st *Step, d hook.Decision, args json.RawMessage) (_ json.RawMessage, refusal *tool.Result) {
	st.Answer = nil
	switch d.Verb {
	case hook.DenyVerb:
		return nil, failure(tool.CodeDenied, d.Reason)
	case hook.AnswerFor:
		if len(d.Answer) > 0 && !json.Valid(d.Answer) {
			return nil, invalidAnswer()
		}
		st.Answer = &event.Answered{By: d.AnsweredBy, Data: d.Answer}
	case hook.Replace, hook.Confirm, hook.Continue, hook.Stop, "":
	default:
		return nil, invalidAnswer()
	}
	if d.Verb != hook.Replace && d.Data == nil {
		return args, nil
	}
	var n hook.ActData
	if err := decodeInto(d.Data, &n); err != nil || len(n.Args) == 0 {
		return nil, invalidAnswer()
	}
	args, errs := b.env.Tools.Validate(st.Tool, n.Args)
	if len(errs) > 0 {
		return nil, failure(tool.CodeInvalidArgs, "a before_act hook returned invalid arguments", errs...)
	}
	return args, nil
}

func failure(code tool.Code, message string, details ...string) *tool.Result {
	r := tool.Failure(code, message, details...)
	return &r
}

// invalidHookAnswer is the reason for denying a call whose before_act hook returned
// something that core cannot interpret.
const invalidHookAnswer = "a before_act hook returned an invalid answer"

func invalidAnswer() *tool.Result { return failure(tool.CodeDenied, invalidHookAnswer) }

func (b *builder) askPerson(st Step, spec tool.Spec, args json.RawMessage, v verdict) {
	if st.Answer != nil {
		if r := b.bounded(tool.Result{Success: true, Data: st.Answer.Data}); !r.Success {
			why := fmt.Sprintf("the answer of the plugin %s is too large; the tool did not run", st.Answer.By)
			b.complete(st.Call, tool.Failure(tool.CodeTooLarge, why))
			return
		}
	}
	ttl := cmp.Or(v.within, b.agent().Confirm)
	if ttl <= 0 {
		ttl = DefaultConfirm
	}
	after := b.labels()
	b.emit(event.ToolCallRequest{
		ToolName: st.Tool, Args: args, ConfirmationID: st.Call, Hash: v.Hash,
		ExpiresAt: b.head.Now.Add(ttl), SecurityWarning: b.changedWarning(&st, spec).Join(v.warning).Join(followsWarning(after)), Always: v.always,
		Owner: spec.Plugin, Answer: st.Answer, After: after, Approval: v.approval,
	})
}

// assign gives a step that has already passed to the least busy runner, except those
// in not. It reports whether a runner was free; the step may instead have ended because
// it may no longer run.
func (b *builder) assign(st Step, args json.RawMessage, not ...subject.Instance) bool {
	spec, known := b.env.Tools.Lookup(st.Tool)
	if !known {
		return false
	}
	inst, free := b.pick(spec, not)
	switch {
	case !free:
	case Hash(spec, args, st.Answer) != st.Hash:
		b.decideAgain(st, spec, args, inst)
	case !b.barred(st, spec, args):
		b.pass(st, spec, args, inst)
	}
	return free
}

// decideAgain decides again about a call that has passed, because its tool is no longer
// the one that it passed for. It never lets another tool finish what the earlier one may
// have begun.
func (b *builder) decideAgain(st Step, spec tool.Spec, args json.RawMessage, runner subject.Instance) {
	if st.Uncertain {
		b.completeFrom(st, st.notRun(""), executor.Answer{})
		return
	}
	args, errs := b.env.Tools.Validate(st.Tool, args)
	if len(errs) > 0 {
		b.complete(st.Call, tool.Failure(tool.CodeInvalidArgs, schemaMismatch, errs...))
		return
	}
	st.ApprovedBy = ""
	b.act(st, spec, args, runner)
}

// pick chooses a runner. A call of a sticky tool goes to the runner of the pool's last
// call, which keeps the session's data.
func (b *builder) pick(spec tool.Spec, not []subject.Instance) (subject.Instance, bool) {
	var be subject.Instance
	if pool := sticky(spec); pool != "" {
		be = b.s.Leases[pool].Runner
	}
	return b.env.Executors.PickRunner(spec, be, not)
}

// sticky returns the pool of a sticky tool, or "" for any other tool.
func sticky(spec tool.Spec) string {
	if !spec.Sticky {
		return ""
	}
	return cmp.Or(spec.Pool, executor.DefaultPool)
}

// pass runs a call, or uses a plugin's answer instead. Every call that runs goes
// through pass, after judge has let it pass in this decision, or barred.
func (b *builder) pass(st Step, spec tool.Spec, args json.RawMessage, to subject.Instance) {
	if st.Answer == nil {
		b.give(st, spec, args, to)
		return
	}
	st.Final, st.Hash = args, Hash(spec, args, st.Answer)
	b.completeFrom(st, tool.Result{Success: true, Data: st.Answer.Data}, executor.Answer{})
}

// give assigns the call to a runner.
func (b *builder) give(st Step, spec tool.Spec, args json.RawMessage, to subject.Instance) {
	send, why := b.commission(&st, args)
	if why != "" {
		b.complete(st.Call, tool.Failure(tool.CodeDenied, why))
		return
	}
	notAfter := b.head.Now.Add(executor.StartWithin + spec.Timeout())
	if notAfter.After(b.s.Turn.Deadline) {
		notAfter = b.s.Turn.Deadline
	}
	notAfter = st.endBy(b.head.Now, notAfter)
	b.touched = true
	attempt := b.env.Nonce()
	b.emit(event.ActRequested{
		Call: st.Call, Tool: st.Tool, Args: args, Hash: Hash(spec, args, nil), Spec: spec.Digest(),
		Attempt: attempt, Attempts: st.Attempts + 1, Runner: to,
		StartBy: b.head.Now.Add(executor.StartWithin), NotAfter: notAfter,
		Idempotent: spec.Idempotent, Uncertain: st.Uncertain, ApprovedBy: st.ApprovedBy, Sticky: sticky(spec),
		Key: cmp.Or(st.Key, attempt), Probes: spec.Probe && !spec.Idempotent, Probe: st.Probe,
		Commission: send,
	})
}

// complete gives a step its one result, if it has none yet.
func (b *builder) complete(call string, r tool.Result) {
	if st, err := b.s.open(call); err == nil {
		b.completeFrom(*st, r, executor.Answer{})
	}
}

// completeFrom gives a step its result, taken from an executor's answer.
func (b *builder) completeFrom(st Step, r tool.Result, a executor.Answer) {
	fault, hash, skill, after := faultOf(&st, a), st.Hash, skillOf(st.Tool, r), brought(st.Tool, r)
	if hash == "" {
		spec, known := b.env.Tools.Lookup(st.Tool)
		if !known {
			spec = tool.Spec{Name: st.Tool}
		}
		hash = Hash(spec, st.Args, nil)
	}
	args := st.Final
	if args == nil {
		args = st.Args
	}
	switch d := ask(b, hook.AfterAct, st.Call,
		hook.AfterActData{Call: st.Call, Tool: st.Tool, Args: args, Result: r}); d.Verb {
	case hook.Replace:
		var n hook.AfterActData
		if decodeInto(d.Data, &n) == nil {
			r = amended(r, n.Result)
		}
	case hook.DenyVerb: // the call has run; only its result is not shown
		if r.Success || r.Error == nil || !isCoreCode(r.Error.Code) {
			r = tool.Failure(tool.CodeFailed, "the result is withheld: "+d.Reason)
		}
	}
	r, note := st.obliged(r)
	r = b.bounded(r)
	if r.Success {
		fault = ""
	}
	p := event.ActCompleted{
		Call: st.Call, Tool: st.Tool, Hash: hash, Result: r, Attempt: st.Attempt, Runner: st.Runner, DurationMS: a.DurationMS,
		Note: note, Fault: fault, Skill: skill, After: after, Tasks: tasksOf(&st, a),
	}
	if st.probing() && r.Success {
		p.Note = strings.TrimPrefix(note+"; "+settledLater, "; ")
	}
	if br := b.s.Breaker; repeats(r, fault) && br.Hash == hash && br.Same+1 >= sameFailures {
		p.Note = strings.TrimPrefix(fmt.Sprintf("%s; this exact call has failed %d times in a row; try something else",
			note, br.Same+1), "; ")
	}
	b.touched = true
	b.reportFailure(&st, r)
	b.emit(p)
}

// skip reports whether a step can never run, and why not.
func (t *Turn) skip(st *Step) (string, bool) {
	for _, d := range st.DependsOn {
		if dep := t.step(d); dep != nil && dep.Status == Done && !dep.Result.Success {
			return fmt.Sprintf("step %q, which it depends on, did not succeed", dep.CallID), true
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
			return fmt.Sprintf("step %q failed, and the plan stops on failure", s.CallID), true
		}
	}
	return "", false
}
