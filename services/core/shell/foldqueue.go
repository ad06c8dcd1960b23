package shell

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
)

// foldQueue serves the requests that need a session folded from the log. Only a few run at a
// time, with a pause after each, so that turns are not delayed. Requests for the same
// session share a fold that has not begun. They do not join one that is running, because
// its answer may be older than the request.
type foldQueue struct {
	ctx context.Context //nolint:containedctx // outlives the requests
	// yield pauses in favour of turns.
	yield func(ctx context.Context, begun time.Time) bool

	slots chan struct{}

	mu      sync.Mutex
	waiting map[foldKey]*fold
}

const (
	foldsAtOnce  = 2
	foldsWaiting = 200
)

type foldKey struct {
	verb string
	ref  subject.Ref
}

// fold is one answer, shared by all requests that wait for it.
type fold struct {
	done   chan struct{}
	answer json.RawMessage
	err    error
}

func newFoldQueue(ctx context.Context, yield func(ctx context.Context, begun time.Time) bool) *foldQueue {
	return &foldQueue{ctx: ctx, yield: yield, slots: make(chan struct{}, foldsAtOnce), waiting: map[foldKey]*fold{}}
}

// do returns the result of work as JSON, or an error if too many requests wait.
func (f *foldQueue) do(ctx context.Context, key foldKey, work func(context.Context) (any, error)) (any, error) {
	w, mine := f.join(key)
	switch {
	case w == nil:
		return nil, bus.Errorf(bus.CodeOverloaded,
			"%d requests wait for sessions to be folded from the log, which is the limit; try again later", foldsWaiting)
	case mine:
		f.run(key, w, work)
	}
	select {
	case <-w.done:
		return w.answer, w.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// join returns the waiting fold, or a new one, which the caller must run. It returns nil
// if too many wait.
func (f *foldQueue) join(key foldKey) (w *fold, mine bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if w := f.waiting[key]; w != nil || len(f.waiting) >= foldsWaiting {
		return w, false
	}
	w = &fold{done: make(chan struct{}), err: bus.Errorf(bus.CodeInternal, "folding %s failed; see core's log", key.ref)}
	f.waiting[key] = w
	return w, true
}

func (f *foldQueue) leave(key foldKey) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.waiting, key)
}

// run does the work for all requests that have joined, even if the first one is cancelled.
// If it panics, the others get the error set by join.
func (f *foldQueue) run(key foldKey, w *fold, work func(context.Context) (any, error)) {
	defer close(w.done)
	select {
	case f.slots <- struct{}{}:
		f.leave(key)
	case <-f.ctx.Done():
		f.leave(key)
		w.err = bus.Errorf(bus.CodeUnavailable, "core is stopping")
		return
	}
	begun := time.Now()
	defer func() {
		go func() {
			f.yield(f.ctx, begun)
			<-f.slots
		}()
	}()
	v, err := work(f.ctx)
	if err == nil {
		w.answer, err = json.Marshal(v)
	}
	w.err = err
}
