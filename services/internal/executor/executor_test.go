package executor_test

import (
	"testing"

	"skandha.dev/services/internal/executor"
)

func TestAllStatesButRunningAreFinal(t *testing.T) {
	for s, want := range map[executor.State]bool{
		executor.Running: false, executor.Finished: true, executor.Never: true,
		executor.Refused: true, executor.Stopped: true, executor.Unknown: true,
	} {
		if s.Final() != want {
			t.Errorf("%s: final is %t", s, s.Final())
		}
	}
}

func TestTheTimesOfTheProtocolFitTogether(t *testing.T) {
	if executor.AnnounceTTL < 3*executor.AnnounceEvery {
		t.Errorf("an executor is forgotten after %v, before three announcements (every %v) are lost", executor.AnnounceTTL,
			executor.AnnounceEvery)
	}
	if executor.StartWithin <= 2*executor.Skew {
		t.Errorf("start_by is %v away, which clocks that differ by %v make nothing of", executor.StartWithin, executor.Skew)
	}
}
