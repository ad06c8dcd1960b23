package memorytest

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/memory"
	"skandha.dev/pkg/subject"
	index "skandha.dev/services/internal/memory"
)

func roundTrip(t *testing.T, s index.Store) {
	_, err := s.Get(t.Context(), fact(1, "").Key())
	fails(t, err, index.ErrNotFound)
	put(t, s)
	want := index.Entry{Revision: index.MaxRevision, Memory: memory.Memory{
		ID: "m1", Agent: main, Kind: memory.Experience, Text: "Asked for the weather.\n天氣 ☔\x00\u2028</script>",
		Source: memory.Source{
			Origin: memory.FromWeb, Principal: "ann", Session: "s1", Turn: "t1", Call: "c1", Tool: "web:get",
			URL: "https://example.org/?q=a&b=<c>",
		},
		Pinned:  true,
		Outcome: &memory.Outcome{Status: "answered", Tools: []string{"web:get"}, CostMicroUSD: 12, DurationMS: 1 << 40},
		Created: epoch, Updated: epoch.Add(time.Hour),
	}, Model: "fake/model-1", Vector: []float32{3, 0, 4}}
	put(t, s, want)
	got, err := s.Get(t.Context(), want.Key())
	ok(t, err)
	for i, x := range []float32{0.6, 0, 0.8} {
		if math.Abs(float64(got.Vector[i]-x)) > 1e-6 {
			t.Errorf("vector is %v", got.Vector)
		}
	}
	want.Vector = got.Vector
	same(t, got, want)
	page, _, err := s.List(t.Context(), main, nil, 0, "")
	ok(t, err)
	same(t, page, []memory.Memory{want.Memory})
	same(t, search(t, s, index.Query{Text: "weather"})[0].Memory, want.Memory)
}

func revisionsOnlyGrow(t *testing.T, s index.Store) {
	at := func(revision uint64, text string) index.Entry {
		return with(fact(1, text), func(e *index.Entry) { e.Revision = revision })
	}
	put(t, s, at(5, "five"))
	put(t, s, at(4, "four"))
	same(t, get(t, s, 1), at(5, "five"))
	put(t, s, at(5, "five"), at(5, "five"))
	put(t, s, at(7, "seven"), at(6, "six"))
	same(t, get(t, s, 1), at(7, "seven"))
	for text, want := range map[string]int{"four": 0, "five": 0, "six": 0, "seven": 1} {
		same(t, len(search(t, s, index.Query{Text: text})), want)
	}
	big := index.MaxRevision
	put(t, s, at(big-1, "big")) // not exact as a float64
	put(t, s, at(big-2, "less"))
	same(t, get(t, s, 1), at(big-1, "big"))
	put(t, s, at(big, "bigger"))
	same(t, get(t, s, 1), at(big, "bigger"))
	same(t, listAll(t, s, main, 9), []string{"1"})
}

func removalsAreRemembered(t *testing.T, s index.Store) {
	gone := func(n int) {
		t.Helper()
		_, err := s.Get(t.Context(), fact(n, "").Key())
		fails(t, err, index.ErrNotFound)
		same(t, len(listAll(t, s, main, 9)), 0)
		same(t, len(search(t, s, index.Query{Text: "tea", Vector: []float32{1, 0}, Model: "m"})), 0)
		left, err := s.Unembedded(t.Context(), "other", 0, 9)
		ok(t, err)
		same(t, len(left), 0)
	}
	remove := func(n int, revision uint64) {
		t.Helper()
		ok(t, s.Remove(t.Context(), fact(n, "").Key(), revision))
	}
	tea := embedded(fact(5, "tea"), "m", 1, 0)
	put(t, s, tea)
	remove(5, 4) // a late removal
	same(t, get(t, s, 5).Revision, 5)
	remove(5, 7)
	gone(5)
	remove(5, 7)
	put(t, s, tea) // a late put
	put(t, s, with(tea, func(e *index.Entry) { e.Revision = 7 }))
	gone(5)

	remove(6, 8) // before its put arrives
	put(t, s, fact(6, "tea"))
	gone(6)

	put(t, s, with(tea, func(e *index.Entry) { e.Revision = 9 }))
	same(t, get(t, s, 5).Revision, 9)
	same(t, ids(search(t, s, index.Query{Text: "tea"})), []string{"5"})
	same(t, ids(search(t, s, index.Query{Vector: []float32{1, 0}, Model: "m"})), []string{"5"})
}

func vectorsStayWithTheirText(t *testing.T, s index.Store) {
	tea := fact(1, "tea")
	put(t, s, tea)
	put(t, s, embedded(tea, "m", 1, 0)) // the embedder answers later
	same(t, get(t, s, 1).Vector, []float32{1, 0})
	put(t, s, tea) // filled by another process
	same(t, get(t, s, 1).Model, "m")
	put(t, s, with(tea, func(e *index.Entry) { e.Revision, e.Pinned, e.Kind = 2, true, memory.Lesson }))
	got := get(t, s, 1)
	if !got.Pinned || got.Kind != memory.Lesson || !slices.Equal(got.Vector, []float32{1, 0}) {
		t.Errorf("got %+v", got)
	}
	near := index.Query{Vector: []float32{1, 0}, Model: "m", Kinds: []memory.Kind{memory.Lesson}}
	same(t, ids(search(t, s, near)), []string{"1"})
	put(t, s, with(tea, func(e *index.Entry) { e.Revision, e.Text = 3, "coffee" }))
	same(t, get(t, s, 1).Vector, nil)
	same(t, len(search(t, s, index.Query{Vector: []float32{1, 0}, Model: "m"})), 0)
}

func agentsAreApart(t *testing.T, s index.Store) {
	of := func(agent subject.Agent) index.Entry {
		return with(embedded(fact(1, "tea"), "m", 1, 0), func(e *index.Entry) { e.Agent = agent })
	}
	agents := []subject.Agent{"a", "A", "a-", "a_", "aa", "-", "_"}
	for i, agent := range agents {
		put(t, s, with(of(agent), func(e *index.Entry) { e.ID = fmt.Sprint(i) }))
	}
	for i, agent := range agents {
		want := []string{fmt.Sprint(i)}
		same(t, listAll(t, s, agent, 9), want)
		same(t, ids(search(t, s, index.Query{Agent: agent, Text: "tea"})), want)
		same(t, ids(search(t, s, index.Query{Agent: agent, Vector: []float32{1, 0}, Model: "m"})), want)
		_, err := s.Get(t.Context(), index.Key{Agent: agent, ID: fmt.Sprint(i + 1)})
		fails(t, err, index.ErrNotFound)
	}
	ok(t, s.Remove(t.Context(), index.Key{Agent: "A", ID: "0"}, 9))
	same(t, listAll(t, s, "a", 9), []string{"0"})
	same(t, len(listAll(t, s, "nobody", 9)), 0)
}

func oddNames(t *testing.T, s index.Store) {
	names := []string{
		" ", "a b", "\x00", "a\x00b", "a\nb", "%", "a/b", "a|b", "{a}", "*", "'", `"`, `\`, "..", "視點", "é", "e\u0301",
		"👩‍💻", "A", "a", "a ", "1", "01", "1.0", "null", strings.Repeat("x", 128), strings.Repeat("x", 127), "\u202e",
	}
	for i, name := range names {
		put(t, s, with(fact(i+1, "tea "+fmt.Sprint(i)), func(e *index.Entry) { e.ID, e.Vector, e.Model = name, []float32{1, 0}, "m" }))
	}
	for i, name := range names {
		e, err := s.Get(t.Context(), index.Key{Agent: main, ID: name})
		if err != nil || e.ID != name || e.Revision != uint64(i+1) {
			t.Errorf("%q: got %+v, %v", name, e, err)
		}
	}
	slices.Reverse(names)
	same(t, listAll(t, s, main, 3), names)
	same(t, len(search(t, s, index.Query{Text: "tea", Limit: index.MaxHits})), len(names))
	for _, name := range names {
		ok(t, s.Remove(t.Context(), index.Key{Agent: main, ID: name}, 1000))
	}
	same(t, len(listAll(t, s, main, 9)), 0)
}

func bigText(t *testing.T, s index.Store) {
	for i, text := range []string{
		strings.Repeat("lorem ipsum ", memory.MaxText/12), strings.Repeat("漢字", memory.MaxText/6),
		strings.Repeat("x", memory.MaxText), strings.Repeat(`"<&\`, memory.MaxText/4),
	} {
		e := fact(i+1, text)
		put(t, s, e)
		same(t, get(t, s, i+1), e)
	}
	same(t, ids(search(t, s, index.Query{Text: "ipsum"})), []string{"1"})
	same(t, ids(search(t, s, index.Query{Text: strings.Repeat("漢字", memory.MaxText/6)})), []string{"2"})
	search(t, s, index.Query{Text: strings.Repeat("many different words a1 b2 c3 d4 ", 400)})
}

func listOrder(t *testing.T, s index.Store) {
	same(t, len(listAll(t, s, main, 0)), 0)
	tie := func(id string) index.Entry {
		return with(fact(3, "x"), func(e *index.Entry) { e.ID = id })
	}
	put(t, s, fact(1, "x"), tie("b"), fact(5, "x"), tie("a"), with(fact(4, "x"), func(e *index.Entry) { e.Kind = memory.Note }))
	same(t, listAll(t, s, main, 9), []string{"5", "4", "a", "b", "1"})
	same(t, listAll(t, s, main, 1), []string{"5", "4", "a", "b", "1"})
	same(t, listAll(t, s, main, 1, memory.Fact), []string{"5", "a", "b", "1"})
	same(t, listAll(t, s, main, 9, memory.Note, memory.Lesson), []string{"4"})
	same(t, len(listAll(t, s, main, 9, memory.Lesson)), 0)
	put(t, s, with(fact(6, "x"), func(e *index.Entry) { e.ID = "1" })) // with another time
	same(t, listAll(t, s, main, 2), []string{"1", "5", "4", "a", "b"})
}

func listPages(t *testing.T, s index.Store) {
	var entries []index.Entry
	want := []string{}
	for n := 40; n > 0; n-- {
		entries = append(entries, with(fact(n, "x"), func(e *index.Entry) { e.Created = epoch.Add(time.Duration(n/7) * time.Second) }))
	}
	put(t, s, entries...)
	slices.SortFunc(entries, func(a, b index.Entry) int { return index.CursorOf(a.Memory).Compare(index.CursorOf(b.Memory)) })
	for _, e := range entries {
		want = append(want, e.ID)
	}
	for _, limit := range []int{1, 2, 7, 39, 40, 41} {
		same(t, listAll(t, s, main, limit), want)
	}
	page, next, err := s.List(t.Context(), main, nil, 10, "")
	ok(t, err)
	ok(t, s.Remove(t.Context(), index.Key{Agent: main, ID: page[9].ID}, 1000)) // the cursor's own
	page, _, err = s.List(t.Context(), main, nil, 1, next)
	ok(t, err)
	same(t, page[0].ID, want[10])
}
