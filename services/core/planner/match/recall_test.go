package match_test

import (
	"encoding/json"
	"maps"
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

// lists names the tools that the requests of a file are for.
var lists = map[string]string{
	"requests.tsv": "tools.tsv", "unseen.tsv": "tools.tsv", "apis_requests.tsv": "apis_tools.tsv",
	"last_requests.tsv": "last_tools.tsv", "fresh_requests.tsv": "apis_tools.tsv",
}

// labelled returns the tools of the labelled set.
func labelled(t testing.TB) []tool.Spec { return toolsOf(t, "tools.tsv") }

// toolsOf returns the tools of a file of testdata.
func toolsOf(t testing.TB, name string) (out []tool.Spec) {
	t.Helper()
	for _, f := range lines(t, name) {
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
}

func requests(t testing.TB, name string) (out []request) {
	t.Helper()
	for _, f := range lines(t, name) {
		out = append(out, request{f[0], f[1], strings.Split(f[2], ","), f[3]})
	}
	return out
}

// recall is how many of some requests have a right tool among the first.
type recall struct{ found, all int }

func (r recall) percent() float64 { return 100 * float64(r.found) / float64(max(r.all, 1)) }

const first = 10

// measure ranks the tools for all requests of a file and returns the recall of each group.
func measure(t *testing.T, name string, rank func(request) []match.Candidate) map[string]recall {
	t.Helper()
	groups := map[string]recall{}
	for _, r := range requests(t, name) {
		found := slices.ContainsFunc(rank(r), func(c match.Candidate) bool { return slices.Contains(r.right, c.Tool.Name) })
		if !found {
			t.Logf("%s: not among the first %d: %q, %v", name, first, r.text, r.right)
		}
		for _, g := range []string{"all", r.kind, r.language} {
			n := groups[g]
			n.all++
			if found {
				n.found++
			}
			groups[g] = n
		}
	}
	for _, g := range slices.Sorted(maps.Keys(groups)) {
		t.Logf("%s: recall@%d of %-5s %5.1f %% of %d", name, first, g, groups[g].percent(), groups[g].all)
	}
	return groups
}

// The right tool is among the first ten, by words and concepts alone.
func TestLexicalRecall(t *testing.T) {
	for name, least := range map[string]map[string]float64{
		"requests.tsv":       {"all": 95, "p": 95},
		"unseen.tsv":         {"all": 75, "p": 50, "d": 95},
		"apis_requests.tsv":  {"all": 95, "d": 95},
		"fresh_requests.tsv": {"all": 45},
		"last_requests.tsv":  {"all": 75, "p": 60, "d": 95},
	} {
		c := match.New(toolsOf(t, lists[name]))
		got := measure(t, name, func(r request) []match.Candidate {
			return c.Rank(match.Request{Text: r.text, Limit: first})
		})
		for g, percent := range least {
			if got[g].percent() < percent {
				t.Errorf("%s: recall of %s is %.1f %%, want %.0f %%", name, g, got[g].percent(), percent)
			}
		}
	}
}

// What an embedder finds stays among the first: blending it with words loses nothing. The
// vectors imitate an embedder that has the right tool among its five nearest; no
// real model is measured.
func TestWhatAnEmbedderFindsIsKept(t *testing.T) {
	tools := labelled(t)
	const model = "test embedder"
	v := match.Vectors{Model: model, Of: map[string][]float32{}}
	at := map[string]int{}
	for i, s := range tools {
		vector := make([]float32, len(tools))
		vector[i] = 1
		v.Of[s.Digest()], at[s.Name] = vector, i
	}
	c := match.New(tools).With(v)
	got := measure(t, "unseen.tsv", func(r request) []match.Candidate {
		right := at[r.right[0]]
		vector := make([]float32, len(tools))
		for n := range 4 {
			vector[(right+100*(n+1))%len(tools)] = 0.5
		}
		vector[right] = 0.48
		return c.Rank(match.Request{Text: r.text, Vector: vector, Model: model, Limit: first})
	})
	if got["all"].percent() < 95 {
		t.Errorf("recall is %.1f %%, want 95 %%", got["all"].percent())
	}
}

// A vector of another model, or of another length, is not compared.
func TestVectorsOfOtherModels(t *testing.T) {
	v := match.Vectors{Model: "a", Of: map[string][]float32{few[0].Digest(): {1, 0}}}
	for name, q := range map[string]match.Request{
		"model":  {Text: "note", Vector: []float32{1, 0}, Model: "b"},
		"length": {Text: "note", Vector: []float32{1}, Model: "a"},
		"none":   {Text: "note", Model: "a"},
	} {
		for _, got := range match.New(few).With(v).Rank(q) {
			if got.Method != match.Lexical {
				t.Errorf("%s: %+v", name, got)
			}
		}
	}
}

// Paraphrases share no word with the right tools' texts.
func TestParaphrasesShareNoWord(t *testing.T) {
	for name, list := range lists {
		texts := map[string]tool.Spec{}
		for _, s := range toolsOf(t, list) {
			texts[s.Name] = s
		}
		for _, r := range requests(t, name) {
			s, known := texts[r.right[0]]
			if !known {
				t.Errorf("%s: %q is for %s, which is not in %s", name, r.text, r.right[0], list)
			}
			if r.kind != "p" {
				continue
			}
			words := lexical.Terms(s.Name + " " + s.Description)
			for _, w := range lexical.Terms(r.text) {
				if slices.Contains(words, w) {
					t.Errorf("%s: %q shares %q with %s", name, r.text, w, s.Name)
				}
			}
		}
	}
}
