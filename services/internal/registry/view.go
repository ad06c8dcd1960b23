package registry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"skandha.dev/services/internal/journal"
)

// View follows the registry. Its methods may be called concurrently.
type View struct {
	log   *slog.Logger
	watch *journal.BucketWatch
	snap  atomic.Pointer[Snapshot]

	mu      sync.Mutex
	pending []journal.Change // changes that were not applied yet
	content *Content
	moved   chan struct{} // closed at the next change
	subs    map[*listener]struct{}

	wake   chan struct{} // capacity 1: there are pending changes
	notify chan struct{} // capacity 1: there is another snapshot
	calls  sync.Mutex    // held while listeners are called
	loaded chan struct{}
	first  bool      // nothing has arrived yet; used only by advance
	held   time.Time // until when the snapshot of a lost bucket is kept; used only by advance
	closed chan struct{}
	once   sync.Once
	done   sync.WaitGroup
}

// Watch follows the registry and returns when its state has been read. It waits until
// core has created the bucket. The context bounds only that wait; the view follows the
// registry until Close, or until the bus is closed.
func Watch(ctx context.Context, b *journal.Journal, log *slog.Logger) (*View, error) {
	v := Open(b, log)
	select {
	case <-v.Loaded():
		return v, nil
	case <-b.Closed():
		v.Close()
		return nil, errors.New("waiting for the registry: the connection to the bus has ended")
	case <-ctx.Done():
		v.Close()
		return nil, fmt.Errorf("waiting for the registry, which core creates: %w", ctx.Err())
	}
}

// Open follows the registry like [Watch] but does not wait. Until [View.Loaded] is
// closed, the snapshot is empty.
func Open(b *journal.Journal, log *slog.Logger) *View {
	v := &View{
		log: log, content: NewContent(), moved: make(chan struct{}), subs: map[*listener]struct{}{},
		wake: make(chan struct{}, 1), notify: make(chan struct{}, 1),
		first: true, loaded: make(chan struct{}), closed: make(chan struct{}),
	}
	v.snap.Store(Compute(v.content))
	v.watch = b.Bucket(journal.BucketPlugins).Watch(v.take)
	// Two goroutines, so that a slow listener does not delay callers that wait for a
	// change.
	v.done.Go(func() { v.each(v.wake, v.advance) })
	v.done.Go(func() { v.each(v.notify, v.notifyAll) })
	return v
}

// Loaded returns a channel that is closed when the state has been read for the first
// time.
func (v *View) Loaded() <-chan struct{} { return v.loaded }

// Snapshot returns the current snapshot, which is never nil. While the bus is
// disconnected, the last snapshot stays, because missing renewals mean nothing then. The
// last snapshot also stays if the bucket is lost, until the plugins have registered
// again, for at most [lossGrace], so that no policy is skipped meanwhile.
func (v *View) Snapshot() *Snapshot { return v.snap.Load() }

// Content returns a copy of the bucket's current content, on which changes are based.
func (v *View) Content() *Content {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.content.Clone()
}

// Markers lists the markers of keys that were deleted longer ago than age.
func (v *View) Markers(age time.Duration) []Marker {
	v.mu.Lock()
	defer v.mu.Unlock()
	var out []Marker
	for _, m := range v.content.Markers {
		// The last change of all manifests is the fence, and must stay.
		if time.Since(m.Seen) > age && m.Revision != v.content.ManifestRevision {
			out = append(out, m)
		}
	}
	return out
}

// Forget drops a marker that was removed from the bucket, because the view is not
// notified of that.
func (v *View) Forget(m Marker) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.content.Markers[m.Key] == m {
		delete(v.content.Markers, m.Key)
	}
}

// Since returns when the view last began to follow without interruption. ok is false if
// it does not follow now.
func (v *View) Since() (at time.Time, ok bool) { return v.watch.Since() }

// Await waits until the view includes the revision.
func (v *View) Await(ctx context.Context, revision uint64) error {
	return v.AwaitChange(ctx, func(s *Content) bool { return s.Revision >= revision })
}

// AwaitChange waits until wanted returns true for the content, which wanted must not
// retain or change.
func (v *View) AwaitChange(ctx context.Context, wanted func(*Content) bool) error {
	for {
		v.mu.Lock()
		ok, moved := wanted(v.content), v.moved
		v.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-moved:
		case <-v.closed:
			return errors.New("waiting for the registry: the view was closed")
		case <-ctx.Done():
			return fmt.Errorf("waiting for the registry: %w", ctx.Err())
		}
	}
}

type listener struct {
	f    func(*Snapshot)
	last *derived
}

// OnChange calls f with the current snapshot before it returns, and later with each
// snapshot that differs in more than the renewal of leases. Calls are sequential.
// Snapshots may be skipped, but not the last one. f must not block, and must not call
// OnChange. f may call cancel, which does not wait for a call that is under way.
func (v *View) OnChange(f func(*Snapshot)) (cancel func()) {
	l := &listener{f: f}
	v.calls.Lock()
	defer v.calls.Unlock()
	v.mu.Lock()
	v.subs[l] = struct{}{}
	v.mu.Unlock()
	l.call(v.Snapshot())
	return func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		delete(v.subs, l)
	}
}

func (l *listener) call(s *Snapshot) {
	if l.last != s.derived {
		l.last = s.derived
		l.f(s)
	}
}

// Close ends the view. Its last snapshot stays available. A function passed to OnChange
// must not call Close.
func (v *View) Close() {
	v.once.Do(func() {
		v.watch.Stop()
		close(v.closed)
	})
	v.done.Wait()
}

// take receives a change of the bucket, on the watch's goroutine.
func (v *View) take(c journal.Change) {
	v.mu.Lock()
	if c.Reset {
		v.pending = nil
	}
	v.pending = append(v.pending, c)
	v.mu.Unlock()
	poke(v.wake)
}

// poke requests another round, unless one is already requested.
func poke(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// each calls do for each request, until the view is closed.
func (v *View) each(asked <-chan struct{}, do func()) {
	for {
		select {
		case <-asked:
			do()
		case <-v.closed:
			return
		}
	}
}

// advance applies all pending changes at once, so that many changes cost one computation.
func (v *View) advance() {
	v.mu.Lock()
	changes := v.pending
	v.pending = nil
	renewed, reset, now := true, false, time.Now()
	for _, c := range changes {
		if c.Reset {
			v.content, renewed, reset = NewContent(), false, true
		}
		for _, e := range c.Entries {
			same, err := v.content.Apply(e, now)
			if err != nil {
				v.log.Warn("ignoring an unreadable entry of the registry", "error", err)
			}
			renewed = renewed && same
		}
	}
	v.content.forgetMarkers(now)
	next := &Snapshot{Revision: v.content.Revision, derived: v.Snapshot().derived}
	renewed = renewed && v.held.IsZero()
	if keeps := v.keeps(reset, now); !renewed && !keeps {
		if n := Compute(v.content); !n.same(next.derived) {
			next = n
		}
	}
	v.snap.Store(next)
	close(v.moved)
	v.moved = make(chan struct{})
	v.mu.Unlock()
	poke(v.notify)
	if v.first && len(changes) > 0 {
		v.first = false
		close(v.loaded)
	}
}

// lossGrace is how long the plugins of a lost bucket have to register again: as long as
// the lease of a dead plugin lasts.
const lossGrace = 10 * time.Second

// keeps reports whether to keep the current snapshot because the bucket was lost.
func (v *View) keeps(reset bool, now time.Time) bool {
	lost, away := false, false
	for _, p := range v.Snapshot().plugins {
		if len(p.Instances) > 0 {
			lost = lost || v.content.Records[p.Name()] == nil // a record outlives its plugin
			away = away || len(v.content.Leases[p.Name()]) == 0
		}
	}
	if reset && lost && v.held.IsZero() {
		v.held = now.Add(lossGrace)
		time.AfterFunc(lossGrace, func() { poke(v.wake) })
	}
	if !away || !now.Before(v.held) {
		v.held = time.Time{}
	}
	return !v.held.IsZero()
}

func (v *View) notifyAll() {
	v.calls.Lock()
	defer v.calls.Unlock()
	s := v.Snapshot()
	v.mu.Lock()
	subs := slices.Collect(maps.Keys(v.subs))
	v.mu.Unlock()
	for _, l := range subs {
		l.call(s)
	}
}
