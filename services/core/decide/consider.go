package decide

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/guide"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/planner"
	"skandha.dev/services/core/planner/engine"
	"skandha.dev/services/internal/executor"
	"skandha.dev/services/internal/text"
)

// DefaultShortlist is the shortlist of agents that declare none.
const DefaultShortlist = 40

// Considered is what a turn remembers of the tools that core considered.
type Considered struct {
	// Tools are the candidates, from which a model may choose if it is asked.
	Tools []string `json:"tools,omitempty"`
	// Found are the tools that calls of tools:find have found, the latest last.
	Found []string `json:"found,omitempty"`
	// Asked is how often a model was asked to choose.
	Asked int `json:"asked,omitempty"`
	// Once says that tools were considered for a plan: it happens once in a turn.
	Once bool `json:"once,omitempty"`
}

// maxFound bounds the tools that a turn remembers as found.
const maxFound = 64

// onPlanConsidered folds which tools were considered.
func (s *State) onPlanConsidered(p event.PlanConsidered) error {
	t := s.Turn
	if t == nil {
		return fmt.Errorf("plan %s belongs to no turn", p.Plan)
	}
	c := Considered{Once: p.Call == ""}
	if t.Considered != nil {
		c = *t.Considered
		c.Once = c.Once || p.Call == ""
	}
	names := make([]string, len(p.Candidates))
	for i, k := range p.Candidates {
		names[i] = k.Tool
	}
	if p.Call == "" {
		c.Tools = names
	} else {
		old := slices.DeleteFunc(slices.Clone(c.Found), func(n string) bool { return slices.Contains(names, n) })
		c.Found = slices.Concat(old, names)
		c.Found = c.Found[max(0, len(c.Found)-maxFound):]
	}
	t.Considered = &c
	return nil
}

// asked counts that a model is asked to choose.
func (t *Turn) asked() {
	var c Considered
	if t.Considered != nil {
		c = *t.Considered
	}
	c.Asked++
	t.Considered = &c
}

// considered reports whether tools were considered for a plan of this turn.
func (t *Turn) considered() bool { return t.Considered != nil && t.Considered.Once }

func (t *Turn) found() []string {
	if t.Considered == nil {
		return nil
	}
	return t.Considered.Found
}

// offer returns the closed set of tools for the next plan. If there are more than the agent's
// shortlist, it consists of those that fit the request best, those that the turn has used or
// found, and the tools of core itself. Then why says so.
func (b *builder) offer(plan string) (names []string, why *event.PlanConsidered) {
	all := b.offered()
	limit := b.agent().Shortlist
	if b.env.Matcher == nil || limit <= 0 || len(b.specs(all)) <= limit {
		return all, nil
	}
	r := b.env.Matcher.Match(engine.Intent{Text: b.s.wish()}, "", b.permitted(all), limit)
	keep := slices.Concat(b.s.Turn.found(), toolsOf(b.s.Turn))
	for _, c := range r.Candidates {
		keep = append(keep, c.Tool)
	}
	for _, name := range all { // in their order, so that equal sets are equal requests
		if _, own := planner.Own(name); own || executor.OfAgents(name) || slices.Contains(keep, name) {
			names = append(names, name)
		}
	}
	names = append(names, planner.FindName)
	return names, &event.PlanConsidered{
		Plan: plan, Mode: guide.Native, Method: r.Method, Candidates: listed(r.Candidates),
		Offered: len(names), Of: len(all),
		Reasoning: fmt.Sprintf("the model is shown the %d tools that fit the request best", len(r.Candidates)),
	}
}

// explain emits why the plan offers its tools, once in a turn: because they are shortlisted,
// or because the engine found nothing.
func (b *builder) explain(req event.PlanRequested, why *event.PlanConsidered, out *engine.Outcome) {
	if out != nil {
		p := b.considers(req.Plan, *out, 0)
		why = &p
	}
	if why == nil || b.s.Turn.considered() {
		return
	}
	why.Offered = len(req.Tools)
	b.emit(*why)
}

// planOf returns the plan that a call belongs to.
func planOf(st Step) string {
	call, _, _ := strings.Cut(st.Call, "-c")
	return call
}

// listed returns the candidates that an event lists.
func listed(all []event.Candidate) []event.Candidate {
	return slices.Clone(all[:min(len(all), event.MaxCandidates)])
}

// specs returns the descriptions of tools, without those of core itself.
func (b *builder) specs(names []string) []tool.Spec {
	out := make([]tool.Spec, 0, len(names))
	for _, name := range names {
		if spec, known := b.env.Tools.Lookup(name); known {
			out = append(out, spec)
		}
	}
	return out
}

// permitted returns those of the tools for which the agent has all permissions. Whatever else
// policy says depends on the call.
func (b *builder) permitted(names []string) []tool.Spec {
	writer, from, source := b.s.Turn.Principal()
	return slices.DeleteFunc(b.specs(names), func(spec tool.Spec) bool {
		r := b.env.Policy.Evaluate(Access{
			Principal: writer, From: from, Action: event.ActionCall, Resource: spec, Granted: b.agent().Granted,
			Context: Context{Ref: b.s.Ref, Turn: b.s.Turn.ID, Source: source, Args: json.RawMessage("{}")},
		})
		return r.Effect == Deny && r.Rule == RuleGranted
	})
}

// shortWish is the length, in bytes, below which an input may mean an earlier one: "yes, do it".
const shortWish = 40

// wish returns what the user wants: the input, and after a short one the input before it.
func (s *State) wish() string {
	wish := s.Turn.Text
	if len(wish) >= shortWish {
		return wish
	}
	for _, e := range slices.Backward(s.Window) {
		var m provider.Message
		if e.Turn != s.Turn.ID && json.Unmarshal(e.Msg, &m) == nil && m.Role == provider.RoleUser {
			return wish + "\n" + m.Text
		}
	}
	return wish
}

// foundTool is a tool in the result of tools:find.
type foundTool struct {
	Name        string `json:"name"`
	Description string `json:"description"`
}

// maxDescription bounds a tool's description in the result of tools:find, in bytes.
const maxDescription = 300

// find answers a call of tools:find with the tools that fit best. The next plan offers them.
func (b *builder) find(st Step, args json.RawMessage) {
	query, err := planner.ParseFind(args)
	switch {
	case err != nil:
		b.complete(st.Call, tool.Failure(tool.CodeInvalidArgs, schemaMismatch, err.Error()))
		return
	case b.env.Matcher == nil:
		b.complete(st.Call, tool.Failure(tool.CodeNotRun, "this core cannot search tools"))
		return
	}
	all := b.offered()
	r := b.env.Matcher.Match(engine.Intent{Text: query}, "", b.permitted(all), event.MaxCandidates)
	fit := slices.DeleteFunc(slices.Clone(r.Candidates), func(c event.Candidate) bool { return c.Fit <= 0 })
	fit, refusal := b.judged(st, listed(fit))
	if refusal != nil {
		b.complete(st.Call, *refusal)
		return
	}
	p := event.PlanConsidered{
		Plan: planOf(st), Mode: guide.Native, Method: r.Method, Call: st.Call, Candidates: fit,
		Offered: len(fit), Of: len(all), Reasoning: "the model looked for: " + text.Cut(query, maxDescription),
	}
	tools := make([]foundTool, len(p.Candidates))
	for i, c := range p.Candidates {
		spec, _ := b.env.Tools.Lookup(c.Tool)
		tools[i] = foundTool{c.Tool, text.Cut(spec.Description, maxDescription)}
	}
	b.emit(p)
	b.completeFrom(st, tool.OK(map[string]any{"tools": tools}), executor.Answer{})
}

// judged returns the found tools that the hooks at before_plan leave: they are asked about the plan
// again, with these tools. So a search brings back nothing that a hook has removed.
func (b *builder) judged(st Step, found []event.Candidate) ([]event.Candidate, *tool.Result) {
	names := make([]string, len(found))
	for i, c := range found {
		names[i] = c.Tool
	}
	t := b.s.Turn
	d := ask(b, hook.BeforePlan, st.Call, hook.PlanData{
		Plan: planOf(st), Round: t.Round, System: b.agent().Guide.System(), Tools: names,
	})
	switch d.Verb {
	case hook.DenyVerb:
		return nil, failure(tool.CodeDenied, d.Reason)
	case hook.Replace:
		kept := hook.PlanData{Tools: slices.Clone(names)}
		if decodeInto(d.Data, &kept) == nil {
			found = slices.DeleteFunc(found, func(c event.Candidate) bool { return !slices.Contains(kept.Tools, c.Tool) })
		}
	}
	return found, nil
}
