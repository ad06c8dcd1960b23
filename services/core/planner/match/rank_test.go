package match_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/planner/match"
	"skandha.dev/services/internal/store"
)

func spec(name, description string) tool.Spec {
	return tool.Spec{Name: name, Description: description, Args: []byte(`{"type":"object"}`)}.Sealed()
}

var few = []tool.Spec{
	spec("mail:send", "Sends an email."),
	spec("weather:forecast", "Returns the weather of the coming days."),
	spec("notes:add", "Writes a note."),
	spec("notes:search", "Finds notes."),
}

func names(found []match.Candidate) (out []string) {
	for _, c := range found {
		out = append(out, c.Tool.Name)
	}
	return out
}

func of(t *testing.T, found []match.Candidate, name string) match.Candidate {
	t.Helper()
	i := slices.IndexFunc(found, func(c match.Candidate) bool { return c.Tool.Name == name })
	if i < 0 {
		t.Fatalf("no %s among %v", name, names(found))
	}
	return found[i]
}

func TestScore(t *testing.T) {
	for _, c := range []struct {
		of   match.Candidate
		want float64
	}{
		{match.Candidate{}, 0},
		{match.Candidate{Fit: 1, Success: 1, Latency: 1, Risk: 1, Preference: 1}, 1},
		{match.Candidate{Fit: 1}, 0.4},
		{match.Candidate{Success: 1}, 0.3},
		{match.Candidate{Latency: 1}, 0.1},
		{match.Candidate{Risk: 1}, 0.1},
		{match.Candidate{Preference: 1}, 0.1},
		{match.Candidate{Fit: 0.5, Success: 0.5, Latency: 0.5, Risk: 1}, 0.5},
	} {
		if got := match.Score(c.of); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%+v: got %v, want %v", c.of, got, c.want)
		}
	}
}

func TestFactors(t *testing.T) {
	for name, c := range map[string]struct {
		risk                   tool.Risk
		stat                   store.ToolStat
		success, latency, safe float64
		failing                bool
	}{
		"never used":     {"", store.ToolStat{}, 0.5, 0.5, 1, false},
		"reliable":       {tool.RiskLow, store.ToolStat{Used: 8, Succeeded: 8, TotalLatencyMS: 8 * 5000}, 0.9, 0.5, 1, false},
		"fast":           {tool.RiskMedium, store.ToolStat{Used: 1, Succeeded: 1}, 2. / 3, 1, 0.5, false},
		"slow":           {tool.RiskHigh, store.ToolStat{Used: 1, Succeeded: 0, TotalLatencyMS: 45_000}, 1. / 3, 0.1, 0, false},
		"half succeed":   {"", store.ToolStat{Used: 10, Succeeded: 5}, 0.5, 1, 1, false},
		"most fail":      {"", store.ToolStat{Used: 10, Succeeded: 4}, 5. / 12, 1, 1, true},
		"too few to say": {"", store.ToolStat{Used: 9, Succeeded: 0}, 1. / 11, 1, 1, false},
	} {
		s := spec("a:b", "mail")
		s.Risk = c.risk
		got := match.New([]tool.Spec{s}).Rank(match.Request{
			Text: "mail", Stats: func(string) store.ToolStat { return c.stat },
		})[0]
		if math.Abs(got.Success-c.success) > 1e-9 || math.Abs(got.Latency-c.latency) > 1e-9 || got.Risk != c.safe ||
			got.Failing != c.failing || got.Score != match.Score(got) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestFailingToolsAreLast(t *testing.T) {
	found := match.New(few).Rank(match.Request{Text: "send mail", Stats: func(name string) store.ToolStat {
		if name == "mail:send" {
			return store.ToolStat{Used: 20, Succeeded: 9}
		}
		return store.ToolStat{}
	}})
	if last := found[len(found)-1]; last.Tool.Name != "mail:send" || !strings.Contains(last.Why, "ranked last") {
		t.Errorf("%v: %s", names(found), last.Why)
	}
}

func TestPermissionIsACondition(t *testing.T) {
	found := match.New(few).Rank(match.Request{
		Text: "send mail", Allowed: func(s tool.Spec) bool { return s.Name != "mail:send" },
	})
	if len(found) != 3 || slices.Contains(names(found), "mail:send") {
		t.Errorf("got %v", names(found))
	}
}

func TestScenario(t *testing.T) {
	tools := slices.Clone(few[:3])
	tools[0].ScenarioTags = []string{"communication"}
	tools[1].ScenarioTags = []string{"information_retrieval"}
	for scenario, want := range map[string][]string{
		"communication": {"mail:send", "notes:add"},
		"data_analysis": {"mail:send", "notes:add", "weather:forecast"},
		"":              {"mail:send", "notes:add", "weather:forecast"},
	} {
		got := names(match.New(tools).Rank(match.Request{Text: "mail", Scenario: scenario}))
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%q: got %v, want %v", scenario, got, want)
		}
	}
}

// A tool that has often succeeded takes no place from one that fits, and comes before it
// if both are there.
func TestFitDecidesWhichToolsAreShown(t *testing.T) {
	c := match.New(few)
	q := match.Request{Text: "will it rain", Limit: 1, Stats: func(name string) store.ToolStat {
		if name == "notes:add" {
			return store.ToolStat{Used: 1000, Succeeded: 1000}
		}
		return store.ToolStat{}
	}}
	if got := names(c.Rank(q)); !slices.Equal(got, []string{"weather:forecast"}) {
		t.Errorf("got %v", got)
	}
	q.Preferred = map[string]float64{"notes:search": 1}
	q.Limit = 2
	if got := names(c.Rank(q)); !slices.Equal(got, []string{"weather:forecast", "notes:search"}) {
		t.Errorf("with a preferred tool: got %v", got)
	}
}

func TestWithoutAnythingInCommon(t *testing.T) {
	for _, text := range []string{"", "zzz", "!?", "\xff\xfe"} {
		for _, got := range match.New(few).Rank(match.Request{Text: text}) {
			if got.Fit != 0 || got.Why == "" {
				t.Errorf("%q: %+v", text, got)
			}
		}
	}
	if got := match.New(nil).Rank(match.Request{Text: "mail"}); len(got) != 0 {
		t.Errorf("of no tools: %v", got)
	}
}

func TestTheReasonNamesWordsAndConcepts(t *testing.T) {
	got := match.New(few).Rank(match.Request{Text: "寄一封信 note"})
	if c := of(t, got, "mail:send"); c.Method != match.Lexical || !strings.Contains(c.Why, "concepts send, mail") {
		t.Errorf("%s", c.Why)
	}
	if c := of(t, got, "notes:add"); !strings.Contains(c.Why, "words note") {
		t.Errorf("%s", c.Why)
	}
}

func TestTheIntentIsMatchedToo(t *testing.T) {
	got := match.New(few).Rank(match.Request{Text: "Tell Ann about it", Intent: "send email", Limit: 1})
	if !slices.Equal(names(got), []string{"mail:send"}) {
		t.Errorf("got %v", names(got))
	}
}

// Of a long text, both ends count, and the time does not grow with the middle.
func TestLongTexts(t *testing.T) {
	pasted := strings.Repeat("漢\xffzz ", 200_000)
	for _, text := range []string{"send a mail: " + pasted, pasted + " send that by mail", "send" + pasted + "mail"} {
		if got := match.New(few).Rank(match.Request{Text: text, Limit: 1}); got[0].Tool.Name != "mail:send" {
			t.Errorf("got %v", names(got))
		}
	}
}

// A description that repeats words or is very long does not win by that.
func TestDescriptionsOfAnyLength(t *testing.T) {
	greedy := spec("zzz:all", strings.Repeat("mail send weather note ", 100_000)+"\xff")
	got := match.New(append(slices.Clone(few), greedy)).Rank(match.Request{Text: "send mail", Limit: 1})
	if got[0].Tool.Name != "mail:send" {
		t.Errorf("got %s: %s", got[0].Tool.Name, got[0].Why)
	}
}

func TestArgumentsAreRead(t *testing.T) {
	s := spec("x:y", "Does it.")
	s.Args = []byte(`{"type":"object","properties":{"city":{"type":"object","properties":{
		"umbrella":{"type":"string","enum":["open","closed"]}}}}}`)
	broken := spec("x:z", "Does it.")
	broken.Args = []byte(`{`)
	got := match.New([]tool.Spec{broken, s}).Rank(match.Request{Text: "umbrella", Limit: 1})
	if got[0].Tool.Name != "x:y" || got[0].Fit == 0 {
		t.Errorf("got %v", names(got))
	}
}
