package notes

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"skandha.dev/services/toolrunner/tools"
)

func (b *bench) recall(query string, limit int) (texts []string) {
	b.t.Helper()
	args, _ := json.Marshal(map[string]any{"query": query, "limit": limit})
	r := b.retrieve.Run(b.t.Context(), tools.Call{Agent: "a", Args: args})
	var out struct {
		Memories []Memory `json:"memories"`
	}
	if err := json.Unmarshal(r.Data, &out); err != nil || out.Memories == nil {
		b.t.Fatalf("%v: %+v", err, r)
	}
	for i, m := range out.Memories {
		if m.Score <= 0 || i > 0 && m.Score > out.Memories[i-1].Score {
			b.t.Errorf("score %d is %v of %+v", i, m.Score, out.Memories)
		}
		texts = append(texts, m.Text)
	}
	return texts
}

func TestRetrievalIsByRank(t *testing.T) {
	b := newBench(t, t.TempDir())
	if got := b.recall("anything", 5); got != nil {
		t.Errorf("without notes: %q", got)
	}
	for _, text := range []string{
		"the key is under the mat", "Ann likes green tea", "the train leaves at nine",
		"the " + strings.Repeat("long story of the house ", 50) + "and a key", "京都の会議は月曜日です", "會議室的密碼是四二",
	} {
		b.note(text)
	}
	for query, want := range map[string]string{
		"Where is the KEY?":       "the key is under the mat",
		"what tea does ann like?": "Ann likes green tea",
		"which train do I take?":  "the train leaves at nine",
		"京都で会議はいつ?":               "京都の会議は月曜日です",
		"密碼是什麼":                   "會議室的密碼是四二",
	} {
		if got := b.recall(query, 1); !slices.Equal(got, []string{want}) {
			t.Errorf("%q: got %q, want %q", query, got, want)
		}
	}
	for _, query := range []string{"", "?!", "zebra"} {
		if got := b.recall(query, 5); got != nil {
			t.Errorf("%q: got %q", query, got)
		}
	}
}

func TestOfEqualsTheNewerOneIsRetrieved(t *testing.T) {
	b := newBench(t, t.TempDir())
	for i := range 10 {
		b.note(fmt.Sprintf("milk %d", i))
	}
	if got := b.recall("milk", 2); !slices.Equal(got, []string{"milk 9", "milk 8"}) {
		t.Errorf("got %q", got)
	}
}
