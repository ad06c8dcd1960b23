package capture

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"skandha.dev/services/internal/journal"
)

// sweepEvery is how often recordings that are too old are looked for.
const sweepEvery = time.Minute

// keeper deletes recordings that are too old, or too many.
type keeper struct {
	r *Recorder

	mu     sync.Mutex
	listed bool // what an earlier process has stored is known
	kept   []journal.ArtifactInfo
}

// name is the name of a recording. A dot is in no listener's name, so the names of one listener's
// recordings begin like no other's.
func (k *keeper) name(p Perception, i int, kind string) string {
	return fmt.Sprintf("%s.%s.%s-%d.%s", k.r.name, p.At.UTC().Format("20060102T150405Z"), p.ID, i+1, kind)
}

func (k *keeper) add(ref string, at time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.kept = append(k.kept, journal.ArtifactInfo{Name: ref, Stored: at})
}

// run deletes until ctx ends.
func (k *keeper) run(ctx context.Context) {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		if err := k.sweep(ctx); err != nil && ctx.Err() == nil {
			k.r.log.Debug("deleting old recordings; will retry", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// sweep deletes what is to be deleted now.
func (k *keeper) sweep(ctx context.Context) error {
	if err := k.list(ctx); err != nil {
		return err
	}
	for {
		a, ok := k.next()
		if !ok {
			return nil
		}
		if err := k.r.bus.DeleteArtifact(ctx, a.Name); err != nil {
			return err
		}
		k.r.stats.Deleted.Add(1)
		k.mu.Lock()
		k.kept = slices.DeleteFunc(k.kept, func(o journal.ArtifactInfo) bool { return o.Name == a.Name })
		k.mu.Unlock()
	}
}

// list finds out, once, what an earlier process has stored.
func (k *keeper) list(ctx context.Context) error {
	if k.listed {
		return nil
	}
	prefix := k.r.Ref().String() + "/uploads/" + string(k.r.name) + "."
	all, err := k.r.bus.Artifacts(ctx, prefix)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, a := range all {
		_, err := time.Parse("20060102T150405Z", strings.SplitN(strings.TrimPrefix(a.Name, prefix), ".", 2)[0])
		known := slices.ContainsFunc(k.kept, func(o journal.ArtifactInfo) bool { return o.Name == a.Name })
		if err == nil && !known {
			k.kept = append(k.kept, a)
		}
	}
	slices.SortStableFunc(k.kept, func(a, b journal.ArtifactInfo) int { return a.Stored.Compare(b.Stored) })
	k.listed = true
	return nil
}

// next returns the oldest recording if it is too old, or if there are too many.
func (k *keeper) next() (journal.ArtifactInfo, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.kept) == 0 {
		return journal.ArtifactInfo{}, false
	}
	old := k.kept[0]
	return old, len(k.kept) > k.r.cfg.KeepFiles || k.r.now().Sub(old.Stored) > k.r.cfg.Keep
}
