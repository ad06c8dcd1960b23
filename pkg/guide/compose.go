package guide

import (
	"cmp"
	"slices"
	"strings"
)

// And returns g followed by other. The prompt and the memories of other are appended. Its
// temperature, memory policy, decision, providers and model override those of g if it sets them.
// A tool or permission must be in both, and of each limit the lower one applies. AGENTS.md is left
// out if one of them says so.
func (g Guide) And(other Guide) Guide {
	switch {
	case g.SystemPrompt == "":
		g.SystemPrompt = other.SystemPrompt
	case other.SystemPrompt != "":
		g.SystemPrompt += "\n\n" + other.SystemPrompt
	}
	if other.Temperature != nil {
		g.Temperature = other.Temperature
	}
	g.MemoryPolicy = cmp.Or(other.MemoryPolicy, g.MemoryPolicy)
	g.Decision = cmp.Or(other.Decision, g.Decision)
	if len(other.Providers) > 0 {
		g.Providers, g.Model = other.Providers, other.Model
	}
	g.Model = cmp.Or(other.Model, g.Model)
	g.InitialMemories = slices.Concat(g.InitialMemories, other.InitialMemories)
	g.Tools = common(g.Tools, other.Tools, same)
	g.Permissions = common(g.Permissions, other.Permissions, narrower)
	g.Limits = g.Limits.lower(other.Limits)
	g.IgnoreAgentsMD = g.IgnoreAgentsMD || other.IgnoreAgentsMD
	return g
}

// common returns what is in both lists, as both reports it for a pair. A nil list has
// everything.
func common(a, b []string, both func(x, y string) (string, bool)) []string {
	if a == nil {
		return b
	}
	if b == nil {
		return a
	}
	out := []string{}
	for _, x := range a {
		for _, y := range b {
			if z, ok := both(x, y); ok && !slices.Contains(out, z) {
				out = append(out, z)
			}
		}
	}
	return out
}

func same(x, y string) (string, bool) { return x, x == y }

// narrower returns the permissions that match both patterns: the narrower one, or none.
func narrower(x, y string) (string, bool) {
	inX, allX := strings.CutSuffix(x, "*")
	inY, allY := strings.CutSuffix(y, "*")
	switch {
	case allY && strings.HasPrefix(inX, inY):
		return x, true
	case allX && strings.HasPrefix(inY, inX):
		return y, true
	}
	return x, x == y
}

// lower returns the lower of each limit.
func (l Limits) lower(o Limits) Limits {
	return Limits{
		Rounds: lower(l.Rounds, o.Rounds), Calls: lower(l.Calls, o.Calls), Tokens: lower(l.Tokens, o.Tokens),
		CostUSD: lower(l.CostUSD, o.CostUSD), SessionCostUSD: lower(l.SessionCostUSD, o.SessionCostUSD),
		WallMS: lower(l.WallMS, o.WallMS), ModelCallMS: lower(l.ModelCallMS, o.ModelCallMS),
		WindowTurns: lower(l.WindowTurns, o.WindowTurns),
	}
}

// lower returns the lower of two limits, of which 0 is none.
func lower[T int | int64 | float64](a, b T) T {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
