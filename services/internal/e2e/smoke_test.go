package e2e_test

import (
	"testing"

	"skandha.dev/services/internal/e2e/e2etest"
)

func TestATurnThroughProcesses(t *testing.T) {
	s := e2etest.Start(t, e2etest.Options{Cores: 2, Providers: 2, Runners: 2})
	s.Person()
	ref := e2etest.Ref("s")
	seq := s.Do(ref, e2etest.Script{Rounds: []e2etest.Round{
		{{ID: "a", Tool: e2etest.ToolOnce, Args: e2etest.Args{N: 1}}, {ID: "b", Tool: e2etest.ToolAgain, Args: e2etest.Args{N: 2}}},
		{{ID: "c", Tool: e2etest.ToolRisky, Args: e2etest.Args{N: 3}}},
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
