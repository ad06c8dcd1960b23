package directory

import (
	"context"
	"fmt"
	"slices"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/periodic"
	"skandha.dev/services/internal/registry"
)

// How long a model call waits for executors before it is made without their tools. A
// model without tools answers as if nothing could be done, and its turn counts as a
// success. So a core waits briefly after its start and while its runner is replaced.
const (
	firstWait  = time.Second     // after the start of a core that knows no tools, for any runner
	returnWait = 5 * time.Second // for tools that were offered before
)

// How long a starting core waits for announcements before it consumes causes.
const (
	settleQuiet = 10 * time.Millisecond
	settleMost  = 200 * time.Millisecond
)

// settle waits until no announcement has arrived for settleQuiet, at most settleMost.
func (d *Directory) settle(ctx context.Context) {
	end := time.After(settleMost)
	for {
		select {
		case <-d.next():
		case <-time.After(settleQuiet):
			return
		case <-end:
			return
		case <-ctx.Done():
			return
		}
	}
}

// offeredMark is the view's mark of how many tools were last offered. Marks only
// grow, so it holds Unix seconds, with the count in the lowest 16 bits.
const offeredMark = "tools_offered"

// Missing describes the tools that a model call should wait for, or returns "".
// The caller must not hold the lock.
func (d *Directory) Missing() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	switch n := len(d.public); {
	case now.Sub(d.started) < returnWait && n < d.expected:
		return fmt.Sprintf("%d of %d tools have not been offered since this core started", d.expected-n, d.expected)
	case now.Sub(d.started) < firstWait && n == 0:
		return "no tools have been offered since this core started"
	}
	lost := 0
	for _, at := range d.lostPublic {
		if now.Sub(at) < returnWait {
			lost++
		}
	}
	if lost > 0 {
		return fmt.Sprintf("%d tools disappeared with their runner a moment ago", lost)
	}
	return ""
}

// Marks keeps numbers across restarts; the store of views does.
type Marks interface {
	Mark(ctx context.Context, name string) (uint64, error)
	SetMark(ctx context.Context, name string, value uint64) error
}

// Expect reads how many tools were offered before this core started.
func (d *Directory) Expect(ctx context.Context, marks Marks) {
	at, err := marks.Mark(ctx, offeredMark)
	if err != nil {
		d.log.Debug("reading the number of tools offered before", "error", err)
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.expected = int(at & 0xffff) //nolint:gosec // 16 bits
}

// RememberOffer periodically saves the number of offered tools, until ctx ends.
func (d *Directory) RememberOffer(ctx context.Context, marks Marks) {
	const interval = 2 * time.Second
	logged, before := "", -1
	periodic.Every(ctx, interval, func() {
		why := d.Missing()
		if why != "" && why != logged {
			d.log.Info("model calls wait for tools", "reason", why, "at_most", returnWait)
		}
		logged = why
		n := len(d.Public())
		if n == before || why != "" {
			return
		}
		save, cancel := context.WithTimeout(ctx, interval)
		at := uint64(time.Now().Unix())<<16 | uint64(min(n, 0xffff)) //nolint:gosec // after 1970
		if err := marks.SetMark(save, offeredMark, at); err == nil {
			before = n
		}
		cancel()
	})
}

// Await waits until all of the instances have announced themselves.
func (d *Directory) Await(ctx context.Context, all ...subject.Instance) error {
	for {
		next := d.next()
		i := slices.IndexFunc(all, func(id subject.Instance) bool { return !d.Has(id) })
		if i < 0 {
			return nil
		}
		select {
		case <-next:
		case <-ctx.Done():
			return fmt.Errorf("executor %s has not announced itself: %w", all[i], ctx.Err())
		}
	}
}

// next returns a channel that is closed at the next announcement.
func (d *Directory) next() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.news
}

// noteLost records when tools and providers were last offered. The caller holds the
// lock.
func (d *Directory) noteLost(tools map[string]*toolEntry, models map[string]bool) {
	now := time.Now()
	for name, t := range d.tools {
		if tools[name] != nil {
			continue
		}
		d.lostTools[name] = now
		if t.spec.Plugin == "" && !t.spec.Internal { // a plugin's tools come and go with its lease
			d.lostPublic[name] = now
		}
	}
	for name := range tools {
		delete(d.lostTools, name)
		delete(d.lostPublic, name)
	}
	for name := range d.models {
		if _, offered := models[name]; !offered {
			d.lostModel[name] = now
		}
	}
	for name := range models {
		delete(d.lostModel, name)
	}
	d.models = models
}

// arrive notes that a new executor or replica offers the tools. The caller holds the lock.
func (d *Directory) arrive(tools []tool.Spec) {
	now := time.Now()
	for _, t := range tools {
		d.arrived[t.Name] = now
	}
}

// hasNew reports whether a plugin has replicas that it did not have before.
func hasNew(before, now []registry.Lease) bool {
	return slices.ContainsFunc(now, func(l registry.Lease) bool {
		return !slices.ContainsFunc(before, func(o registry.Lease) bool { return o.Instance == l.Instance })
	})
}

// Arrived implements decide.Catalog.
func (d *Directory) Arrived(name string) time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.arrived[name]
}

// goneSince returns since when a tool has not been offered, as far as this core knows;
// zero: it is offered.
func (d *Directory) goneSince(name string) time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.tools[name] != nil {
		return time.Time{}
	}
	return d.since(d.lostTools[name])
}

// WithoutProvider returns for how long no provider with that name has been offered. An empty
// name means any provider. A provider whose processes all drain has just become absent: another
// one is asked, but no turn gives up before the last process has stopped.
func (d *Directory) WithoutProvider(name string) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	accepts, offered := d.models[name]
	switch {
	case accepts:
		return 0
	case offered:
		return 1
	}
	return max(time.Since(d.since(d.lostModel[name])), 1)
}

// since returns t, but no earlier than this core's start.
func (d *Directory) since(t time.Time) time.Time {
	if t.Before(d.started) {
		return d.started
	}
	return t
}
