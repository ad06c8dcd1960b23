package inflight_test

import (
	"context"
	"errors"
	"testing"

	"skandha.dev/services/internal/inflight"
)

var errStopping = errors.New("stopping")

func enter(t *testing.T, g *inflight.Group[string], what string) (context.Context, func()) {
	t.Helper()
	ctx, leave, err := g.Enter(t.Context(), what)
	if err != nil {
		t.Fatal(err)
	}
	return ctx, leave
}

func TestOnlyMatchingWorkEnds(t *testing.T) {
	var g inflight.Group[string]
	a, leaveA := enter(t, &g, "a")
	b, leaveB := enter(t, &g, "b")
	g.End(func(s string) bool { return s == "a" }, errStopping)
	if !errors.Is(context.Cause(a), errStopping) || b.Err() != nil || g.Len() != 2 {
		t.Errorf("a ended with %v, b with %v, %d are left", context.Cause(a), b.Err(), g.Len())
	}
	leaveA()
	leaveB()
	if b.Err() == nil || g.Len() != 0 {
		t.Errorf("after leaving, b ended with %v, %d are left", b.Err(), g.Len())
	}
}

func TestDrainWaitsForAllAndLetsNobodyIn(t *testing.T) {
	var g inflight.Group[string]
	_, leaveA := enter(t, &g, "a")
	_, leaveB := enter(t, &g, "b")
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := g.Drain(over, errStopping); !errors.Is(err, context.Canceled) {
		t.Errorf("draining in no time: %v", err)
	}
	if _, _, err := g.Enter(t.Context(), "c"); !errors.Is(err, errStopping) {
		t.Errorf("entering a closed group: %v", err)
	}
	drained := make(chan error, 1)
	go func() { drained <- g.Drain(t.Context(), errors.New("another reason")) }()
	leaveA()
	select {
	case err := <-drained:
		t.Fatalf("drained before all had left: %v", err)
	default:
	}
	leaveB()
	if err := <-drained; err != nil {
		t.Errorf("draining: %v", err)
	}
	if err := g.Drain(over, errStopping); err != nil {
		t.Errorf("draining an empty group in no time: %v", err)
	}
}

func TestAnEmptyGroupDrainsAtOnce(t *testing.T) {
	var g inflight.Group[string]
	g.Close(errStopping)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := g.Drain(over, errStopping); err != nil {
		t.Error(err)
	}
}
