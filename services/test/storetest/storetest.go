// Package storetest is the test suite that every implementation of store.Store passes.
// It runs against the real database.
package storetest

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"skandha.dev/services/internal/store"
)

// Run runs the suite. open returns a new, empty store and closes it in the test's
// cleanup; closing twice is allowed. Stores that are open at the same time share
// nothing.
func Run(t *testing.T, open func(t *testing.T) store.Store) {
	for _, c := range []struct {
		name string
		test func(*testing.T, store.Store)
	}{
		{"SnapshotRoundTrip", snapshotRoundTrip},
		{"SnapshotsOnlyGrow", snapshotsOnlyGrow},
		{"SnapshotsOnlyGrowConcurrently", snapshotsOnlyGrowConcurrently},
		{"DeleteSession", deleteSession},
		{"OddNames", oddNames},
		{"BigBinaryData", bigBinaryData},
		{"ListOrder", listOrder},
		{"ListPages", listPages},
		{"ListPagesThroughTies", listPagesThroughTies},
		{"ListLimits", listLimits},
		{"ListWhileSaving", listWhileSaving},
		{"RecordToolsOnce", recordToolsOnce},
		{"RecordToolsInBatches", recordToolsInBatches},
		{"RecordToolsWithoutGaps", recordToolsWithoutGaps},
		{"ResetTools", resetTools},
		{"Heads", headsOf},
		{"Coverage", coverageIsKept},
		{"Lease", leases},
		{"RecordToolsOnceConcurrently", recordToolsOnceConcurrently},
		{"RecordToolsWhole", recordToolsWhole},
		{"MarksOnlyGrow", marksOnlyGrow},
		{"MarksOnlyGrowConcurrently", marksOnlyGrowConcurrently},
		{"Wipe", wipe},
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
func RunReopen(t *testing.T, place func(t *testing.T) (open func() store.Store)) {
	t.Run("Reopen", func(t *testing.T) {
		open := place(t)
		first := open()
		want := sample(7)
		ok(t, first.SaveSnapshot(t.Context(), alice, want))
		record(t, first, alice, 7, []store.ToolDelta{{Tool: "x", Used: 1}})
		ok(t, first.SetMark(t.Context(), "floor", 9))
		ok(t, first.SetCoverage(t.Context(), "all"))
		ok(t, first.Close())

		second := open()
		same(t, load(t, second, alice), want)
		record(t, second, alice, 7, []store.ToolDelta{{Tool: "x", Used: 1}})
		same(t, stats(t, second), []store.ToolStat{{Tool: "x", Used: 1}})
		same(t, mark(t, second, "floor"), 9)
		same(t, coverage(t, second), "all")
		ok(t, second.Close())
	})
	t.Run("SharedByTwo", func(t *testing.T) {
		open := place(t)
		a, b := open(), open()
		growTogether(t, a, b)
		recordTogether(t, a, b)
	})
}

var alice = store.Key{Agent: "guide", Session: "alice"}

var epoch = time.Date(2026, 3, 1, 12, 0, 0, 123456000, time.UTC)

// sample returns a snapshot at rev whose every field depends on the revision.
func sample(rev uint64) store.Snapshot {
	n := int(rev)
	text := time.Duration(rev).String()
	return store.Snapshot{
		FoldVersion: 3, Rev: rev, Digest: "sha256:" + text,
		Updated: epoch.Add(time.Duration(rev) * time.Millisecond),
		Phase:   "planning", Title: "title " + text, Above: "guide/" + text, Turns: n, Commits: rev, Data: []byte("state " + text),
	}
}

func infoOf(k store.Key, s store.Snapshot) store.SessionInfo {
	return store.SessionInfo{Key: k, Rev: s.Rev, Phase: s.Phase, Title: s.Title, Turns: s.Turns, Updated: s.Updated, Above: s.Above}
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

func load(t *testing.T, s store.Store, k store.Key) store.Snapshot {
	t.Helper()
	snap, err := s.LoadSnapshot(t.Context(), k)
	ok(t, err)
	return snap
}

// record records one commit that follows the session's beginning.
func record(t *testing.T, s store.Store, k store.Key, rev uint64, deltas []store.ToolDelta) {
	t.Helper()
	gaps, err := s.RecordTools(t.Context(), []store.ToolRecord{{Key: k, Rev: rev, Deltas: deltas}})
	ok(t, err)
	if len(gaps) != 0 {
		t.Errorf("gaps of %v", gaps)
	}
}

func coverage(t *testing.T, s store.Store) string {
	t.Helper()
	what, err := s.Coverage(t.Context())
	ok(t, err)
	return what
}

func stats(t *testing.T, s store.Store) []store.ToolStat {
	t.Helper()
	all, err := s.ToolStats(t.Context())
	ok(t, err)
	return all
}

func mark(t *testing.T, s store.Store, name string) uint64 {
	t.Helper()
	v, err := s.Mark(t.Context(), name)
	ok(t, err)
	return v
}

func list(t *testing.T, s store.Store, agent string, limit int, after string) ([]store.SessionInfo, string) {
	t.Helper()
	page, next, err := s.ListSessions(t.Context(), agent, limit, after)
	ok(t, err)
	return page, next
}

// listAll pages to the end.
func listAll(t *testing.T, s store.Store, agent string, limit int) []store.SessionInfo {
	t.Helper()
	var all []store.SessionInfo
	for after := ""; ; {
		page, next := list(t, s, agent, limit, after)
		if len(page) > limit {
			t.Fatalf("a page of %d sessions, at most %d asked for", len(page), limit)
		}
		all = append(all, page...)
		if next == "" {
			return all
		}
		if next == after {
			t.Fatalf("the cursor does not advance after %d sessions", len(all))
		}
		after = next
	}
}

// empty checks that the store holds nothing of what key could have left.
func empty(t *testing.T, s store.Store, key store.Key) {
	t.Helper()
	_, err := s.LoadSnapshot(t.Context(), key)
	fails(t, err, store.ErrNotFound)
	if all := listAll(t, s, "", 10); len(all) != 0 {
		t.Errorf("lists %v", all)
	}
	if all := stats(t, s); len(all) != 0 {
		t.Errorf("has statistics %v", all)
	}
	same(t, mark(t, s, "floor"), 0)
	same(t, coverage(t, s), "")
}

// together runs n copies of f at once and reports their errors, the first of
// which cancels the others.
func together(t *testing.T, n int, f func(ctx context.Context, i int) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	errs := make(chan error)
	for i := range n {
		go func() { errs <- f(ctx, i) }()
	}
	for range n {
		if err := <-errs; err != nil {
			t.Error(err)
			cancel()
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}
