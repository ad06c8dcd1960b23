package storetest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"skandha.dev/services/internal/store"
)

func listOrder(t *testing.T, s store.Store) {
	if page, next := list(t, s, "", 0, ""); len(page) != 0 || next != "" {
		t.Errorf("an empty store lists %v, next %q", page, next)
	}
	save := func(agent, session string, rev uint64, age time.Duration) store.SessionInfo {
		k, snap := store.Key{Agent: agent, Session: session}, sample(rev)
		snap.Updated = epoch.Add(-age)
		ok(t, s.SaveSnapshot(t.Context(), k, snap))
		return infoOf(k, snap)
	}
	old := save("b", "old", 9, time.Hour)
	tieB := save("b", "1", 2, time.Minute)
	tieA2 := save("a", "2", 2, time.Minute)
	tieA1 := save("a", "1", 3, time.Minute)
	recent := save("a", "recent", 1, time.Microsecond)
	same(t, listAll(t, s, "", 10), []store.SessionInfo{recent, tieA1, tieA2, tieB, old})
	same(t, listAll(t, s, "b", 10), []store.SessionInfo{tieB, old})
	same(t, len(listAll(t, s, "nobody", 10)), 0)

	old = save("b", "old", 10, 0) // an update moves it to the front
	same(t, listAll(t, s, "", 10), []store.SessionInfo{old, recent, tieA1, tieA2, tieB})
	save("b", "1", 1, 0) // a stale one moves nothing
	same(t, listAll(t, s, "b", 10), []store.SessionInfo{old, tieB})
}

func listPages(t *testing.T, s store.Store) {
	want := fill(t, s, 3, 9, func(i int) time.Time { return epoch.Add(time.Duration(i) * time.Second) })
	for _, limit := range []int{1, 2, 7, 26, 27, 28} {
		same(t, listAll(t, s, "", limit), want)
	}
	ofOne := slices.DeleteFunc(slices.Clone(want), func(i store.SessionInfo) bool { return i.Agent != "agent1" })
	same(t, listAll(t, s, "agent1", 4), ofOne)

	page, next := list(t, s, "", 5, "")
	same(t, page, want[:5])
	for _, gone := range page { // a cursor outlives its session
		ok(t, s.DeleteSession(t.Context(), gone.Key))
	}
	page, _ = list(t, s, "", 5, next)
	same(t, page, want[5:10])
}

func listPagesThroughTies(t *testing.T, s store.Store) {
	want := fill(t, s, 2, 40, func(i int) time.Time { return epoch.Add(time.Duration(i/70) * time.Microsecond) })
	for _, limit := range []int{1, 3, 39, 40, 41, 79} {
		same(t, listAll(t, s, "", limit), want)
	}
	same(t, listAll(t, s, "agent1", 7),
		slices.DeleteFunc(want, func(i store.SessionInfo) bool { return i.Agent != "agent1" }))
}

// fill saves agents × sessions snapshots and returns them as they should be
// listed.
func fill(t *testing.T, s store.Store, agents, sessions int, updated func(i int) time.Time) []store.SessionInfo {
	t.Helper()
	var all []store.SessionInfo
	for i := range agents * sessions {
		k := store.Key{Agent: fmt.Sprintf("agent%d", i%agents), Session: fmt.Sprintf("s%d", i/agents)}
		snap := sample(uint64(i + 1))
		snap.Updated = updated(i)
		ok(t, s.SaveSnapshot(t.Context(), k, snap))
		all = append(all, infoOf(k, snap))
	}
	slices.SortFunc(all, func(a, b store.SessionInfo) int { return store.CursorOf(a).Compare(store.CursorOf(b)) })
	return all
}

func listLimits(t *testing.T, s store.Store) {
	fill(t, s, 1, store.DefaultPage+1, func(int) time.Time { return epoch })
	for limit, want := range map[int]int{
		0: store.DefaultPage, -1: store.DefaultPage, 1: 1,
		store.DefaultPage + 1: store.DefaultPage + 1, 1 << 40: store.DefaultPage + 1,
	} {
		page, next := list(t, s, "", limit, "")
		if len(page) != want || (next == "") != (want > store.DefaultPage) {
			t.Errorf("limit %d: %d sessions, next %q; want %d", limit, len(page), next, want)
		}
	}
}

// listWhileSaving pages while sessions move: no session is repeated, and unchanged
// sessions are not missed.
func listWhileSaving(t *testing.T, s store.Store) {
	const still, moving = 20, 4
	for i := range still {
		ok(t, s.SaveSnapshot(t.Context(), store.Key{Agent: "still", Session: fmt.Sprint(i)}, sample(uint64(i+1))))
	}
	together(t, moving+1, func(ctx context.Context, i int) error {
		if i < moving {
			for rev := range uint64(25) {
				if err := s.SaveSnapshot(ctx, store.Key{Agent: "moving", Session: fmt.Sprint(i)}, sample(1000+rev)); err != nil {
					return err
				}
			}
			return nil
		}
		for range 5 {
			if err := pageThrough(ctx, s, still); err != nil {
				return err
			}
		}
		return nil
	})
}

func pageThrough(ctx context.Context, s store.Store, wantStill int) error {
	seen, still := map[store.Key]bool{}, 0
	for after := ""; ; {
		page, next, err := s.ListSessions(ctx, "", 3, after)
		if err != nil {
			return err
		}
		for _, info := range page {
			if seen[info.Key] {
				return fmt.Errorf("%v is listed twice", info.Key)
			}
			seen[info.Key] = true
			if info.Agent == "still" {
				still++
			}
		}
		if after = next; after == "" {
			break
		}
	}
	if still != wantStill {
		return fmt.Errorf("%d of %d unchanged sessions are listed", still, wantStill)
	}
	return nil
}
