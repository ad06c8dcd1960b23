package decide_test

import (
	"encoding/json"
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

func TestACallIsGivenOutAndItsResultGoesToTheModel(t *testing.T) {
	w := newWorld(t)
	w.now = epoch.Add(1234567 * time.Nanosecond)
	in := w.say("x")
	w.calls("read", `{ "path": "a" }`)
	r := events[event.ActRequested](w)[0]
	want := event.ActRequested{
		Call: "t1-p1-c0", Tool: "read", Args: json.RawMessage(`{"limit":10,"path":"a"}`),
		Hash: decide.Hash(catalog["read"].Spec, r.Args, nil), Spec: catalog["read"].Digest(), Attempt: r.Attempt,
		Attempts: 1, Runner: "r1", StartBy: w.state.Now.Add(executor.StartWithin),
		NotAfter: w.state.Now.Add(executor.StartWithin + time.Minute), Idempotent: true, Key: r.Attempt,
	}
	if string(mustJSON(r)) != string(mustJSON(want)) {
		t.Fatalf("got  %s\nwant %s", mustJSON(r), mustJSON(want))
	}
	w.succeed("c0", `{"text":"content"}`)
	w.final("it says content")
	w.ends(in.Sequence, "recorded")
	rec := events[event.Recorded](w)[0]
	if rec.Rounds != 2 || len(rec.Actions) != 1 || !rec.Actions[0].Success || rec.Answer != "it says content" ||
		rec.Input != "x" {
		t.Fatalf("%+v", rec)
	}
	var roles []string
	for _, m := range w.said() {
		roles = append(roles, string(m.Role))
	}
	if got := strings.Join(roles, " "); got != "user assistant tool assistant" {
		t.Fatal(got)
	}
	if n := len(w.log); n != 4 {
		t.Fatalf("the turn took %d commits", n)
	}
}

// Rule 9, for a tool that is idempotent and for one that is not.
func TestWhatBecomesOfAnAttempt(t *testing.T) {
	ok := tool.Result{Success: true, Data: json.RawMessage(`1`)}
	for _, c := range []struct {
		name        string
		answer      executor.Answer
		unreachable bool
		read, write tool.Code // "again": a new attempt
	}{
		{"finished", executor.Answer{State: executor.Finished, Result: &ok}, false, "ok", "ok"},
		{"finished without a result", executor.Answer{State: executor.Finished}, false, tool.CodeInternal, tool.CodeInternal},
		{"never ran", executor.Answer{State: executor.Never}, false, "again", "again"},
		{"refused", executor.Answer{State: executor.Refused, Reason: executor.RefusedLate}, false, "again", "again"},
		{"stopped", executor.Answer{State: executor.Stopped}, false, tool.CodeOutcomeUnknown, tool.CodeOutcomeUnknown},
		{"result gone", executor.Answer{State: executor.Unknown}, false, tool.CodeOutcomeUnknown, tool.CodeOutcomeUnknown},
		{"gibberish", executor.Answer{State: "gibberish"}, false, tool.CodeOutcomeUnknown, tool.CodeOutcomeUnknown},
		{"unreachable", executor.Answer{}, true, "again", tool.CodeOutcomeUnknown},
	} {
		for name, want := range map[string]tool.Code{"read": c.read, "write": c.write} {
			t.Run(c.name+"/"+name, func(t *testing.T) {
				w := newWorld(t)
				w.say("x")
				w.calls(name, map[string]string{"read": `{}`, "write": `{"text":"x"}`}[name])
				before := w.step("c0")
				if c.unreachable {
					d, _ := decide.OnUnreachable(w.state, w.state.Driver, before.Call, before.Attempt, w.env())
					w.commit(d, w.state.Driver)
				} else {
					w.replied("c0", c.answer)
				}
				if want != "again" {
					w.codes(map[string]tool.Code{"c0": want})
					return
				}
				after := w.step("c0")
				if after.Attempt == before.Attempt || after.Attempts != 2 || after.Runner == before.Runner {
					t.Fatalf("%+v", after)
				}
				if d, _ := decide.OnCallAnswer(w.state, w.state.Driver, executor.Answer{
					Call: before.Call, Attempt: before.Attempt, State: executor.Finished, Result: &ok,
				}, w.env()); d != nil {
					t.Fatal("a late answer about the old attempt had an effect")
				}
			})
		}
	}
}

func TestEightAttemptsAreEnough(t *testing.T) {
	never := executor.Answer{State: executor.Never}
	t.Run("none of which ran: it did not run", func(t *testing.T) {
		w := newWorld(t)
		w.say("x")
		w.calls("read", `{}`)
		for range 8 {
			w.now = w.now.Add(4 * time.Second)
			w.replied("c0", never)
		}
		w.codes(map[string]tool.Code{"c0": tool.CodeNotRun})
	})
	t.Run("one of which may have run: the outcome is unknown", func(t *testing.T) {
		w := newWorld(t)
		w.say("x")
		w.calls("read", `{}`)
		st := w.step("c0")
		d, _ := decide.OnUnreachable(w.state, w.state.Driver, st.Call, st.Attempt, w.env())
		w.commit(d, w.state.Driver)
		for range 7 {
			w.now = w.now.Add(4 * time.Second)
			w.replied("c0", never)
		}
		w.codes(map[string]tool.Code{"c0": tool.CodeOutcomeUnknown})
	})
	t.Run("one of which may have run, and it is cancelled: the outcome is unknown", func(t *testing.T) {
		w := newWorld(t)
		in := w.say("x")
		w.calls("read", `{}`)
		st := w.step("c0")
		d, _ := decide.OnUnreachable(w.state, w.state.Driver, st.Call, st.Attempt, w.env())
		w.commit(d, w.state.Driver)
		st = w.step("c0")
		w.process(w.cause(subject.Cancel, "web", fmt.Sprintf(`{"sequence":%d}`, in.Sequence)),
			decide.Closings{st.Call: {Answer: executor.Answer{Attempt: st.Attempt, State: executor.Never}}})
		w.codes(map[string]tool.Code{"c0": tool.CodeOutcomeUnknown})
	})
}

func TestTheOnlyRunnerIsFull(t *testing.T) {
	w := newWorld(t)
	w.runners = []subject.Instance{"r1"}
	w.say("x")
	w.calls("write", `{"text":"x"}`)
	full := executor.Answer{State: executor.Refused, Reason: executor.RefusedFull}
	if retry := w.replied("c0", full); !retry || w.step("c0").Attempts != 1 {
		t.Fatal("it is asked again at once")
	}
	w.now = w.now.Add(executor.StartWithin)
	if w.replied("c0", full); w.step("c0").Attempts != 2 {
		t.Fatal("it is never asked again")
	}
}

func TestNoRunnerIsFreeForANewAttempt(t *testing.T) {
	w := newWorld(t)
	w.say("x")
	w.calls("write", `{"text":"x"}`)
	w.runners = nil
	never := executor.Answer{State: executor.Never}
	if retry := w.replied("c0", never); !retry {
		t.Fatal("the shell need not come back")
	}
	w.now = w.step("c0").NotAfter.Add(30 * time.Second)
	w.replied("c0", never)
	w.codes(map[string]tool.Code{"c0": tool.CodeNotRun})
}

func TestACallWaitsForAFreeRunnerAndHooksAreAskedWhenItRuns(t *testing.T) {
	w := newWorld(t)
	asked := 0
	w.on(hook.BeforeAct, func(hook.Envelope) hook.Decision { asked++; return hook.Decision{Verb: hook.Continue} })
	w.say("x")
	w.runners = nil
	w.calls("write", `{"text":"x"}`)
	if w.status("c0") != decide.Waiting || asked != 0 || !w.state.Waits() || w.progress() {
		t.Fatalf("call is %s, hooks asked %d times", w.status("c0"), asked)
	}
	w.runners = []subject.Instance{"r5"}
	w.progress()
	if w.step("c0").Runner != "r5" || asked != 1 {
		t.Fatalf("hooks asked %d times", asked)
	}
}

// A plugin that has left may return. A call that was not assigned, or certainly did not
// run, waits for it, and then fails as not run.
func TestAPluginsToolWhosePluginHasLeft(t *testing.T) {
	leave := func(w *world) { w.tools["write"].gone, w.left = true, map[string]bool{"write": true} }
	refused := executor.Answer{State: executor.Refused, Reason: executor.RefusedUnknown}
	for _, c := range []struct {
		name  string
		begin func(w *world)
		again func(w *world) // decides about the call once more
	}{
		{"before the call", func(w *world) {
			leave(w)
			w.calls("write", `{"text":"x"}`)
		}, func(w *world) { w.progress() }},
		{"while it waits for a runner", func(w *world) {
			w.runners = nil
			w.calls("write", `{"text":"x"}`)
			leave(w)
			w.runners = []subject.Instance{"r1"}
		}, func(w *world) { w.progress() }},
		{"after a person approved it", func(w *world) {
			w.on(hook.BeforeAct, func(hook.Envelope) hook.Decision {
				return hook.Decision{Verb: hook.Confirm, Warning: &hook.Warning{Level: hook.LevelWarn, Message: "?"}}
			})
			w.calls("write", `{"text":"x"}`)
			leave(w)
			w.confirm("c0", true)
		}, func(w *world) { w.progress() }},
		{"when its runner refuses", func(w *world) {
			w.calls("write", `{"text":"x"}`)
			leave(w)
			w.heard = w.now
			w.replied("c0", refused)
		}, func(w *world) { w.replied("c0", refused) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			begin := func(t *testing.T) *world {
				w := newWorld(t)
				w.say("x")
				c.begin(w)
				w.now = w.now.Add(14 * time.Second)
				c.again(w)
				if st := w.step("c0"); st.Status == decide.Done {
					t.Fatalf("it has ended: %+v", st.Result)
				}
				return w
			}
			t.Run("comes back", func(t *testing.T) {
				w := begin(t)
				w.tools["write"].gone, w.left = false, nil
				c.again(w)
				if w.status("c0") == decide.Confirming {
					w.confirm("c0", true)
				}
				w.succeed("c0", `1`)
				w.codes(map[string]tool.Code{"c0": "ok"})
			})
			t.Run("does not", func(t *testing.T) {
				w := begin(t)
				w.now = w.now.Add(time.Second)
				c.again(w)
				w.codes(map[string]tool.Code{"c0": tool.CodeNotRun})
				if r := w.resultOf("c0"); !strings.Contains(r.Error.Message, "the plugin that offers write stopped") {
					t.Errorf("it says %q", r.Error.Message)
				}
			})
			t.Run("has left only now, long after the call could have run", func(t *testing.T) {
				w := begin(t)
				w.goneSince = w.now
				w.now = w.now.Add(14 * time.Second)
				if c.again(w); w.step("c0").Status == decide.Done {
					t.Fatal("it has ended")
				}
				w.now = w.now.Add(time.Second)
				c.again(w)
				w.codes(map[string]tool.Code{"c0": tool.CodeNotRun})
			})
		})
	}
	t.Run("when it is unknown whether it ran", func(t *testing.T) {
		w := newWorld(t)
		w.say("x")
		w.calls("write", `{"text":"x"}`)
		leave(w)
		w.replied("c0", executor.Answer{State: executor.Unknown})
		w.codes(map[string]tool.Code{"c0": tool.CodeOutcomeUnknown})
	})
}

func TestArgumentsAreCheckedBeforeTheyRun(t *testing.T) {
	for _, c := range []struct{ name, tool, args string }{
		{"missing", "write", `{}`},
		{"unknown", "write", `{"text":"x","bogus":1}`},
		{"of another type", "read", `{"n":"seven"}`},
		{"no object", "read", `[]`},
		{"no JSON, as a string", "read", `"{\"path\":"`},
		{"with what looks like a reference", "write", `{"bogus":"${HOME}","text":"x"}`},
		{"with what looks like a reference, canonical", "read", `{"bogus":"${HOME}"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.say("x")
			w.calls(c.tool, c.args)
			w.codes(map[string]tool.Code{"c0": tool.CodeInvalidArgs})
			if r := w.resultOf("c0"); len(r.Error.Details) == 0 {
				t.Fatal("the model does not learn why")
			}
		})
	}
	t.Run("what looks like a reference and fits runs as it is", func(t *testing.T) {
		w := newWorld(t)
		w.say("x")
		w.calls("write", `{"text":"echo ${HOME}"}`)
		if got := string(w.step("c0").Final); got != `{"text":"echo ${HOME}"}` {
			t.Fatal(got)
		}
	})
}

// A call whose only runner stopped waits for another as long as any call does that
// A call that every runner refuses is tried again at growing intervals, for somewhat
// Only core may use the codes that mean that a call did not run.
func TestAToolCannotSayThatItNeverRan(t *testing.T) {
	for _, code := range []tool.Code{
		tool.CodeCancelled, tool.CodeNotRun, tool.CodeSkipped, tool.CodeDenied, tool.CodeExpired,
	} {
		w := newWorld(t)
		w.say("x")
		w.calls("write", `{"text":"x"}`)
		w.result("c0", tool.Failure(code, "never ran"))
		w.codes(map[string]tool.Code{"c0": tool.CodeFailed})
		if r := w.resultOf("c0"); !strings.Contains(r.Error.Message, string(code)) || w.state.Breaker.Consecutive != 1 {
			t.Fatalf("%+v", r.Error)
		}
	}
}

// One commit may contain many results, and the log accepts 8 MiB.
func TestACommitStaysWithinWhatTheLogTakes(t *testing.T) {
	big := tool.Result{Success: true, Data: mustJSON(strings.Repeat("<", 100<<10))}
	t.Run("closing many calls", func(t *testing.T) {
		w := newWorld(t)
		in := w.say("x")
		var all []string
		for range 10 {
			all = append(all, "write", `{"text":"x"}`)
		}
		w.calls(all...)
		closings := decide.Closings{}
		for _, st := range w.state.Assigned() {
			closings[st.Call] = decide.Closing{
				Answer: executor.Answer{Attempt: st.Attempt, State: executor.Finished, Result: &big},
			}
		}
		w.process(w.cause(subject.Cancel, "web", fmt.Sprintf(`{"sequence":%d}`, in.Sequence)), closings)
		w.codes(map[string]tool.Code{"c0": "ok", "c9": tool.CodeTooLarge})
		if n := len(w.log[len(w.log)-1].body); n > 6<<20 {
			t.Fatalf("the commit has %d bytes", n)
		}
	})
	t.Run("composing a plan", func(t *testing.T) {
		w := newWorld(t)
		w.say("x")
		big := tool.Result{Success: true, Data: mustJSON(strings.Repeat("<", 30<<10))}
		steps := strings.TrimSuffix(strings.Repeat(`{"tool":"read"},`, 8), ",")
		w.calls("plan:execute", `{"steps":[`+steps+`]}`)
		for i := range 8 {
			w.result(fmt.Sprintf("c0-s%d", i), big)
		}
		w.codes(map[string]tool.Code{"c0": "ok"})
		if r := w.resultOf("c0"); len(r.Data) > 512<<10 || !strings.Contains(string(r.Data), `"cut":true`) {
			t.Fatalf("the plan's result has %d bytes", len(r.Data))
		}
	})
}
