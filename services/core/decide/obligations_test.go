package decide_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/internal/executor"
)

// bound returns a world whose policy gives every call obligations.
func bound(t *testing.T, effect decide.Effect, o event.Obligations) *world {
	w := newWorld(t)
	w.policy = func(decide.Access) decide.Ruling {
		return decide.Ruling{
			Effect: effect, Rule: "policy[0]", Reason: "bound", Warning: &hook.Warning{Level: hook.LevelWarn, Message: "bound"},
			Obligations: &o,
		}
	}
	w.say("x")
	return w
}

func TestMaxDurationCapsTheCall(t *testing.T) {
	for _, c := range []struct {
		name   string
		limit  time.Duration
		capped bool
	}{
		{"shorter than the tool's own time", 3 * time.Second, true},
		{"longer than the tool's own time", time.Hour, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := bound(t, decide.Allow, event.Obligations{MaxDurationMS: c.limit.Milliseconds()})
			w.calls("write", `{"text":"a"}`)
			want := w.now.Add(executor.StartWithin + tool.DefaultTimeout)
			if c.capped {
				want = w.now.Add(c.limit)
			}
			if got := w.step("c0").NotAfter; !got.Equal(want) {
				t.Fatalf("not after %s, want %s", got, want)
			}
			if v := w.verdictOn("c0"); v.Obligations == nil || v.Obligations.MaxDurationMS != c.limit.Milliseconds() {
				t.Fatalf("audited: %+v", v)
			}
		})
	}
}

// An approval, a new runner or a refold does not lift an obligation.
func TestObligationsBindACallUntilItEnds(t *testing.T) {
	w := bound(t, decide.Ask, event.Obligations{MaxDurationMS: 3000, MaxResultBytes: 300, Note: "mind <this>"})
	w.calls("read", `{"path":"a"}`)
	w.now = w.now.Add(time.Minute)
	w.confirm("c0", true)
	if got := w.step("c0").NotAfter; !got.Equal(w.now.Add(3 * time.Second)) {
		t.Fatalf("approved: not after %s, now is %s", got, w.now)
	}
	w.reload()
	w.now = w.now.Add(time.Second)
	w.replied("c0", executor.Answer{State: executor.Refused, Reason: executor.RefusedFull})
	if st := w.step("c0"); st.Attempts != 2 || !st.NotAfter.Equal(w.now.Add(3*time.Second)) {
		t.Fatalf("again: %+v", st)
	}
	w.succeed("c0", `"`+strings.Repeat("a", 400)+`"`)
	w.codes(map[string]tool.Code{"c0": tool.CodeTooLarge})
	said := w.said()
	if last := said[len(said)-1].Text; !strings.Contains(last, "withheld") || !strings.HasSuffix(last, "[mind <this>]") ||
		strings.Contains(last, "aaaa") {
		t.Fatalf("the model sees %s", last)
	}
}

func TestMaxResultBytesWithholdsWhatIsLarger(t *testing.T) {
	withLimit := func(n int) *world {
		w := bound(t, decide.Allow, event.Obligations{MaxResultBytes: n})
		w.calls("write", `{"text":"a"}`)
		return w
	}
	fits := tool.Result{Success: true, Data: json.RawMessage(`"12345678"`)}
	size := len(mustJSON(fits))

	w := withLimit(size)
	w.result("c0", fits)
	if r := w.resultOf("c0"); !r.Success || string(r.Data) != `"12345678"` {
		t.Fatalf("what fits: %+v", r)
	}
	w = withLimit(size - 1)
	w.result("c0", fits)
	if r := w.resultOf("c0"); r.Success || r.Error.Code != tool.CodeTooLarge || r.Data != nil ||
		!strings.Contains(r.Error.Message, "the call succeeded") {
		t.Fatalf("one byte too many: %+v", r)
	}
	w = withLimit(500)
	w.result("c0", tool.Failure(tool.CodeFailed, strings.Repeat("secret ", 100), "secret"))
	if r := w.resultOf("c0"); r.Error.Code != tool.CodeFailed || strings.Contains(string(mustJSON(r)), "secret") {
		t.Fatalf("a failure: %+v", r)
	}
	w = withLimit(500)
	w.result("c0", tool.Result{Success: true, Metadata: map[string]any{"x": strings.Repeat("secret ", 100)}})
	if r := w.resultOf("c0"); strings.Contains(string(mustJSON(r)), "secret") {
		t.Fatalf("metadata: %+v", r)
	}
}

// A hook cannot restore a withheld result.
func TestObligationsComeAfterHooks(t *testing.T) {
	w := bound(t, decide.Allow, event.Obligations{MaxResultBytes: 300})
	w.on(hook.AfterAct, func(hook.Envelope) hook.Decision {
		return hook.Decision{
			Verb: hook.Replace, Data: mustJSON(hook.AfterActData{Result: tool.OK(strings.Repeat("a", 1000))}),
		}
	})
	w.calls("write", `{"text":"a"}`)
	w.succeed("c0", `1`)
	w.codes(map[string]tool.Code{"c0": tool.CodeTooLarge})
}

func TestANoteIsToldBesideTheResultOfWhatRan(t *testing.T) {
	note := event.Obligations{Note: "from outside"}
	t.Run("a success", func(t *testing.T) {
		w := bound(t, decide.Allow, note)
		w.calls("write", `{"text":"a"}`)
		w.succeed("c0", `1`)
		if said := w.said(); said[len(said)-1].Text != "1\n[from outside]" {
			t.Fatalf("%q", said[len(said)-1].Text)
		}
	})
	t.Run("a step of a plan", func(t *testing.T) {
		w := bound(t, decide.Allow, note)
		w.calls("plan:execute", `{"steps":[{"id":"a","tool":"write","params":{"text":"a"}}]}`)
		w.succeed("c0-s0", `1`)
		if said := w.said(); !strings.Contains(said[len(said)-1].Text, `"note":"from outside"`) {
			t.Fatalf("%q", said[len(said)-1].Text)
		}
	})
	t.Run("what a person refused did not run", func(t *testing.T) {
		w := bound(t, decide.Ask, note)
		w.calls("write", `{"text":"a"}`)
		w.confirm("c0", false)
		if said := w.said(); strings.Contains(said[len(said)-1].Text, "from outside") {
			t.Fatalf("%q", said[len(said)-1].Text)
		}
	})
	t.Run("the model also learns that a call fails repeatedly", func(t *testing.T) {
		w := bound(t, decide.Allow, note)
		for range 3 {
			w.calls("write", `{"text":"a"}`)
			w.result("c0", tool.Failure(tool.CodeFailed, "no"))
		}
		if said := w.said(); !strings.Contains(said[len(said)-1].Text, "[from outside; this exact call has failed 3 times") {
			t.Fatalf("%q", said[len(said)-1].Text)
		}
	})
}

// Every decision about a call is in the log, in the commit that results from it.
func TestEveryDecisionAboutACallIsAudited(t *testing.T) {
	w := newWorld(t)
	w.process(w.cause(subject.Input, "cron", `{"text":"x"}`), nil)
	w.calls("read", `{"path":"a"}`, "mail:send", `{"to":"b"}`, "forbidden", `{}`)
	for call, want := range map[string]decide.Effect{"c0": decide.Allow, "c1": decide.Ask, "c2": decide.Deny} {
		if v := w.verdictOn(call); v.Effect != want || v.Principal != "cron" || v.Hash == "" ||
			(v.Reason == "") == (want == decide.Deny) {
			t.Errorf("%s: %+v", call, v)
		}
	}
	if n := len(w.log); n != 2 {
		t.Fatalf("%d commits", n)
	}
}
