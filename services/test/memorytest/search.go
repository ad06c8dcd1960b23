package memorytest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"skandha.dev/pkg/memory"
	index "skandha.dev/services/internal/memory"
)

func words(t *testing.T, s index.Store) {
	put(t, s, fact(1, "Ann likes green tea"), fact(2, "Ben has a dog"), fact(3, "Ann's dogs are named Tea and Milk"),
		fact(4, "Meetings are at noon"), fact(5, "The meeting room is on the second floor, next to the lift"))
	for text, want := range map[string][]string{
		"green":               {"1"},
		"ANN GREEN":           {"1", "3"},
		"meetings meet":       {"4", "5"},
		"dog":                 {"2", "3"},
		"zebra":               {},
		"zebra lift":          {"5"},
		"the":                 {},
		"which room is next?": {"5"},
	} {
		hits := search(t, s, index.Query{Text: text})
		if got := ids(hits); !slices.Equal(got, want) {
			t.Errorf("%q finds %q, want %q", text, got, want)
		}
		for _, h := range hits {
			if h.Match != memory.Lexical || h.Score <= 0 {
				t.Errorf("%q finds %+v", text, h)
			}
		}
	}
}

func wordsOfManyScripts(t *testing.T, s index.Store) {
	for i, text := range []string{
		"使用者喜歡喝烏龍茶，不喜歡咖啡", // zh-TW
		"用户的会议在星期三下午举行",   // zh-CN
		"来週の会議は東京で行われます",  // ja
		"사용자는 커피를 좋아합니다",
		"Пользователь живёт в Москве",
		"ผู้ใช้ชอบชา",
		"Der Nutzer fährt mit der Straßenbahn",
		"emoji 🫖 only here",
	} {
		put(t, s, fact(i+1, text))
	}
	for text, want := range map[string][]string{
		"烏龍茶":          {"1"},
		"乌龙茶好喝吗":       {"1"}, // in the other form
		"咖啡":           {"1"},
		"星期三的會議":       {"2", "3"},
		"東京":           {"3"},
		"会議はどこですか":     {"3", "2"},
		"커피":           {"4"},
		"москве":       {"5"},
		"ชอบชา":        {"6"},
		"STRASSENBAHN": {},
		"straßenbahn":  {"7"},
		"ＥＭＯＪＩ":        {"8"},
		"🫖":            {},
	} {
		if got := ids(search(t, s, index.Query{Text: text})); !slices.Equal(got, want) {
			t.Errorf("%q finds %q, want %q", text, got, want)
		}
	}
}

func hostileQueries(t *testing.T, s index.Store) {
	put(t, s, fact(1, "near the column"), fact(2, "and or not"), fact(3, `quote " star * colon : caret ^`))
	for _, text := range []string{
		`"`, `""`, `"near`, `near"column`, "near*", "*", "^near", "terms:near", "terms : near", "near AND", "AND", "OR", "NOT",
		"NEAR(near column)", "NEAR(", "near NEAR/2 column", "(near", "near)", "{near}", "near + column", "-near", "near -column",
		"near\x00column", "\x00", "'; DROP TABLE entry; --", "near\\", "%", "$contains", `{"$ne": 1}`, "near\xffcolumn", "\u202enear",
		" ", "\n", "}:", "near|column", "@terms:near", "near~1", "[near]", "<near>", "near;", "near OR 1=1",
	} {
		hits := search(t, s, index.Query{Text: text})
		if strings.Contains(text, "near") && !slices.Contains(ids(hits), "1") {
			t.Errorf("%q finds %q", text, ids(hits))
		}
		if got := ids(hits); slices.Contains(got, "3") && !strings.Contains(text, "terms") {
			t.Errorf("%q finds %q", text, got)
		}
	}
	same(t, len(listAll(t, s, main, 9)), 3)
}

func kindsAndLimit(t *testing.T, s index.Store) {
	kinds := memory.Kinds()
	for n := 1; n <= 30; n++ {
		e := with(fact(n, "tea"), func(e *index.Entry) { e.Kind = kinds[n%len(kinds)] })
		if n > 15 {
			e = embedded(e, "m", 1, float32(n))
		}
		put(t, s, e)
	}
	for _, q := range []index.Query{{Text: "tea"}, {Text: "tea", Vector: []float32{1, 0}, Model: "m"}} {
		same(t, len(search(t, s, q)), index.DefaultHits)
		q.Limit = 3
		same(t, len(search(t, s, q)), 3)
		q.Limit = index.MaxHits + 1
		same(t, len(search(t, s, q)), 30)
		q.Kinds = []memory.Kind{memory.Note, memory.Lesson, memory.Note}
		hits := search(t, s, q)
		same(t, len(hits), 12)
		for _, h := range hits {
			if !q.Includes(h.Kind) {
				t.Errorf("%v finds %+v", q.Kinds, h)
			}
		}
	}
}

// nearness compares with the exact order, of vectors like those of embedders.
func nearness(t *testing.T, s index.Store) {
	const n, dimension = 60, 96
	r := rand.New(rand.NewPCG(1, 2))
	random := func() []float32 {
		v := make([]float32, dimension)
		for i := range v {
			v[i] = float32(r.NormFloat64())
		}
		return v
	}
	var entries []index.Entry
	for i := range n {
		entries = append(entries, embedded(fact(i+1, "text "+fmt.Sprint(i)), "m", random()...))
	}
	put(t, s, entries...)
	entries, err := index.Prepare(entries)
	ok(t, err)
	for range 5 {
		q, err := index.Query{Agent: main, Vector: random(), Model: "m"}.Prepare()
		ok(t, err)
		slices.SortFunc(entries, func(a, b index.Entry) int {
			if index.Dot(a.Vector, q.Vector) > index.Dot(b.Vector, q.Vector) {
				return -1
			}
			return 1
		})
		hits := search(t, s, q)
		for i, h := range hits {
			want := index.Dot(entries[i].Vector, q.Vector)
			if h.ID != entries[i].ID || h.Match != memory.Semantic || h.Score < want-1e-3 || h.Score > want+1e-3 {
				t.Errorf("hit %d is %s with %v, want %s with %v", i, h.ID, h.Score, entries[i].ID, want)
			}
		}
		same(t, len(hits), index.DefaultHits)
	}
}

func ties(t *testing.T, s index.Store) {
	order := []int{3, 1, 4, 2, 5}
	for _, n := range order {
		put(t, s, fact(n, "same words"))
	}
	want := []string{"5", "4", "3", "2", "1"}
	same(t, ids(search(t, s, index.Query{Text: "words"})), want)
	same(t, ids(search(t, s, index.Query{Text: "words", Limit: 2})), want[:2])
	for _, n := range order {
		put(t, s, embedded(fact(n, "same words"), "m", 1, 2, 3))
	}
	same(t, ids(search(t, s, index.Query{Vector: []float32{1, 1, 1}, Model: "m"})), want)
	same(t, ids(search(t, s, index.Query{Vector: []float32{1, 1, 1}, Model: "m", Limit: 2})), want[:2])
}

func merged(t *testing.T, s index.Store) {
	put(t, s,
		embedded(fact(1, "oolong"), "m", 1, 0.1), embedded(fact(2, "tea with a vector"), "m", 0, 1),
		fact(3, "tea tea"), fact(4, "tea without a vector, and more words"), fact(5, "coffee"),
		embedded(fact(6, "tea of another model"), "other", 1, 0, 0))
	hits := search(t, s, index.Query{Text: "tea", Vector: []float32{1, 0}, Model: "m"})
	got := make([]string, len(hits))
	for i, h := range hits {
		got[i] = h.ID + " " + string(h.Match)
	}
	same(t, got[:4], []string{"1 semantic", "3 lexical", "2 semantic", got[3]})
	same(t, len(got), 5)
	same(t, slices.Sorted(slices.Values(got[3:])), []string{"4 lexical", "6 lexical"})
	same(t, search(t, s, index.Query{Text: "tea", Vector: []float32{1, 0}, Model: "new"})[0].Match, memory.Lexical)
	same(t, ids(search(t, s, index.Query{Vector: []float32{1, 0}, Model: "m"})), []string{"1", "2"})
}

func wrongDimension(t *testing.T, s index.Store) {
	put(t, s, embedded(fact(1, "tea"), "m", 1, 0))
	err := s.Put(t.Context(), []index.Entry{embedded(fact(2, "coffee"), "m", 1, 0, 0)})
	fails(t, err, index.ErrInvalid)
	if !strings.Contains(fmt.Sprint(err), "3 dimensions") || !strings.Contains(fmt.Sprint(err), "model m have 2") {
		t.Errorf("error is %v", err)
	}
	_, err = s.Search(t.Context(), index.Query{Agent: main, Text: "tea", Vector: []float32{1, 0, 0}, Model: "m"})
	fails(t, err, index.ErrInvalid)
	put(t, s, embedded(fact(2, "coffee"), "m", 0, 1), embedded(fact(3, "milk"), "other", 1, 0, 0))
	same(t, ids(search(t, s, index.Query{Vector: []float32{0, 1}, Model: "m"})), []string{"2", "1"})
}

func changedModel(t *testing.T, s index.Store) {
	put(t, s, embedded(fact(1, "tea"), "old", 1, 0), embedded(fact(2, "coffee"), "old", 0, 1))
	put(t, s, embedded(fact(1, "tea"), "new", 0, 0, 1))
	same(t, ids(search(t, s, index.Query{Vector: []float32{1, 0}, Model: "old"})), []string{"2"})
	same(t, ids(search(t, s, index.Query{Vector: []float32{0, 0, 1}, Model: "new"})), []string{"1"})
	hits := search(t, s, index.Query{Text: "coffee tea", Vector: []float32{0, 0, 1}, Model: "new"})
	same(t, ids(hits), []string{"1", "2"})
	same(t, hits[1].Match, memory.Lexical)
	put(t, s, embedded(fact(1, "tea"), "old", 1, 0)) // and back
	same(t, ids(search(t, s, index.Query{Vector: []float32{1, 0}, Model: "old"})), []string{"1", "2"})
	same(t, get(t, s, 1).Model, "old")
}

func unembedded(t *testing.T, s index.Store) {
	left := func(model string, after uint64, limit int) (out []string) {
		t.Helper()
		entries, err := s.Unembedded(t.Context(), model, after, limit)
		ok(t, err)
		for _, e := range entries {
			out = append(out, string(e.Agent)+e.ID)
			if e.Revision <= after || e.Text == "" {
				t.Errorf("got %+v", e)
			}
		}
		return out
	}
	same(t, left("m", 0, 9), nil)
	other := with(fact(2, "two"), func(e *index.Entry) { e.Agent = "other" })
	put(t, s, fact(3, "three"), other, fact(1, "one"), embedded(fact(4, "four"), "n", 1, 0), embedded(fact(5, "five"), "m", 1, 0))
	same(t, left("m", 0, 9), []string{"main1", "other2", "main3", "main4"})
	same(t, left("m", 1, 2), []string{"other2", "main3"})
	same(t, left("n", 0, 9), []string{"main1", "other2", "main3", "main5"})
	same(t, left("new", 3, 9), []string{"main4", "main5"})
	put(t, s, embedded(other, "m", 1, 1))
	ok(t, s.Remove(t.Context(), fact(3, "").Key(), 6))
	same(t, left("m", 0, 9), []string{"main1", "main4"})

	entries, err := s.Unembedded(t.Context(), "m", 0, 0)
	ok(t, err)
	for _, e := range entries {
		put(t, s, embedded(e, "m", 1, 1))
	}
	same(t, left("m", 0, 9), nil)
}

// searchesFollow checks that a process finds what another one has changed, by vectors too.
func searchesFollow(t *testing.T, open func() index.Store) {
	a, b := open(), open()
	finds := func(want ...string) {
		t.Helper()
		same(t, ids(search(t, a, index.Query{Text: "tea", Vector: []float32{1, 0}, Model: "m"})), append([]string{}, want...))
	}
	put(t, b, embedded(fact(1, "Ann likes tea"), "m", 1, 0), embedded(fact(2, "Ben has a dog"), "m", 0, 1))
	finds("1", "2")
	put(t, b, embedded(fact(3, "Cid likes tea"), "m", 1, 0.5))
	finds("1", "3", "2")
	later := func(e index.Entry, revision uint64) index.Entry { e.Revision = revision; return e }
	put(t, b, later(fact(1, "Ann has a cat"), 4)) // its vector was that of another text
	finds("3", "2")
	put(t, b, embedded(later(fact(1, "Ann has a cat"), 4), "m", -1, 0))
	finds("3", "2", "1")
	ok(t, b.Remove(t.Context(), fact(3, "").Key(), 5))
	finds("2", "1")
	ok(t, b.Wipe(t.Context()))
	finds()
	put(t, b, embedded(fact(3, "Cid likes tea"), "m", 1, 0.5))
	finds("3")
}
