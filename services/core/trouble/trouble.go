// Package trouble lists the sessions that a core cannot serve: because their log is
// damaged, or because a newer core wrote it. It also counts the causes that wait for a
// newer core. A restarted core finds all of them again.
package trouble

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/core/loader"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/periodic"
)

// List holds the sessions in trouble, and problems of the log itself. `status` shows them.
type List struct {
	mu       sync.Mutex
	all      map[subject.Ref]*coreapi.Trouble // the zero ref is the log itself
	unlisted time.Time                        // when a trouble that does not fit into all was last logged
	// parked holds the causes that were handed back for a newer core: by session and
	// sequence, the time until which each counts.
	parked map[subject.Ref]map[uint64]time.Time
}

// New returns an empty list.
func New() *List {
	return &List{all: map[subject.Ref]*coreapi.Trouble{}, parked: map[subject.Ref]map[uint64]time.Time{}}
}

// maxTroubles is how many sessions are listed.
const maxTroubles = 100

// Note adds a trouble of a session, or of the whole log if ref is zero. It reports
// whether to log it: the first time, and once a minute from then on.
func (t *List) Note(ref subject.Ref, kind coreapi.TroubleKind, why string) (say bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	old := t.all[ref]
	if kind == coreapi.TroubleLog && old != nil && old.Reason != why {
		old = nil // the latest problem of the log
	}
	if old != nil && old.Kind == kind && now.Sub(old.Latest) < time.Minute {
		return false
	}
	if old == nil && len(t.all) >= maxTroubles && ref != (subject.Ref{}) {
		if now.Sub(t.unlisted) < time.Minute {
			return false
		}
		t.unlisted = now
		return true
	}
	n := &coreapi.Trouble{Ref: ref, Kind: kind, Reason: why, Since: now.UTC(), Latest: now.UTC()}
	if old != nil && old.Kind == kind {
		n.Since = old.Since
	}
	t.all[ref] = n
	return true
}

// Has reports whether a trouble of the session, or of the log, is listed.
func (t *List) Has(ref subject.Ref) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all[ref] != nil
}

// All returns the current troubles, oldest first.
func (t *List) All() []coreapi.Trouble {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []coreapi.Trouble
	for _, x := range t.all {
		out = append(out, *x)
	}
	slices.SortFunc(out, func(a, b coreapi.Trouble) int { return a.Since.Compare(b.Since) })
	return out
}

// recheckEvery is how often the sessions in trouble are loaded again: another core may
// have repaired them, or their log may be gone.
const recheckEvery = 15 * time.Second

// Recheck removes the troubles that are over, until ctx ends.
func (t *List) Recheck(ctx context.Context, from *loader.Loader) {
	periodic.Every(ctx, recheckEvery, func() {
		for _, x := range t.All() {
			if x.Kind == coreapi.TroubleLog {
				continue
			}
			if s, err := from.Load(ctx, x.Ref, nil); err == nil && s.Damage == nil {
				t.mu.Lock()
				delete(t.all, x.Ref)
				t.mu.Unlock()
			}
		}
	})
}

// Loaded notes that this core can decide about the session, and whether the session is
// locked because of damage.
func (t *List) Loaded(ref subject.Ref, s *decide.State) {
	if s.Damage != nil {
		t.Note(ref, coreapi.TroubleDamaged, s.Locked)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.parked, ref)
	if s.Damage == nil {
		delete(t.all, ref)
	}
}

// Park counts a cause of the session that was handed back for a newer core, until it has
// been redelivered and this core has had time to decide about it.
func (t *List) Park(ref subject.Ref, seq uint64, until time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.parked[ref] == nil {
		t.parked[ref] = map[uint64]time.Time{}
	}
	t.parked[ref][seq] = until
}

// Parked returns how many causes wait. A cause that another core has handed back since is
// counted by that core.
func (t *List) Parked() (n uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	for ref, of := range t.parked {
		maps.DeleteFunc(of, func(_ uint64, until time.Time) bool { return now.After(until) })
		if n += uint64(len(of)); len(of) == 0 {
			delete(t.parked, ref)
		}
	}
	return n
}
