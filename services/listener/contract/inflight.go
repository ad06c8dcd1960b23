package contract

import (
	"context"
	"fmt"
	"sync"
)

// InFlight counts who is in: what a listener has taken and is not done with. Once it
// is shut nobody enters. The zero value is shut; [InFlight.Open] opens it once.
type InFlight struct {
	mu     sync.Mutex
	opened bool
	shut   bool
	in     int
	empty  chan struct{} // closed when the door is shut and nobody is in
}

// Open lets enter. It reports false if the door was opened before.
func (d *InFlight) Open() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.opened {
		return false
	}
	d.opened = true
	return true
}

// Enter reports whether the door is open; then [InFlight.Leave] must follow.
func (d *InFlight) Enter() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.opened || d.shut {
		return false
	}
	d.in++
	return true
}

// Leave undoes Enter.
func (d *InFlight) Leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.in--
	d.settle()
}

// Shut lets nobody enter any more, and waits until all have left. When ctx ends
// first the error wraps [ErrNotTaken] and says how many are in.
func (d *InFlight) Shut(ctx context.Context) error {
	d.mu.Lock()
	if d.empty == nil {
		d.empty = make(chan struct{})
	}
	d.shut = true
	d.settle()
	empty := d.empty
	d.mu.Unlock()
	select {
	case <-empty:
		return nil
	default:
	}
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
		d.mu.Lock()
		defer d.mu.Unlock()
		return fmt.Errorf("%w: %d inputs were not acknowledged: %w", ErrNotTaken, d.in, ctx.Err())
	}
}

func (d *InFlight) settle() {
	if !d.shut || d.in > 0 || d.empty == nil {
		return
	}
	select {
	case <-d.empty:
	default:
		close(d.empty)
	}
}
