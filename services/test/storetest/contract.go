package storetest

import (
	"context"
	"strings"
	"testing"
	"time"

	"skandha.dev/services/internal/store"
)

func wipe(t *testing.T, s store.Store) {
	ok(t, s.Wipe(t.Context())) // an empty one
	fill(t, s, 3, 5, func(i int) time.Time { return epoch.Add(time.Duration(i)) })
	ok(t, s.SaveSnapshot(t.Context(), alice, sample(9)))
	record(t, s, alice, 9, []store.ToolDelta{{Tool: "x", Used: 1}})
	ok(t, s.SetMark(t.Context(), "floor", 9))
	ok(t, s.SetCoverage(t.Context(), "all"))
	ok(t, s.Wipe(t.Context()))
	empty(t, s, alice)

	// the log fills it again, from the start
	ok(t, s.SaveSnapshot(t.Context(), alice, sample(2)))
	record(t, s, alice, 2, []store.ToolDelta{{Tool: "x", Used: 1}})
	ok(t, s.SetMark(t.Context(), "floor", 2))
	same(t, load(t, s, alice), sample(2))
	same(t, stats(t, s), []store.ToolStat{{Tool: "x", Used: 1}})
	same(t, mark(t, s, "floor"), 2)
	same(t, listAll(t, s, "", 10), []store.SessionInfo{infoOf(alice, sample(2))})
}

func sharesNothing(t *testing.T, a, b store.Store) {
	for _, s := range []store.Store{a, b} {
		ok(t, s.SaveSnapshot(t.Context(), alice, sample(1)))
		record(t, s, alice, 1, []store.ToolDelta{{Tool: "x", Used: 1}})
		ok(t, s.SetMark(t.Context(), "floor", 1))
	}
	ok(t, a.Wipe(t.Context()))
	empty(t, a, alice)
	same(t, load(t, b, alice), sample(1))
	same(t, stats(t, b), []store.ToolStat{{Tool: "x", Used: 1}})
	same(t, mark(t, b, "floor"), 1)
	same(t, len(listAll(t, b, "", 10)), 1)
}

func invalidArguments(t *testing.T, s store.Store) {
	ctx := t.Context()
	tool := store.ToolDelta{Tool: "x", Used: 1}
	tools := func(r store.ToolRecord) func() error {
		return func() error { _, err := s.RecordTools(ctx, []store.ToolRecord{r}); return err }
	}
	for name, call := range map[string]func() error{
		"save, no agent":     func() error { return s.SaveSnapshot(ctx, store.Key{Session: "s"}, sample(1)) },
		"save, no session":   func() error { return s.SaveSnapshot(ctx, store.Key{Agent: "a"}, sample(1)) },
		"save, revision 0":   func() error { return s.SaveSnapshot(ctx, alice, store.Snapshot{}) },
		"save, big revision": func() error { return s.SaveSnapshot(ctx, alice, store.Snapshot{Rev: store.MaxRev + 1}) },
		"save, fold version": func() error { return s.SaveSnapshot(ctx, alice, store.Snapshot{Rev: 1, FoldVersion: -1}) },
		"save, turns":        func() error { return s.SaveSnapshot(ctx, alice, store.Snapshot{Rev: 1, Turns: -1}) },
		"save, early": func() error {
			return s.SaveSnapshot(ctx, alice, store.Snapshot{Rev: 1, Updated: time.Unix(-1, 0)})
		},
		"save, late": func() error {
			return s.SaveSnapshot(ctx, alice, store.Snapshot{Rev: 1, Updated: epoch.AddDate(1000, 0, 0)})
		},
		"save, commits": func() error {
			return s.SaveSnapshot(ctx, alice, store.Snapshot{Rev: 1, Commits: store.MaxRev + 1})
		},
		"save, too big": func() error {
			return s.SaveSnapshot(ctx, alice, store.Snapshot{Rev: 1, Data: make([]byte, store.MaxData+1)})
		},
		"load, no session":   func() error { _, err := s.LoadSnapshot(ctx, store.Key{Agent: "a"}); return err },
		"delete, no session": func() error { return s.DeleteSession(ctx, store.Key{Agent: "a"}) },
		"list, cursor":       func() error { _, _, err := s.ListSessions(ctx, "", 1, "nonsense!"); return err },
		"heads, no session":  func() error { _, err := s.Heads(ctx, []store.Key{{Agent: "a"}}); return err },
		"record, no session": tools(store.ToolRecord{Key: store.Key{Agent: "a"}, Rev: 1}),
		"record, revision 0": tools(store.ToolRecord{Key: alice}),
		"record, backwards":  tools(store.ToolRecord{Key: alice, After: 2, Rev: 2}),
		"record, no tool":    tools(store.ToolRecord{Key: alice, Rev: 1, Deltas: []store.ToolDelta{tool, {Used: 1}}}),
		"record, negative": tools(store.ToolRecord{
			Key: alice, Rev: 1, Deltas: []store.ToolDelta{tool, {Tool: "x", Used: -1}},
		}),
		"record, too much": tools(store.ToolRecord{Key: alice, Rev: 1, Deltas: []store.ToolDelta{
			tool, {Tool: "x", LatencyMS: store.MaxDelta + 1},
		}}),
		"lease, no holder":  func() error { _, err := s.Lease(ctx, store.Lease{Note: "x"}, time.Minute); return err },
		"set mark, no name": func() error { return s.SetMark(ctx, "", 1) },
		"set mark, big":     func() error { return s.SetMark(ctx, "floor", store.MaxRev+1) },
		"mark, no name":     func() error { _, err := s.Mark(ctx, ""); return err },
	} {
		if err := call(); err == nil || !strings.Contains(err.Error(), "invalid argument") {
			t.Errorf("%s: %v", name, err)
		} else {
			fails(t, err, store.ErrInvalid)
		}
	}
	empty(t, s, alice)
}

// calls lists every method except Close.
func calls(s store.Store) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"SaveSnapshot":  func(ctx context.Context) error { return s.SaveSnapshot(ctx, alice, sample(1)) },
		"LoadSnapshot":  func(ctx context.Context) error { _, err := s.LoadSnapshot(ctx, alice); return err },
		"ListSessions":  func(ctx context.Context) error { _, _, err := s.ListSessions(ctx, "", 1, ""); return err },
		"DeleteSession": func(ctx context.Context) error { return s.DeleteSession(ctx, alice) },
		"RecordTools": func(ctx context.Context) error {
			_, err := s.RecordTools(ctx,
				[]store.ToolRecord{{Key: alice, Rev: 1, Deltas: []store.ToolDelta{{Tool: "x", Used: 1}}}})
			return err
		},
		"Heads":       func(ctx context.Context) error { _, err := s.Heads(ctx, []store.Key{alice}); return err },
		"VerifyTools": func(ctx context.Context) error { _, err := s.VerifyTools(ctx); return err },
		"ResetTools":  func(ctx context.Context) error { return s.ResetTools(ctx) },
		"SetCoverage": func(ctx context.Context) error { return s.SetCoverage(ctx, "all") },
		"Coverage":    func(ctx context.Context) error { _, err := s.Coverage(ctx); return err },
		"Lease": func(ctx context.Context) error {
			_, err := s.Lease(ctx, store.Lease{Holder: "a"}, time.Minute)
			return err
		},
		"ToolStats": func(ctx context.Context) error { _, err := s.ToolStats(ctx); return err },
		"SetMark":   func(ctx context.Context) error { return s.SetMark(ctx, "floor", 1) },
		"Mark":      func(ctx context.Context) error { _, err := s.Mark(ctx, "floor"); return err },
		"Wipe":      func(ctx context.Context) error { return s.Wipe(ctx) },
		"Ping":      func(ctx context.Context) error { return s.Ping(ctx) },
	}
}

func cancelledContext(t *testing.T, s store.Store) {
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
	empty(t, s, alice)
	ok(t, s.Ping(t.Context()))
}

func closing(t *testing.T, s store.Store) {
	ok(t, s.Ping(t.Context()))
	ok(t, s.Close())
	ok(t, s.Close())
	for name, call := range calls(s) {
		t.Run(name, func(t *testing.T) { fails(t, call(t.Context()), store.ErrClosed) })
	}
}
