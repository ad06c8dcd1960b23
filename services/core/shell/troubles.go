package shell

import (
	"context"
	"slices"
	"sync"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/periodic"
)

// troubles holds the sessions whose log this core found damaged, or cannot read because
// a newer core wrote it, and problems of the log itself. `status` shows them. A
// restarted core finds them again.
type troubles struct {
	mu  sync.Mutex
	all map[subject.Ref]*coreapi.Trouble // the zero ref is the log itself

	unlisted time.Time // when a trouble that does not fit into all was last logged
}

// maxTroubles is how many sessions are listed.
const maxTroubles = 100

// note adds a trouble of a session, or of the whole log if ref is zero. It reports
// whether to log it: the first time, and once a minute from then on.
func (t *troubles) note(ref subject.Ref, kind coreapi.TroubleKind, why string) (say bool) {
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
	if t.all == nil {
		t.all = map[subject.Ref]*coreapi.Trouble{}
	}
	t.all[ref] = n
	return true
}

// has reports whether a trouble of the session, or of the log, is listed.
func (t *troubles) has(ref subject.Ref) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all[ref] != nil
}

// over removes the trouble of a session that has recovered.
func (t *troubles) over(ref subject.Ref) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.all, ref)
}

// list returns the current troubles, oldest first.
func (t *troubles) list() []coreapi.Trouble {
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

// recheckTroubles removes the troubles that are over, until ctx ends.
func (c *Core) recheckTroubles(ctx context.Context) {
	periodic.Every(ctx, recheckEvery, func() {
		for _, t := range c.troubles.list() {
			if t.Kind == coreapi.TroubleLog {
				continue
			}
			if s, err := c.loader.Load(ctx, t.Ref, nil); err == nil && s.Damage == nil {
				c.troubles.over(t.Ref)
			}
		}
	})
}

// loaded notes whether the session is locked because of damage.
func (t *troubles) loaded(ref subject.Ref, s *decide.State) {
	if s.Damage != nil {
		t.note(ref, coreapi.TroubleDamaged, s.Locked)
	} else {
		t.over(ref)
	}
}
