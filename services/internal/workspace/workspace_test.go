package workspace_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/workspace"
	"skandha.dev/services/test/natstest"
)

func ref(agent, session string) subject.Ref {
	return subject.Ref{Agent: subject.Agent(agent), Session: subject.Session(session)}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// saved stores a snapshot of a turn.
func saved(t *testing.T, s *workspace.Store, of subject.Ref, turn uint64) workspace.Head {
	t.Helper()
	p, _, err := s.PutPack(natstest.Context(t), of, "token", []byte("content of "+of.Session))
	must(t, err)
	names, _, err := s.PutIndex(natstest.Context(t), of, "token", workspace.Index{
		Packs: []workspace.Pack{p},
		Files: []workspace.File{{Path: []byte(`"<f>"`), Kind: "f", Size: 4, Chunks: []workspace.Chunk{{Offset: 1, Size: 4}}}},
	})
	must(t, err)
	h, err := s.Commit(natstest.Context(t), workspace.Head{
		Agent: of.Agent, Session: of.Session, Lease: "t1", Turn: turn, Index: names,
	})
	must(t, err)
	return h
}

func start(t *testing.T) (*journal.Journal, *workspace.Store) {
	t.Helper()
	b := natstest.Connect(t, natstest.Start(t))
	s, err := workspace.New(b)
	must(t, err)
	return b, s
}

func count(t *testing.T, b *journal.Journal, filter string) int {
	t.Helper()
	keys, err := b.Bucket(journal.BucketFiles).Keys(natstest.Context(t), filter)
	must(t, err)
	return len(keys)
}

func TestASnapshotIsReadAsItWasStored(t *testing.T) {
	_, s := start(t)
	h := saved(t, s, ref("a", "s"), 1)
	got, err := s.Head(natstest.Context(t), ref("a", "s"))
	must(t, err)
	x, err := s.Index(natstest.Context(t), got)
	must(t, err)
	if got.Revision != h.Revision || len(x.Files) != 1 || string(x.Files[0].Path) != `"<f>"` {
		t.Errorf("got %+v, %v", got, x.Files)
	}
	if _, err := s.Commit(natstest.Context(t), workspace.Head{Agent: "a", Session: "s"}); !errors.Is(err, bus.ErrFenceLost) {
		t.Errorf("a head that follows none replaces another: %v", err)
	}
}

func TestADeletionIsOfOneSession(t *testing.T) {
	b, s := start(t)
	for _, r := range []subject.Ref{ref("a", "s"), ref("a", "t"), ref("b", "s")} {
		saved(t, s, r, 5)
	}
	must(t, s.DeleteBefore(natstest.Context(t), ref("a", "s"), 5))
	must(t, s.DeleteBefore(natstest.Context(t), ref("a", "never"), 5))
	if n := count(t, b, ">"); n != 9 {
		t.Errorf("%d keys, want all 9", n)
	}
	must(t, workspace.Delete(natstest.Context(t), b, ref("a", "s")))
	if _, err := s.Head(natstest.Context(t), ref("a", "s")); !errors.Is(err, bus.ErrNotFound) {
		t.Errorf("its head: %v", err)
	}
	must(t, s.DeleteBefore(natstest.Context(t), ref("a", "t"), 6))
	if n := []int{count(t, b, "a.s.*"), count(t, b, "a.t.*"), count(t, b, "b.s.*")}; !slices.Equal(n, []int{1, 1, 3}) {
		t.Errorf("%d keys are left, want a marker each of those that were deleted", n)
	}
	must(t, workspace.Delete(natstest.Context(t), b, ref("a", "s")))
	last, err := s.Last(natstest.Context(t), ref("a", "s"))
	must(t, err)
	if _, err := s.Commit(natstest.Context(t), workspace.Head{Agent: "a", Session: "s", Revision: last}); err != nil {
		t.Errorf("a session that goes on: %v", err)
	}
}

func TestWhatNobodyUsesExpires(t *testing.T) {
	b, s := start(t)
	saved(t, s, ref("a", "s"), 1)
	if n, err := s.Expire(natstest.Context(t), time.Hour); n != 0 || err != nil || count(t, b, ">") != 3 {
		t.Errorf("%d are removed, %v", n, err)
	}
	if _, _, err := s.PutPack(natstest.Context(t), ref("a", "begun"), "token", []byte("x")); err != nil {
		t.Fatal(err)
	}
	n, err := s.Expire(natstest.Context(t), -time.Hour) // as if it were in an hour
	must(t, err)
	if left := count(t, b, ">"); n != 1 || left != 2 { // the marker, and what its writer may be about to commit
		t.Errorf("%d are removed, %d keys are left", n, left)
	}
}

func TestAFullBucketSaysSo(t *testing.T) {
	b, s := start(t)
	must(t, b.EnsureStreams(natstest.Context(t), journal.StreamsConfig{MaxFilesBytes: 1 << 10}))
	raw := make([]byte, 4<<10)
	for i := range raw {
		raw[i] = byte(i*i>>3 ^ i*7)
	}
	_, _, err := s.PutPack(natstest.Context(t), ref("a", "s"), "token", raw)
	for range 10 {
		if err != nil {
			break
		}
		raw[0]++
		_, _, err = s.PutPack(natstest.Context(t), ref("a", "s"), "token", raw)
	}
	if !errors.Is(err, workspace.ErrFull) {
		t.Fatalf("got %v", err)
	}
	must(t, workspace.Delete(natstest.Context(t), b, ref("a", "s")))
	if n := count(t, b, "a.s.*"); n > 1 {
		t.Errorf("%d keys are left", n)
	}
}
