package hook_test

import (
	"testing"

	"skandha.dev/pkg/hook"
)

func TestPointsHaveTheDefaultsOfTheSpecification(t *testing.T) {
	want := []struct {
		point   hook.Point
		mode    hook.Mode
		onError hook.OnErrorRule
	}{
		{hook.OnAgentStart, hook.Parallel, hook.Allow},
		{hook.BeforeSense, hook.Chain, hook.Allow},
		{hook.AfterSense, hook.Parallel, hook.Allow},
		{hook.BeforePlan, hook.Chain, hook.Allow},
		{hook.AfterPlan, hook.Chain, hook.Allow}, // it modifies the decision
		{hook.BeforeAct, hook.Chain, hook.Deny},  // policy: a hook that is down denies
		{hook.AfterAct, hook.Parallel, hook.Allow},
		{hook.BeforeReflect, hook.Chain, hook.Allow},
		{hook.AfterReflect, hook.Parallel, hook.Allow},
		{hook.OnError, hook.Parallel, hook.Allow},
		{hook.OnAgentStop, hook.Parallel, hook.Allow},
	}
	points := hook.Points()
	if len(points) != len(want) {
		t.Fatalf("there are %d points, want %d", len(points), len(want))
	}
	for i, w := range want {
		p := points[i]
		if p != w.point || p.DefaultMode() != w.mode || p.DefaultOnError() != w.onError {
			t.Errorf("point %d is %s, %s, %s, want %v", i, p, p.DefaultMode(), p.DefaultOnError(), w)
		}
	}
}
