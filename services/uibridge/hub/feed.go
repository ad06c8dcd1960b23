package hub

import (
	"context"
	"fmt"
	"sync"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/services/internal/follow"
	"skandha.dev/services/uibridge/contract"
)

// feed serves one connection. Either it is live, and the session puts new notifications
// into its queue; or it lags, and Next reads from the log until it has caught up.
type feed struct {
	s       *session
	name    string
	commits bool
	html    bool
	wake    chan struct{} // the queue or the state has changed

	mu    sync.Mutex
	first []contract.Notification // the first notifications: onAttached
	taken time.Time               // time of the last take by Next
	bus   busState                // as last sent
	queue []*notification
	bytes int
	live  bool
	tail  place              // everything up to here was returned or is in the queue
	seen  string             // the last id that Next returned
	err   error              // why the feed has ended
	stop  context.CancelFunc // stops reading the log
	apart func() bool        // detaches from the context of Attach
	done  chan struct{}      // closed when err is set
}

// Next implements contract.Feed. Only one goroutine at a time may call it.
func (f *feed) Next(ctx context.Context) (contract.Notification, error) {
	var since time.Time // when reading the log began to fail
	for {
		n, ok, lagging, err := f.take()
		switch {
		case err != nil:
			return contract.Notification{}, err
		case ok:
			return n, nil
		case lagging:
			if err := f.catchUp(ctx, &since); err != nil {
				return contract.Notification{}, err
			}
			continue
		}
		select {
		case <-f.wake:
		case <-f.done:
		case <-ctx.Done():
			return contract.Notification{}, ctx.Err()
		}
	}
}

// take returns the next waiting notification. Lagging means that Next must read the log.
func (f *feed) take() (n contract.Notification, ok, lagging bool, err error) {
	f.mu.Lock()
	if f.err != nil {
		defer f.mu.Unlock()
		return n, false, false, f.err
	}
	f.taken = time.Now()
	if len(f.first) > 0 {
		n, f.first = f.first[0], f.first[1:]
		f.mu.Unlock()
		return n, true, false, nil
	}
	if state := f.s.hub.busState(); state != f.bus {
		f.bus = state
		f.mu.Unlock()
		n, err = f.s.aboutBus(state)
		return n, err == nil, false, err
	}
	if len(f.queue) == 0 {
		defer f.mu.Unlock()
		return n, false, !f.live, nil
	}
	t := f.queue[0]
	f.queue[0] = nil
	f.queue = f.queue[1:]
	f.bytes -= t.size()
	if t.note.ID != "" {
		f.seen = t.note.ID
	}
	f.mu.Unlock()
	return t.is(f.html), true, false, nil // rendering may take a while
}

// Close implements contract.Feed.
func (f *feed) Close() { f.end(context.Canceled) }

// endWith ends the feed when ctx ends.
func (f *feed) endWith(ctx context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.apart = context.AfterFunc(ctx, func() { f.end(context.Cause(ctx)) })
	}
}

// end ends the feed with an error; only the first one counts.
func (f *feed) end(err error) {
	f.mu.Lock()
	if f.err != nil {
		f.mu.Unlock()
		return
	}
	f.fail(err)
	f.mu.Unlock()
	f.s.hub.release(f)
}

// fail ends the feed. The caller holds the lock.
func (f *feed) fail(err error) {
	f.err, f.queue, f.first, f.bytes, f.live = err, nil, nil, 0, false
	close(f.done)
	if f.stop != nil {
		f.stop()
	}
	if f.apart != nil {
		f.apart()
	}
}

// offer queues a notification if the feed is live. It never waits. It reports whether the
// feed continues; if not, the caller must release it.
func (f *feed) offer(t *notification) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.err != nil:
		return false
	case !f.live:
		return len(f.queue) == 0 || f.isRead()
	case t.whole && !f.commits:
		return true
	case t.lossy():
		if !f.full(t, 2) {
			f.put(t)
		}
		return true
	case !f.tail.before(t.at):
		return true // already read from the log
	case f.commits && t.bare && f.tail.commit < t.at.commit:
		f.lag() // its onCommit is only in the log
		return true
	}
	if f.full(t, 1) {
		f.dropLossy()
	}
	if f.full(t, 1) {
		f.lag()
		return f.isRead()
	}
	f.tail = t.at
	f.put(t)
	return true
}

// lag makes Next read from the log what follows the queue.
func (f *feed) lag() {
	f.live = false
	f.poke()
}

// isRead reports whether the feed is still being read; if not, it ends the feed.
func (f *feed) isRead() bool {
	if time.Since(f.taken) < f.s.hub.cfg.Stall {
		return true
	}
	f.fail(&contract.Error{
		Code: contract.CodeSlow, After: f.seen,
		Message: fmt.Sprintf(
			"the connection did not keep up: %d notifications (%d bytes) were waiting; attach again after %q, "+
				"nothing is lost",
			len(f.queue), f.bytes, f.seen),
	})
	return false
}

// full reports whether t does not fit into 1/part of the queue.
func (f *feed) full(t *notification, part int) bool {
	c := f.s.hub.cfg
	return len(f.queue) > 0 && (len(f.queue) >= c.Queue/part || f.bytes+t.size() > c.QueueBytes/part)
}

func (f *feed) put(t *notification) {
	f.queue = append(f.queue, t)
	f.bytes += t.size()
	f.poke()
}

func (f *feed) poke() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

func (f *feed) dropLossy() {
	kept := f.queue[:0]
	for _, t := range f.queue {
		if t.lossy() {
			f.bytes -= t.size()
		} else {
			kept = append(kept, t)
		}
	}
	clear(f.queue[len(kept):])
	f.queue = kept
}

// catchUp makes the feed live if the session still has everything that follows in memory,
// and otherwise reads a page of the log into the queue.
func (f *feed) catchUp(ctx context.Context, since *time.Time) error {
	if f.s.join(f) {
		return nil
	}
	ctx, cancel := f.until(ctx)
	defer cancel()
	mark := f.s.position()
	page, at, end, err := f.s.page(ctx, f.tail, f.commits)
	if end {
		// Everything that the session had seen by then was in the log, or no longer exists.
		if at.before(place{mark.commit, follow.All}) {
			at = place{mark.commit, follow.All}
		}
	}
	f.mu.Lock()
	f.taken = time.Now() // a reader waited for it, however long the log took
	if f.err == nil {
		f.tail = at
		for _, t := range page {
			f.put(t)
		}
	}
	f.mu.Unlock()
	if err == nil || len(page) > 0 {
		*since = time.Time{}
		return nil
	}
	return f.retry(ctx, since, err)
}

// until returns a context that also ends with the feed.
func (f *feed) until(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stop = cancel
	if f.err != nil {
		cancel()
	}
	return ctx, cancel
}

// retry waits before the log is read again. If that has failed for too long, it ends the
// feed.
func (f *feed) retry(ctx context.Context, since *time.Time, err error) error {
	if since.IsZero() {
		*since = time.Now()
	}
	if ctx.Err() == nil && (!bus.Retryable(err) || time.Since(*since) > f.s.hub.cfg.Patience) {
		f.s.log.Warn("reading the log for a feed failed", "feed", f.name, "error", err)
		after := f.lastSeen()
		f.end(&contract.Error{
			Code: contract.CodeUnavailable, After: after,
			Message: fmt.Sprintf("reading the log failed; attach again after %q", after),
		})
		return nil // take returns the error
	}
	t := time.NewTimer(retryPause)
	defer t.Stop()
	select {
	case <-t.C:
	case <-f.done:
	case <-ctx.Done():
		if f.ended() == nil {
			return ctx.Err()
		}
	}
	return nil
}

// lastSeen returns the last id that Next returned.
func (f *feed) lastSeen() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.seen
}

func (f *feed) ended() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// retryPause is the pause between two attempts to read the log.
const retryPause = 100 * time.Millisecond
