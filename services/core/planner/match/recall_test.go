package match_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/planner/match"
	"skandha.dev/services/internal/lexical"
)

// lines returns the fields of each line of a file of testdata.
func lines(t testing.TB, name string) (out [][]string) {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if !strings.HasPrefix(line, "#") {
			out = append(out, strings.Split(strings.TrimSpace(line), "|"))
		}
	}
	return out
}

var tags = map[string]string{
	"i": "information_retrieval", "c": "communication", "t": "task_execution", "d": "data_analysis",
	"w": "creative_work", "f": "file_management",
}

// labelled returns the tools of the labelled set.
func labelled(t testing.TB) (out []tool.Spec) {
	t.Helper()
	for _, f := range lines(t, "tools.tsv") {
		properties := map[string]any{}
		for arg := range strings.SplitSeq(f[2], "; ") {
			if name, description, _ := strings.Cut(arg, ": "); name != "" {
				properties[name] = map[string]any{"type": "string", "description": description}
			}
		}
		args, err := json.Marshal(map[string]any{"type": "object", "properties": properties})
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, tool.Spec{
			Name: f[0], Description: f[1], Args: args, ScenarioTags: []string{tags[f[3]]}, Risk: tool.Risk(f[4]),
		}.Sealed())
	}
	return out
}

type request struct {
	language, kind string
	right          []string
	text           string
	held           bool // back: the lexicon was not corrected by it
}

func requests(t testing.TB) (out []request) {
	t.Helper()
	for i, f := range lines(t, "requests.tsv") {
		out = append(out, request{f[0], f[1], strings.Split(f[2], ","), f[3], i/2%2 == 1})
	}
	return out
}

// recall is how many of the requests have a right tool among the first.
type recall struct{ found, all int }

func (r recall) String() string {
	return fmt.Sprintf("%3d of %3d, %5.1f %%", r.found, r.all, 100*r.share())
}

func (r recall) share() float64 { return float64(r.found) / float64(max(r.all, 1)) }

const first = 10

func place(found []match.Candidate, right []string) int {
	return slices.IndexFunc(found, func(c match.Candidate) bool { return slices.Contains(right, c.Tool.Name) })
}

// The right tool is among the first ten for most requests, by words and concepts alone.
func TestRecallOfWords(t *testing.T) {
	c := match.New(labelled(t))
	by := map[string]recall{}
	for _, r := range requests(t) {
		at := place(c.Rank(match.Request{Text: r.text, Limit: first}), r.right)
		for _, group := range []string{"all", r.kind, r.language, fmt.Sprintf("held back: %v", r.held)} {
			n := by[group]
			n.all++
			if at >= 0 {
				n.found++
			}
			by[group] = n
		}
		if at < 0 {
			t.Logf("not among the first %d: %q, want %v", first, r.text, r.right)
		}
	}
	for g, r := range by {
		t.Logf("%-18s %s", g, r)
	}
	_ = lexical.Terms
}
