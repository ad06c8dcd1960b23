package e2e_test

import (
	"testing"

	. "skandha.dev/services/test/e2e/e2etest"
)

func TestATurnThroughProcesses(t *testing.T) {
	s := Start(t, Options{Cores: 2, Providers: 2, Runners: 2})
	s.AwaitExecutors(4)
	s.Person()
	ref := Ref("s")
	seq := s.Do(ref, Script{Rounds: []Round{
		{{ID: "a", Tool: ToolOnce, Args: Args{N: 1}}, {ID: "b", Tool: ToolAgain, Args: Args{N: 2}}},
		{{ID: "c", Tool: ToolRisky, Args: Args{N: 3}}},
	}})
	if end := s.Ended(seq); end.Failed != "" {
		t.Errorf("it ended as %+v", end)
	}
	s.AwaitCores(2)
	log := s.Verify()
	if calls := log.CallsOf(seq); len(calls) != 3 {
		t.Errorf("%d calls, want 3", len(calls))
	}
	for _, c := range s.Cores {
		c.Stop()
	}
	if n := s.Views(t); n == 0 {
		t.Error("no core has written a snapshot")
	}
}
