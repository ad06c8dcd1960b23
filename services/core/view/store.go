package view

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/store"
)

// viewCheck is how often the view is checked.
const viewCheck = 2 * time.Second

// viewMark is the mark that is written to test whether the view can be written again.
const viewMark = "view_probe"

// Store is the store of views, with its last fault. Turns continue without the store, so
// status must report its errors.
type Store struct {
	store.Store

	mu    sync.Mutex
	err   error // nil: it works
	since time.Time
}

// NewStore returns the store with no fault.
func NewStore(s store.Store) *Store { return &Store{Store: s} }

// saw records the result of a write.
func (v *Store) saw(err error) error {
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

// Fault returns the problem of the latest write, or nil.
func (v *Store) Fault() *coreapi.Fault {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.err == nil {
		return nil
	}
	return &coreapi.Fault{
		What: coreapi.FaultView, Since: v.since,
		Message: "cannot write the view: " + v.err.Error() +
			"; turns continue, but lists and statistics are out of date; writing resumes once the store works",
	}
}

// SetMark implements [store.Store].
func (v *Store) SetMark(ctx context.Context, name string, value uint64) error {
	return v.saw(v.Store.SetMark(ctx, name, value))
}

// SaveSnapshot implements [store.Store].
func (v *Store) SaveSnapshot(ctx context.Context, key store.Key, s store.Snapshot) error {
	return v.saw(v.Store.SaveSnapshot(ctx, key, s))
}

// RecordTools implements [store.Store].
func (v *Store) RecordTools(ctx context.Context, records []store.ToolRecord) ([]store.Key, error) {
	gaps, err := v.Store.RecordTools(ctx, records)
	if err == nil && len(records) == 0 {
		return gaps, nil // nothing was written
	}
	return gaps, v.saw(err)
}

// Watch checks the view until ctx ends. After a failure it also tries to write.
func (v *Store) Watch(ctx context.Context, log *slog.Logger) {
	tick := time.NewTicker(viewCheck)
	defer tick.Stop()
	for down := false; ; {
		err := v.Ping(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			_ = v.saw(err) // reported by Fault
			if !down {
				log.Warn("the view does not respond; core continues without it and completes it from the log later", "error", err)
			}
		case down:
			log.Info("the view responds again")
		}
		if down = err != nil; !down && v.Fault() != nil {
			_ = v.SetMark(ctx, viewMark, uint64(time.Now().Unix())) //nolint:gosec // after 1970
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
