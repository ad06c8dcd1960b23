package storetest

import (
	"context"
	"errors"
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
	ok(t, s.RecordTools(t.Context(), alice, 9, first))
	same(t, stats(t, s), want)
	ok(t, s.RecordTools(t.Context(), alice, 9, first)) // again
	ok(t, s.RecordTools(t.Context(), alice, 8, first)) // before
	ok(t, s.RecordTools(t.Context(), alice, 20, nil))  // nothing, and no step forward
	same(t, stats(t, s), want)

	ok(t, s.RecordTools(t.Context(), alice, 10, []store.ToolDelta{{Tool: "fetch", Used: 1, Succeeded: 1, LatencyMS: 1}}))
	same(t, stats(t, s)[0], store.ToolStat{Tool: "fetch", Used: 2, Succeeded: 1, TotalLatencyMS: 6, LastUsed: epoch})
	for _, other := range []store.Key{{Agent: "guide", Session: "bob"}, {Agent: "other", Session: "alice"}} {
		ok(t, s.RecordTools(t.Context(), other, 1, []store.ToolDelta{{Tool: "fetch", Used: 1, At: at}}))
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
				err := stores[i%len(stores)].RecordTools(ctx, k, rev, []store.ToolDelta{
					{Tool: "a", Used: 1, Succeeded: 1, LatencyMS: int64(rev), At: epoch.Add(time.Duration(rev) * time.Second)},
					{Tool: "b", Used: 2, Unknown: 1, LatencyMS: 3, At: epoch},
				})
				if err != nil {
					return err
				}
			}
		}
		return nil
	})
	const n = sessions * commits
	for _, s := range stores {
		same(t, stats(t, s), []store.ToolStat{
			{Tool: "a", Used: n, Succeeded: n, TotalLatencyMS: n * (commits + 1) / 2, LastUsed: epoch.Add(commits * time.Second)},
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
				if err := s.RecordTools(ctx, alice, rev, []store.ToolDelta{{Tool: "a", Used: 1}, {Tool: "b", Used: 1}}); err != nil {
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

// recordAll counts each commit once, however often and in whichever batch it comes.
func recordAll(t *testing.T, s store.Store) {
	record := func(k store.Key, rev uint64) store.ToolRecord {
		return store.ToolRecord{Key: k, Rev: rev, Deltas: []store.ToolDelta{{Tool: "x", Used: 1, Succeeded: 1}}}
	}
	bob := store.Key{Agent: "a", Session: "bob"}
	ok(t, s.RecordTools(t.Context(), alice, 2, record(alice, 2).Deltas))
	batch := []store.ToolRecord{record(alice, 1), record(alice, 2), record(alice, 3), record(bob, 1), record(alice, 4), {Key: bob, Rev: 9}}
	for range 2 {
		ok(t, s.RecordAll(t.Context(), batch))
	}
	ok(t, s.RecordAll(t.Context(), nil))
	stats, err := s.ToolStats(t.Context())
	ok(t, err)
	if len(stats) != 1 || stats[0].Used != 4 {
		t.Errorf("%+v, want x used 4 times", stats)
	}
	if err := s.RecordAll(t.Context(), []store.ToolRecord{record(alice, 0)}); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("revision 0: %v", err)
	}
}
