package registry_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/registry"
	"skandha.dev/services/test/natstest"
)

// writer writes the bucket as a registrar does, without admission.
type writer struct {
	testing.TB
	b *journal.Journal
}

func (w writer) put(key string, v any) uint64 {
	w.Helper()
	ctx, k := natstest.Context(w), w.b.Bucket(journal.BucketPlugins)
	var fence uint64
	if e, err := k.Get(ctx, key); err == nil {
		fence = e.Revision
	} else if m, err := lastOf(ctx, w.b, key); err == nil {
		fence = m
	}
	if v == nil {
		seq, err := k.Delete(ctx, key, journal.Fence{Revision: fence})
		if err != nil {
			w.Fatal(err)
		}
		return seq
	}
	body, err := json.Marshal(v)
	if err != nil {
		w.Fatal(err)
	}
	seq, err := k.Put(ctx, key, body, journal.Fence{Revision: fence})
	if err != nil {
		w.Fatal(err)
	}
	return seq
}

// lastOf is the sequence of the last change of a key, a deletion included.
func lastOf(ctx context.Context, b *journal.Journal, key string) (uint64, error) {
	s, err := b.JetStream().Stream(ctx, "KV_plugins")
	if err != nil {
		return 0, err
	}
	m, err := s.GetLastMsgForSubject(ctx, subject.BucketKey(journal.BucketPlugins, key))
	if err != nil {
		return 0, err
	}
	return m.Sequence, nil
}

// register writes a manifest and the lease of its one replica.
func (w writer) register(m plugin.Manifest) uint64 {
	w.Helper()
	w.put(subject.ManifestKey(m.Name), record(m))
	return w.put(subject.LeaseKey(m.Name, "i1"), registry.LeaseRecord{Instance: "i1", Hash: m.Hash(), Since: born})
}

func (w writer) leave(m plugin.Manifest) {
	w.Helper()
	w.put(subject.LeaseKey(m.Name, "i1"), nil)
}

func watch(t testing.TB, b *journal.Journal) *registry.View {
	t.Helper()
	v, err := registry.Watch(natstest.Context(t), b, natstest.Logger(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.Close)
	return v
}

func eventually(t testing.TB, v *registry.View, want string) {
	t.Helper()
	natstest.Eventually(t, "the registry to be "+want+", not "+states(v.Snapshot()),
		func() bool { return states(v.Snapshot()) == want })
}

func TestAViewHasWhatWasThereAndFollows(t *testing.T) {
	b := natstest.Connect(t, natstest.Start(t))
	w := writer{t, b}
	w.register(m("a"))
	w.leave(m("a"))
	last := w.register(m("b"))
	v := watch(t, b)
	if got := states(v.Snapshot()); got != "b:active a:gone" || v.Snapshot().Revision != last {
		t.Fatalf("%s at %d, want revision %d", got, v.Snapshot().Revision, last)
	}
	last = w.register(m("c", after("b")))
	if err := v.Await(natstest.Context(t), last); err != nil {
		t.Fatal(err)
	}
	if got := states(v.Snapshot()); got != "b:active c:active a:gone" {
		t.Errorf("got %s", got)
	}
	natstest.Eventually(t, "it to follow", func() bool { _, ok := v.Since(); return ok })
}

func TestAnEmptyRegistryIsLoadedToo(t *testing.T) {
	v := watch(t, natstest.Connect(t, natstest.Start(t)))
	if got := states(v.Snapshot()); got != "" || v.Snapshot().Revision != 0 {
		t.Errorf("%q at %d", got, v.Snapshot().Revision)
	}
}

func TestWhoeverWatchesBeforeTheBucketIsThereWaits(t *testing.T) {
	s := natstest.Start(t)
	b := natstest.Dial(t, bus.Config{InProcess: s}) // makes no streams
	ctx, cancel := context.WithTimeout(natstest.Context(t), 300*time.Millisecond)
	defer cancel()
	if v, err := registry.Watch(ctx, b, natstest.Logger(t)); !errors.Is(err, context.DeadlineExceeded) || v != nil {
		t.Fatalf("got %v %v, want to wait", v, err)
	}
	early := registry.Open(b, natstest.Logger(t))
	t.Cleanup(early.Close)
	if got := states(early.Snapshot()); got != "" {
		t.Errorf("got %q before there is anything", got)
	}
	select {
	case <-early.Loaded():
		t.Fatal("loaded what is not there")
	default:
	}
	natstest.EnsureStreams(t, b)
	writer{t, b}.register(m("a"))
	<-early.Loaded()
	eventually(t, early, "a:active")
}

func TestListenersAreToldOfChangesAndNotOfRenewals(t *testing.T) {
	b := natstest.Connect(t, natstest.Start(t))
	w, v := writer{t, b}, watch(t, b)
	w.register(m("a"))
	eventually(t, v, "a:active")
	var calls, busy atomic.Int32
	var last atomic.Pointer[registry.Snapshot]
	cancel := v.OnChange(func(s *registry.Snapshot) {
		if busy.Add(1) != 1 {
			t.Error("called twice at the same time")
		}
		calls.Add(1)
		last.Store(s)
		busy.Add(-1)
	})
	if calls.Load() != 1 || states(last.Load()) != "a:active" {
		t.Fatalf("%d calls at the beginning", calls.Load())
	}
	lease := registry.LeaseRecord{Instance: "i1", Hash: m("a").Hash(), Since: born}
	var seq uint64
	for range 20 {
		seq = w.put("lease.a.i1", lease)
	}
	if err := v.Await(natstest.Context(t), seq); err != nil {
		t.Fatal(err)
	}
	if v.Snapshot().Revision < seq {
		t.Errorf("revision %d, want %d", v.Snapshot().Revision, seq)
	}
	w.register(m("b"))
	natstest.Eventually(t, "the listener to hear of b", func() bool { return states(last.Load()) == "a:active b:active" })
	if n := calls.Load(); n > 3 {
		t.Errorf("%d calls for one plugin that came", n)
	}
	cancel()
	cancel() // again is harmless
	before := calls.Load()
	w.leave(m("b"))
	eventually(t, v, "a:active b:gone")
	w.register(m("c"))
	eventually(t, v, "a:active c:active b:gone")
	if calls.Load() != before {
		t.Error("called after it was cancelled")
	}
}

func TestAViewSurvivesARestartOfTheServer(t *testing.T) {
	p := natstest.StartProcess(t, "", 0)
	b := natstest.ConnectURL(t, p.URL())
	w, v := writer{t, b}, watch(t, b)
	w.register(m("a"))
	eventually(t, v, "a:active")
	began, _ := v.Since()
	p.Kill()
	natstest.Eventually(t, "the view to notice", func() bool { _, ok := v.Since(); return !ok })
	if got := states(v.Snapshot()); got != "a:active" {
		t.Errorf("without a bus the registry is %s", got)
	}
	p.Restart()
	natstest.Eventually(t, "the view to follow again", func() bool { at, ok := v.Since(); return ok && at.After(began) })
	eventually(t, v, "a:active")
	w.register(m("b"))
	eventually(t, v, "a:active b:active")
}

func TestAViewBeginsAnewWhenTheStreamWasDeleted(t *testing.T) {
	b := natstest.Connect(t, natstest.Start(t))
	ctx, w, v := natstest.Context(t), writer{t, b}, watch(t, b)
	for i := range 20 {
		w.register(m(fmt.Sprintf("p%02d", i)))
	}
	natstest.Eventually(t, "20 plugins", func() bool { return len(v.Snapshot().Plugins()) == 20 })
	var most atomic.Int32
	defer v.OnChange(func(s *registry.Snapshot) {
		// The new state replaces the old one at once: all of the old, or some of the new.
		if n := len(s.Plugins()); n != 20 {
			most.Store(max(most.Load(), int32(n)))
		}
	})()
	if err := b.JetStream().DeleteStream(ctx, "KV_plugins"); err != nil {
		t.Fatal(err)
	}
	if len(v.Snapshot().Plugins()) != 20 {
		t.Error("a lost bucket says nothing")
	}
	if err := b.EnsurePlugins(ctx, journal.StreamsConfig{}); err != nil {
		t.Fatal(err)
	}
	w.register(m("new"))
	eventually(t, v, "new:active")
	if v.Snapshot().Revision != 2 || most.Load() > 1 {
		t.Errorf("revision %d, up to %d plugins on the way", v.Snapshot().Revision, most.Load())
	}
}

// Until they have registered again, the plugins of a lost bucket are asked as before:
// no policy is skipped meanwhile.
func TestPluginsOutliveALostBucket(t *testing.T) {
	b := natstest.Connect(t, natstest.Start(t))
	ctx, w, v := natstest.Context(t), writer{t, b}, watch(t, b)
	w.register(m("a"))
	w.register(m("b"))
	eventually(t, v, "a:active b:active")
	began, _ := v.Since()
	defer v.OnChange(func(s *registry.Snapshot) {
		if !s.Active("a") || !s.Active("b") {
			t.Error("a plugin was missing meanwhile")
		}
	})()
	if err := b.JetStream().DeleteStream(ctx, "KV_plugins"); err != nil {
		t.Fatal(err)
	}
	if err := b.EnsurePlugins(ctx, journal.StreamsConfig{}); err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, "the view follows the new bucket",
		func() bool { at, ok := v.Since(); return ok && at.After(began) })
	w.register(m("b"))
	if err := v.AwaitChange(ctx,
		func(c *registry.Content) bool { return c.Records["b"] != nil && c.Records["a"] == nil }); err != nil {
		t.Fatal(err)
	}
	w.register(m("a"))
	w.register(m("c"))
	eventually(t, v, "a:active b:active c:active")
}

// Consumers are lost when a server drops them: the view makes another.
func TestAViewSurvivesTheLossOfItsConsumer(t *testing.T) {
	b := natstest.Connect(t, natstest.Start(t))
	ctx, w, v := natstest.Context(t), writer{t, b}, watch(t, b)
	for round := range 3 {
		s, err := b.JetStream().Stream(ctx, "KV_plugins")
		if err != nil {
			t.Fatal(err)
		}
		for name := range s.ConsumerNames(ctx).Name() {
			// A view that begins anew of itself drops its consumer, too.
			if err := s.DeleteConsumer(ctx, name); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
				t.Fatal(err)
			}
		}
		w.register(m(fmt.Sprintf("p%d", round)))
		natstest.Eventually(t, "the plugin of the round", func() bool { return len(v.Snapshot().Plugins()) == round+1 })
	}
}

func TestManyViewsSeeTheSame(t *testing.T) {
	s := natstest.Start(t)
	w := writer{t, natstest.Connect(t, s)}
	var views []*registry.View
	for range 5 {
		views = append(views, watch(t, natstest.Connect(t, s)))
	}
	var g sync.WaitGroup
	for i := range 10 {
		g.Go(func() {
			one := m(fmt.Sprintf("p%d", i), needs(fmt.Sprintf("p%d", (i+1)%10)))
			if i == 9 {
				one.Dependencies = nil
			}
			for range 10 {
				w.register(one)
				w.leave(one)
			}
			w.register(one)
		})
	}
	g.Wait()
	for _, v := range views {
		eventually(t, v,
			"p9:active p8:active p7:active p6:active p5:active p4:active p3:active p2:active p1:active p0:active")
	}
}

func TestClosingLeavesNothingBehind(t *testing.T) {
	b := natstest.Connect(t, natstest.Start(t))
	writer{t, b}.register(m("a"))
	const views = 40
	var before int
	for i := range views {
		if i == 1 { // the server has what it makes at the first
			before = runtime.NumGoroutine()
		}
		v, err := registry.Watch(natstest.Context(t), b, natstest.Logger(t))
		if err != nil {
			t.Fatal(err)
		}
		v.Close()
		v.Close() // again is harmless
		if states(v.Snapshot()) != "a:active" {
			t.Fatal("a closed view has its last snapshot")
		}
		if err := v.Await(natstest.Context(t), 1<<40); err == nil {
			t.Fatal("a closed view does not wait")
		}
	}
	natstest.Eventually(t, "the goroutines to end", func() bool { return runtime.NumGoroutine() < before+views/2 })
	s, err := b.JetStream().Stream(natstest.Context(t), "KV_plugins")
	if err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, "the consumers to go", func() bool {
		info, err := s.Info(natstest.Context(t))
		return err == nil && info.State.Consumers == 0
	})
}
