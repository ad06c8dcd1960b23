package shell

import (
	"context"
	"errors"
	"sync"
	"time"

	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/store"
)

// viewCheck is how often a view that failed is tried again.
const viewCheck = 2 * time.Second

// viewMark is what is written to find out whether the view can be written again.
const viewMark = "view_probe"

// view is the store of views with its last fault. Turns go on without it, so its errors
// reach people here and nowhere else.
type view struct {
	store.Store

	mu    sync.Mutex
	err   error // nil: it works
	since time.Time
}

// saw notes the outcome of a write.
func (v *view) saw(err error) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case errors.Is(err, store.ErrInvalid), errors.Is(err, context.Canceled):
	case err == nil:
		v.err, v.since = nil, time.Time{}
	default:
		if v.err == nil {
			v.since = time.Now().UTC()
		}
		v.err = err
	}
	return err
}

func (v *view) fault() *coreapi.Fault {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.err == nil {
		return nil
	}
	return &coreapi.Fault{
		What: coreapi.FaultView, Since: v.since,
		Message: "the view cannot be written: " + v.err.Error() + "; turns go on, lists and statistics are out of date; it goes on by itself once the store works",
	}
}

// SetMark implements [store.Store].
func (v *view) SetMark(ctx context.Context, name string, value uint64) error {
	return v.saw(v.Store.SetMark(ctx, name, value))
}

// SaveSnapshot implements [store.Store].
func (v *view) SaveSnapshot(ctx context.Context, key store.Key, s store.Snapshot) error {
	return v.saw(v.Store.SaveSnapshot(ctx, key, s))
}

// RecordTools implements [store.Store].
func (v *view) RecordTools(ctx context.Context, records []store.ToolRecord) ([]store.Key, error) {
	gaps, err := v.Store.RecordTools(ctx, records)
	if err == nil && len(records) == 0 {
		return gaps, nil // nothing was written
	}
	return gaps, v.saw(err)
}

// watch tries a view that failed, until ctx ends.
func (v *view) watch(ctx context.Context) {
	tick := time.NewTicker(viewCheck)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := v.Ping(ctx); err != nil {
			_ = v.saw(err) // told by fault
		} else if v.fault() != nil {
			_ = v.SetMark(ctx, viewMark, uint64(time.Now().Unix())) //nolint:gosec // after 1970
		}
	}
}
