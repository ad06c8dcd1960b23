package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"skandha.dev/services/internal/store"
)

func recordToolsOnce(t *testing.T, s store.Store) {
	same(t, len(stats(t, s)), 0)
	at := epoch.Add(time.Minute)
	first := []store.ToolDelta{
		{Tool: "shell", Used: 2, Succeeded: 1, Unknown: 1, LatencyMS: 30, At: at},
		{Tool: "fetch", Used: 1, LatencyMS: 5, At: epoch},
		{Tool: "shell", Used: 1, Succeeded: 1, LatencyMS: 12, At: epoch}, // adds up; the later time stays
	}
	want := []store.ToolStat{
		{Tool: "fetch", Used: 1, TotalLatencyMS: 5, LastUsed: epoch},
		{Tool: "shell", Used: 3, Succeeded: 2, Unknown: 1, TotalLatencyMS: 42, LastUsed: at},
	}
	record(t, s, alice, 9, first)
	same(t, stats(t, s), want)
	record(t, s, alice, 9, first) // again
	record(t, s, alice, 8, first) // before
	same(t, stats(t, s), want)

	record(t, s, alice, 10, []store.ToolDelta{{Tool: "fetch", Used: 1, Succeeded: 1, LatencyMS: 1}})
	same(t, stats(t, s)[0], store.ToolStat{Tool: "fetch", Used: 2, Succeeded: 1, TotalLatencyMS: 6, LastUsed: epoch})
	for _, other := range []store.Key{{Agent: "guide", Session: "bob"}, {Agent: "other", Session: "alice"}} {
		record(t, s, other, 1, []store.ToolDelta{{Tool: "fetch", Used: 1, At: at}})
	}
	same(t, stats(t, s)[0], store.ToolStat{Tool: "fetch", Used: 4, Succeeded: 1, TotalLatencyMS: 6, LastUsed: at})

	_, err := s.LoadSnapshot(t.Context(), alice) // statistics make no session
	fails(t, err, store.ErrNotFound)
	same(t, len(listAll(t, s, "", 10)), 0)
}

func recordToolsOnceConcurrently(t *testing.T, s store.Store) { recordTogether(t, s) }

// recordTogether lets many refolds of the same sessions record the same commits.
func recordTogether(t *testing.T, stores ...store.Store) {
	const refolds, sessions, commits = 8, 2, 20
	together(t, refolds, func(ctx context.Context, i int) error {
		for rev := uint64(1); rev <= commits; rev++ {
			for _, n := range rand.Perm(sessions) {
				k := store.Key{Agent: fmt.Sprint("agent", n), Session: "s"}
				gaps, err := stores[i%len(stores)].RecordTools(ctx,
					[]store.ToolRecord{{Key: k, After: rev - 1, Rev: rev, Deltas: []store.ToolDelta{
						{Tool: "a", Used: 1, Succeeded: 1, LatencyMS: int64(rev), At: epoch.Add(time.Duration(rev) * time.Second)},
						{Tool: "b", Used: 2, Unknown: 1, LatencyMS: 3, At: epoch},
					}}})
				if err != nil {
					return err
				}
				if len(gaps) != 0 {
					return fmt.Errorf("gaps of %v", gaps)
				}
			}
		}
		return nil
	})
	const n = sessions * commits
	for _, s := range stores {
		same(t, stats(t, s), []store.ToolStat{
			{
				Tool: "a", Used: n, Succeeded: n, TotalLatencyMS: n * (commits + 1) / 2, LastUsed: epoch.Add(commits * time.Second),
			},
			{Tool: "b", Used: 2 * n, Unknown: n, TotalLatencyMS: 3 * n, LastUsed: epoch},
		})
	}
}

// recordToolsWhole: readers see all deltas of a commit or none.
func recordToolsWhole(t *testing.T, s store.Store) {
	const commits = 40
	var writing atomic.Bool
	writing.Store(true)
	together(t, 3, func(ctx context.Context, i int) error {
		if i == 0 {
			defer writing.Store(false)
			for rev := uint64(1); rev <= commits; rev++ {
				deltas := []store.ToolDelta{{Tool: "a", Used: 1}, {Tool: "b", Used: 1}}
				if _, err := s.RecordTools(ctx, []store.ToolRecord{{Key: alice, Rev: rev, Deltas: deltas}}); err != nil {
					return err
				}
			}
			return nil
		}
		for writing.Load() {
			all, err := s.ToolStats(ctx)
			if err != nil {
				return err
			}
			if len(all) == 0 {
				continue
			}
			if len(all) != 2 || all[0].Used != all[1].Used {
				return fmt.Errorf("half a commit: %+v", all)
			}
		}
		return nil
	})
}

func marksOnlyGrow(t *testing.T, s store.Store) {
	same(t, mark(t, s, "floor"), 0)
	ok(t, s.SetMark(t.Context(), "floor", 0))
	same(t, mark(t, s, "floor"), 0)
	for _, step := range []struct{ set, want uint64 }{
		{9, 9},
		{10, 10},
		{9, 10},
		{0, 10},
		{10, 10},
		{1<<53 + 1, 1<<53 + 1},
		{1 << 53, 1<<53 + 1},
		{store.MaxRev, store.MaxRev},
		{1, store.MaxRev},
	} {
		ok(t, s.SetMark(t.Context(), "floor", step.set))
		same(t, mark(t, s, "floor"), step.want)
	}
	same(t, mark(t, s, "other"), 0)
}

func marksOnlyGrowConcurrently(t *testing.T, s store.Store) {
	const writers, top = 6, 50
	var writing atomic.Int32
	writing.Store(writers)
	together(t, writers+1, func(ctx context.Context, i int) error {
		if i < writers {
			defer writing.Add(-1)
			for _, n := range rand.Perm(top) {
				if err := s.SetMark(ctx, "floor", uint64(n+1)); err != nil {
					return err
				}
			}
			return nil
		}
		for last := uint64(0); writing.Load() > 0; {
			v, err := s.Mark(ctx, "floor")
			if err != nil {
				return err
			}
			if v < last {
				return fmt.Errorf("mark %d after %d", v, last)
			}
			last = v
		}
		return nil
	})
	same(t, mark(t, s, "floor"), top)
}

// recordToolsInBatches counts each commit once, however often and in whichever batch it
// is recorded.
func recordToolsInBatches(t *testing.T, s store.Store) {
	of := func(k store.Key, rev uint64) store.ToolRecord {
		return store.ToolRecord{
			Key: k, After: rev - 1, Rev: rev, Deltas: []store.ToolDelta{{Tool: "x", Used: 1, Succeeded: 1}},
		}
	}
	bob := store.Key{Agent: "a", Session: "bob"}
	record(t, s, alice, 2, of(alice, 2).Deltas)
	batch := []store.ToolRecord{
		of(alice, 1), of(alice, 2), of(alice, 3), of(bob, 1), of(alice, 4), {Key: bob, After: 1, Rev: 9},
	}
	for n := uint64(10); n < 1000; n++ {
		batch = append(batch, of(bob, n))
	}
	for range 2 {
		gaps, err := s.RecordTools(t.Context(), batch)
		ok(t, err)
		same(t, len(gaps), 0)
	}
	_, err := s.RecordTools(t.Context(), nil)
	ok(t, err)
	same(t, stats(t, s), []store.ToolStat{{Tool: "x", Used: 4 + 990, Succeeded: 4 + 990}})
	sound, err := s.VerifyTools(t.Context())
	ok(t, err)
	same(t, sound, true)
}

// recordToolsWithoutGaps: a record after an uncounted commit is not counted either, so
// that the log can be counted in order.
func recordToolsWithoutGaps(t *testing.T, s store.Store) {
	bob := store.Key{Agent: "a", Session: "bob"}
	of := func(k store.Key, after, rev uint64) store.ToolRecord {
		return store.ToolRecord{Key: k, After: after, Rev: rev, Deltas: []store.ToolDelta{{Tool: "x", Used: 1}}}
	}
	for _, step := range []struct {
		records []store.ToolRecord
		gaps    []store.Key
		used    int64
	}{
		{[]store.ToolRecord{of(alice, 5, 7), of(bob, 0, 3), of(alice, 7, 9)}, []store.Key{alice}, 1},
		{[]store.ToolRecord{of(alice, 0, 5)}, nil, 2},
		{[]store.ToolRecord{of(alice, 7, 9)}, []store.Key{alice}, 2},
		{[]store.ToolRecord{of(alice, 5, 7), of(alice, 7, 9)}, nil, 4},
		{[]store.ToolRecord{of(alice, 7, 12)}, nil, 5}, // 9 to 12: nothing about tools in between
		{[]store.ToolRecord{{Key: alice, After: 12, Rev: 15}, of(alice, 15, 16)}, nil, 6},
		{[]store.ToolRecord{of(bob, 4, 9)}, []store.Key{bob}, 6},
	} {
		gaps, err := s.RecordTools(t.Context(), step.records)
		ok(t, err)
		same(t, gaps, step.gaps)
		same(t, stats(t, s)[0].Used, step.used)
	}
}

func resetTools(t *testing.T, s store.Store) {
	ok(t, s.ResetTools(t.Context())) // an empty one
	ok(t, s.SaveSnapshot(t.Context(), alice, sample(5)))
	record(t, s, alice, 5, []store.ToolDelta{{Tool: "x", Used: 1}})
	ok(t, s.SetCoverage(t.Context(), "all"))
	ok(t, s.ResetTools(t.Context()))
	same(t, len(stats(t, s)), 0)
	same(t, coverage(t, s), "")
	same(t, load(t, s, alice), sample(5))
	record(t, s, alice, 5, []store.ToolDelta{{Tool: "x", Used: 1}})
	same(t, stats(t, s), []store.ToolStat{{Tool: "x", Used: 1}})
}

func headsOf(t *testing.T, s store.Store) {
	bob, carol := store.Key{Agent: "guide", Session: "bob"}, store.Key{Agent: "other", Session: "carol"}
	snap := sample(7)
	snap.Commits = 3
	ok(t, s.SaveSnapshot(t.Context(), alice, snap))
	record(t, s, alice, 9, nil)
	record(t, s, bob, 4, nil)
	heads, err := s.Heads(t.Context(), []store.Key{carol, alice, bob})
	ok(t, err)
	same(t, heads, []store.Head{{}, {Rev: 7, FoldVersion: 3, Commits: 3, Counted: 9}, {Counted: 4}})
	heads, err = s.Heads(t.Context(), nil)
	ok(t, err)
	same(t, len(heads), 0)
}

func coverageIsKept(t *testing.T, s store.Store) {
	same(t, coverage(t, s), "")
	for _, what := range []string{"log 2", "log 1", "", "日志"} {
		ok(t, s.SetCoverage(t.Context(), what))
		same(t, coverage(t, s), what)
	}
}

func leases(t *testing.T, s store.Store) {
	take := func(l store.Lease, ttl time.Duration) store.Lease {
		t.Helper()
		now, err := s.Lease(t.Context(), l, ttl)
		ok(t, err)
		return now
	}
	a, b := store.Lease{Holder: "a", Note: "1 of 2"}, store.Lease{Holder: "b", Note: "mine"}
	same(t, take(a, time.Hour), a)
	same(t, take(b, time.Hour), a)
	a.Note = "2 of 2"
	same(t, take(a, time.Hour), a)
	same(t, take(b, 0), a) // only the holder can release it
	same(t, take(a, 0), store.Lease{})
	same(t, take(b, time.Millisecond), b)
	for take(a, time.Hour) != a { // until it expires
		time.Sleep(time.Millisecond)
	}
	ok(t, s.Wipe(t.Context()))
	same(t, take(b, time.Hour), b)
}
