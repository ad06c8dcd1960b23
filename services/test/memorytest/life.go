package memorytest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/memory"
	"skandha.dev/pkg/subject"
	index "skandha.dev/services/internal/memory"
)

func position(t *testing.T, s index.Store) {
	at := func(want uint64) {
		t.Helper()
		got, err := s.Position(t.Context())
		ok(t, err)
		same(t, got, want)
	}
	at(0)
	for _, step := range []struct{ set, want uint64 }{{5, 5}, {3, 5}, {0, 5}, {40, 40}, {index.MaxRevision, index.MaxRevision}} {
		ok(t, s.SetPosition(t.Context(), step.set))
		at(step.want)
	}
	ok(t, s.Wipe(t.Context()))
	at(0)
}

// wipeAndRefill checks that an index that is filled again answers the same.
func wipeAndRefill(t *testing.T, s index.Store) {
	ok(t, s.Wipe(t.Context())) // an empty one
	var entries []index.Entry
	for n := 1; n <= 50; n++ {
		e := fact(n, fmt.Sprintf("tea number %d of %d", n, n%7))
		if n%3 > 0 {
			e = embedded(e, "m", 1, float32(n%11), float32(n%5))
		}
		entries = append(entries, e)
	}
	queries := []index.Query{
		{Text: "tea 3"},
		{Text: "number 17 of 4"},
		{Vector: []float32{1, 5, 2}, Model: "m"},
		{Text: "tea 6", Vector: []float32{3, 5, 2}, Model: "m", Limit: 20},
	}
	answers := func() (out [][]string) {
		for _, q := range queries {
			out = append(out, ids(search(t, s, q)))
		}
		return out
	}
	put(t, s, entries...)
	ok(t, s.Remove(t.Context(), fact(7, "").Key(), 51))
	want := answers()
	ok(t, s.Wipe(t.Context()))
	for _, got := range answers() {
		same(t, got, []string{})
	}
	same(t, len(listAll(t, s, main, 9)), 0)

	put(t, s, fact(7, "brought back")) // removals are forgotten
	same(t, get(t, s, 7).Text, "brought back")
	ok(t, s.Wipe(t.Context()))
	slices.Reverse(entries)
	for _, e := range entries {
		if e.ID != "7" {
			put(t, s, e)
		}
	}
	same(t, answers(), want)
	put(t, s, embedded(fact(60, "other"), "m2", 1, 0, 0, 0)) // dimensions are forgotten too
	ok(t, s.Wipe(t.Context()))
	put(t, s, embedded(fact(60, "other"), "m2", 1, 0))
}

func sharesNothing(t *testing.T, a, b index.Store) {
	put(t, a, embedded(fact(1, "tea"), "m", 1, 0))
	put(t, b, embedded(fact(1, "tea"), "m", 1, 0, 0))
	ok(t, a.SetPosition(t.Context(), 7))
	ok(t, b.SetPosition(t.Context(), 8))
	ok(t, a.Wipe(t.Context()))
	same(t, len(listAll(t, a, main, 9)), 0)
	same(t, listAll(t, b, main, 9), []string{"1"})
	same(t, len(search(t, b, index.Query{Vector: []float32{1, 0, 0}, Model: "m"})), 1)
	at, err := b.Position(t.Context())
	ok(t, err)
	same(t, at, 8)
}

func concurrentWriters(t *testing.T, s index.Store) { growTogether(t, s, s) }

// growTogether writes the same memories through two stores at once, in different orders.
// The newest revision of each wins, be it a put or a removal.
func growTogether(t *testing.T, a, b index.Store) {
	const writers, memories, revisions = 4, 5, 12
	ctx := t.Context()
	together(t, writers, func(w int) error {
		s := []index.Store{a, b}[w%2]
		for i := range memories * revisions {
			i = (i*(2*w+1) + w*7) % (memories * revisions) // each writer has its own order
			m, revision := i%memories, uint64(i/memories+1)
			e := with(fact(m, fmt.Sprintf("tea%d", revision)), func(e *index.Entry) {
				e.Agent, e.Revision, e.Model, e.Vector = "grown", revision, "g", []float32{1, float32(revision)}
			})
			var err error
			if revision == revisions && m == 0 {
				err = s.Remove(ctx, e.Key(), revision)
			} else {
				err = s.Put(ctx, []index.Entry{e})
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	for _, s := range []index.Store{a, b} {
		same(t, listAll(t, s, "grown", 9), []string{"4", "3", "2", "1"})
		newest := index.Query{Agent: "grown", Text: fmt.Sprintf("tea%d", revisions)}
		same(t, ids(search(t, s, newest)), []string{"4", "3", "2", "1"})
		same(t, len(search(t, s, index.Query{Agent: "grown", Text: "tea3"})), 0)
		near := index.Query{Agent: "grown", Vector: []float32{1, revisions}, Model: "g"}
		same(t, ids(search(t, s, near)), []string{"4", "3", "2", "1"})
	}
}

// many fills an index with 10,000 memories.
func many(t *testing.T, s index.Store) {
	const n, batch = 10_000, 500
	for first := 1; first <= n; first += batch {
		var entries []index.Entry
		for i := first; i < first+batch; i++ {
			e := fact(i, fmt.Sprintf("memory w%d of group g%d", i, i%10))
			if i%2 == 0 {
				e = embedded(e, "m", float32(i%97)+1, float32(i%89), float32(i%83), 1)
			}
			entries = append(entries, e)
		}
		put(t, s, entries...)
	}
	same(t, ids(search(t, s, index.Query{Text: "w7777"})), []string{"7777"})
	same(t, ids(search(t, s, index.Query{Text: "g3", Limit: 3})), []string{"9993", "9983", "9973"})
	hits := search(t, s, index.Query{Text: "w7777", Vector: []float32{1 + 4242%97, 4242 % 89, 4242 % 83, 1}, Model: "m"})
	same(t, ids(hits)[:2], []string{"4242", "7777"})
	left, err := s.Unembedded(t.Context(), "m", n-3, 9)
	ok(t, err)
	same(t, len(left), 1)
	same(t, len(listAll(t, s, main, index.MaxPage)), n)
}

func invalidArguments(t *testing.T, s index.Store) {
	ctx := t.Context()
	puts := func(change func(*index.Entry)) func() error {
		return func() error { return s.Put(ctx, []index.Entry{fact(1, "good"), with(fact(2, "bad"), change)}) }
	}
	finds := func(q index.Query) func() error {
		return func() error { _, err := s.Search(ctx, q); return err }
	}
	lists := func(agent string, kind memory.Kind, after string) func() error {
		return func() error {
			_, _, err := s.List(ctx, subject.Agent(agent), []memory.Kind{kind}, 1, after)
			return err
		}
	}
	for name, call := range map[string]func() error{
		"put, no id":            puts(func(e *index.Entry) { e.ID = "" }),
		"put, no agent":         puts(func(e *index.Entry) { e.Agent = "" }),
		"put, no text":          puts(func(e *index.Entry) { e.Text = " " }),
		"put, big text":         puts(func(e *index.Entry) { e.Text = strings.Repeat("x", memory.MaxText+1) }),
		"put, revision 0":       puts(func(e *index.Entry) { e.Revision = 0 }),
		"put, big revision":     puts(func(e *index.Entry) { e.Revision = index.MaxRevision + 1 }),
		"put, early":            puts(func(e *index.Entry) { e.Created = time.Unix(-1, 0) }),
		"put, no model":         puts(func(e *index.Entry) { e.Vector = []float32{1} }),
		"put, no vector":        puts(func(e *index.Entry) { e.Model = "m" }),
		"put, empty vector":     puts(func(e *index.Entry) { e.Model, e.Vector = "m", []float32{} }),
		"put, zero vector":      puts(func(e *index.Entry) { e.Model, e.Vector = "m", []float32{0, 0} }),
		"put, no numbers":       puts(func(e *index.Entry) { e.Model, e.Vector = "m", []float32{nan(), 0} }),
		"put, long vector":      puts(func(e *index.Entry) { e.Model, e.Vector = "m", make([]float32, index.MaxDimension+1) }),
		"remove, no id":         func() error { return s.Remove(ctx, index.Key{Agent: main}, 1) },
		"remove, no agent":      func() error { return s.Remove(ctx, index.Key{ID: "x"}, 1) },
		"remove, revision 0":    func() error { return s.Remove(ctx, fact(1, "").Key(), 0) },
		"get, no id":            func() error { _, err := s.Get(ctx, index.Key{Agent: main}); return err },
		"get, agent":            func() error { _, err := s.Get(ctx, index.Key{Agent: "a.b", ID: "x"}); return err },
		"list, agent":           lists("", memory.Fact, ""),
		"list, kind":            lists("main", "thought", ""),
		"list, cursor":          lists("main", memory.Fact, "nonsense!"),
		"search, agent":         finds(index.Query{Text: "x"}),
		"search, nothing":       finds(index.Query{Agent: main}),
		"search, kind":          finds(index.Query{Agent: main, Text: "x", Kinds: []memory.Kind{"thought"}}),
		"search, no model":      finds(index.Query{Agent: main, Vector: []float32{1}}),
		"search, no vector":     finds(index.Query{Agent: main, Text: "x", Model: "m"}),
		"search, zero vector":   finds(index.Query{Agent: main, Vector: []float32{0}, Model: "m"}),
		"unembedded, no model":  func() error { _, err := s.Unembedded(ctx, "", 0, 1); return err },
		"set position, too big": func() error { return s.SetPosition(ctx, index.MaxRevision+1) },
	} {
		if err := call(); err == nil || !strings.Contains(err.Error(), "invalid argument") {
			t.Errorf("%s: %v", name, err)
		} else {
			fails(t, err, index.ErrInvalid)
		}
	}
	same(t, len(listAll(t, s, main, 9)), 0)
}

func nan() float32 {
	var zero float32
	return zero / zero
}

// calls lists every method except Close.
func calls(s index.Store) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"Put":    func(ctx context.Context) error { return s.Put(ctx, []index.Entry{fact(9, "x")}) },
		"Remove": func(ctx context.Context) error { return s.Remove(ctx, fact(9, "").Key(), 9) },
		"Get":    func(ctx context.Context) error { _, err := s.Get(ctx, fact(9, "").Key()); return err },
		"List":   func(ctx context.Context) error { _, _, err := s.List(ctx, main, nil, 0, ""); return err },
		"Search": func(ctx context.Context) error {
			_, err := s.Search(ctx, index.Query{Agent: main, Text: "x"})
			return err
		},
		"Unembedded":  func(ctx context.Context) error { _, err := s.Unembedded(ctx, "m", 0, 1); return err },
		"SetPosition": func(ctx context.Context) error { return s.SetPosition(ctx, 1) },
		"Position":    func(ctx context.Context) error { _, err := s.Position(ctx); return err },
		"Wipe":        func(ctx context.Context) error { return s.Wipe(ctx) },
		"Ping":        func(ctx context.Context) error { return s.Ping(ctx) },
	}
}

func cancelledContext(t *testing.T, s index.Store) {
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancelLate := context.WithDeadline(t.Context(), time.Unix(1, 0))
	defer cancelLate()
	for name, call := range calls(s) {
		t.Run(name, func(t *testing.T) {
			fails(t, call(cancelled), context.Canceled)
			fails(t, call(late), context.DeadlineExceeded)
		})
	}
	same(t, len(listAll(t, s, main, 9)), 0)
	ok(t, s.Ping(t.Context()))
}

func closing(t *testing.T, s index.Store) {
	ok(t, s.Ping(t.Context()))
	ok(t, s.Close())
	ok(t, s.Close())
	for name, call := range calls(s) {
		t.Run(name, func(t *testing.T) { fails(t, call(t.Context()), index.ErrClosed) })
	}
}
