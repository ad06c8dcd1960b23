package decide_test

import (
	"testing"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/internal/executor"
)

// A refused call is tried again before its pause ends if a new executor can run it.
func TestARefusedCallIsTriedAgainOnArrival(t *testing.T) {
	w := newWorld(t)
	w.say("x")
	w.calls("write", `{"text":"x"}`)
	refused := executor.Answer{State: executor.Refused, Reason: executor.RefusedUnknown}
	for range 5 { // the next pause is 4 s
		w.heard, w.now = w.now, w.now.Add(5*time.Second)
		w.replied("c0", refused)
	}
	before := w.step("c0").Attempts
	w.heard = w.now
	w.arrived = w.now.Add(time.Second)
	for _, c := range []struct {
		after time.Duration
		tried bool
	}{{1050 * time.Millisecond, false}, {1100 * time.Millisecond, true}} {
		w.now = w.heard.Add(c.after)
		w.replied("c0", refused)
		if tried := w.step("c0").Attempts > before; tried != c.tried {
			t.Fatalf("after %v tried again: %t", c.after, tried)
		}
	}
}

// nobody can run, whatever its own timeout.
func TestACallWhoseOnlyRunnerStopped(t *testing.T) {
	for name, stops := range map[string]func(*world){
		"and handed it back": func(w *world) { w.replied("c0", executor.Answer{State: executor.Never}) },
		"and cannot be asked": func(w *world) {
			st := w.step("c0")
			if d, _ := decide.OnUnreachable(w.state, w.state.Driver, st.Call, st.Attempt, w.env()); d != nil {
				w.commit(d, w.state.Driver)
			}
		},
		"and took no more calls": func(w *world) {
			w.replied("c0", executor.Answer{State: executor.Refused, Reason: executor.RefusedDraining})
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.tools["read"].TimeoutMS = 600_000
			w.say("x")
			w.calls("read", `{}`)
			w.tools["read"].gone, w.goneSince = true, w.now
			stops(w)
			w.now = w.now.Add(29 * time.Second)
			if stops(w); w.step("c0").Status == decide.Done {
				t.Fatal("it has ended early")
			}
			w.now = w.now.Add(time.Second)
			stops(w)
			if r := w.resultOf("c0"); r.Success {
				t.Fatalf("%+v", r)
			}
		})
	}
}

// longer than a dead plugin keeps its lease.
func TestRefusedAttemptsPause(t *testing.T) {
	const step = 50 * time.Millisecond
	for name, runners := range map[string][]subject.Instance{"one runner": {"r1"}, "two runners": {"r1", "r2"}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.runners = runners
			w.say("x")
			w.calls("write", `{"text":"x"}`)
			began := w.now
			w.heard = w.now
			var pauses []time.Duration
			for w.state.Turn.Plan == nil { // until the model gets the result
				before := w.step("c0").Attempts
				w.replied("c0",
					executor.Answer{State: executor.Refused, Reason: executor.RefusedUnknown, Message: "nobody listens"})
				if w.state.Turn.Plan == nil && w.step("c0").Attempts == before {
					w.now = w.now.Add(step)
					continue
				}
				pauses = append(pauses, w.now.Sub(w.heard))
				w.heard = w.now
			}
			for i := 1; i < len(pauses)-1; i++ {
				if pauses[i] < pauses[i-1] || pauses[i] == 0 {
					t.Fatalf("pauses are %v", pauses)
				}
			}
			if all := w.now.Sub(began); len(pauses) != 8 || pauses[0] > 250*time.Millisecond || all < 15*time.Second ||
				all > 20*time.Second {
				t.Errorf("pauses are %v, %v in all", pauses, w.now.Sub(began))
			}
			if len(runners) == 2 && pauses[0] != 0 {
				t.Error("the other runner is not asked at once")
			}
			w.codes(map[string]tool.Code{"c0": tool.CodeNotRun})
		})
	}
}

func TestAToolThatNobodyOffersAnyMore(t *testing.T) {
	t.Run("comes back in time", func(t *testing.T) {
		w := newWorld(t)
		w.say("x")
		w.tools["write"].gone = true
		w.calls("write", `{"text":"x"}`)
		if w.status("c0") != decide.Waiting {
			t.Fatal("the call did not wait")
		}
		w.tools["write"].gone = false
		w.progress()
		if w.status("c0") != decide.Assigned {
			t.Fatal("the call does not run")
		}
	})
	t.Run("comes back with a schema that the arguments do not fit", func(t *testing.T) {
		w := newWorld(t)
		w.say("x")
		w.tools["write"].gone = true
		w.calls("write", `{"txet":"x"}`)
		w.tools["write"].gone = false
		w.progress()
		w.codes(map[string]tool.Code{"c0": tool.CodeInvalidArgs})
	})
	t.Run("does not come back: it did not run", func(t *testing.T) {
		w := newWorld(t)
		w.say("x")
		w.tools["write"].gone = true
		w.calls("write", `{"text":"x"}`, "read", `{}`)
		w.now = w.now.Add(20 * time.Second)
		w.succeed("c1", `1`)
		w.now = w.now.Add(29 * time.Second)
		if w.progress() {
			t.Fatal("too early: something came in 29 s ago")
		}
		w.now = w.now.Add(time.Second)
		w.progress()
		w.codes(map[string]tool.Code{"c0": tool.CodeNotRun})
	})
	t.Run("after an approval, a runner gets its time to come back", func(t *testing.T) {
		w, _ := asking(t)
		w.now = w.now.Add(10 * time.Minute)
		w.tools["mail:send"].gone = true
		w.confirm("c0", true)
		if w.progress() {
			t.Fatal("an approved call was given up at once")
		}
		w.now = w.now.Add(30 * time.Second)
		w.progress()
		w.codes(map[string]tool.Code{"c0": tool.CodeNotRun})
	})
}
