package decide_test

import (
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/internal/executor"
)

// sends begins a turn with one approved call of mail:send, whose tool can find out what became of it.
func sends(w *world) decide.Step {
	w.say("x")
	w.calls("mail:send", `{"to":"alice"}`)
	st := w.step("c0")
	w.process(w.cause(subject.Confirmation, "web",
		`{"confirmation_id":"`+st.Call+`","hash":"`+st.Hash+`","approved":true}`), nil)
	return w.step("c0")
}

// lost makes the runner of the call c0 unreachable.
func (w *world) lost() (retry bool) {
	st := w.step("c0")
	d, retry := decide.OnUnreachable(w.state, w.state.Driver, st.Call, st.Attempt, w.env())
	if d != nil {
		w.commit(d, w.state.Driver)
	}
	return retry
}

func TestACallWhoseOutcomeIsUnknownIsProbed(t *testing.T) {
	unknown, timeout := tool.Failure(tool.CodeOutcomeUnknown, "no answer"), tool.Failure(tool.CodeTimeout, "too slow")
	for name, loses := range map[string]func(w *world){
		"its runner is unreachable": func(w *world) { w.lost() },
		"it was stopped":            func(w *world) { w.replied("c0", executor.Answer{State: executor.Stopped}) },
		"its result is gone":        func(w *world) { w.replied("c0", executor.Answer{State: executor.Unknown}) },
		"the tool does not know":    func(w *world) { w.replied("c0", executor.Answer{State: executor.Finished, Result: &unknown}) },
		"it timed out":              func(w *world) { w.replied("c0", executor.Answer{State: executor.Finished, Result: &timeout}) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.runners = []subject.Instance{"r1", "r2"}
			first := sends(w)
			loses(w)
			st := w.step("c0")
			if st.Status != decide.Assigned || st.Attempt == first.Attempt || st.Key != first.Key || st.Key == "" ||
				!st.Probe.Equal(first.NotAfter.Add(executor.Skew)) || st.ApprovedBy != "web" || !st.Uncertain {
				t.Fatalf("%+v", st)
			}
			asked := events[event.ToolCallRequest](w)
			w.succeed("c0", `"sent"`)
			if len(asked) != 1 || !w.resultOf("c0").Success {
				t.Fatalf("%d requests, %+v", len(asked), w.resultOf("c0"))
			}
			if done := events[event.ActCompleted](w)[0]; !strings.Contains(done.Note, "found out") {
				t.Errorf("the note is %q", done.Note)
			}
		})
	}
}

func TestWhatAProbeMayReport(t *testing.T) {
	for code, want := range map[tool.Code]tool.Code{
		tool.CodeNotRun: tool.CodeNotRun, tool.CodeOutcomeUnknown: tool.CodeOutcomeUnknown,
		tool.CodeFailed: tool.CodeOutcomeUnknown, tool.CodeTimeout: tool.CodeOutcomeUnknown,
		tool.CodeDenied: tool.CodeOutcomeUnknown, tool.CodeCancelled: tool.CodeOutcomeUnknown,
	} {
		w := newWorld(t)
		w.runners = []subject.Instance{"r1", "r2"}
		sends(w)
		r := tool.Failure(code, "what the probe says")
		w.replied("c0", executor.Answer{State: executor.Stopped})
		w.replied("c0", executor.Answer{State: executor.Finished, Result: &r})
		if got := w.resultOf("c0"); got.Error == nil || got.Error.Code != want || !strings.Contains(got.Error.Message, "the probe says") {
			t.Errorf("%s became %+v", code, got.Error)
		}
	}
}

func TestALostProbeIsRepeatedAndGivenUp(t *testing.T) {
	w := newWorld(t)
	w.runners = []subject.Instance{"r1", "r2"}
	first := sends(w)
	w.lost()
	if again := w.lost(); w.step("c0").Attempts != 3 && !again {
		t.Fatalf("the probe was not repeated: %+v", w.step("c0"))
	}
	for n := 0; w.state.Turn.Plan == nil; n++ { // until the model gets the result
		if st := w.step("c0"); n > 200 || st.Attempts > 1 && st.Probe.IsZero() || st.Key != first.Key {
			t.Fatalf("after %d losses: %+v", n, st)
		}
		w.now = w.now.Add(time.Second)
		w.lost()
	}
	w.codes(map[string]tool.Code{"c0": tool.CodeOutcomeUnknown})
}

func TestACancelledProbeLeavesTheOutcomeUnknown(t *testing.T) {
	notRun := tool.Failure(tool.CodeNotRun, "it had not begun")
	for name, c := range map[string]struct {
		answer executor.Answer
		want   tool.Code
	}{
		"never began":  {executor.Answer{State: executor.Never}, tool.CodeOutcomeUnknown},
		"was stopped":  {executor.Answer{State: executor.Stopped}, tool.CodeOutcomeUnknown},
		"has finished": {executor.Answer{State: executor.Finished, Result: &notRun}, tool.CodeNotRun},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.runners = []subject.Instance{"r1", "r2"}
			sends(w)
			w.lost()
			c.answer.Attempt = w.step("c0").Attempt
			call := w.step("c0").Call
			w.process(w.cause(subject.Command, "web", `{"name":"cancel"}`), decide.Closings{call: {Answer: c.answer}})
			w.codes(map[string]tool.Code{"c0": c.want})
		})
	}
}

// A tool whose spec has changed is another one: it is not asked about the first one's effect.
func TestAnotherToolIsNotProbed(t *testing.T) {
	w := newWorld(t)
	w.runners = []subject.Instance{"r1", "r2"}
	sends(w)
	w.tools["mail:send"].Plugin = "other"
	w.lost()
	w.codes(map[string]tool.Code{"c0": tool.CodeOutcomeUnknown})
}
