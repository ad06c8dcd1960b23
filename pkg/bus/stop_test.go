package bus

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

// A stop is sent on another subject than its request, and may overtake it.
func TestAStopIsKeptForARequestThatArrivesAfterIt(t *testing.T) {
	s := &stops{open: map[string]context.CancelCauseFunc{}}
	s.end("first")
	for i := range earlyStops - 1 {
		s.end(fmt.Sprint(i))
	}
	ctx, forget := s.watch(t.Context(), "first")
	if !errors.Is(context.Cause(ctx), ErrCancelled) {
		t.Errorf("the request was stopped, and its context has %v", context.Cause(ctx))
	}
	forget()
	for i := range 2 * earlyStops {
		s.end(fmt.Sprint(i))
	}
	if len(s.early) != earlyStops || len(s.open) != 0 {
		t.Errorf("%d stops and %d requests are kept", len(s.early), len(s.open))
	}
	if ctx, forget := s.watch(t.Context(), "0"); ctx.Err() != nil {
		t.Error("a stop is kept for ever")
	} else {
		forget()
	}
}
