package decide

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"skandha.dev/pkg/guide"
)

// Accepts reports what is wrong with a guide for this agent: a provider that the agent does not
// have. An agent without configured providers has all.
func (a *Agent) Accepts(g guide.Guide) error {
	list, errs := ParseChoices(g.Providers, g.Model)
	if len(errs) > 0 {
		return errs[0]
	}
	for i, c := range list {
		if len(a.Providers) > 0 && c.Provider != "" &&
			!slices.ContainsFunc(a.Providers, func(own Choice) bool { return own.Provider == c.Provider }) {
			return fmt.Errorf("provider[%d] is %q, which agents.%s.provider does not list", i, c.Provider, a.Name)
		}
	}
	return nil
}

// Guided returns the agent with guides that it accepts: its own guide overrides the settings of
// basis, and g overrides both. The result may do nothing that the agent may not do.
func (a *Agent) Guided(basis, g guide.Guide) *Agent {
	out := *a
	out.Guide = basis.And(a.Guide).And(g)
	out.Guide.Name = a.Guide.Name
	g = basis.And(g)
	if g.Permissions != nil {
		out.Granted = append(slices.Clip(a.Granted), g.Permissions)
	}
	if g.Tools != nil {
		out.Tools = slices.DeleteFunc(slices.Clone(g.Tools), func(t string) bool {
			return a.Tools != nil && !allowsAny(a.Tools, t)
		})
	}
	if len(g.Providers) > 0 {
		out.Providers, _ = ParseChoices(g.Providers, "") // Accepts has read them
	}
	out.Providers = prefer(out.Providers, g.Model)
	out.Limits = a.Limits.lower(g.Limits)
	return &out
}

// maxUSD bounds an amount, so that millionths of a dollar can hold it.
const maxUSD = 1e12

// lower returns the limits with those of a guide where they are lower.
func (l Limits) lower(g guide.Limits) Limits {
	micro := func(usd float64) int64 { return int64(math.Ceil(min(usd, maxUSD) * 1e6)) }
	base := DefaultLimits() // in force where the agent has no limit
	l.Rounds, l.Calls, l.Tokens = lowest(l.Rounds, g.Rounds), lowest(l.Calls, g.Calls), lowest(l.Tokens, g.Tokens)
	l.CostMicroUSD = lowest(l.CostMicroUSD, micro(g.CostUSD))
	l.SessionCostMicroUSD = lowest(l.SessionCostMicroUSD, micro(g.SessionCostUSD))
	l.Wall = lowest(l.Wall, milliseconds(g.WallMS))
	l.ModelCall = lowest(cmp.Or(l.ModelCall, base.ModelCall), milliseconds(g.ModelCallMS))
	l.WindowTurns = lowest(cmp.Or(l.WindowTurns, base.WindowTurns), g.WindowTurns)
	return l
}

// lowest returns the lower of two limits, of which 0 is none.
func lowest[T int | int64 | time.Duration](own, other T) T {
	if other > 0 && (own == 0 || other < own) {
		return other
	}
	return own
}

// milliseconds returns a duration; one that is too long is no limit.
func milliseconds(ms int64) time.Duration {
	d := time.Duration(ms) * time.Millisecond
	if d.Milliseconds() != ms {
		return 0
	}
	return d
}
