// Package memorytest is the test suite that every implementation of memory.Store passes.
// It runs against the real database.
package memorytest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"testing"
	"time"

	"skandha.dev/pkg/memory"
	"skandha.dev/pkg/subject"
	index "skandha.dev/services/internal/memory"
)

// Run runs the suite. open returns a new, empty store and closes it in the test's
// cleanup; closing twice is allowed. Stores that are open at the same time share
// nothing.
func Run(t *testing.T, open func(t *testing.T) index.Store) {
	for _, c := range []struct {
		name string
		test func(*testing.T, index.Store)
	}{
		{"RoundTrip", roundTrip},
		{"RevisionsOnlyGrow", revisionsOnlyGrow},
		{"RemovalsAreRemembered", removalsAreRemembered},
		{"VectorsStayWithTheirText", vectorsStayWithTheirText},
		{"AgentsAreApart", agentsAreApart},
		{"OddNames", oddNames},
		{"BigText", bigText},
		{"ListOrder", listOrder},
		{"ListPages", listPages},
		{"Words", words},
		{"WordsOfManyScripts", wordsOfManyScripts},
		{"HostileQueries", hostileQueries},
		{"KindsAndLimit", kindsAndLimit},
		{"Nearness", nearness},
		{"Ties", ties},
		{"Merged", merged},
		{"WrongDimension", wrongDimension},
		{"ChangedModel", changedModel},
		{"Unembedded", unembedded},
		{"Position", position},
		{"WipeAndRefill", wipeAndRefill},
		{"ConcurrentWriters", concurrentWriters},
		{"Many", many},
		{"InvalidArguments", invalidArguments},
		{"CancelledContext", cancelledContext},
		{"Close", closing},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, open(t)) })
	}
	t.Run("SharesNothing", func(t *testing.T) { sharesNothing(t, open(t), open(t)) })
}

// RunReopen checks what survives. place returns a function that opens the same place
// each time; the place is empty at first.
func RunReopen(t *testing.T, place func(t *testing.T) (open func() index.Store)) {
	t.Run("Reopen", func(t *testing.T) {
		open := place(t)
		s := open()
		put(t, s, fact(1, "Ann likes tea"), embedded(fact(2, "Ben has a dog"), "m", 1, 0))
		ok(t, s.Remove(t.Context(), fact(3, "").Key(), 4))
		ok(t, s.SetPosition(t.Context(), 4))
		ok(t, s.Close())

		s = open()
		same(t, get(t, s, 1), fact(1, "Ann likes tea"))
		same(t, ids(search(t, s, index.Query{Text: "tea", Vector: []float32{1, 0}, Model: "m"})), []string{"2", "1"})
		put(t, s, fact(3, "removed"))
		_, err := s.Get(t.Context(), fact(3, "").Key())
		fails(t, err, index.ErrNotFound)
		at, err := s.Position(t.Context())
		ok(t, err)
		same(t, at, 4)
	})
	t.Run("SharedByTwo", func(t *testing.T) {
		open := place(t)
		a, b := open(), open()
		put(t, a, fact(1, "Ann likes tea"))
		same(t, ids(search(t, b, index.Query{Text: "tea"})), []string{"1"})
		put(t, b, fact(2, "tea again"), embedded(fact(1, "Ann likes tea"), "m", 1, 0))
		same(t, len(search(t, a, index.Query{Text: "tea"})), 2)
		same(t, search(t, a, index.Query{Vector: []float32{1, 0}, Model: "m"})[0].Match, memory.Semantic)
		ok(t, b.Remove(t.Context(), fact(2, "").Key(), 3))
		same(t, ids(search(t, a, index.Query{Text: "tea"})), []string{"1"})
		ok(t, b.Wipe(t.Context()))
		same(t, len(search(t, a, index.Query{Text: "tea"})), 0)
		put(t, b, fact(1, "coffee"))
		same(t, ids(search(t, a, index.Query{Text: "coffee"})), []string{"1"})
		same(t, len(search(t, a, index.Query{Text: "tea"})), 0)
		growTogether(t, a, b)
	})
	t.Run("SearchesFollow", func(t *testing.T) { searchesFollow(t, place(t)) })
}

// RunOutage checks that calls fail as unavailable while the server is gone, and work when
// it is there again, with the same data or none. start starts it again.
func RunOutage(t *testing.T, s index.Store, kill, start func()) {
	put(t, s, fact(1, "Ann likes tea"), embedded(fact(2, "Ben has a dog"), "m", 1, 0))
	kill()
	for name, call := range calls(s) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // longer than any store's own limit
		if err := call(ctx); !errors.Is(err, index.ErrUnavailable) {
			t.Errorf("%s without a server: %v", name, err)
		}
		cancel()
	}
	start()
	every := time.NewTicker(20 * time.Millisecond) // a client may try again only after a while
	defer every.Stop()
	for deadline := time.Now().Add(time.Minute); s.Ping(t.Context()) != nil && time.Now().Before(deadline); {
		<-every.C
	}
	put(t, s, fact(1, "Ann likes tea"), embedded(fact(2, "Ben has a dog"), "m", 1, 0))
	same(t, ids(search(t, s, index.Query{Text: "tea", Vector: []float32{1, 0}, Model: "m"})), []string{"2", "1"})
}

const main = subject.Agent("main")

var epoch = time.Date(2026, 3, 1, 12, 0, 0, 123456000, time.UTC)

// fact returns a memory of main whose id and revision are n. A larger n is newer.
func fact(n int, text string) index.Entry {
	return index.Entry{Revision: uint64(n), Memory: memory.Memory{
		ID: fmt.Sprint(n), Agent: main, Kind: memory.Fact, Text: text,
		Source:  memory.Source{Origin: memory.FromPerson, Session: "s1", Turn: "t"},
		Created: epoch.Add(time.Duration(n) * time.Second), Updated: epoch,
	}}
}

func embedded(e index.Entry, model string, v ...float32) index.Entry {
	e.Model, e.Vector = model, v
	return e
}

func with(e index.Entry, change func(*index.Entry)) index.Entry {
	change(&e)
	return e
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func fails(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("error is %v, want %v", err, want)
	}
}

func same[T any](t *testing.T, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("got  %+v\nwant %+v", got, want)
	}
}

func put(t *testing.T, s index.Store, entries ...index.Entry) {
	t.Helper()
	ok(t, s.Put(t.Context(), entries))
}

func get(t *testing.T, s index.Store, n int) index.Entry {
	t.Helper()
	e, err := s.Get(t.Context(), fact(n, "").Key())
	ok(t, err)
	return e
}

// search searches memories of main.
func search(t *testing.T, s index.Store, q index.Query) []memory.Hit {
	t.Helper()
	if q.Agent == "" {
		q.Agent = main
	}
	hits, err := s.Search(t.Context(), q)
	ok(t, err)
	for i, h := range hits {
		if h.Agent != q.Agent || math.IsNaN(h.Score) || i > 0 && h.Score > hits[i-1].Score {
			t.Errorf("hit %d of %q is %+v", i, q.Text, h)
		}
	}
	return hits
}

func ids(hits []memory.Hit) []string {
	out := make([]string, len(hits))
	for i, h := range hits {
		out[i] = h.ID
	}
	return out
}

// listAll pages to the end.
func listAll(t *testing.T, s index.Store, agent subject.Agent, limit int, kinds ...memory.Kind) []string {
	t.Helper()
	all := []string{}
	for after := ""; ; {
		page, next, err := s.List(t.Context(), agent, kinds, limit, after)
		ok(t, err)
		if limit > 0 && len(page) > limit {
			t.Fatalf("a page of %d memories, at most %d asked for", len(page), limit)
		}
		for _, m := range page {
			all = append(all, m.ID)
		}
		if next == "" {
			return all
		}
		if next == after {
			t.Fatalf("the cursor does not advance after %d memories", len(all))
		}
		after = next
	}
}

// together runs n copies of f at once and reports their errors.
func together(t *testing.T, n int, f func(i int) error) {
	t.Helper()
	errs := make(chan error)
	for i := range n {
		go func() { errs <- f(i) }()
	}
	for range n {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}
