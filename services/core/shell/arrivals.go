package shell

import (
	"context"
	"fmt"
	"slices"
	"time"

	"skandha.dev/pkg/subject"
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

// missing describes the tools that a model call should wait for, or returns "".
// The caller must not hold the lock.
func (d *Directory) missing() string {
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

// expect reads how many tools were offered before this core started.
func (c *Core) expect(ctx context.Context) {
	at, err := c.store.Mark(ctx, offeredMark)
	if err != nil {
		c.log.Debug("reading the number of tools offered before", "error", err)
		return
	}
	c.dir.mu.Lock()
	defer c.dir.mu.Unlock()
	c.dir.expected = int(at & 0xffff) //nolint:gosec // 16 bits
}

// rememberOffer periodically saves the number of offered tools, until ctx ends.
func (c *Core) rememberOffer(ctx context.Context) {
	const interval = 2 * time.Second
	logged, before := "", -1
	every(ctx, interval, func() {
		why := c.dir.missing()
		if why != "" && why != logged {
			c.log.Info("model calls wait for tools", "reason", why, "at_most", returnWait)
		}
		logged = why
		n := len(c.dir.Public())
		if n == before || why != "" {
			return
		}
		save, cancel := context.WithTimeout(ctx, interval)
		if err := c.store.SetMark(save, offeredMark, uint64(time.Now().Unix())<<16|uint64(min(n, 0xffff))); err == nil { //nolint:gosec // after 1970
			before = n
		}
		cancel()
	})
}

// await waits until all of the instances have announced themselves.
func (d *Directory) await(ctx context.Context, all ...subject.Instance) error {
	for {
		next := d.next()
		i := slices.IndexFunc(all, func(id subject.Instance) bool { return !d.is(id) })
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
