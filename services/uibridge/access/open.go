package access

import (
	"context"
	"sync"
	"time"

	"skandha.dev/services/uibridge/contract"
)

// open are the requests that have been let in and have not ended.
type open struct {
	max, maxAll int

	mu     sync.Mutex
	all    map[*connection]struct{}
	of     map[string]int // by token
	shut   error          // why nobody is let in any more
	closed sync.WaitGroup
}

type connection struct {
	contract.Principal
	reads bool // it changes nothing, and goes on elsewhere
	end   context.CancelCauseFunc
}

func newOpen(l Limits) *open {
	return &open{max: l.Connections, maxAll: l.AllConnections, all: map[*connection]struct{}{}, of: map[string]int{}}
}

// enter counts a request in. Its context ends when the principal's time is over, and
// when end or shutdown say so. Decisions, which have a limit of their own, have room even
// if other requests of the token hold all that it may.
func (o *open) enter(ctx context.Context, p contract.Principal, reads bool, use Use) (_ context.Context, leave func(), err *contract.Error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.shut != nil:
		return nil, nil, contract.ErrorOf(o.shut)
	case o.of[p.Name] >= o.max && use != Decision:
		return nil, nil, tooMany("this token has as many connections open as it may (ui.limits.connections)", time.Second)
	case len(o.all) >= o.maxAll:
		return nil, nil, tooMany("there are as many connections as there may be (ui.limits.all_connections)", time.Second)
	}
	ctx, end := context.WithCancelCause(ctx)
	c := &connection{p, reads, end}
	o.all[c] = struct{}{}
	o.of[p.Name]++
	o.closed.Add(1)
	// Not a deadline: that would be sent along with what is asked of others.
	stop := func() bool { return true }
	if !p.Expires.IsZero() {
		stop = time.AfterFunc(time.Until(p.Expires), func() { end(unauthenticated("the token or login has expired; log in again")) }).Stop
	}
	return ctx, func() {
		stop()
		end(nil)
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.all, c)
		if o.of[p.Name]--; o.of[p.Name] == 0 {
			delete(o.of, p.Name)
		}
		o.closed.Done()
	}, nil
}

// end ends those that are meant.
func (o *open) end(meant func(*connection) bool, why error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for c := range o.all {
		if meant(c) {
			c.end(why)
		}
	}
}

func (o *open) len() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.all)
}

// Shutdown lets nobody in any more. What only reads ends at once, with
// [contract.ErrGoingAway] as its context's cause: it goes on after the last id that was
// seen. What was to change something is waited for until ctx ends, and ends then.
func (a *Access) Shutdown(ctx context.Context) error {
	a.open.mu.Lock()
	a.open.shut = contract.ErrGoingAway
	a.open.mu.Unlock()
	a.open.end(func(c *connection) bool { return c.reads }, contract.ErrGoingAway)
	gone := make(chan struct{})
	go func() { a.open.closed.Wait(); close(gone) }()
	select {
	case <-gone:
		return nil
	case <-ctx.Done():
		a.open.end(func(*connection) bool { return true }, contract.ErrGoingAway)
		return ctx.Err()
	}
}
