package decide_test

import (
	"fmt"
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

var broken = tool.Failure(tool.CodeFailed, "broken")

// A session that the breaker locked opens automatically: one call at a time, until one
// succeeds.
func TestALockedSessionOpensByItself(t *testing.T) {
	locked := func(w *world) event.SessionLocked {
		all := events[event.SessionLocked](w)
		return all[len(all)-1]
	}
	t.Run("the sender learns until when", func(t *testing.T) {
		w := newWorld(t)
		lock(w)
		until := locked(w).Until
		if !until.Equal(epoch.Add(30 * time.Second)) {
			t.Fatalf("it is locked until %s", until)
		}
		w.now = until.Add(-time.Millisecond)
		in := w.say("too early")
		w.ends(in.Sequence, "session_locked")
		f := events[event.TurnFailed](w)
		if last := f[len(f)-1]; !last.Until.Equal(until) ||
			!strings.Contains(last.Reason, "8 of the last 8 tool calls failed") ||
			!strings.Contains(last.Reason, "until 2026-03-01T12:00:30Z") {
			t.Fatalf("%+v", last)
		}
		if first := f[0]; first.Code != event.FailBreaker || !first.Until.Equal(until) ||
			!strings.Contains(first.Reason, "until 2026-03-01T12:00:30Z") {
			t.Fatalf("%+v", first)
		}
		if w.state.UI != event.StateLocked {
			t.Fatal(w.state.UI)
		}
	})
	t.Run("an answer without calls is given, and proves nothing", func(t *testing.T) {
		w := newWorld(t)
		lock(w)
		w.now = locked(w).Until
		in := w.say("hello?")
		w.final("hello")
		w.ends(in.Sequence, "recorded")
		if w.state.Locked != "" || !w.state.Breaker.HalfOpen || w.state.UI != event.StateWaiting {
			t.Fatalf("%q, %+v, %s", w.state.Locked, w.state.Breaker, w.state.UI)
		}
	})
	t.Run("one call is let through; it succeeds: the others follow, and all is forgotten", func(t *testing.T) {
		w := newWorld(t)
		lock(w)
		w.now = locked(w).Until
		in := w.say("again")
		w.calls("read", `{}`, "write", `{"text":"1"}`, "write", `{"text":"2"}`)
		if n := len(w.state.Assigned()); n != 1 || w.status("c0") != decide.Assigned || w.state.Waits() {
			t.Fatalf("%d calls run, waits %t", n, w.state.Waits())
		}
		w.succeed("c0", `1`)
		if n := len(w.state.Assigned()); n != 2 {
			t.Fatalf("then %d calls run", n)
		}
		w.succeed("c1", `1`)
		w.result("c2", broken)
		w.final("done")
		w.ends(in.Sequence, "recorded")
		if b := w.state.Breaker; b.HalfOpen || b.Trips != 0 || b.Consecutive != 1 {
			t.Fatalf("%+v", b)
		}
	})
	t.Run("it fails: the others do not run, and the session is locked for longer", func(t *testing.T) {
		w := newWorld(t)
		lock(w)
		for i, wait := range []time.Duration{60, 120, 240, 480, 900, 900} {
			w.now = locked(w).Until
			in := w.say(fmt.Sprint(i))
			next := w.say("waiting")
			w.calls("write", `{"text":"1"}`, "write", `{"text":"2"}`)
			w.result("c0", broken)
			w.codes(map[string]tool.Code{"c0": tool.CodeFailed, "c1": tool.CodeNotRun})
			w.ends(in.Sequence, "circuit_open")
			w.ends(next.Sequence, "session_locked")
			if until := locked(w).Until; !until.Equal(w.now.Add(wait * time.Second)) {
				t.Fatalf("the %dth time it is locked for %s", i+1, until.Sub(w.now))
			}
		}
		w.now = locked(w).Until
		w.say("well now")
		w.calls("write", `{"text":"1"}`)
		w.succeed("c0", `1`)
		w.final("done")
		lock(w)
		if until := locked(w).Until; !until.Equal(w.now.Add(30 * time.Second)) {
			t.Fatalf("after a success it is locked for %s", until.Sub(w.now))
		}
	})
	t.Run("what is nobody's failure decides nothing: the next call is tried", func(t *testing.T) {
		w := newWorld(t)
		lock(w)
		w.now = locked(w).Until
		w.say("again")
		w.calls("write", `{"text":"1"}`, "forbidden", `{}`, "write", `{"text":"2"}`)
		w.replied("c0", executor.Answer{State: executor.Unknown})
		w.codes(map[string]tool.Code{"c0": tool.CodeOutcomeUnknown, "c1": tool.CodeDenied})
		if w.status("c2") != decide.Assigned || !w.state.Breaker.HalfOpen {
			t.Fatalf("%s, %+v", w.status("c2"), w.state.Breaker)
		}
	})
	t.Run("a call that a person is asked about is the one that is tried", func(t *testing.T) {
		w := newWorld(t)
		lock(w)
		w.now = locked(w).Until
		w.say("again")
		w.calls("mail:send", `{"to":"you"}`, "read", `{}`)
		if w.status("c0") != decide.Confirming || w.status("c1") != decide.Waiting || !w.state.Parked() {
			t.Fatalf("%s, %s, parked %t", w.status("c0"), w.status("c1"), w.state.Parked())
		}
		w.confirm("c0", false)
		if w.status("c1") != decide.Assigned {
			t.Fatal(w.status("c1"))
		}
	})
	t.Run("the steps of a plan are tried one by one, too", func(t *testing.T) {
		w := newWorld(t)
		lock(w)
		w.now = locked(w).Until
		in := w.say("again")
		w.calls("plan:execute", `{"steps":[{"tool":"read"},{"tool":"read"}]}`, "read", `{}`)
		if n := len(w.state.Assigned()); n != 1 {
			t.Fatalf("%d calls run", n)
		}
		w.result("c0-s0", broken)
		w.codes(map[string]tool.Code{"c0-s1": tool.CodeNotRun, "c0": tool.CodeFailed, "c1": tool.CodeNotRun})
		w.ends(in.Sequence, "circuit_open")
	})
	t.Run("a log that cannot be folded stays locked until /reset", func(t *testing.T) {
		w := newWorld(t)
		d := decide.OnMismatch(decide.Wreck{Ref: ref, Why: "digest"}, w.env())
		w.commit(d, 0)
		w.now = w.now.AddDate(1, 0, 0)
		in := w.say("hello?")
		w.ends(in.Sequence, "session_locked")
		f := events[event.TurnFailed](w)[0]
		if !f.Until.IsZero() || !locked(w).Until.IsZero() || !strings.Contains(f.Reason, "/reset") {
			t.Fatalf("%+v", f)
		}
		w.process(w.cause(subject.Command, "web", `{"name":"reset"}`), nil)
		w.say("and now?")
		w.final("yes")
	})
}

// Each code, by its reporter: only failures that the tool itself reports count.
func TestWhoseFailureItIs(t *testing.T) {
	toolsOwn := map[tool.Code]bool{tool.CodeFailed: true, tool.CodeTimeout: true, tool.CodeInternal: true}
	for _, code := range []tool.Code{
		tool.CodeFailed, tool.CodeInvalidArgs, tool.CodeUnknownTool, tool.CodeTimeout, tool.CodeOutcomeUnknown,
		tool.CodeInvalidPlan,
		tool.CodeInternal, tool.CodeTooLarge,
		// A tool may not report these; they become tool_failed.
		tool.CodeDenied, tool.CodeExpired, tool.CodeCancelled, tool.CodeNotRun, tool.CodeSkipped,
	} {
		t.Run("a tool says "+string(code), func(t *testing.T) {
			w := newWorld(t)
			w.say("x")
			w.calls("write", `{"text":"x"}`)
			w.result("c0", tool.Failure(code, "so it says"))
			want := toolsOwn[code] || w.code("c0") == tool.CodeFailed
			if got := w.state.Breaker.Consecutive == 1 && len(w.state.Breaker.Recent) == 1; got != want {
				t.Errorf("it counts: %t, %+v", got, w.state.Breaker)
			}
			if f := events[event.ActCompleted](w)[0].Fault; (f == event.FaultTool) != want {
				t.Errorf("fault %q", f)
			}
		})
	}
	write := func(w *world) {
		w.say("x")
		w.calls("write", `{"text":"x"}`)
	}
	replied := func(a executor.Answer) func(w *world) {
		return func(w *world) {
			write(w)
			w.replied("c0", a)
		}
	}
	for _, c := range []struct {
		name string
		end  func(w *world)
		code tool.Code
	}{
		{"its runner died", func(w *world) {
			write(w)
			st := w.step("c0")
			d, _ := decide.OnUnreachable(w.state, w.state.Driver, st.Call, st.Attempt, w.env())
			w.commit(d, w.state.Driver)
		}, tool.CodeOutcomeUnknown},
		{"its result is gone", replied(executor.Answer{State: executor.Unknown}), tool.CodeOutcomeUnknown},
		{"it was stopped", replied(executor.Answer{State: executor.Stopped}), tool.CodeOutcomeUnknown},
		{"its runner has finished without a result", replied(executor.Answer{State: executor.Finished}), tool.CodeInternal},
		{"no runner takes it", func(w *world) {
			write(w)
			for range 8 {
				w.now = w.now.Add(4 * time.Second)
				w.replied("c0", executor.Answer{State: executor.Refused, Reason: executor.RefusedUnknown})
			}
		}, tool.CodeNotRun},
		{"its plugin does not come back", func(w *world) {
			w.say("x")
			w.tools["write"].gone, w.left = true, map[string]bool{"write": true}
			w.calls("write", `{"text":"x"}`)
			w.now = w.now.Add(15 * time.Second)
			w.progress()
		}, tool.CodeNotRun},
		{"policy denies it", func(w *world) {
			w.say("x")
			w.calls("forbidden", `{}`)
		}, tool.CodeDenied},
		{"a person refuses it", func(w *world) {
			w.say("x")
			w.calls("mail:send", `{"to":"you"}`)
			w.confirm("c0", false)
		}, tool.CodeDenied},
		{"nobody answers", func(w *world) {
			w.say("x")
			w.calls("mail:send", `{"to":"you"}`)
			w.now = w.now.Add(time.Hour)
			w.progress()
		}, tool.CodeExpired},
		{"a hook makes a failure of it", func(w *world) {
			w.on(hook.AfterAct,
				func(hook.Envelope) hook.Decision { return hook.Decision{Verb: hook.DenyVerb, Reason: "secret"} })
			write(w)
			w.succeed("c0", `1`)
		}, tool.CodeFailed},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			c.end(w)
			w.codes(map[string]tool.Code{"c0": c.code})
			if b := w.state.Breaker; b.Consecutive != 0 || len(b.Recent) != 0 {
				t.Errorf("it counts: %+v", b)
			}
		})
	}
}

// Calls that core refuses do not count as failures, and the other calls need no
// confirmation because of them. Whether a tool is unknown depends on the live executors.
func TestRefusedCallsOfAnAnswer(t *testing.T) {
	many := func(n int, toolAndArgs ...string) (out []string) {
		for range n {
			out = append(out, toolAndArgs...)
		}
		return out
	}
	t.Run("forty calls, of which 32 may run: they run, and nobody is asked", func(t *testing.T) {
		w := newWorld(t)
		in := w.say("x")
		w.calls(many(40, "read", `{}`)...)
		if n := len(w.state.Assigned()); n != 32 || len(w.state.Confirmations()) != 0 {
			t.Fatalf("%d run, a person is asked about %d", n, len(w.state.Confirmations()))
		}
		for i := range 32 {
			w.succeed(fmt.Sprintf("c%d", i), `1`)
		}
		w.codes(map[string]tool.Code{"c31": "ok", "c32": tool.CodeNotRun, "c39": tool.CodeNotRun})
		w.final("done")
		w.ends(in.Sequence, "recorded")
		if w.state.Locked != "" {
			t.Fatal(w.state.Locked)
		}
	})
	for name, call := range map[string][]string{
		"unknown tools":     {"nonsense", `{}`},
		"invalid arguments": {"write", `{}`},
		"invalid plans":     {"plan:execute", `{"steps":"all"}`},
	} {
		t.Run("eight "+name+" in one answer lock nothing", func(t *testing.T) {
			w := newWorld(t)
			in := w.say("x")
			w.calls(many(8, call...)...)
			if b := w.state.Breaker; b.Consecutive != 0 || len(b.Recent) != 0 {
				t.Fatalf("%+v", b)
			}
			w.final("sorry")
			w.ends(in.Sequence, "recorded")
		})
		t.Run("answer after answer with nothing but "+name+" locks nothing either", func(t *testing.T) {
			w := newWorld(t)
			w.agent.Limits = decide.Limits{Rounds: 12}
			in := w.say("x")
			for range 12 {
				w.calls(many(3, call...)...)
			}
			w.ends(in.Sequence, "limit_rounds")
			again := w.say("y")
			w.final("sorry")
			w.ends(again.Sequence, "recorded")
		})
	}
	t.Run("beside a call that runs they count as none", func(t *testing.T) {
		w := newWorld(t)
		w.agent.Limits = decide.Limits{}
		w.say("x")
		for range 12 {
			w.calls("nonsense", `{}`, "read", `{}`)
			w.succeed("c1", `1`)
		}
		if w.state.Locked != "" || w.state.Turn == nil {
			t.Fatal("the session is locked")
		}
	})
}
