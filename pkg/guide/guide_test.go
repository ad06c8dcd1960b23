package guide_test

import (
	"strings"
	"testing"

	"skandha.dev/pkg/guide"
)

func TestCheckNamesTheField(t *testing.T) {
	at := func(v float64) *float64 { return &v }
	for _, g := range []guide.Guide{
		{}, {MemoryPolicy: guide.SlidingWindow}, {Temperature: at(0)}, {Temperature: at(2)},
	} {
		g.Name, g.SystemPrompt = "a", "Be kind."
		if err := g.Check(); err != nil {
			t.Errorf("%+v: %v", g, err)
		}
	}
	for want, g := range map[string]guide.Guide{
		`memory_policy is "vectors"`: {Name: "a", MemoryPolicy: "vectors"},
		"temperature 2.1":            {Name: "a", Temperature: at(2.1)},
		"temperature -0.1":           {Name: "a", Temperature: at(-0.1)},
		"system_prompt is empty":     {Name: "a", SystemPrompt: " \n"},
		`decision is "maybe"`:        {Name: "a", Decision: "maybe"},
		"tools[1] is empty":          {Name: "a", SystemPrompt: "x", Tools: []string{"a:b", ""}},
		"provider[0] is empty":       {Name: "a", SystemPrompt: "x", Providers: []string{""}},
		"limits.rounds is -1":        {Name: "a", SystemPrompt: "x", Limits: guide.Limits{Rounds: -1}},
		"description has 1025 bytes": {Name: "a", SystemPrompt: "x", Description: strings.Repeat("x", 1025)},
	} {
		if err := g.Check(); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), `"a"`) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestDecodeIsStrict(t *testing.T) {
	for body, want := range map[string]string{
		`{"name":"a","system_prompt":"Be kind."}`:                                "Be kind.",
		`{"systemPrompt":"Be kind.","initialMemories":["x"],"temperature":0.5}`:  "Be kind.\n\nWhat you remember:\n- x\n",
		`{"name":"a","systemPrompt":"Be kind.","memoryPolicy":"sliding-window"}`: "Be kind.",
	} {
		if g, err := guide.Decode([]byte(body), "a"); err != nil || g.Name != "a" || g.System() != want {
			t.Errorf("%s: got %+v, %v", body, g, err)
		}
	}
	for body, want := range map[string]string{
		`{"name":"a","system_promt":"Be kind."}`:              `"system_promt"`,
		`{"name":"a","system_prompt":" \n"}`:                  "system_prompt is empty",
		`{"name":"a"}`:                                        "system_prompt is empty",
		`{"name":"b","system_prompt":"Be kind."}`:             `name is "b", want "a"`,
		`{"system_prompt":"Be kind."}`:                        `name is "", want "a"`,
		`{"systemPrompt":"x","system_prompt":"y"}`:            "mixed",
		`{"systemPrompt":"x","memoryPolicy":"vectors"}`:       `"vectors"`,
		`{"systemPrompt":"x","temperature":3}`:                "temperature 3",
		`{"name":"a","system_prompt":"x"}{}`:                  "unexpected data",
		`"Be kind."`:                                          "not a guide",
		`{"name":"a","system_prompt":"x","tools":null}`:       "tools is null",
		`{"name":"a","system_prompt":"x","limits":{"x":1}}`:   `"x"`,
		`{"systemPrompt":"x","limits":{"rounds":-1}}`:         "limits.rounds is -1",
		`{"name":"a","system_prompt":"x","permissions":null}`: "permissions is null",
		`{"name":"a","permissions":[],"permissions":["*"]}`:   "duplicate field",
		`{"name":"a","permissions":[],"Permissions":["*"]}`:   `unknown field "Permissions"`,
		`{"name":"a","system_prompt":"x"`:                     "not a guide",
	} {
		if g, err := guide.Decode([]byte(body), "a"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %+v, %v, want %s", body, g, err, want)
		}
	}
}

func TestMemoriesFollowThePrompt(t *testing.T) {
	g := guide.Guide{SystemPrompt: "Be kind."}
	if got := g.System(); got != "Be kind." {
		t.Errorf("got %q", got)
	}
	g.InitialMemories = []string{"Ann is ten.", "Bo is six."}
	if got, want := g.System(), "Be kind.\n\nWhat you remember:\n- Ann is ten.\n- Bo is six.\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestGuidesAreComposedInOrder(t *testing.T) {
	cold, warm := 0.1, 0.9
	a := guide.Guide{Name: "a", SystemPrompt: "be brief", Temperature: &cold, InitialMemories: []string{"one"}}
	b := guide.Guide{Name: "b", SystemPrompt: "be kind", Temperature: &warm, InitialMemories: []string{"two"}}
	got := a.And(guide.Guide{Name: "silent"}).And(b)
	if got.Name != "a" || got.SystemPrompt != "be brief\n\nbe kind" || *got.Temperature != warm ||
		strings.Join(got.InitialMemories, " ") != "one two" {
		t.Errorf("%+v", got)
	}
	if got := (guide.Guide{}).And(b); got.SystemPrompt != "be kind" {
		t.Errorf("%+v", got)
	}
	if a.SystemPrompt != "be brief" || len(a.InitialMemories) != 1 {
		t.Errorf("it changed: %+v", a)
	}
}
