package decide_test

import (
	"strings"
	"testing"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/internal/executor"
)

// times returns how many times a call was assigned to a runner.
func (w *world) times(call string) (n int) {
	w.t.Helper()
	for _, p := range events[event.ActRequested](w) {
		if strings.HasSuffix(p.Call, call) {
			n++
		}
	}
	return n
}

// lastVerdictOn returns the last audited decision about a call.
func (w *world) lastVerdictOn(call string) (last event.Audited) {
	w.t.Helper()
	for _, p := range events[event.Audited](w) {
		if p.Action == event.ActionCall && strings.HasSuffix(p.Call, call) {
			last = p
		}
	}
	return last
}

func rules(e decide.Effect, reason string) func(decide.Access) decide.Ruling {
	return func(decide.Access) decide.Ruling {
		return decide.Ruling{
			Effect: e, Rule: "policy[9]", Reason: reason, Warning: &hook.Warning{Level: hook.LevelWarn, Message: reason},
		}
	}
}

// A call that is assigned later than it was judged is checked again: a call that policy
// denies by then never reaches a runner, even if a person approved it.
func TestTheGateHoldsForWhatIsGivenOutLater(t *testing.T) {
	refusal := executor.Answer{State: executor.Refused, Reason: executor.RefusedDraining}
	t.Run("approved when no runner was free, and denied by now", func(t *testing.T) {
		w, _ := asking(t)
		runners := w.runners
		w.runners = nil
		w.confirm("c0", true)
		if w.status("c0") != decide.Approved || w.times("c0") != 0 {
			t.Fatalf("%s", w.status("c0"))
		}
		w.policy, w.runners = rules(decide.Deny, "not any more"), runners
		w.progress()
		w.codes(map[string]tool.Code{"c0": tool.CodeDenied})
		if v := w.lastVerdictOn("c0"); w.times("c0") != 0 || v.Effect != decide.Deny || v.Rule != "policy[9]" ||
			v.Reason != "not any more" {
			t.Fatalf("given %d times; %+v", w.times("c0"), v)
		}
	})
	t.Run("denied between the question and the approval", func(t *testing.T) {
		w, _ := asking(t)
		w.policy = rules(decide.Deny, "not any more")
		w.confirm("c0", true)
		w.codes(map[string]tool.Code{"c0": tool.CodeDenied})
		if w.times("c0") != 0 {
			t.Fatal("it ran")
		}
	})
	t.Run("what was approved runs, also if policy still asks, and if it asks no more", func(t *testing.T) {
		for _, e := range []decide.Effect{decide.Ask, decide.Allow} {
			w, _ := asking(t)
			w.policy = rules(e, "so be it")
			w.confirm("c0", true)
			if w.times("c0") != 1 {
				t.Fatalf("%s: %s", e, w.status("c0"))
			}
		}
	})
	for _, c := range []struct {
		name   string
		effect decide.Effect
		says   string
	}{
		{"denied before the next attempt", decide.Deny, "not any more"},
		{"asked about before the next attempt", decide.Ask, "was not requested"},
		{"ruled on in no known way", "shrug", "shrug"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.say("x")
			w.calls("write", `{"text":"a"}`)
			w.policy = rules(c.effect, "not any more")
			w.replied("c0", refusal)
			w.codes(map[string]tool.Code{"c0": tool.CodeDenied})
			if v := w.lastVerdictOn("c0"); w.times("c0") != 1 || v.Effect != decide.Deny || !strings.Contains(v.Reason, c.says) {
				t.Fatalf("given %d times; %+v", w.times("c0"), v)
			}
		})
	}
	t.Run("a new attempt of what is granted", func(t *testing.T) {
		w := wary(t)
		w.calls("read", `{"path":"drafts/a.txt"}`)
		w.approve("c0", w.wide("c0"))
		w.succeed("c0", `1`)
		w.calls("read", `{"path":"drafts/b.txt"}`)
		w.replied("c0", refusal)
		if w.times("p2-c0") != 2 {
			t.Fatalf("given %d times", w.times("p2-c0"))
		}
	})
	t.Run("what may have run is not said to have been denied", func(t *testing.T) {
		w := newWorld(t)
		w.say("x")
		w.calls("read", `{"path":"a"}`)
		w.policy = rules(decide.Deny, "not any more")
		st := w.step("c0")
		d, _ := decide.OnUnreachable(w.state, w.state.Driver, st.Call, st.Attempt, w.env())
		w.commit(d, w.state.Driver)
		w.codes(map[string]tool.Code{"c0": tool.CodeOutcomeUnknown})
	})
}

// Policy may restrict who answers. Any other writer is refused like every answer
// that does not count, and the request waits for one who may.
func TestWhoMayAnswer(t *testing.T) {
	w, _ := asking(t)
	var got decide.Access
	w.answers = func(a decide.Access) decide.Ruling {
		if got = a; a.Principal == "boss" {
			return decide.Ruling{Effect: decide.Allow}
		}
		return decide.Ruling{Effect: decide.Deny, Rule: "policy[4]", Reason: "only the boss approves"}
	}
	st := w.step("c0")
	answer := func(by subject.Writer, approved bool) {
		w.process(w.cause(subject.Confirmation, by, string(mustJSON(event.Confirmation{
			ConfirmationID: st.Call, Hash: st.Hash, Approved: approved, Source: "page",
		}))), nil)
	}
	for _, approved := range []bool{true, false} {
		before := *w.state
		answer("web", approved)
		if p := w.refused(before, st.Call, st.Hash); p.Rule != "policy[4]" || p.Reason != "only the boss approves" {
			t.Fatalf("%+v", p)
		}
	}
	if at := got.Context; got.Action != event.ActionConfirmation || got.Principal != "web" ||
		got.Resource.Name != st.Tool ||
		got.Resource.Risk != tool.RiskHigh || string(at.Args) != string(st.Final) || at.Call != st.Call || at.Turn != "t1" ||
		at.Ref != ref || at.Source != "page" {
		t.Fatalf("policy was asked %+v", got)
	}
	answer("boss", true)
	if c := events[event.ActConfirmed](w); len(c) != 1 || c[0].By != "boss" || w.times("c0") != 1 {
		t.Fatalf("%+v", c)
	}
}
