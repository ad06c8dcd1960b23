package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"skandha.dev/services/internal/store"
)

func snapshotRoundTrip(t *testing.T, s store.Store) {
	_, err := s.LoadSnapshot(t.Context(), alice)
	fails(t, err, store.ErrNotFound)

	want := sample(1)
	ok(t, s.SaveSnapshot(t.Context(), alice, want))
	same(t, load(t, s, alice), want)

	elsewhere := time.FixedZone("elsewhere", 2*60*60)
	want = store.Snapshot{Rev: store.MaxRev, Updated: epoch.Add(789).In(elsewhere), Data: []byte{0}}
	ok(t, s.SaveSnapshot(t.Context(), alice, want))
	want.Updated = epoch // UTC, to the microsecond
	same(t, load(t, s, alice), want)

	bob := store.Key{Agent: "guide", Session: "bob"}
	ok(t, s.SaveSnapshot(t.Context(), bob, store.Snapshot{Rev: 1}))
	got := load(t, s, bob)
	if !got.Updated.IsZero() || len(got.Data) != 0 {
		t.Errorf("the zero snapshot comes back as %+v", got)
	}

	data := []byte("mine")
	ok(t, s.SaveSnapshot(t.Context(), bob, store.Snapshot{Rev: 2, Data: data}))
	clear(data)
	load(t, s, bob).Data[0] = 'x'
	same(t, string(load(t, s, bob).Data), "mine")
}

func snapshotsOnlyGrow(t *testing.T, s store.Store) {
	at := func(rev uint64, fold int) store.Snapshot {
		snap := sample(rev)
		snap.FoldVersion = fold
		snap.Updated = epoch
		snap.Title = fmt.Sprintf("%d by fold %d", rev, fold)
		return snap
	}
	for _, step := range []struct {
		save store.Snapshot
		want string
	}{
		{at(9, 1), "9 by fold 1"},
		{at(8, 1), "9 by fold 1"},
		{at(10, 1), "10 by fold 1"}, // as numbers, not as text
		{at(9, 5), "10 by fold 1"},
		{at(10, 9), "10 by fold 9"},
		{at(10, 2), "10 by fold 9"},
		{at(10, 10), "10 by fold 10"},
		{at(11, 1), "11 by fold 1"},
		{at(1<<53, 1), "9007199254740992 by fold 1"},
		{at(1<<53+1, 1), "9007199254740993 by fold 1"}, // beyond what a float tells apart
		{at(1<<53, 1), "9007199254740993 by fold 1"},
	} {
		ok(t, s.SaveSnapshot(t.Context(), alice, step.save))
		same(t, load(t, s, alice).Title, step.want)
		page, _ := list(t, s, "", 0, "")
		same(t, page[0].Title, step.want)
	}
	repeated := at(1<<53+1, 1)
	repeated.Data = []byte("whole again")
	ok(t, s.SaveSnapshot(t.Context(), alice, repeated))
	same(t, load(t, s, alice), repeated)
}

func snapshotsOnlyGrowConcurrently(t *testing.T, s store.Store) { growTogether(t, s) }

// growTogether lets many writers save revisions in random order while readers
// check that what they see is whole and never goes back.
func growTogether(t *testing.T, stores ...store.Store) {
	const writers, readers, revs = 8, 4, 40
	var writing atomic.Int32
	writing.Store(writers)
	together(t, writers+readers, func(ctx context.Context, i int) error {
		s := stores[i%len(stores)]
		if i < writers {
			defer writing.Add(-1)
			for _, n := range rand.Perm(revs) {
				if err := s.SaveSnapshot(ctx, alice, sample(uint64(n+1))); err != nil {
					return err
				}
			}
			return nil
		}
		for last := uint64(0); writing.Load() > 0; {
			got, err := s.LoadSnapshot(ctx, alice)
			if last == 0 && errors.Is(err, store.ErrNotFound) {
				continue
			}
			if err != nil {
				return err
			}
			if got.Rev < last {
				return fmt.Errorf("revision %d after %d", got.Rev, last)
			}
			if want := sample(got.Rev); got.Title != want.Title || !bytes.Equal(got.Data, want.Data) ||
				got.Digest != want.Digest {
				return fmt.Errorf("a torn snapshot: %+v", got)
			}
			last = got.Rev
		}
		return nil
	})
	for _, s := range stores {
		same(t, load(t, s, alice), sample(revs))
		same(t, listAll(t, s, "", 10), []store.SessionInfo{infoOf(alice, sample(revs))})
	}
}

func deleteSession(t *testing.T, s store.Store) {
	bob := store.Key{Agent: "guide", Session: "bob"}
	ok(t, s.SaveSnapshot(t.Context(), alice, sample(5)))
	ok(t, s.SaveSnapshot(t.Context(), bob, sample(6)))
	record(t, s, alice, 5, []store.ToolDelta{{Tool: "x", Used: 1}})
	ok(t, s.DeleteSession(t.Context(), alice))
	ok(t, s.DeleteSession(t.Context(), alice))

	_, err := s.LoadSnapshot(t.Context(), alice)
	fails(t, err, store.ErrNotFound)
	same(t, listAll(t, s, "", 10), []store.SessionInfo{infoOf(bob, sample(6))})
	same(t, load(t, s, bob), sample(6))

	record(t, s, alice, 5, []store.ToolDelta{{Tool: "x", Used: 1}})
	same(t, stats(t, s), []store.ToolStat{{Tool: "x", Used: 1}})
	ok(t, s.SaveSnapshot(t.Context(), alice, sample(2))) // a way back to an earlier revision
	same(t, load(t, s, alice), sample(2))
}

func oddNames(t *testing.T, s store.Store) {
	odd := []string{
		"会话", "sessão", "e\u0301", "é", "A", "a", " ", "a b", "a/b", "a:b", "{a}", "}{", "{}", "a}:session:x",
		"*", "?", "[a]", `\`, "%", "%7B", "'", `"`, "`;--", "a\x00b", "a\x00", "\n", "\xff\xfe", "🪷", "agents",
	}
	var want int
	for i, agent := range odd {
		for j, session := range []string{odd[(i+7)%len(odd)], odd[(i+11)%len(odd)]} {
			k := store.Key{Agent: agent, Session: session}
			snap := sample(uint64(100*i + j + 1))
			snap.Title, snap.Phase, snap.Digest = agent, session, agent+session
			ok(t, s.SaveSnapshot(t.Context(), k, snap))
			same(t, load(t, s, k), snap)
			record(t, s, k, 1, []store.ToolDelta{{Tool: agent, Used: int64(i + 1)}})
			ok(t, s.SetMark(t.Context(), agent, uint64(i+1)))
			want++
		}
	}
	seen := map[store.Key]bool{}
	for _, info := range listAll(t, s, "", 5) {
		same(t, info, infoOf(info.Key, load(t, s, info.Key)))
		seen[info.Key] = true
	}
	same(t, len(seen), want)
	for i, name := range odd {
		page := listAll(t, s, name, 1)
		same(t, len(page), 2)
		same(t, page[0].Agent, name)
		same(t, mark(t, s, name), uint64(i+1))
	}
	uses := map[string]int64{}
	for _, st := range stats(t, s) {
		uses[st.Tool] = st.Used
	}
	same(t, len(uses), len(odd))
	for i, name := range odd {
		same(t, uses[name], 2*int64(i+1))
	}
	k := store.Key{Agent: odd[0], Session: odd[7]}
	ok(t, s.DeleteSession(t.Context(), k))
	same(t, len(listAll(t, s, "", 100)), want-1)
}

func bigBinaryData(t *testing.T, s store.Store) {
	want := sample(1)
	want.Data = make([]byte, 1<<20)
	rand.NewChaCha8([32]byte{1}).Read(want.Data)
	copy(want.Data, []byte{0, 0xff, 0xfe, '\r', '\n', 0})
	ok(t, s.SaveSnapshot(t.Context(), alice, want))
	got := load(t, s, alice)
	if !bytes.Equal(got.Data, want.Data) {
		t.Fatalf("%d bytes came back changed (%d)", len(want.Data), len(got.Data))
	}
	ok(t, s.SaveSnapshot(t.Context(), alice, sample(2)))
	same(t, load(t, s, alice), sample(2))
}
