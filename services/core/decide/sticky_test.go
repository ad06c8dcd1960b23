package decide_test

import (
	"testing"

	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/internal/executor"
)

const kept = "kept" // the pool of the sticky tool

func (w *world) lease() decide.Lease { return w.state.Leases[kept] }

// given checks that the calls of the round are assigned to the runner.
func (w *world) given(to subject.Instance, calls ...string) {
	w.t.Helper()
	for _, c := range calls {
		if st := w.step(c); st.Status != decide.Assigned || st.Runner != to {
			w.t.Errorf("%s is %s with %q, want it given to %s", c, st.Status, st.Runner, to)
		}
	}
}

// turn stores an input, lets the model call tools, and assigns them to their runners.
func (w *world) turn(toolAndArgs ...string) {
	w.t.Helper()
	w.say("x")
	w.calls(toolAndArgs...)
}

func TestCallsOfAStickyToolGoWhereTheLastOneWent(t *testing.T) {
	w := newWorld(t)
	w.turn("keep", "{}", "keep", "{}", "read", "{}")
	first := w.step("c0").Runner
	w.given(first, "c0", "c1")
	if l := w.lease(); l.ID != w.step("c0").Call || l.Runner != first || l.Ran != "" {
		t.Errorf("the lease is %+v, want it begun by the first call and nothing run", l)
	}
	w.succeed("c0", `1`)
	if l := w.lease(); l.Ran != first {
		t.Errorf("after a call has run the lease is %+v", l)
	}
	w.succeed("c1", `1`)
	w.succeed("c2", `1`)
	w.final("done")

	// Whatever the order of the runners, the next turn's call goes to the same one.
	w.runners = []subject.Instance{"r9", "r2", "r1"}
	w.turn("keep", "{}")
	w.given(first, "c0")
	w.succeed("c0", `1`)
	w.final("done")
}

func TestAStickyCallWaitsForABusyHolderAndLeavesADeadOne(t *testing.T) {
	w := newWorld(t)
	w.turn("keep", "{}")
	w.succeed("c0", `1`)
	w.final("done")
	holder := w.lease().Runner

	w.turn("keep", "{}")
	if retry := w.replied("c0", executor.Answer{State: executor.Refused, Reason: executor.RefusedFull}); !retry {
		t.Errorf("a full holder is not asked again: %+v", w.step("c0"))
	}
	w.given(holder, "c0")

	w.runners = []subject.Instance{"r9"} // the holder has died
	if retry := w.replied("c0", executor.Answer{State: executor.Never}); retry {
		t.Error("nobody took what a dead holder left")
	}
	w.given("r9", "c0")
	if l := w.lease(); l.Runner != "r9" || l.Ran != holder {
		t.Errorf("the lease is %+v, want it to say that %s ran the last call that has ended", l, holder)
	}
	w.succeed("c0", `1`)
	w.final("done")
}

func TestALeaseKnowsWhoRanAndResetEndsIt(t *testing.T) {
	w := newWorld(t)
	w.turn("keep", "{}", "keep", "{}")
	w.result("c0", tool.Failure(tool.CodeInvalidArgs, "it did not run"))
	if l := w.lease(); l.Ran != "" {
		t.Errorf("a call that did not run left %+v", l)
	}
	w.result("c1", tool.Failure(tool.CodeOutcomeUnknown, "it may have run"))
	if l := w.lease(); l.Ran == "" {
		t.Error("a call that may have run is not noted")
	}
	w.final("done")
	w.reload() // from a snapshot
	if w.lease().Ran == "" {
		t.Error("a snapshot loses the lease")
	}
	w.process(w.cause(subject.Command, "web", `{"name":"/reset"}`), nil)
	if l := w.lease(); l != (decide.Lease{}) {
		t.Errorf("after a reset the lease is %+v", l)
	}
}

func TestToolsOfManyPoolsDoNotGrowTheState(t *testing.T) {
	w := newWorld(t)
	for i := range 40 {
		w.tools["keep"].Pool = kept + string(rune('a'+i))
		w.turn("keep", "{}")
		w.succeed("c0", `1`)
		w.final("done")
	}
	if n := len(w.state.Leases); n > 16 {
		t.Errorf("%d leases are kept", n)
	}
}
