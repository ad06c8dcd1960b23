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

// runtime is what handlers need from the server.
type runtime struct {
	log    *slog.Logger
	plugin subject.Plugin
	caller *bus.Caller // for CallTool
}

// panicError reports to the caller that a handler panicked. The details are only in the log.
func panicError(what string) error {
	return bus.Errorf(bus.CodeInternal, "the handler of %s panicked", what)
}

// contain calls a handler and turns its panic into an error.
func contain[T any](r *runtime, what string, f func() (T, error)) (v T, err error) {
	defer func() {
		if p := recover(); p != nil {
			r.log.Error("handler panicked", "handler", what, "panic", p, "stack", string(debug.Stack()))
			err = panicError(what)
		}
	}()
	return f()
}

// withDeadline adds the deadline in the body of a request to ctx, if there is one.
func withDeadline(ctx context.Context, at time.Time) (context.Context, context.CancelFunc) {
	if has, ok := ctx.Deadline(); ok && has.Before(at.Add(2*time.Millisecond)) {
		return ctx, func() {} // the header has the same deadline, in milliseconds
	}
	if at.IsZero() {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, at)
}

// gate holds requests back until the plugin is registered, and refuses them if that fails.
type gate struct {
	opened  chan struct{}
	refused chan struct{}
}

func newGate() *gate { return &gate{make(chan struct{}), make(chan struct{})} }

// open and refuse are called only by the goroutine of [Serve].
func (g *gate) open() { closeOnce(g.opened) }

func (g *gate) refuse() { closeOnce(g.refused) }

func closeOnce(c chan struct{}) {
	select {
	case <-c:
	default:
		close(c)
	}
}

func (g *gate) pass(ctx context.Context) error {
	select {
	case <-g.opened:
		return nil
	default:
	}
	select {
	case <-g.opened:
		return nil
	case <-g.refused:
		return bus.Errorf(bus.CodeUnavailable, "this process is not registered for the plugin's name")
	case <-ctx.Done():
		return fmt.Errorf("not registered yet: %w", ctx.Err())
	}
}
