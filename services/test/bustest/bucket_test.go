package bustest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/test/natstest"
)

func put(t *testing.T, k *journal.Bucket, key, value string, f journal.Fence) uint64 {
	t.Helper()
	seq, err := k.Put(natstest.Context(t), key, []byte(value), f)
	if err != nil {
		t.Fatal(err)
	}
	return seq
}

func TestABucketsFences(t *testing.T) {
	b := start(t)
	ctx, k := natstest.Context(t), b.Bucket(journal.BucketPlugins)
	one := put(t, k, "manifest.a", "1", journal.Fence{})
	two := put(t, k, "manifest.b", "1", journal.Fence{})
	lease := put(t, k, "lease.a.i", "1", journal.Fence{})
	for about, f := range map[string]journal.Fence{
		"its own key, before":       {Revision: one - 1},
		"its own key, none":         {},
		"its own key, too far":      {Revision: lease + 1},
		"all keys of a kind, stale": {Filter: subject.AllManifests, Revision: one},
		"all keys of a kind, none":  {Filter: subject.AllManifests},
		"another key, stale":        {Filter: "manifest.b", Revision: one},
		"a key that is not there":   {Filter: "manifest.c", Revision: one},
	} {
		if _, err := k.Put(ctx, "manifest.a", []byte("2"), f); !errors.Is(err, bus.ErrFenceLost) {
			t.Errorf("%s: %v", about, err)
		}
		if _, err := k.Delete(ctx, "manifest.a", f); !errors.Is(err, bus.ErrFenceLost) {
			t.Errorf("%s: deleting: %v", about, err)
		}
	}
	three := put(t, k, "manifest.c", "1", journal.Fence{Filter: subject.AllManifests, Revision: two})
	put(t, k, "manifest.a", "2", journal.Fence{Revision: one})
	put(t, k, "lease.a.i", "2", journal.Fence{Filter: "manifest.c", Revision: three})
	e, err := k.Get(ctx, "lease.a.i")
	if err != nil || string(e.Value) != "2" || e.Key != "lease.a.i" || e.Revision != lease+3 || e.Deleted {
		t.Errorf("%+v %v", e, err)
	}
	if last, err := k.Revision(ctx); err != nil || last != e.Revision {
		t.Errorf("revision %d %v", last, err)
	}
}

func TestADeletedKeyIsNotThereAndItsMarkerMayBeForgotten(t *testing.T) {
	b := start(t)
	ctx, k := natstest.Context(t), b.Bucket(journal.BucketPlugins)
	one := put(t, k, "lease.a.i", "1", journal.Fence{})
	gone, err := k.Delete(ctx, "lease.a.i", journal.Fence{Revision: one})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.Get(ctx, "lease.a.i"); !errors.Is(err, bus.ErrNotFound) {
		t.Errorf("got %v", err)
	}
	if _, err := k.Put(ctx, "lease.a.i", nil, journal.Fence{}); !errors.Is(err, bus.ErrFenceLost) {
		t.Errorf("a deletion is a change: %v", err)
	}
	again := put(t, k, "lease.a.i", "2", journal.Fence{Revision: gone})
	if err := k.Forget(ctx, "lease.a.i", gone); err != nil {
		t.Fatal(err)
	}
	if e, err := k.Get(ctx, "lease.a.i"); err != nil || e.Revision != again {
		t.Errorf("what came later was forgotten: %v", err)
	}
	if _, err := k.Get(ctx, "nothing"); !errors.Is(err, bus.ErrNotFound) {
		t.Errorf("got %v", err)
	}
}

// The server does not record that a newer value has replaced an older one: after a kill it finds both, and
// compares them again. If the newer one is gone by then, the older one must not be there, either.
func TestAForgottenKeyStaysAwayAfterAKill(t *testing.T) {
	s := natstest.StartProcess(t, "", 0)
	b := natstest.ConnectURL(t, s.URL())
	natstest.EnsureStreams(t, b)
	ctx, k := natstest.Context(t), b.Bucket(journal.BucketPlugins)
	last, kept := uint64(0), put(t, k, "lease.b.i", "1", journal.Fence{})
	put(t, k, "manifest.b", "1", journal.Fence{})
	for range 3 {
		last = put(t, k, "lease.a.i", "1", journal.Fence{Revision: last})
	}
	gone, err := k.Delete(ctx, "lease.a.i", journal.Fence{Revision: last})
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Forget(ctx, "lease.a.i", gone); err != nil {
		t.Fatal(err)
	}
	kept = put(t, k, "lease.b.i", "2", journal.Fence{Revision: kept})
	s.Restart()
	natstest.Eventually(t, "the bucket", func() bool { _, err := k.Revision(ctx); return err == nil })
	for e, err := range k.Matching(ctx, ">") {
		if err != nil || e.Key != "manifest.b" && e.Revision != kept {
			t.Errorf("it has %s, revision %d, after the kill: %v", e.Key, e.Revision, err)
		}
	}
	if _, err := k.Get(ctx, "lease.a.i"); !errors.Is(err, bus.ErrNotFound) {
		t.Errorf("the key is there: %v", err)
	}
}

// Keys come from people, too. One that is a pattern would read or change another key.
func TestAPatternIsNoKey(t *testing.T) {
	b := start(t)
	ctx, k := natstest.Context(t), b.Bucket(journal.BucketPlugins)
	seq := put(t, k, "lease.a.i", "1", journal.Fence{})
	for _, key := range []string{"", "*", ">", "lease.*.i", "lease.>", "lease..i", ".lease", "lease.a.i ", "lease.a\r\n.i"} {
		_, err := k.Get(ctx, key)
		_, put := k.Put(ctx, key, nil, journal.Fence{Revision: seq})
		_, deleted := k.Delete(ctx, key, journal.Fence{Revision: seq})
		for _, err := range []error{err, put, deleted, k.Forget(ctx, key, seq)} {
			if !errors.Is(err, bus.ErrInvalidArgument) {
				t.Errorf("%q: %v", key, err)
			}
		}
	}
	if e, err := k.Get(ctx, "lease.a.i"); err != nil || e.Revision != seq {
		t.Errorf("%+v, %v", e, err)
	}
}

func TestABucketThatIsNotThere(t *testing.T) {
	b := natstest.Dial(t, bus.Config{InProcess: natstest.Start(t)})
	ctx, k := natstest.Context(t), b.Bucket(journal.BucketPlugins)
	if _, err := k.Get(ctx, "a"); !errors.Is(err, bus.ErrUnavailable) {
		t.Errorf("getting: %v", err)
	}
	if _, err := k.Put(ctx, "a", nil, journal.Fence{}); !errors.Is(err, bus.ErrAmbiguous) {
		t.Errorf("putting: %v", err)
	}
	if _, err := k.Revision(ctx); !errors.Is(err, bus.ErrUnavailable) {
		t.Errorf("revision: %v", err)
	}
	if err := k.Forget(ctx, "a", 1); err != nil {
		t.Errorf("forgetting: %v", err)
	}
}

func TestAWatchGetsEverythingAndThenEachChange(t *testing.T) {
	b := start(t)
	ctx, k := natstest.Context(t), b.Bucket(journal.BucketPlugins)
	const before, later = 700, 300 // more than one pull
	for i := range before {
		put(t, k, fmt.Sprintf("manifest.p%d", i), "1", journal.Fence{})
	}
	if _, err := k.Delete(ctx, "manifest.p0", journal.Fence{Revision: 1}); err != nil {
		t.Fatal(err)
	}
	var f follower
	w := k.Watch(f.take)
	natstest.Eventually(t, "what was there", func() bool { return len(f.entries()) == before })
	if e := f.entries()[before-1]; e.Key != "manifest.p0" || !e.Deleted {
		t.Errorf("the last change is %+v, want the deletion", e)
	}
	for i := range later {
		put(t, k, fmt.Sprintf("lease.p%d.i", i), "1", journal.Fence{})
	}
	natstest.Eventually(t, "what came", func() bool { return len(f.entries()) == before+later })
	w.Stop()
	if _, ok := w.Since(); ok {
		t.Error("it follows after it was stopped")
	}
	put(t, k, "lease.late.i", "1", journal.Fence{})
	last := uint64(0)
	for _, e := range f.entries() {
		if e.Revision <= last {
			t.Fatalf("revision %d after %d", e.Revision, last)
		}
		last = e.Revision
	}
	if n := len(f.entries()); n != before+later {
		t.Errorf("%d entries in the end", n)
	}
	if first, resets := f.began(); !first.Reset || len(first.Entries) != before || resets > later/10 {
		t.Errorf("first %d entries, reset %t; %d resets in all", len(first.Entries), first.Reset, resets)
	}
}

// follower folds what a watch says. A watch may begin anew at any time, on a
// machine that stalls for no other reason than that.
type follower struct {
	mu      sync.Mutex
	first   journal.Change
	all     []journal.Entry // since the last reset
	changes int
	resets  int
}

func (f *follower) take(c journal.Change) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.changes++; f.changes == 1 {
		f.first = c
	}
	if c.Reset {
		f.all = nil
		f.resets++
	}
	f.all = append(f.all, c.Entries...)
}

func (f *follower) entries() []journal.Entry {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.all)
}

// saw reports whether the entry of the revision is the last that came.
func (f *follower) saw(revision uint64) bool {
	all := f.entries()
	return len(all) > 0 && all[len(all)-1].Revision == revision
}

func (f *follower) began() (first journal.Change, resets int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.first, f.resets
}

// A bucket that an older core has made announces nothing. Changes are seen by looking, and core makes it
// announce them. A notice that is lost costs a look, too.
func TestAWatchWithoutNotices(t *testing.T) {
	b := start(t)
	ctx, k := natstest.Context(t), b.Bucket(journal.BucketPlugins)
	js := b.JetStream()
	s, err := js.Stream(ctx, "KV_"+journal.BucketPlugins)
	if err != nil {
		t.Fatal(err)
	}
	old := s.CachedInfo().Config
	old.RePublish = nil
	if _, err := js.UpdateStream(ctx, old); err != nil {
		t.Fatal(err)
	}
	one := put(t, k, "manifest.a", "1", journal.Fence{})
	var f follower
	defer k.Watch(f.take).Stop()
	natstest.Eventually(t, "what was there", func() bool { return len(f.entries()) == 1 })
	two := put(t, k, "manifest.a", "2", journal.Fence{Revision: one})
	natstest.Eventually(t, "a change without a notice", func() bool { return len(f.entries()) == 2 })
	natstest.EnsureStreams(t, b)
	if s, err = js.Stream(ctx, "KV_"+journal.BucketPlugins); err != nil || s.CachedInfo().Config.RePublish == nil {
		t.Fatalf("core has not made the old bucket announce its changes: %v", err)
	}
	// What somebody else has the server send there is no change.
	if err := b.Conn().PublishRequest("$JS.API.DIRECT.GET.KV_plugins.$KV.plugins.manifest.a", "watch.plugins.manifest.a", nil); err != nil {
		t.Fatal(err)
	}
	put(t, k, "manifest.a", "3", journal.Fence{Revision: two})
	natstest.Eventually(t, "a change with a notice", func() bool { return len(f.entries()) == 3 })
	for i, e := range f.entries() {
		if string(e.Value) != fmt.Sprint(i+1) {
			t.Errorf("entry %d is %q", i, e.Value)
		}
	}
}
