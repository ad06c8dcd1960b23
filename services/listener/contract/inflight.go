package contract

import (
	"context"
	"fmt"
	"sync/atomic"

	"skandha.dev/services/internal/inflight"
)

// InFlight holds the inputs that a listener has accepted and not finished. Once it is shut,
// [InFlight.Enter] fails. The zero value is shut; [InFlight.Open] opens it once.
type InFlight struct {
	opened atomic.Bool
	inputs inflight.Group[struct{}]
}

// Open lets Enter succeed. It reports false if it was called before.
func (f *InFlight) Open() bool { return f.opened.CompareAndSwap(false, true) }

// Enter adds one and reports true if the listener accepts inputs; leave must then be called
// when the input is finished.
func (f *InFlight) Enter() (leave func(), ok bool) {
	if !f.opened.Load() {
		return nil, false
	}
	_, leave, err := f.inputs.Enter(context.Background(), struct{}{})
	return leave, err == nil
}

// Shut makes Enter fail from now on and waits until all have left. When ctx ends first,
// the error wraps [ErrNotTaken] and says how many are left.
func (f *InFlight) Shut(ctx context.Context) error {
	if err := f.inputs.Drain(ctx, ErrNotTaken); err != nil {
		return fmt.Errorf("%w: %d inputs were not acknowledged: %w", ErrNotTaken, f.inputs.Len(), err)
	}
	return nil
}
