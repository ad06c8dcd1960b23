package engine

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/planner"
)

// DefaultConfidence is the confidence from which a selection is used.
const DefaultConfidence = 0.7

// Request is what the engine decides about.
type Request struct {
	Text       string      // what the person asks for
	Before     []string    // what was said before, oldest first; only for a model
	Tools      []tool.Spec // to choose from
	Confidence float64     // from which a selection is used; 0: [DefaultConfidence]
	Matcher    Matcher
	// Validate checks arguments against the tool's schema and returns them with defaults
	// applied, or every error.
	Validate func(name string, args json.RawMessage) (json.RawMessage, []string)
}

// Outcome is what the engine decided. At most one of Selection, Question and Clarify is set.
// Without any, no tool fits, or nothing usable was found: the model answers as if there were
// no engine.
type Outcome struct {
	Method     event.Method
	Scenario   string
	Intent     Intent            // the first one
	Candidates []event.Candidate // best first, at most [event.MaxCandidates]
	Reasoning  string
	Selection  *Selection
	Question   *Question // for a model
	Clarify    string    // a question for the person
}

// Selection is the choice of one tool, or of several as the steps of a plan.
type Selection struct {
	Steps        []Step
	By           event.SelectedBy
	Confidence   float64
	Alternatives []string // other tools, best first
}

// Step is a call of a selection.
type Step struct {
	ID        string
	Tool      string
	Args      json.RawMessage
	DependsOn []string
}

// Tools returns the tools of the steps.
func (s *Selection) Tools() []string {
	out := make([]string, len(s.Steps))
	for i, st := range s.Steps {
		out[i] = st.Tool
	}
	return out
}

// Call returns the selection as one call: of its tool, or of plan:execute.
func (s *Selection) Call() provider.ToolCall {
	if len(s.Steps) == 1 {
		return provider.ToolCall{ID: "call_0", Tool: s.Steps[0].Tool, Args: s.Steps[0].Args}
	}
	return provider.ToolCall{ID: "call_0", Tool: planner.ExecuteName, Args: planOf(s.Steps)}
}

// planOf returns the arguments of plan:execute.
func planOf(steps []Step) json.RawMessage {
	type step struct {
		ID        string          `json:"id"`
		Tool      string          `json:"tool"`
		Params    json.RawMessage `json:"params"`
		DependsOn []string        `json:"depends_on,omitempty"`
	}
	var plan struct {
		Steps []step `json:"steps"`
	}
	for _, s := range steps {
		plan.Steps = append(plan.Steps, step{s.ID, s.Tool, s.Args, s.DependsOn})
	}
	b, err := json.Marshal(plan)
	if err != nil {
		return json.RawMessage("{}") // not possible: the arguments were decoded before
	}
	return b
}

func (r *Request) threshold() float64 {
	if r.Confidence > 0 {
		return r.Confidence
	}
	return DefaultConfidence
}

// spec returns one of the tools; one without a name for any other.
func (r *Request) spec(name string) (spec tool.Spec) {
	if i := slices.IndexFunc(r.Tools, func(t tool.Spec) bool { return t.Name == name }); i >= 0 {
		spec = r.Tools[i]
	}
	return spec
}

// Decide decides by the rules. Unless they are certain, the outcome has a question for a
// model. If no tool has anything to do with the request, it is empty.
func Decide(r Request) Outcome {
	var out Outcome
	intents := out.understand(r.Text, Rules{}, Rules{})
	drafts := make([]draft, len(intents))
	fits := false
	for i, in := range intents {
		drafts[i] = r.draft(in, out.Scenario, Rules{})
		fits = fits || drafts[i].best.Fit > 0
		out.add(drafts[i].ranking)
	}
	if !fits {
		out.Reasoning = "no tool has a word in common with the request"
		return out
	}
	s := &Selection{By: event.ByRules, Confidence: 1, Alternatives: out.others(drafts)}
	var why []string
	for i, d := range drafts {
		st := Step{ID: d.in.ID, Tool: d.best.Tool, Args: d.args}
		if i > 0 {
			st.DependsOn = []string{drafts[i-1].in.ID}
		}
		s.Steps = append(s.Steps, st)
		sure, because := d.certainty(i > 0)
		s.Confidence = min(s.Confidence, sure)
		why = append(why, d.best.Tool+": "+because)
	}
	out.Reasoning = strings.Join(why, "; ")
	if s.Confidence >= r.threshold() {
		out.Selection = s
		return out
	}
	q := r.question(&out, drafts)
	out.Question = &q
	return out
}

// understand takes the first two steps.
func (o *Outcome) understand(text string, c Classifier, i Recognizer) []Intent {
	intents := i.Intents(text)
	o.Scenario, o.Intent = c.Scenario(text), intents[0]
	return intents
}

// add adds the candidates of one intent; those of several are merged by their scores.
func (o *Outcome) add(m Ranking) {
	merged := Ranking{Candidates: o.Candidates}
	merged.add(m.Candidates)
	slices.SortStableFunc(merged.Candidates, func(a, b event.Candidate) int { return cmp.Compare(b.Score, a.Score) })
	o.Method = m.Method
	o.Candidates = merged.Candidates[:min(len(merged.Candidates), event.MaxCandidates)]
}

// others returns the candidates that no draft uses.
func (o *Outcome) others(used []draft) (out []string) {
	for _, c := range o.Candidates {
		if c.Fit > 0 && len(out) < maxAlternatives &&
			!slices.ContainsFunc(used, func(d draft) bool { return d.best.Tool == c.Tool }) {
			out = append(out, c.Tool)
		}
	}
	return out
}

const maxAlternatives = 4

// draft is what the steps found for one intent.
type draft struct {
	in      Intent
	ranking Ranking
	best    event.Candidate
	second  event.Candidate
	spec    tool.Spec
	params  Parameters
	args    json.RawMessage // with defaults
	errs    []string        // of the arguments
}

func (r *Request) draft(in Intent, scenario string, x Extractor) draft {
	d := draft{in: in, ranking: r.match(in, scenario)}
	if len(d.ranking.Candidates) == 0 {
		return d
	}
	d.best = d.ranking.Candidates[0]
	if len(d.ranking.Candidates) > 1 {
		d.second = d.ranking.Candidates[1]
	}
	d.spec = r.spec(d.best.Tool)
	d.params = x.Parameters(in, d.spec)
	d.args, d.errs = r.Validate(d.best.Tool, d.params.Args)
	return d
}

// match returns the tools for an intent: those of its scenario first. A scenario that the rules
// detected hides no tool, and does not precede one that fits better.
func (r *Request) match(in Intent, scenario string) Ranking {
	all := r.Matcher.Match(in, "", r.Tools, event.MaxCandidates)
	if scenario == "" || len(all.Candidates) == 0 {
		return all
	}
	within := r.Matcher.Match(in, scenario, r.Tools, event.MaxCandidates)
	if len(within.Candidates) == 0 || within.Candidates[0].Fit < all.Candidates[0].Fit {
		return all
	}
	within.add(all.Candidates)
	return within
}

// add appends the candidates that the ranking does not have.
func (m *Ranking) add(more []event.Candidate) {
	known := make(map[string]bool, len(m.Candidates))
	for _, c := range m.Candidates {
		known[c.Tool] = true
	}
	for _, c := range more {
		if !known[c.Tool] {
			m.Candidates = append(m.Candidates, c)
		}
	}
}

// ambiguous is the part of the best fit from which the second one is as good.
const ambiguous = 0.9

// certainty returns how certain the rules are, and why: whether one tool fits better than all
// others, all arguments are there, and every word of the request has a meaning for the tool.
// Later parts of a request may not refer to the results of earlier ones.
func (d draft) certainty(later bool) (float64, string) {
	explained, unknown := d.explained()
	switch {
	case d.best.Fit == 0:
		return 0, "it has no word in common with " + quote(d.in.Text)
	case len(d.params.Open) > 0:
		return 0, "the request does not say " + strings.Join(d.params.Open, ", ")
	case len(d.errs) > 0:
		return 0, "its arguments are invalid: " + d.errs[0]
	case len(d.params.Unused) > 0:
		return explained / 2, fmt.Sprintf("no parameter takes %s", quote(d.params.Unused[0]))
	case d.second.Fit >= ambiguous*d.best.Fit:
		return explained / 2, d.second.Tool + " fits as well"
	case later && refers.MatchString(d.in.Text):
		return 0, "it refers to an earlier result"
	case hedges.MatchString(d.params.rest):
		return explained / 2, "it depends on " + quote(hedges.FindString(d.params.rest))
	case unknown != "":
		return explained, fmt.Sprintf("it may not cover %s", quote(unknown))
	}
	return explained, "it fits best, and the request has all arguments"
}
