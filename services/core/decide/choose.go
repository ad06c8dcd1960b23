package decide

import (
	"encoding/json"
	"slices"

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

// engaged reports whether the decision engine decides about the turn's next step: it does so
// once, before anything else has happened in the turn.
func (b *builder) engaged() bool {
	t := b.s.Turn
	return b.agent().Guide.Decision == guide.Engine && b.env.Matcher != nil && !t.considered() && len(t.Actions) == 0
}

// request returns what the engine decides about, among these tools.
func (b *builder) request(tools []tool.Spec) engine.Request {
	return engine.Request{
		Text: b.s.Turn.Text, Before: b.s.before(), Tools: tools, Confidence: b.agent().Confidence,
		Matcher: b.env.Matcher, Validate: b.env.Tools.Validate,
	}
}

// Bounds of what the engine shows a model of the conversation.
const (
	maxBefore      = 6 // messages
	maxBeforeBytes = 1 << 10
)

// before returns the latest texts of earlier turns, oldest first.
func (s *State) before() []string {
	var out []string
	for _, e := range slices.Backward(s.Window) {
		var m provider.Message
		if len(out) == maxBefore {
			break
		}
		if e.Turn == s.Turn.ID || json.Unmarshal(e.Msg, &m) != nil || m.Text == "" || m.Role == provider.RoleTool {
			continue
		}
		out = append(out, string(m.Role)+": "+text.Cut(m.Text, maxBeforeBytes))
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
// the person. It reports false if a hook took the selected tools away; then the model decides.
func (b *builder) respond(req event.PlanRequested, out engine.Outcome) bool {
	r := provider.Response{TextContent: out.Clarify, StopReason: provider.StopEnd}
	if s := out.Selection; s != nil {
		r.ToolCalls, r.StopReason = []provider.ToolCall{s.Call()}, provider.StopToolCalls
	}
	req.Tools = b.offered()
	if !b.beforePlan(&req) {
		b.next()
		return true
	}
	for _, c := range r.ToolCalls {
		if !slices.Contains(req.Tools, c.Tool) {
			out.Selection, out.Reasoning = nil, "a plugin does not let this plan use "+c.Tool
			b.emit(b.considers(req.Plan, out, len(req.Tools)))
			return false
		}
	}
	d := ask(b, hook.AfterPlan, "", hook.AfterPlanData{Plan: req.Plan, Response: r})
	if d.Verb == hook.Replace {
		n := hook.AfterPlanData{}
		if decodeInto(d.Data, &n) == nil && n.Response.Usable() == nil {
			n.Response.ProviderState, n.Response.Usage = nil, provider.Usage{}
			r = n.Response
		}
	}
	b.emit(b.considers(req.Plan, out, len(req.Tools)))
	req.Provider, req.Attempt = EngineInstance, b.env.Nonce()
	req.StartBy, req.NotAfter = b.head.Now, b.head.Now
	b.touched = true
	b.emit(req)
	b.apply(*b.s.Turn.Plan, executor.Answer{Call: req.Plan, Attempt: req.Attempt}, r, d)
	return true
}
