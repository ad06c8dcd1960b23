package contract

import (
	"context"
	"fmt"
	"sync"
)

// InFlight counts the inputs that a listener has accepted and not finished. Once it
// is shut, [InFlight.Enter] fails. The zero value is shut; [InFlight.Open] opens it once.
type InFlight struct {
	mu     sync.Mutex
	opened bool
	shut   bool
	in     int
	empty  chan struct{} // closed once it is shut and the count is zero
}

// Open lets Enter succeed. It reports false if it was called before.
func (f *InFlight) Open() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.opened {
		return false
	}
	f.opened = true
	return true
}

// Enter counts one more and reports true if the counter is open; [InFlight.Leave] must
// follow.
func (f *InFlight) Enter() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.opened || f.shut {
		return false
	}
	f.in++
	return true
}

// Leave undoes Enter.
func (f *InFlight) Leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.in--
	f.settle()
}

// Shut makes Enter fail from now on and waits until all have left. When ctx ends first,
// the error wraps [ErrNotTaken] and says how many are left.
func (f *InFlight) Shut(ctx context.Context) error {
	f.mu.Lock()
	if f.empty == nil {
		f.empty = make(chan struct{})
	}
	f.shut = true
	f.settle()
	empty := f.empty
	f.mu.Unlock()
	select {
	case <-empty:
		return nil
	default:
	}
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
		f.mu.Lock()
		defer f.mu.Unlock()
		return fmt.Errorf("%w: %d inputs were not acknowledged: %w", ErrNotTaken, f.in, ctx.Err())
	}
}

func (f *InFlight) settle() {
	if !f.shut || f.in > 0 || f.empty == nil {
		return
	}
	select {
	case <-f.empty:
	default:
		close(f.empty)
	}
}
