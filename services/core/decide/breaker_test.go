package decide_test

import (
	"fmt"
	"strings"
	"testing"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/internal/executor"
)

// The consequences of tool failures.
func TestBreakers(t *testing.T) {
	fail := func(w *world, n int) {
		for i := range n {
			w.calls("write", fmt.Sprintf(`{"text":"%d"}`, i))
			w.result("c0", tool.Failure(tool.CodeFailed, "broken"))
		}
	}
	t.Run("three times the same: the model is warned", func(t *testing.T) {
		w := newWorld(t)
		w.say("x")
		for i := 1; i <= 3; i++ {
			w.calls("write", `{"text":"same"}`)
			w.result("c0", tool.Failure(tool.CodeFailed, "broken"))
			msgs := w.said()
			warned := strings.Contains(msgs[len(msgs)-1].Text, "has failed 3 times in a row")
			if warned != (i == 3) {
				t.Fatalf("after %d failures warned: %t: %s", i, warned, msgs[len(msgs)-1].Text)
			}
		}
	})
	t.Run("another call in between: it is not", func(t *testing.T) {
		w := newWorld(t)
		w.say("x")
		for _, text := range []string{"a", "a", "b", "a"} {
			w.calls("write", fmt.Sprintf(`{"text":%q}`, text))
			w.result("c0", tool.Failure(tool.CodeFailed, "broken"))
		}
		for _, a := range events[event.ActCompleted](w) {
			if a.Note != "" {
				t.Fatal(a.Note)
			}
		}
	})
	t.Run("a denial is nobody's failure", func(t *testing.T) {
		w := newWorld(t)
		w.say("x")
		for range 7 {
			w.calls("forbidden", `{}`)
		}
		if b := w.state.Breaker; b.Consecutive != 0 || len(b.Recent) != 0 {
			t.Fatalf("%+v", b)
		}
		for _, a := range events[event.ActCompleted](w) {
			if a.Note != "" {
				t.Fatal(a.Note)
			}
		}
	})
	t.Run("ending what runs is nobody's failure", func(t *testing.T) {
		w := newWorld(t)
		in := w.say("x")
		w.calls("write", `{"text":"1"}`, "write", `{"text":"2"}`, "write", `{"text":"3"}`)
		done := w.step("c2")
		failed := tool.Failure(tool.CodeFailed, "broken")
		w.process(w.cause(subject.Cancel, "web", fmt.Sprintf(`{"sequence":%d}`, in.Sequence)), decide.Closings{
			done.Call: {Answer: executor.Answer{Attempt: done.Attempt, State: executor.Finished, Result: &failed}},
		})
		w.codes(map[string]tool.Code{"c0": tool.CodeOutcomeUnknown, "c1": tool.CodeOutcomeUnknown, "c2": tool.CodeFailed})
		if b := w.state.Breaker; b.Consecutive != 1 || len(b.Recent) != 1 {
			t.Fatalf("only what had failed counts: %+v", b)
		}
	})
	t.Run("five in a row: a person is asked, and may let it go on", func(t *testing.T) {
		w := newWorld(t)
		w.say("x")
		fail(w, 4)
		w.calls("write", `{"text":"fine"}`)
		if w.status("c0") != decide.Assigned {
			t.Fatal("a person was asked after four")
		}
		w.result("c0", tool.Failure(tool.CodeFailed, "broken"))
		w.calls("write", `{"text":"sixth"}`)
		if st := w.step("c0"); st.Status != decide.Confirming ||
			!strings.Contains(st.Warning.Message, "last 5 tool calls failed") {
			t.Fatalf("%+v", st)
		}
		w.confirm("c0", true)
		w.succeed("c0", `1`)
		w.calls("write", `{"text":"seventh"}`)
		if w.status("c0") != decide.Assigned {
			t.Fatal("a person is still asked")
		}
	})
	t.Run("eight of ten: the session is locked, and /reset opens it at once", func(t *testing.T) {
		w := newWorld(t)
		w.agent.Limits.Rounds = 0
		in, waiting := w.say("x"), w.say("y")
		for i := range 10 {
			w.calls("write", fmt.Sprintf(`{"text":"%d"}`, i))
			if w.status("c0") == decide.Confirming {
				w.confirm("c0", true)
			}
			if i == 2 || i == 5 {
				w.succeed("c0", `1`)
			} else {
				w.result("c0", tool.Failure(tool.CodeFailed, "broken"))
			}
			if locked := w.state.Locked != ""; locked != (i == 9) {
				t.Fatalf("after %d calls locked: %t", i+1, locked)
			}
		}
		w.ends(in.Sequence, "circuit_open")
		w.ends(waiting.Sequence, "session_locked")
		if w.state.UI != event.StateLocked || w.state.Driver != 0 {
			t.Fatalf("%s, driver %d", w.state.UI, w.state.Driver)
		}
		w.ends(w.say("still there?").Sequence, "session_locked")
		w.process(w.cause(subject.Command, "web", `{"name":"reset"}`), nil)
		again := w.say("again")
		w.final("yes")
		w.ends(again.Sequence, "recorded")
	})
}
