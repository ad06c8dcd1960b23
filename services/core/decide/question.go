package decide

import (
	"encoding/json"
	"slices"
	"strings"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/provider"
	"skandha.dev/services/core/planner/engine"
	"skandha.dev/services/internal/executor"
)

// question returns what core has to ask a model before the turn's next step, or nil: for a
// summary, or for what the decision engine leaves open.
func (b *builder) question(req event.PlanRequested, out *engine.Outcome) *event.Question {
	if q := b.summaryDue(); q != nil && b.mayAsk(req, q) {
		return q
	}
	if out == nil || out.Question == nil {
		return nil
	}
	q := questionOf(out.Question)
	if !b.mayAsk(req, q) {
		return nil
	}
	b.emit(b.considers(req.Plan, *out, len(out.Question.Tools)))
	return q
}

// mayAsk reports whether a question may be asked. A plugin that denies the request at
// before_plan leaves it unasked, in this round: the plugin is asked about the next step, too,
// and may end the turn there. A plugin may add to the system prompt, and give advice, but what
// core asks for stays.
func (b *builder) mayAsk(req event.PlanRequested, q *event.Question) bool {
	if slices.Contains(b.s.Turn.Unanswered, q.Purpose) {
		return false
	}
	d := ask(b, hook.BeforePlan, "", hook.PlanData{
		Plan: req.Plan, Round: req.Round, System: q.System, Tools: []string{}, Purpose: string(q.Purpose),
	})
	if d.Verb == hook.Replace {
		r := hook.PlanData{System: q.System}
		if decodeInto(d.Data, &r) == nil {
			q.System = strings.Join(append(extended(q.System, r.System), r.Advice...), "\n\n")
		}
	}
	return d.Verb != hook.DenyVerb
}

// extended returns a system prompt with what a plugin has made of it.
func extended(system, made string) []string {
	switch {
	case strings.Contains(made, system):
		return []string{made}
	case strings.TrimSpace(made) == "":
		return []string{system}
	}
	return []string{system, made}
}

// answered applies a model's answer to a question. Whatever it is, the turn goes on. It
// reports false like planFailed.
func (b *builder) answered(p Plan, a executor.Answer, r provider.Response) bool {
	r.ToolCalls, r.ProviderState = nil, nil
	r.TextContent = strings.TrimSpace(r.TextContent)
	if r.TextContent == "" {
		return b.planFailed(a, provider.Error{
			Code: provider.ErrGarbage, Message: "the model's answer has no text", Retryable: true,
		})
	}
	b.emit(event.PlanCompleted{
		Plan: p.ID, Attempt: a.Attempt, Provider: p.Provider, Response: &r, Purpose: p.purpose(), DurationMS: a.DurationMS,
	})
	if p.Question.Purpose == event.PurposeDecision && b.decided(p, r.TextContent) {
		return true
	}
	if p.Question.Purpose == event.PurposeSummary {
		b.summarize(p, r.TextContent)
	}
	b.requestPlan()
	return true
}

// onAnswered folds the end of a question.
func (s *State) onAnswered(q event.Question, p event.PlanCompleted) {
	t := s.Turn
	t.Plan, t.Idle = nil, s.Now
	if p.Response == nil {
		s.spend(p.Spent)
		t.Unanswered = append(t.Unanswered, q.Purpose)
		return
	}
	s.spend(p.Response.Usage)
}

// purpose returns what a plan's question is for, or "".
func (p *Plan) purpose() event.Purpose {
	if p.Question == nil {
		return ""
	}
	return p.Question.Purpose
}

// prompt returns the request to the model for a question.
func (s *State) prompt(q *event.Question) provider.Request {
	text := q.Text
	if q.Until != "" {
		text = s.transcript(q.Until) + "\n\n" + q.Text
	}
	return provider.Request{
		System: q.System, Schema: q.Schema,
		Messages: []json.RawMessage{encode(provider.Message{Role: provider.RoleUser, Text: text})},
	}
}
