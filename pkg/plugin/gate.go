package plugin

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
)

// room is what handlers stand in.
type room struct {
	log    *slog.Logger
	plugin subject.Plugin
	caller *bus.Caller // for CallTool
}

// panicError is what a handler panicked with. The asker is told no more than that
// it did; the rest is in the log.
func panicError(what string) error {
	return bus.Errorf(bus.CodeInternal, "the handler of %s panicked", what)
}

// contain calls a handler and turns its panic into an error.
func contain[T any](r *room, what string, f func() (T, error)) (v T, err error) {
	defer func() {
		if p := recover(); p != nil {
			r.log.Error("a handler panicked", "handler", what, "panic", p, "stack", string(debug.Stack()))
			err = panicError(what)
		}
	}()
	return f()
}

// until is ctx with the deadline that the body of a request states, if it does.
func until(ctx context.Context, at time.Time) (context.Context, context.CancelFunc) {
	if has, ok := ctx.Deadline(); ok && has.Before(at.Add(2*time.Millisecond)) {
		return ctx, func() {} // the header says the same, in milliseconds
	}
	if at.IsZero() {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, at)
}

// door stands before the handlers until the registry has let the plugin in: what
// is asked before is held, and turned away if it never comes to that.
type door struct {
	opened  chan struct{}
	refused chan struct{}
}

func newDoor() *door { return &door{make(chan struct{}), make(chan struct{})} }

// open and refuse are called by the goroutine of [Serve] alone.
func (d *door) open() { closeOnce(d.opened) }

func (d *door) refuse() { closeOnce(d.refused) }

func closeOnce(c chan struct{}) {
	select {
	case <-c:
	default:
		close(c)
	}
}

func (d *door) pass(ctx context.Context) error {
	select {
	case <-d.opened:
		return nil
	default:
	}
	select {
	case <-d.opened:
		return nil
	case <-d.refused:
		return bus.Errorf(bus.CodeUnavailable, "this process is not registered for the plugin's name")
	case <-ctx.Done():
		return fmt.Errorf("not registered yet: %w", ctx.Err())
	}
}
