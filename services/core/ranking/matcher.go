package ranking

import (
	"cmp"
	"strings"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/planner/engine"
	"skandha.dev/services/core/planner/match"
)

// Match implements [engine.Matcher].
func (r *Ranker) Match(in engine.Intent, scenario string, among []tool.Spec, limit int) engine.Ranking {
	may := make(map[string]bool, len(among))
	for _, t := range among {
		may[t.Digest()] = true
	}
	found := r.Rank(match.Request{
		Text: in.Text, Intent: strings.TrimSpace(in.Action + " " + in.Object), Scenario: scenario, Limit: limit,
		Allowed: func(t tool.Spec) bool { return may[t.Digest()] },
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
