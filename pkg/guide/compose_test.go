package guide_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"skandha.dev/pkg/guide"
)

func TestALaterGuideOverridesSettings(t *testing.T) {
	a := guide.Guide{Decision: guide.Native, Providers: []string{"one", "two"}, Model: "m1"}
	for name, c := range map[string]struct {
		then         guide.Guide
		providers    string
		model        string
		decision     guide.Decision
		memoryPolicy guide.MemoryPolicy
	}{
		"nothing":    {guide.Guide{}, "one two", "m1", guide.Native, ""},
		"a provider": {guide.Guide{Providers: []string{"three"}}, "three", "", guide.Native, ""},
		"a model":    {guide.Guide{Model: "m2"}, "one two", "m2", guide.Native, ""},
		"a decision": {guide.Guide{Decision: guide.Engine}, "one two", "m1", guide.Engine, ""},
		"a memory policy": {
			guide.Guide{MemoryPolicy: guide.SlidingWindow}, "one two", "m1", guide.Native, guide.SlidingWindow,
		},
	} {
		got := a.And(c.then)
		if strings.Join(got.Providers, " ") != c.providers || got.Model != c.model || got.Decision != c.decision ||
			got.MemoryPolicy != c.memoryPolicy {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestOneGuideThatIgnoresAgentsMDIsEnough(t *testing.T) {
	a, b := guide.Guide{IgnoreAgentsMD: true}, guide.Guide{}
	if !a.And(b).IgnoreAgentsMD || !b.And(a).IgnoreAgentsMD || b.And(b).IgnoreAgentsMD {
		t.Error("the guides are composed wrongly")
	}
}

func TestGuidesNarrowEachOther(t *testing.T) {
	for name, c := range map[string]struct{ a, b, want []string }{
		"neither restricts": {nil, nil, nil},
		"one restricts":     {nil, []string{"fs.*"}, []string{"fs.*"}},
		"a group and one":   {[]string{"fs.*", "mail.send"}, []string{"fs.read", "code.execute"}, []string{"fs.read"}},
		"all and a group":   {[]string{"*"}, []string{"fs.*"}, []string{"fs.*"}},
		"nothing in common": {[]string{"fs.read"}, []string{"fs.write"}, []string{}},
		"one allows none":   {[]string{}, []string{"*"}, []string{}},
		"a prefix of text":  {[]string{"fs.read"}, []string{"fs.re"}, []string{}},
	} {
		for _, pair := range [][2][]string{{c.a, c.b}, {c.b, c.a}} {
			got := guide.Guide{Permissions: pair[0]}.And(guide.Guide{Permissions: pair[1]}).Permissions
			if !slices.Equal(got, c.want) || (got == nil) != (c.want == nil) {
				t.Errorf("%s: %q, want %q", name, got, c.want)
			}
		}
	}
	got := guide.Guide{Tools: []string{"a:b", "c:d"}}.And(guide.Guide{}).And(guide.Guide{Tools: []string{"c:d", "e:f"}})
	if !slices.Equal(got.Tools, []string{"c:d"}) {
		t.Errorf("tools: %q", got.Tools)
	}
	low := guide.Limits{Rounds: 3, CostUSD: 0.5, WallMS: 10}
	sum := guide.Guide{Limits: guide.Limits{Rounds: 9, Tokens: 7, WallMS: 5}}.And(guide.Guide{Limits: low})
	if sum.Limits != (guide.Limits{Rounds: 3, Tokens: 7, CostUSD: 0.5, WallMS: 5}) {
		t.Errorf("limits: %+v", sum.Limits)
	}
}

// What both guides permit is what their composition permits.
func TestComposedPermissionsAreTheIntersection(t *testing.T) {
	dice := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // not a secret
	words := []string{"*", "fs.*", "fs.read", "fs.write", "fs", "net.*", "net.get", "fs.re*"}
	asked := []string{"fs.read", "fs.write", "fs", "fs.", "net.get", "net.put", "mail.send", ""}
	pick := func() (out []string) {
		for range 1 + dice.IntN(3) {
			out = append(out, words[dice.IntN(len(words))])
		}
		return out
	}
	for range 2000 {
		a, b := pick(), pick()
		both := guide.Guide{Permissions: a}.And(guide.Guide{Permissions: b}).Permissions
		for _, p := range asked {
			if got, want := matches(both, p), matches(a, p) && matches(b, p); got != want {
				t.Fatalf("%q and %q are %q: %q gives %t, want %t", a, b, both, p, got, want)
			}
		}
	}
}

func matches(patterns []string, permission string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		group, all := strings.CutSuffix(p, "*")
		return p == permission || all && strings.HasPrefix(permission, group)
	})
}
