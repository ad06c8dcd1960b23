package decide

import (
	"encoding/json"
	"slices"
	"strings"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/guide"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/planner/engine"
	"skandha.dev/services/internal/executor"
	"skandha.dev/services/internal/text"
)

// EngineInstance is the provider of plans that the decision engine made: no process has it.
const EngineInstance subject.Instance = "engine"

// maxEngaged is the longest input that the decision engine reads, in bytes: its rules look for
// values everywhere in the text. A longer one is the model's.
const maxEngaged = 4 << 10

// engaged reports whether the decision engine decides about the turn's next step: it does so
// once, before anything else has happened in the turn.
func (b *builder) engaged() bool {
	t := b.s.Turn
	return b.agent().Guide.Decision == guide.Engine && b.env.Matcher != nil && !t.considered() &&
		len(t.Actions) == 0 && len(t.Files) == 0 && len(t.Text) <= maxEngaged
}

// decision returns what the rules of the decision engine decide about the turn's next step, nil
// if that is not its to decide.
func (b *builder) decision() *engine.Outcome {
	if !b.engaged() {
		return nil
	}
	out := engine.Decide(b.request(b.permitted(b.offered())))
	return &out
}

// questionOf returns a question of the engine as core asks it.
func questionOf(q *engine.Question) *event.Question {
	return &event.Question{Purpose: event.PurposeDecision, System: q.System, Text: q.User, Schema: q.Schema}
}

// decided applies a model's answer to the engine's question. It reports false if that chooses
// nothing, and the model decides about the next step as if there were no engine.
func (b *builder) decided(p Plan, answer string) bool {
	if b.mustEnd() {
		b.next()
		return true
	}
	t := b.s.Turn
	if t.Considered == nil || b.env.Matcher == nil {
		return false
	}
	tools := b.specs(t.Considered.Tools)
	r := b.request(tools)
	q := engine.Question{User: p.Question.Text, Schema: p.Question.Schema}
	for _, s := range tools {
		q.Tools = append(q.Tools, s.Name)
	}
	out := engine.Conclude(r, q, answer, t.Considered.Asked > 1)
	if out.Question != nil {
		if b.askAgain(out.Question) {
			return true
		}
		out = engine.Conclude(r, q, answer, true)
	}
	m := b.env.Matcher.Match(engine.Intent{Text: t.Text}, "", tools, event.MaxCandidates)
	out.Method, out.Candidates = m.Method, m.Candidates
	if out.Selection == nil && out.Clarify == "" {
		b.emit(b.considers(p.ID, out, len(tools)))
		return false
	}
	return b.respond(b.nextPlan(), out)
}

// askAgain asks a model to repair its answer, if one can be asked at once.
func (b *builder) askAgain(again *engine.Question) bool {
	req, q := b.nextPlan(), questionOf(again)
	c, p, ok := b.pickProvider(b.s.choices(b.env.Agent), nil)
	if !ok || !b.mayAsk(req, q) {
		return false
	}
	req.Question, req.Tools = q, []string{}
	b.assignPlan(req, c, p)
	return true
}

// request returns what the engine decides about, among these tools.
func (b *builder) request(tools []tool.Spec) engine.Request {
	return engine.Request{
		Text: b.s.Turn.Text, Before: b.before(), Tools: tools, Confidence: b.agent().Confidence,
		Matcher: b.env.Matcher, Validate: b.env.Tools.Validate,
	}
}

// Bounds of what the engine shows a model of the conversation.
const (
	maxBefore      = 6 // messages
	maxBeforeBytes = 1 << 10
)

// before returns the latest texts of earlier turns, oldest first; none if the agent's policy
// is to show the model the current turn alone.
func (b *builder) before() []string {
	s := b.s
	var out []string
	if b.agent().Guide.MemoryPolicy == guide.None {
		return nil
	}
	for _, e := range slices.Backward(s.Window) {
		var m provider.Message
		if len(out) == maxBefore {
			break
		}
		if e.Turn == s.Turn.ID || json.Unmarshal(e.Msg, &m) != nil || m.Text == "" || m.Role == provider.RoleTool {
			continue
		}
		var said strings.Builder
		quoteLine(&said, string(m.Role), m.Text, maxBeforeBytes)
		out = append(out, strings.TrimSuffix(said.String(), "\n"))
	}
	slices.Reverse(out)
	return out
}

// considers describes an outcome of the engine.
func (b *builder) considers(plan string, out engine.Outcome, offered int) event.PlanConsidered {
	p := event.PlanConsidered{
		Plan: plan, Mode: guide.Engine, Method: out.Method, Scenario: out.Scenario, Candidates: out.Candidates,
		Offered: offered, Of: len(b.offered()), Reasoning: text.Cut(out.Reasoning, maxReason),
	}
	if p.Candidates == nil {
		p.Candidates = []event.Candidate{}
	}
	if in := out.Intent; in.Action != "" || in.Object != "" {
		p.Intent = &event.Intent{Action: in.Action, Object: text.Cut(in.Object, maxReason)}
	}
	if s := out.Selection; s != nil {
		p.Selection = &event.Selection{
			Tools: s.Tools(), By: s.By, Confidence: s.Confidence, Alternatives: s.Alternatives,
		}
	}
	return p
}

// respond ends a plan that no model was asked for: with the engine's call, or its question to
// the person. It reports false if the plan may not use the selected tools; then the model
// decides.
func (b *builder) respond(req event.PlanRequested, out engine.Outcome) bool {
	r := provider.Response{TextContent: out.Clarify, StopReason: provider.StopEnd, IsFinal: true}
	needs := []string{}
	if s := out.Selection; s != nil {
		r.ToolCalls, r.StopReason, r.IsFinal = []provider.ToolCall{s.Call()}, provider.StopToolCalls, false
		needs = append(s.Tools(), r.ToolCalls[0].Tool)
		slices.Sort(needs)
		needs = slices.Compact(needs)
	}
	req.Tools = within(needs, b.offered())
	if !b.beforePlan(&req, nil) {
		b.next()
		return true
	}
	if len(within(needs, req.Tools)) < len(needs) {
		out.Selection, out.Reasoning = nil, "the plan may not use all of "+strings.Join(needs, ", ")
		b.emit(b.considers(req.Plan, out, len(req.Tools)))
		return false
	}
	r, d := b.reviewed(req.Plan, r)
	b.emit(b.considers(req.Plan, out, len(req.Tools)))
	req.Provider, req.Attempt = EngineInstance, b.env.Nonce()
	req.StartBy, req.NotAfter = b.head.Now, b.head.Now
	b.touched = true
	b.emit(req)
	b.apply(*b.s.Turn.Plan, executor.Answer{Call: req.Plan, Attempt: req.Attempt}, r, d)
	return true
}

// within returns those of the names that are in the list.
func within(names, list []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return !slices.Contains(list, n) })
}

// reviewed returns the engine's response as the hooks at after_plan leave it. An unusable
// replacement is ignored.
func (b *builder) reviewed(plan string, r provider.Response) (provider.Response, hook.Decision) {
	d := ask(b, hook.AfterPlan, "", hook.AfterPlanData{Plan: plan, Response: r})
	var n hook.AfterPlanData
	if d.Verb != hook.Replace || decodeInto(d.Data, &n) != nil || n.Response.Usable() != nil {
		return r, d
	}
	n.Response.ProviderState, n.Response.Usage = nil, provider.Usage{}
	n.Response.TextContent = text.Cut(n.Response.TextContent, maxAnswerBytes)
	n.Response.IsFinal = len(n.Response.ToolCalls) == 0
	return n.Response, d
}
