package decide_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/guide"
	"skandha.dev/services/core/decide"
)

// A guide narrows what the agent may do, whatever it says.
func TestAGuideNarrowsItsAgent(t *testing.T) {
	a := decide.Agent{
		Name: "main", Tools: []string{"a:b", "c:d"}, Granted: [][]string{{"fs.*"}},
		Providers: []decide.Choice{{Provider: "one", Model: "m"}, {Provider: "two"}},
		Limits:    decide.Limits{Rounds: 5, Tokens: 100, Wall: time.Minute},
	}
	got := a.Guided(guide.Guide{}, guide.Guide{
		Tools: []string{"c:d", "e:f"}, Permissions: []string{"*"}, Providers: []string{"two/n"},
		Limits: guide.Limits{
			Rounds: 9, Tokens: 50, WallMS: 3_600_000, CostUSD: 0.25, ModelCallMS: 3_600_000, WindowTurns: 100,
		},
	})
	want := decide.Limits{
		Rounds: 5, Tokens: 50, Wall: time.Minute, CostMicroUSD: 250_000,
		ModelCall: decide.DefaultLimits().ModelCall, WindowTurns: decide.DefaultLimits().WindowTurns,
	}
	if !slices.Equal(got.Tools, []string{"c:d"}) || got.Limits != want ||
		!slices.EqualFunc(got.Granted, [][]string{{"fs.*"}, {"*"}}, slices.Equal) ||
		!slices.Equal(got.Providers, []decide.Choice{{Provider: "two", Model: "n"}}) {
		t.Errorf("%+v", got)
	}
	if a.Limits.Tokens != 100 || len(a.Granted) != 1 || len(a.Tools) != 2 || a.Providers[0].Model != "m" {
		t.Errorf("the agent has changed: %+v", a)
	}
	got = a.Guided(guide.Guide{}, guide.Guide{Model: "n", Tools: []string{}})
	if got.Tools == nil || len(got.Tools) != 0 || got.Providers[0] != (decide.Choice{Provider: "one", Model: "n"}) {
		t.Errorf("%+v", got)
	}
	all := decide.Agent{}
	if got = all.Guided(guide.Guide{}, guide.Guide{Tools: []string{"a:b"}}); !slices.Equal(got.Tools, []string{"a:b"}) {
		t.Errorf("of all tools: %q", got.Tools)
	}
	if got = all.Guided(guide.Guide{}, guide.Guide{}); got.Tools != nil || got.Granted != nil {
		t.Errorf("an empty guide: %+v", got)
	}
	huge := guide.Limits{CostUSD: 1e300, SessionCostUSD: 1e-9, WallMS: 1 << 62}
	if l := all.Guided(guide.Guide{}, guide.Guide{Limits: huge}).Limits; l.CostMicroUSD <= 0 || l.SessionCostMicroUSD != 1 || l.Wall != 0 {
		t.Errorf("amounts that do not fit: %+v", l)
	}
}

// A guide cannot send the conversation to a provider that the agent does not have.
func TestAnAgentRefusesAnotherProvider(t *testing.T) {
	mine := decide.Agent{Name: "main", Providers: []decide.Choice{{Provider: "local"}}}
	for _, c := range []struct {
		agent decide.Agent
		guide guide.Guide
		wrong string
	}{
		{mine, guide.Guide{}, ""},
		{mine, guide.Guide{Providers: []string{"local/small"}}, ""},
		{mine, guide.Guide{Model: "small"}, ""},
		{mine, guide.Guide{Providers: []string{"local", "openai"}}, `provider[1] is "openai", which agents.main.provider`},
		{mine, guide.Guide{Providers: []string{"local/"}}, `provider[0] is "local/"`},
		{mine, guide.Guide{Providers: []string{"local/x"}, Model: "y"}, `model is "y"`},
		{decide.Agent{}, guide.Guide{Providers: []string{"openai"}}, ""},
	} {
		if err := c.agent.Accepts(c.guide); (err == nil) != (c.wrong == "") ||
			err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%+v: %v, want %q", c.guide, err, c.wrong)
		}
	}
}

func TestTheAgentsOwnGuideOverridesItsBasis(t *testing.T) {
	a := &decide.Agent{Name: "a", Guide: guide.Guide{Name: "a", MemoryPolicy: guide.None}}
	basis := guide.Guide{Name: "default", SystemPrompt: "Be kind.", MemoryPolicy: guide.VectorDB}
	if g := a.Guided(basis, guide.Guide{}).Guide; g.MemoryPolicy != guide.None || g.SystemPrompt != "Be kind." || g.Name != "a" {
		t.Errorf("%+v", g)
	}
	if g := a.Guided(basis, guide.Guide{MemoryPolicy: guide.Summary}).Guide; g.MemoryPolicy != guide.Summary {
		t.Errorf("%+v", g)
	}
}
