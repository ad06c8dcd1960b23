package storm_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	. "skandha.dev/services/test/e2e/e2etest"
)

// end is an input that has ended.
type end struct {
	seq, commit uint64
	session     string
	said, at    time.Time
}

// endsOf lists the ends in log order.
func endsOf(log *Log) []end {
	stored := map[uint64]Entry{}
	for _, e := range log.Entries {
		stored[e.Seq] = e
	}
	var out []end
	for seq, list := range log.Terminals {
		in := stored[seq]
		for _, term := range list {
			out = append(out,
				end{seq: seq, commit: term.Commit, session: in.Session(), said: in.Time, at: stored[term.Commit].Time})
		}
	}
	slices.SortFunc(out, func(a, b end) int { return cmp.Compare(a.commit, b.commit) })
	return out
}

// window is a time from which figures are taken.
type window struct{ from, to time.Time }

func (w window) has(at time.Time) bool { return !at.Before(w.from) && at.Before(w.to) }

// rate is how many inputs ended in the window, in all and a second.
func (w window) rate(ends []end) (n int, perSecond float64) {
	for _, e := range ends {
		if w.has(e.at) {
			n++
		}
	}
	return n, float64(n) / w.to.Sub(w.from).Seconds()
}

// falseEnds are failures that blame the agent, the session or the model for a fault of
// the infrastructure.
var falseEnds = []string{"poison", "no_provider", "session_locked", "circuit_open"}

// judge verifies the system, asserts that no input ended with a false reason, and
// prints figures.
func judge(t *testing.T, s *System) *Log {
	t.Helper()
	log := s.Verify()
	ends, results, attempts := map[string]int{}, map[string]int{}, 0
	shown := 0
	for seq, list := range log.Terminals {
		for _, e := range list {
			ends[cmp.Or(e.Failed, "recorded")]++
			if slices.Contains(falseEnds, e.Failed) && shown < 5 {
				shown++
				t.Errorf("input %d ended in commit %d as %s: %s", seq, e.Commit, e.Failed, e.Reason)
			}
		}
	}
	for _, k := range log.Calls {
		attempts += len(k.Requested)
		for _, r := range k.Results {
			results[strings.TrimPrefix(k.Tool, "e2e:")+" "+r]++
			if r == "unknown_tool" && shown < 10 {
				shown++
				t.Errorf("a call of %s in %s ended as %s, and the tool was there all the time", k.Tool, k.Session, r)
			}
		}
	}
	for _, e := range falseEnds {
		if ends[e] > 0 {
			t.Errorf("%d inputs ended falsely: %s", ends[e], e)
		}
	}
	t.Logf("%d messages in the log; inputs ended: %v", len(log.Entries), ends)
	t.Logf("%d calls with %d attempts ended: %v", len(log.Calls), attempts, results)
	return log
}

// quantiles is p50, p90 and max of durations.
func quantiles(list []time.Duration) string {
	if len(list) == 0 {
		return "none"
	}
	list = slices.Sorted(slices.Values(list))
	at := func(q float64) time.Duration { return list[int(q*float64(len(list)-1))].Round(10 * time.Millisecond) }
	return fmt.Sprintf("p50 %v, p90 %v, max %v (%d)", at(.5), at(.9), at(1), len(list))
}
