package decide

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/security/grant"
	"skandha.dev/services/internal/executor"
	"skandha.dev/services/internal/text"
)

// Names of what decides about a call besides the rules of the policy.
const (
	ruleGrant   = "grant"      // a person approved the call for the session
	ruleHook    = "before_act" // a hook requires a person's approval
	ruleBreaker = "breaker"    // too many calls have failed in a row
	ruleSkill   = "skill"      // a loaded skill allows only other tools
)

// verdict is the audited decision about a call, with the warning for a person.
type verdict struct {
	event.Audited
	warning *hook.Warning
	always  []event.Grant
	// approval is what an approval takes, if one is required, and within how long people have.
	approval *event.Approval
	within   time.Duration
}

// judge asks the policy about a call that before_act has let pass with d. A denial is
// final. A grant replaces only the approval that policy requires. A hook that requires
// a confirmation, and the breaker, always get one.
func (b *builder) judge(st Step, spec tool.Spec, args json.RawMessage, d hook.Decision) verdict {
	t, hash := b.s.Turn, Hash(spec, args, st.Answer)
	r := b.evaluate(&st, spec, args)
	writer, from, _ := t.Principal()
	v := verdict{warning: r.Warning, Audited: event.Audited{
		Principal: writer, From: from, Action: event.ActionCall, Resource: st.Tool, Call: st.Call, Hash: hash,
		Effect: r.Effect, Reason: text.Cut(r.Reason, maxReason), Rule: r.Rule, Obligations: r.Obligations,
	}}
	v.approval, v.within = b.demand(&st, spec, args)
	switch r.Effect {
	case Allow:
	case Ask:
		if g, ok := grant.Find(b.usable(v.approval), spec, args, hash, b.labels()); ok && !r.Ungrantable {
			v.Effect, v.Rule, v.Grant, v.Reason = Allow, ruleGrant, &g, "approved for the session"
		} else if len(b.s.Grants) < grant.Max && st.Answer == nil && !r.Ungrantable { // a plugin's answer instead of the tool cannot be granted
			v.always = bound(grant.Offers(spec, args, hash, b.labels()), v.approval)
		}
	case Deny:
		v.Obligations = nil
		return v
	default:
		v.Effect, v.Obligations, v.Reason = Deny, nil, unknownEffect(r.Effect)
		return v
	}
	if st.Answer != nil && v.Reason == "" {
		v.Reason = "the plugin " + string(st.Answer.By) + " answers instead of the tool"
	}
	switch {
	case d.Verb == hook.Confirm || d.Warning != nil:
		v.ask(ruleHook, r.Warning.Join(hookWarning(d)))
	case v.Effect == Ask:
	case b.s.Breaker.Consecutive >= errStreak:
		v.ask(ruleBreaker, &hook.Warning{
			Level:   hook.LevelWarn,
			Message: fmt.Sprintf("The last %d tool calls failed. Should the agent continue?", b.s.Breaker.Consecutive),
		})
	}
	return v
}

// barred checks a call again that is assigned later than it was judged: after its
// approval, or again because its runner did not run it. Meanwhile the rules, the tool or
// the plugins' data may have changed, or a required plugin may have stopped. barred ends
// a call that may no longer run, or that now requires an approval it does not have. The
// model may make the call again.
func (b *builder) barred(st Step, spec tool.Spec, args json.RawMessage) bool {
	t, hash := b.s.Turn, Hash(spec, args, st.Answer)
	why, rule := b.ruledOut(&st, spec, args, hash)
	if why == "" {
		why, rule = b.judgedOut(&st, args), ruleHook
	}
	if why == "" {
		return false
	}
	writer, from, _ := t.Principal()
	b.emit(event.Audited{
		Principal: writer, From: from, Action: event.ActionCall, Resource: st.Tool, Call: st.Call, Hash: hash,
		Effect: Deny, Reason: text.Cut(why, maxReason), Rule: rule,
	})
	result := tool.Failure(tool.CodeDenied, why)
	if st.Uncertain {
		result = st.notRun("")
	}
	b.completeFrom(st, result, executor.Answer{})
	return true
}

// ruledOut returns why policy does not let the call run, and by which rule. An empty
// reason means that the call may run.
func (b *builder) ruledOut(st *Step, spec tool.Spec, args json.RawMessage, hash string) (why, rule string) {
	r := b.evaluate(st, spec, args)
	switch r.Effect {
	case Allow:
		return "", ""
	case Ask:
		d, _ := b.demand(st, spec, args)
		if _, granted := grant.Find(b.usable(d), spec, args, hash, b.labels()); granted && !r.Ungrantable {
			return "", ""
		}
		if st.ApprovedBy != "" {
			why = st.short(d)
			return why, r.Rule
		}
		return "policy now requires a person's approval, which was not requested", r.Rule
	case Deny:
		return cmp.Or(r.Reason, "policy denies it"), r.Rule
	}
	return unknownEffect(r.Effect), r.Rule
}

// judgedOut returns why a judge that the configuration names does not let the call run,
// or "" if none objects.
func (b *builder) judgedOut(st *Step, args json.RawMessage) string {
	d := asked(b, hook.BeforeAct, st.Call, hook.ActData{Call: st.Call, Tool: st.Tool, Args: args},
		func(env hook.Envelope) hook.Decision { return b.env.Hooks.Rejudge(env) })
	switch d.Verb {
	case hook.Continue, "":
		return ""
	case hook.Confirm:
		if st.ApprovedBy != "" {
			return ""
		}
		return "a judge now requires a person's approval, which was not requested"
	case hook.DenyVerb:
		return cmp.Or(d.Reason, "a judge denies it")
	}
	return invalidHookAnswer
}

// evaluate returns the policy's ruling about a call. A loaded skill can only deny what policy might
// allow.
func (b *builder) evaluate(st *Step, spec tool.Spec, args json.RawMessage) Ruling {
	if why := b.s.Turn.excludes(st.Tool); why != "" {
		return Ruling{Effect: Deny, Rule: ruleSkill, Reason: why}
	}
	a := b.access(st, spec, args)
	r := b.env.Policy.Evaluate(a)
	for _, above := range b.above() { // a rule for one of them holds here
		a.Context.Ref.Agent = above
		r = strictest(r, b.env.Policy.Evaluate(a))
	}
	return r
}

// above lists the agents for which the session works, beside its own.
func (b *builder) above() []subject.Agent {
	if b.s.Terms == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(b.s.Terms.Agents), func(a subject.Agent) bool { return a == b.s.Ref.Agent })
}

// access asks the policy whether a call may run.
func (b *builder) access(st *Step, spec tool.Spec, args json.RawMessage) Access {
	t := b.s.Turn
	writer, from, source := t.Principal()
	return Access{
		Principal: writer, From: from, Action: event.ActionCall, Resource: spec, Granted: b.agent().Granted, Unguided: b.unguided(),
		Context: Context{Ref: b.s.Ref, Turn: t.ID, Call: st.Call, Source: source, Args: args, After: b.labels(), Stranger: b.stranger()},
	}
}

// unguided returns why the agent may not call anything, or "".
func (b *builder) unguided() string {
	if b.env.Agent == nil {
		return fmt.Sprintf("agent %s is no longer configured", b.s.Ref.Agent)
	}
	return b.env.Agent.Unguided
}

func unknownEffect(e Effect) string {
	return fmt.Sprintf("policy returned the unknown effect %q", text.Cut(string(e), 40))
}

// ask requires a person's approval, which no grant can replace.
func (v *verdict) ask(rule string, w *hook.Warning) {
	v.Effect, v.Rule, v.Grant, v.always = Ask, rule, nil, nil
	v.warning, v.Reason = w, text.Cut(w.Message, maxReason)
}

// hookWarning is the warning for a person when a before_act hook requires approval.
func hookWarning(d hook.Decision) *hook.Warning {
	if d.Warning != nil {
		return d.Warning
	}
	by := "A plugin"
	for _, v := range d.Verdicts {
		if v.Verb == hook.Confirm {
			by = "The plugin " + string(v.Plugin)
		}
	}
	return &hook.Warning{Level: hook.LevelWarn, Message: by + " requires a person to review this call before it runs."}
}

// endBy limits the end of a call to what its obligations allow.
func (st *Step) endBy(now, notAfter time.Time) time.Time {
	if st.Obligations == nil || st.Obligations.MaxDurationMS <= 0 {
		return notAfter
	}
	if end := now.Add(time.Duration(st.Obligations.MaxDurationMS) * time.Millisecond); end.Before(notAfter) {
		return end
	}
	return notAfter
}

// obliged applies the obligations of an assigned call to its result, and returns the
// note for the model. A result that is too large is withheld as a whole, because half of
// it may mean the opposite.
func (st *Step) obliged(r tool.Result) (result tool.Result, note string) {
	if st.Answer != nil && r.Success {
		return r, fmt.Sprintf("answered by the plugin %s; the tool did not run", st.Answer.By)
	}
	o := st.Obligations
	if o == nil || st.Attempt == "" {
		return r, ""
	}
	if o.MaxResultBytes > 0 {
		if size := len(encode(r)); size > o.MaxResultBytes {
			r = withheld(r, fmt.Sprintf("the result of %d bytes is withheld: policy allows %d", size, o.MaxResultBytes))
		}
	}
	return r, o.Note
}

func withheld(r tool.Result, why string) tool.Result {
	if r.Success || r.Error == nil {
		return tool.Failure(tool.CodeTooLarge, "the call succeeded; "+why)
	}
	return tool.Failure(r.Error.Code, why)
}
