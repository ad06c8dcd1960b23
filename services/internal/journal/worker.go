package journal

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// worker is a goroutine that calls a handler until it is stopped, or until the bus is closed.
type worker struct {
	j       *Journal
	handler string        // of what, for errors
	kicked  chan struct{} // the connection was re-established
	stopped chan struct{}
	stopOne sync.Once
	done    chan struct{} // closed by the goroutine when it ends
}

func (j *Journal) newWorker(handler string) *worker {
	return &worker{
		j: j, handler: handler, kicked: make(chan struct{}, 1), stopped: make(chan struct{}), done: make(chan struct{}),
	}
}

// kick makes a waiting worker start again immediately.
func (w *worker) kick() {
	select {
	case w.kicked <- struct{}{}:
	default: // a kick is pending already
	}
}

// stop ends the worker and waits until its handler has returned.
func (w *worker) stop() { _ = w.drain(context.Background()) }

func (w *worker) drain(ctx context.Context) error {
	w.stopOne.Do(func() { close(w.stopped) })
	select {
	case <-w.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for the handler of %s: %w", w.handler, ctx.Err())
	}
}

// over reports whether the worker was stopped.
func (w *worker) over() bool {
	select {
	case <-w.stopped:
		return true
	case <-w.j.Closed():
		return true
	default:
		return false
	}
}

// pause waits for d, or until the worker is kicked or stopped.
func (w *worker) pause(d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-w.stopped:
	case <-w.j.Closed():
	case <-w.kicked:
	case <-t.C:
	}
}
