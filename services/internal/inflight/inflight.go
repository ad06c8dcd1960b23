// Package inflight keeps account of what a server has accepted and not finished: requests,
// connections, inputs. A server that stops closes its group, so that nothing more is
// accepted, ends what can continue elsewhere, and waits for the rest.
package inflight

import (
	"context"
	"sync"
)

// Group holds accepted work, each piece with a value that says what it is. The zero value
// is open and empty. It is safe for concurrent use.
type Group[T any] struct {
	mu     sync.Mutex
	work   map[*piece[T]]struct{}
	closed error         // why nothing more is accepted; nil: the group is open
	empty  chan struct{} // closed once the group is closed and empty
}

type piece[T any] struct {
	what T
	end  context.CancelCauseFunc
}

// Enter adds a piece of work. Its context ends with ctx, by [Group.End], and with leave,
// which must be called when the work is finished. Of a closed group the error is the
// reason that was given to [Group.Close].
func (g *Group[T]) Enter(ctx context.Context, what T) (work context.Context, leave func(), err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed != nil {
		return nil, nil, g.closed
	}
	if g.work == nil {
		g.work = map[*piece[T]]struct{}{}
	}
	work, end := context.WithCancelCause(ctx)
	p := &piece[T]{what, end}
	g.work[p] = struct{}{}
	return work, func() {
		end(nil)
		g.mu.Lock()
		defer g.mu.Unlock()
		if _, in := g.work[p]; in {
			delete(g.work, p)
			g.settle()
		}
	}, nil
}

// Len returns the number of pieces.
func (g *Group[T]) Len() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.work)
}

// End ends the contexts of matching pieces with a cause. They stay in the group until they
// leave.
func (g *Group[T]) End(match func(T) bool, why error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for p := range g.work {
		if match(p.what) {
			p.end(why)
		}
	}
}

// Close accepts nothing more; why is the error of Enter from now on.
func (g *Group[T]) Close(why error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.close(why)
}

// Drain closes the group and waits until it is empty, or returns ctx's error if ctx ends
// first.
func (g *Group[T]) Drain(ctx context.Context, why error) error {
	g.mu.Lock()
	g.close(why)
	empty := g.empty
	g.mu.Unlock()
	select {
	case <-empty:
		return nil
	default:
	}
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (g *Group[T]) close(why error) {
	if g.closed == nil {
		g.closed, g.empty = why, make(chan struct{})
		g.settle()
	}
}

// settle reports that a closed group is empty. Nothing enters it any more, so this happens
// once.
func (g *Group[T]) settle() {
	if g.closed != nil && len(g.work) == 0 {
		close(g.empty)
	}
}
