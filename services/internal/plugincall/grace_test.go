package plugincall

import (
	"testing"
	"time"
)

func TestTheWholeGraceIsGiven(t *testing.T) {
	const grace = 10
	start := time.Now()
	type step struct {
		at       time.Duration
		left     int
		core     bool
		wantOver bool
	}
	for name, steps := range map[string][]step{
		"no sooner": {{0, 0, true, false}, {9, 0, true, false}, {10, 0, true, true}},
		"and no core, no conclusion, however long": {{0, 0, false, false}, {100, 0, false, false}, {1000, 0, false, false}},
		"after a core is back": {
			{0, 0, false, false}, {100, 0, true, false}, {109, 0, true, false}, {110, 0, true, true},
		},
		"after a core was away": {
			{0, 0, true, false}, {9, 0, false, false}, {11, 0, true, false}, {20, 0, true, false}, {21, 0, true, true},
		},
		"after a replica was there again": {
			{0, 0, true, false}, {9, 1, true, false}, {11, 0, true, false}, {20, 0, true, false}, {21, 0, true, true},
		},
	} {
		v := gracePeriod{grace: grace}
		for _, s := range steps {
			now := start.Add(s.at)
			if ask := v.observe(now, s.left); ask != (s.left == 0) {
				t.Errorf("%s: at %d: with %d left a core matters: %t", name, s.at, s.left, ask)
			}
			if over := v.over(now, s.core, s.left); over != s.wantOver {
				t.Errorf("%s: at %d: over: %t", name, s.at, over)
			}
		}
	}
	// A replica that registered while the core was asked counts.
	v := gracePeriod{grace: grace}
	v.observe(start, 0)
	if v.over(start.Add(grace), true, 1) {
		t.Error("it is over although a replica is left")
	}
}
