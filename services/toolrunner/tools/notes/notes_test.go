package notes

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/toolrunner/tools"
)

type bench struct {
	t                     *testing.T
	dir                   string
	add, search, retrieve tools.Tool
}

func newBench(t *testing.T, dir string) *bench {
	t.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	all := Tools(InWorkspace(root))
	return &bench{t, dir, all[0], all[1], all[2]}
}

func (b *bench) note(text string) {
	b.t.Helper()
	args, _ := json.Marshal(map[string]string{"text": text})
	if r := b.add.Run(b.t.Context(), tools.Call{Agent: "a", ID: "c", Args: args}); !r.Success {
		b.t.Errorf("adding: %v", r.Error)
	}
}

func (b *bench) find(agent subject.Agent, query string, limit int) (string, int) {
	b.t.Helper()
	args, _ := json.Marshal(map[string]any{"query": query, "limit": limit})
	r := b.search.Run(b.t.Context(), tools.Call{Agent: agent, Args: args})
	var out struct {
		Notes []Note `json:"notes"`
		Found int    `json:"found"`
	}
	if err := json.Unmarshal(r.Data, &out); err != nil {
		b.t.Fatalf("%v: %+v", err, r)
	}
	var texts []string
	for _, n := range out.Notes {
		texts = append(texts, n.Text)
	}
	return strings.Join(texts, "|"), out.Found
}

func TestNotesAreFoundNewestFirst(t *testing.T) {
	b := newBench(t, t.TempDir())
	if got, n := b.find("a", "", 5); got != "" || n != 0 {
		t.Fatalf("got %q, %d", got, n)
	}
	for _, text := range []string{"buy milk", "Milk is\nwhite", "call Ann"} {
		b.note(text)
	}
	for query, want := range map[string]string{
		"": "call Ann|Milk is\nwhite|buy milk", "milk": "Milk is\nwhite|buy milk", "WHITE milk": "Milk is\nwhite", "cow": "",
	} {
		if got, _ := b.find("a", query, 20); got != want {
			t.Errorf("%q: got %q, want %q", query, got, want)
		}
	}
	if got, n := b.find("a", "", 2); got != "call Ann|Milk is\nwhite" || n != 3 {
		t.Fatalf("got %q, %d", got, n)
	}
}

func TestAnAgentSeesItsOwnNotesAlone(t *testing.T) {
	b := newBench(t, t.TempDir())
	b.note("mine")
	if got, _ := b.find("b", "", 20); got != "" {
		t.Fatalf("got %q", got)
	}
	r := b.add.Run(t.Context(), tools.Call{Agent: "../x", Args: json.RawMessage(`{"text":"x"}`)})
	if r.Success {
		t.Fatal("an agent that is no id has notes")
	}
}

func TestNotesOfManyAtOnceAreAllKept(t *testing.T) {
	dir := t.TempDir()
	runners := []*bench{newBench(t, dir), newBench(t, dir)} // as two processes would
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() { runners[i%2].note(fmt.Sprintf("note %d ", i) + strings.Repeat("x", 5000)) })
	}
	wg.Wait()
	if _, n := runners[0].find("a", "", 1); n != 40 {
		t.Fatalf("%d notes of 40 are there", n)
	}
}

func TestATornLineHarmsNoOther(t *testing.T) {
	b := newBench(t, t.TempDir())
	b.note("one")
	f, err := os.OpenFile(filepath.Join(b.dir, "notes", "a.jsonl"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"id":"x","text":"to`); err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	b.note("two")
	if got, _ := b.find("a", "", 20); got != "two|one" {
		t.Fatalf("got %q", got)
	}
}

// A note keeps where its text comes from, for all runners of the workspace, and gives it back.
func TestANoteKeepsItsLabels(t *testing.T) {
	dir := t.TempDir()
	b, other := newBench(t, dir), newBench(t, dir)
	for text, after := range map[string][]string{
		"zebra of a page": {"web"}, "zebra of a mail": {"email:mallory@example.org", "web"}, "lion of mine": nil,
	} {
		args, _ := json.Marshal(map[string]string{"text": text})
		if r := b.add.Run(t.Context(), tools.Call{Agent: "a", ID: text, Args: args, After: after}); !r.Success {
			t.Fatal(r.Error)
		}
	}
	for query, want := range map[string][]string{
		"": {"email:mallory@example.org", "web"}, "page": {"web"}, "lion": nil, "nothing": nil,
	} {
		args, _ := json.Marshal(map[string]string{"query": query})
		for name, tl := range map[string]tools.Tool{"search": other.search, "retrieve": other.retrieve} {
			if name == "retrieve" && query == "" {
				continue // it finds nothing
			}
			r := tl.Run(t.Context(), tools.Call{Agent: "a", Args: args})
			got, _ := r.Metadata[tool.MetadataAfter].([]string)
			if slices.Sort(got); !r.Success || !slices.Equal(got, want) {
				t.Errorf("%s of %q has the labels %q, want %q: %v", name, query, got, want, r.Error)
			}
		}
	}
}
