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

func TestInterruptEndsTheTurnAndStartsAtOnce(t *testing.T) {
	w := newWorld(t)
	running, waiting := w.say("one"), w.say("two")
	w.calls("write", `{"text":"x"}`)
	c := w.cause(subject.Input, "web", `{"text":"stop","mode":"interrupt"}`)
	st := w.step("c0")
	w.process(c, decide.Closings{st.Call: {Answer: executor.Answer{Attempt: st.Attempt, State: executor.Stopped}}})
	w.ends(running.Sequence, "interrupted")
	w.codes(map[string]tool.Code{"c0": tool.CodeOutcomeUnknown})
	if w.state.Turn.Sequence != c.Sequence || w.state.Driver != c.Sequence || w.state.Turn.Plan == nil {
		t.Fatalf("turn of %d, driver %d", w.state.Turn.Sequence, w.state.Driver)
	}
	if n := len(w.last().Events); w.last().Header.Trigger.Sequence != c.Sequence || n < 4 {
		t.Fatal("ending and starting were not one commit")
	}
	w.final("ok")
	w.final("two")
	w.ends(waiting.Sequence, "recorded")
}

func TestWhatMustBeClosedBeforeItIsDecided(t *testing.T) {
	for _, c := range []struct {
		name   string
		kind   subject.CauseKind
		writer subject.Writer
		body   string
		closes bool
	}{
		{"interrupt", subject.Input, "web", `{"text":"x","mode":"interrupt"}`, true},
		{"an interrupt that is no input", subject.Input, "web", `{"text":"","mode":"interrupt"}`, false},
		{"an interrupt that was taken before", subject.Input, "web", `{"text":"x","mode":"interrupt","id":"first"}`, false},
		{"an input that waits", subject.Input, "web", `{"text":"x"}`, false},
		{"cancel by sequence", subject.Cancel, "cli", `{"sequence":1}`, true},
		{"cancel by the sender's own id", subject.Cancel, "web", `{"input_id":"first"}`, true},
		{"cancel by somebody else's id", subject.Cancel, "cli", `{"input_id":"first"}`, false},
		{"cancel of another", subject.Cancel, "web", `{"sequence":2}`, false},
		{"cancel of nothing", subject.Cancel, "web", `{}`, false},
		{"reset", subject.Command, "web", `{"name":"reset"}`, true},
		{"/reset", subject.Command, "web", `{"name":"/reset"}`, true},
		{"/cancel", subject.Command, "web", `{"name":"/cancel"}`, true},
		{"/help", subject.Command, "web", `{"name":"/help"}`, false},
		{"a command that was taken before", subject.Command, "web", `{"name":"reset","id":"first"}`, false},
		{"confirmation", subject.Confirmation, "web", `{"confirmation_id":"t1-p1-c0"}`, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.process(w.cause(subject.Input, "web", `{"text":"x","id":"first"}`), nil)
			w.calls("write", `{"text":"x"}`, "read", `{"path":"p"}`)
			cause := w.cause(c.kind, c.writer, c.body)
			must := decide.MustClose(w.state, cause)
			if c.closes != (len(must) == 2) || !c.closes && len(must) != 0 {
				t.Fatalf("%d calls must be closed", len(must))
			}
			w.process(cause, nil)
			if closed := w.outcome(1) != ""; closed != c.closes {
				t.Fatalf("closed: %t", closed)
			}
		})
	}
}

func TestCancel(t *testing.T) {
	t.Run("the running turn; the next one starts", func(t *testing.T) {
		w := newWorld(t)
		one, two := w.say("one"), w.say("two")
		c := w.cause(subject.Cancel, "web", fmt.Sprintf(`{"sequence":%d,"reason":"enough"}`, one.Sequence))
		w.process(c, nil)
		w.ends(one.Sequence, "cancelled")
		if w.state.Turn.Sequence != two.Sequence || w.state.Driver != c.Sequence {
			t.Fatalf("turn of %d, driver %d", w.state.Turn.Sequence, w.state.Driver)
		}
		if r := events[event.TurnFailed](w)[0].Reason; r != "cancelled by web: enough" {
			t.Fatalf("reason %q", r)
		}
	})
	t.Run("one that waits, in place", func(t *testing.T) {
		w := newWorld(t)
		one := w.say("one")
		two := w.cause(subject.Input, "web", `{"text":"two","id":"second"}`)
		w.process(two, nil)
		w.process(w.cause(subject.Cancel, "web", `{"input_id":"second"}`), nil)
		w.ends(two.Sequence, "cancelled")
		if w.state.Turn.Sequence != one.Sequence || len(w.state.Queue) != 0 || w.state.Driver != one.Sequence {
			t.Fatal("it changed more than the queue")
		}
		if e := w.last().Events[0]; e.Turn != "" {
			t.Fatalf("the end of a queued input belongs to turn %s", e.Turn)
		}
	})
	for name, body := range map[string]string{
		"unknown": `{"sequence":999}`, "a name for nothing": `{}`, "garbage": `{`,
		"somebody else's id": `{"input_id":"theirs"}`,
	} {
		t.Run(name+" has no effect", func(t *testing.T) {
			w := newWorld(t)
			in := w.cause(subject.Input, "cli", `{"text":"one","id":"theirs"}`)
			w.process(in, nil)
			if reason := w.process(w.cause(subject.Cancel, "web", body), nil); reason == "" {
				t.Fatal("it had an effect")
			}
			w.ends(in.Sequence, "")
		})
	}
	t.Run("what has ended has no effect", func(t *testing.T) {
		w := newWorld(t)
		in := w.say("one")
		w.final("done")
		if reason := w.process(w.cause(subject.Cancel, "web", fmt.Sprintf(`{"sequence":%d}`, in.Sequence)),
			nil); reason == "" {
			t.Fatal("it had an effect")
		}
	})
}

// Rule 10: the result of a closed call is what its runner reported.
func TestClosingACallSaysWhatIsTrue(t *testing.T) {
	result := tool.Result{Success: true, Data: []byte(`"done"`)}
	for _, c := range []struct {
		name string
		give func(decide.Step) (decide.Closing, bool)
		want tool.Code
	}{
		{"it never began", answered(executor.Answer{State: executor.Never}), tool.CodeCancelled},
		{"it was refused", answered(executor.Answer{State: executor.Refused}), tool.CodeCancelled},
		{"it had finished", answered(executor.Answer{State: executor.Finished, Result: &result}), "ok"},
		{"it finished without a result", answered(executor.Answer{State: executor.Finished}), tool.CodeInternal},
		{"it was stopped", answered(executor.Answer{State: executor.Stopped}), tool.CodeOutcomeUnknown},
		{"it still runs", answered(executor.Answer{State: executor.Running}), tool.CodeOutcomeUnknown},
		{"its result is gone", answered(executor.Answer{State: executor.Unknown}), tool.CodeOutcomeUnknown},
		{
			"nobody can be reached", func(decide.Step) (decide.Closing, bool) { return decide.Closing{Unreachable: true}, true },
			tool.CodeOutcomeUnknown,
		},
		{
			"nobody was asked", func(decide.Step) (decide.Closing, bool) { return decide.Closing{}, false },
			tool.CodeOutcomeUnknown,
		},
		{"another attempt never began", func(decide.Step) (decide.Closing, bool) {
			return decide.Closing{Answer: executor.Answer{Attempt: "of-before", State: executor.Never}}, true
		}, tool.CodeOutcomeUnknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			in := w.say("x")
			w.calls("write", `{"text":"x"}`)
			st := w.step("c0")
			closings := decide.Closings{}
			if cl, ok := c.give(st); ok {
				closings[st.Call] = cl
			}
			w.process(w.cause(subject.Cancel, "web", fmt.Sprintf(`{"sequence":%d}`, in.Sequence)), closings)
			w.codes(map[string]tool.Code{"c0": c.want})
			w.ends(in.Sequence, "cancelled")
		})
	}
}

func answered(a executor.Answer) func(decide.Step) (decide.Closing, bool) {
	return func(st decide.Step) (decide.Closing, bool) {
		a.Attempt = st.Attempt
		return decide.Closing{Answer: a}, true
	}
}

func TestClosingAPlanTellsOfEveryStep(t *testing.T) {
	w := newWorld(t)
	in := w.say("x")
	w.calls("plan:execute",
		`{"steps":[{"id":"a","tool":"write","params":{"text":"1"}},{"id":"b","tool":"write","params":{"text":"2"}},
		{"id":"c","tool":"write","params":{"text":"3"},"depends_on":["b"]}]}`)
	w.succeed("c0-s0", `"written"`)
	st := w.step("c0-s1")
	w.process(w.cause(subject.Cancel, "web", fmt.Sprintf(`{"sequence":%d}`, in.Sequence)),
		decide.Closings{st.Call: {Answer: executor.Answer{Attempt: st.Attempt, State: executor.Stopped}}})
	w.codes(map[string]tool.Code{
		"c0-s0": "ok", "c0-s1": tool.CodeOutcomeUnknown, "c0-s2": tool.CodeCancelled, "c0": tool.CodeFailed,
	})
	shown := string(w.resultOf("c0").Data)
	for _, want := range []string{`"data":"written"`, `"code":"outcome_unknown"`, `"code":"cancelled"`} {
		if !strings.Contains(shown, want) {
			t.Fatalf("the model does not see %s: %s", want, shown)
		}
	}
}
