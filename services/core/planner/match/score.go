package match

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/store"
)

// The parts of the factors in a score. The specification has 20 % for permissions; they
// are a condition here (defect D1), so that their part goes to latency and risk.
const (
	fitPart        = 0.40
	successPart    = 0.30
	latencyPart    = 0.10
	riskPart       = 0.10
	preferencePart = 0.10
)

// TypicalLatency is the mean duration of a call that neither helps nor harms a tool.
const TypicalLatency = 5 * time.Second

// FewCalls is the number of calls after which a tool may count as failing.
const FewCalls = 10

// Score returns 40 % fit, 30 % success, 10 % latency, 10 % risk and 10 % preference.
func Score(c Candidate) float64 {
	return fitPart*c.Fit + successPart*c.Success + latencyPart*c.Latency + riskPart*c.Risk + preferencePart*c.Preference
}

func (c *Catalog) evaluate(i int, q Request, f fits) *Candidate {
	t := c.tools[i]
	stat := store.ToolStat{Tool: t.Name}
	if q.Stats != nil {
		stat = q.Stats(t.Name)
	}
	out := &Candidate{
		Tool: t, place: i, Fit: f.values[i], Method: f.methods[i],
		Success: stat.SuccessRate(), Latency: speed(stat), Risk: safety(t.Risk),
		Preference: min(max(q.Preferred[t.Name], 0), 1),
		Failing:    stat.Used >= FewCalls && stat.Succeeded*2 < stat.Used,
	}
	out.Score = Score(*out)
	return out
}

// speed is 1 for an immediate answer, and 0.5 for the typical latency or an unknown one.
func speed(stat store.ToolStat) float64 {
	mean := TypicalLatency
	if stat.Used > 0 {
		mean = max(stat.MeanLatency(), 0)
	}
	return float64(TypicalLatency) / float64(TypicalLatency+mean)
}

// safety is 1 for a tool that can do little harm.
func safety(r tool.Risk) float64 {
	switch r {
	case tool.RiskHigh:
		return 0
	case tool.RiskMedium:
		return 0.5
	}
	return 1
}

// maxShown is how many words of a request are shown as the reason of a fit.
const maxShown = 4

// why says in one line how the factors came about.
func (c *Catalog) why(t Candidate, f fits) string {
	parts := []string{c.fitWhy(t, f), fmt.Sprintf("expected success %.0f %%", 100*t.Success)}
	if t.Failing {
		parts = append(parts, "most calls failed, so it is ranked last")
	}
	if t.Tool.Risk == tool.RiskMedium || t.Tool.Risk == tool.RiskHigh {
		parts = append(parts, string(t.Tool.Risk)+" risk")
	}
	if t.Preference > 0 {
		parts = append(parts, "preferred")
	}
	return strings.Join(parts, "; ")
}

func (c *Catalog) fitWhy(t Candidate, f fits) string {
	if t.Fit == 0 {
		return "nothing in common with the request"
	}
	said := fmt.Sprintf("%s fit %.0f %%", t.Method, 100*t.Fit)
	if shared := c.words.shared(t.place, f.words); len(shared) > 0 {
		said += ", words " + strings.Join(shared, ", ")
	}
	if shared := c.concepts.shared(t.place, f.concepts); len(shared) > 0 {
		said += ", concepts " + strings.Join(shared, ", ")
	}
	return said
}

// shared returns the terms that the request and tool i have in common, the rarest first.
func (s side) shared(i int, query []string) []string {
	var out []string
	for _, t := range query {
		if s.has[i][t] && !slices.Contains(out, t) {
			out = append(out, t)
		}
	}
	slices.SortStableFunc(out, func(a, b string) int { return cmp.Compare(s.index.Weight(b), s.index.Weight(a)) })
	return out[:min(len(out), maxShown)]
}
