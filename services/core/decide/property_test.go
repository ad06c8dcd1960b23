package decide_test

import (
	"os"
	"strconv"
	"testing"
)

// Random histories of one session, with everything that can happen outside. Promise 4 is
// checked at every commit, bit for bit. An observer that reads only the events checks the
// other promises against what the runners really did.
//
// SKANDHA_SEED=n replays one history. SKANDHA_HISTORIES=n runs n histories, beginning
// with SKANDHA_SEED or 1.
func TestPromisesHoldInRandomHistories(t *testing.T) {
	first, many := uint64(1), uint64(300)
	if testing.Short() || raceEnabled {
		many = 40
	}
	if v, set := number(t, "SKANDHA_SEED"); set {
		first, many = v, 1
	}
	if v, set := number(t, "SKANDHA_HISTORIES"); set {
		many = v
	}
	total := newObserver()
	commits := 0
	for seed := first; seed < first+many; seed++ {
		w := history(t, seed)
		commits += len(w.log)
		for c, n := range w.seen.codes {
			total.codes[c] += n
		}
		for c, n := range w.seen.successes {
			total.successes[c] += n
		}
		for c, n := range w.seen.failures {
			total.failures[c] += n
		}
		for c, n := range w.seen.audits {
			total.audits[c] += n
		}
	}
	t.Logf("%d histories from seed %d, %d commits", many, first, commits)
	t.Logf("calls that succeeded: %v", total.successes)
	t.Logf("results without success: %v", total.codes)
	t.Logf("turns without answer: %v", total.failures)
	t.Logf("audited: %v", total.audits)
}

func history(t *testing.T, seed uint64) *world {
	t.Helper()
	w := newWorld(t)
	w.logf("seed %d: SKANDHA_SEED=%d go test -run %s ./core/decide", seed, seed, t.Name())
	defer func() {
		if r := recover(); r != nil {
			for _, line := range w.trace[max(0, len(w.trace)-40):] {
				t.Log(line)
			}
			t.Logf("seed %d panicked", seed)
			panic(r)
		}
	}()
	s := newSimulation(w, seed)
	s.run(40 + s.r.IntN(260))
	s.rest()
	if err := w.seen.finished(s.poisoned); err != nil {
		w.fail("seed %d: at rest: %v", seed, err)
	}
	if err := s.truth(); err != nil {
		w.fail("seed %d: %v", seed, err)
	}
	w.same(w.state, w.rebuild(), "live", "rebuilt")
	w.unchanged()
	return w
}

func number(t *testing.T, env string) (uint64, bool) {
	t.Helper()
	v := os.Getenv(env)
	if v == "" {
		return 0, false
	}
	n, err := strconv.ParseUint(v, 10, 64)
	if err != nil {
		t.Fatalf("%s=%q is no number", env, v)
	}
	return n, true
}
