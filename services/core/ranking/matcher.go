package ranking

import (
	"cmp"
	"strings"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/planner/engine"
	"skandha.dev/services/core/planner/match"
	"skandha.dev/services/internal/embed"
)

// matcher matches tools for one agent.
type matcher struct {
	*Ranker
	patience *embed.Patience
	proven   func(request string) map[string]float64
}

// For returns a matcher that prefers the tools that have proved themselves, as proven says of
// a request: by name, from 0 to 1. proven may be nil. Match waits for the embedding of the
// request, as far as the patience goes.
func (r *Ranker) For(patience *embed.Patience, proven func(request string) map[string]float64) engine.Matcher {
	return matcher{r, patience, proven}
}

// Match implements [engine.Matcher].
func (r matcher) Match(in engine.Intent, scenario string, among []tool.Spec, limit int) engine.Ranking {
	r.Await(in.Text, r.patience)
	var preferred map[string]float64
	if r.proven != nil {
		preferred = r.proven(in.Text)
	}
	may := make(map[string]bool, len(among))
	for _, t := range among {
		may[t.Digest()] = true
	}
	found := r.Rank(match.Request{
		Text: in.Text, Intent: strings.TrimSpace(in.Action + " " + in.Object), Scenario: scenario, Limit: limit,
		Allowed: func(t tool.Spec) bool { return may[t.Digest()] }, Preferred: preferred,
	})
	out := engine.Ranking{Method: event.MethodLexical, Candidates: make([]event.Candidate, len(found))}
	for i, c := range found {
		out.Candidates[i] = event.Candidate{
			Tool: c.Tool.Name, Score: c.Score, Fit: c.Fit, Success: c.Success, Latency: c.Latency, Risk: c.Risk,
			Preference: c.Preference, Why: c.Why,
		}
	}
	if len(found) > 0 {
		out.Method = event.Method(cmp.Or(found[0].Method, match.Lexical))
	}
	return out
}
