package decide_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/executor"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/decide"
)

func TestInputsWaitTheirTurnInTheOrderOfTheLog(t *testing.T) {
	w := newWorld(t)
	first, second, third := w.say("one"), w.say("two"), w.say("three")
	if w.state.Driver != first.Sequence {
		t.Fatalf("queueing moved the driver to %d", w.state.Driver)
	}
	for _, c := range []decide.Cause{first, second, third} {
		if got := w.state.Turn.Sequence; got != c.Sequence {
			t.Fatalf("the turn of %d is open, want that of %d", got, c.Sequence)
		}
		w.final("answer")
		w.ends(c.Sequence, "recorded")
	}
	if w.state.Turn != nil || w.state.Driver != 0 || w.state.UI != event.StateWaiting {
		t.Fatalf("the session is not idle: driver %d, %s", w.state.Driver, w.state.UI)
	}
	var texts []string
	for _, m := range w.said() {
		texts = append(texts, m.Text)
	}
	if got := strings.Join(texts, " "); got != "one answer two answer three answer" {
		t.Fatalf("the conversation is %q", got)
	}
}

func TestACauseIsProcessedOnce(t *testing.T) {
	w := newWorld(t)
	c := w.say("hi")
	if d, reason := decide.OnCause(w.state, c.Sequence, c, nil, w.env()); d != nil || reason == "" {
		t.Fatalf("decided again: %v, %q", d, reason)
	}
	if d := decide.OnPoison(w.state, c.Sequence, c.Sequence, w.now, "poison", w.env()); d != nil {
		t.Fatal("a processed cause was ended as poison")
	}
}

// Every stored input gets exactly one terminal event, with the code that says why.
func TestInputsThatEndAtOnce(t *testing.T) {
	long := strings.Repeat("x", event.MaxTextBytes+1)
	for _, c := range []struct {
		name, body, want string
		given            func(*world)
	}{
		{"empty body", ``, "malformed", nil},
		{"no object", `[1]`, "malformed", nil},
		{"no JSON", `{"text":`, "malformed", nil},
		{"no text", `{}`, "malformed", nil},
		{"text of another type", `{"text":7}`, "malformed", nil},
		{"text is no UTF-8", "{\"text\":\"\xff\"}", "malformed", nil},
		{"too long", `{"text":"` + long + `"}`, "malformed", nil},
		{"id too long", `{"text":"x","id":"` + strings.Repeat("i", 129) + `"}`, "malformed", nil},
		{"unknown mode", `{"text":"x","mode":"now"}`, "malformed", nil},
		{"an envelope of another type", `{"specversion":"1.0","id":"1","source":"s","type":"skandha.sense.command.v1","data":{"text":"x"}}`, "malformed", nil},
		{"unknown agent", `{"text":"x"}`, "unknown_agent", func(w *world) { w.agent = nil }},
		{"id taken before", `{"text":"x","id":"i1"}`, "duplicate_of", func(w *world) {
			w.process(w.cause(subject.Input, "web", `{"text":"x","id":"i1"}`), nil)
		}},
		{"locked", `{"text":"x"}`, "session_locked", lock},
		{"queue full", `{"text":"x"}`, "queue_full", func(w *world) { w.agent.Limits.Queue = 0; w.say("busy") }},
		{"denied before sense", `{"text":"x"}`, "denied", func(w *world) {
			w.on(hook.BeforeSense, func(hook.Envelope) hook.Decision { return hook.Decision{Verb: hook.DenyVerb, Reason: "no"} })
		}},
		{"denied after sense", `{"text":"x"}`, "denied", func(w *world) {
			w.on(hook.AfterSense, func(hook.Envelope) hook.Decision { return hook.Decision{Verb: hook.DenyVerb, Reason: "no"} })
		}},
		{"dropped", `{"text":"x"}`, "dropped", func(w *world) {
			w.on(hook.AfterSense, func(e hook.Envelope) hook.Decision {
				return hook.Decision{Verb: hook.Replace, Data: []byte(fmt.Sprintf(`{"perceptions":[{"id":"%d","drop":true}]}`, w.seq))}
			})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			if c.given != nil {
				c.given(w)
			}
			open := w.state.Turn
			in := w.cause(subject.Input, "web", c.body)
			w.process(in, nil)
			w.ends(in.Sequence, c.want)
			if (w.state.Turn == nil) != (open == nil) || w.state.Cursor != in.Sequence {
				t.Fatalf("turn %v, cursor %d", w.state.Turn, w.state.Cursor)
			}
		})
	}
}

func TestUnknownKindsOfCauseAreEnded(t *testing.T) {
	w := newWorld(t)
	c := w.cause("gossip", "web", `{"text":"x"}`)
	w.process(c, nil)
	w.ends(c.Sequence, "unknown_cause")
}

func TestAnInputIDIsItsWritersOwn(t *testing.T) {
	w := newWorld(t)
	body := `{"text":"x","id":"1"}`
	first := w.cause(subject.Input, "web", body)
	w.process(first, nil)
	w.final("a")
	again, other := w.cause(subject.Input, "web", body), w.cause(subject.Input, "cli", body)
	w.process(again, nil)
	w.process(other, nil)
	w.final("b")
	w.ends(again.Sequence, "duplicate_of")
	w.ends(other.Sequence, "recorded")
}

func TestTheLast1024InputIDsAreKnown(t *testing.T) {
	w := newWorld(t)
	w.agent.Limits.Queue = 5000
	put := func(i int) decide.Cause {
		c := w.cause(subject.Input, "web", fmt.Sprintf(`{"text":"x","id":"%d"}`, i))
		d, _ := decide.OnCause(w.state, c.Sequence, c, nil, w.env())
		w.seq++
		next, err := w.state.Apply(d.Commit, w.seq)
		if err != nil {
			t.Fatal(err)
		}
		w.state = next
		return c
	}
	for i := range 1030 {
		put(i)
	}
	if n := len(w.state.Seen); n != 1024 {
		t.Fatalf("%d ids are kept", n)
	}
	queued := len(w.state.Queue)
	put(6) // the oldest that is kept: 0 to 5 have gone
	if len(w.state.Queue) != queued {
		t.Fatal("a repeated id within the last 1024 was taken")
	}
	put(5)
	if len(w.state.Queue) != queued+1 {
		t.Fatal("an id that was forgotten was refused")
	}
}

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
			t.Fatalf("the end of a queued input is told as of turn %s", e.Turn)
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
		if reason := w.process(w.cause(subject.Cancel, "web", fmt.Sprintf(`{"sequence":%d}`, in.Sequence)), nil); reason == "" {
			t.Fatal("it had an effect")
		}
	})
}

// Rule 10: what is said of a call that is closed is what its runner said.
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
		{"nobody can be reached", func(decide.Step) (decide.Closing, bool) { return decide.Closing{Unreachable: true}, true }, tool.CodeOutcomeUnknown},
		{"nobody was asked", func(decide.Step) (decide.Closing, bool) { return decide.Closing{}, false }, tool.CodeOutcomeUnknown},
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
	w.calls("plan:execute", `{"steps":[{"id":"a","tool":"write","params":{"text":"1"}},{"id":"b","tool":"write","params":{"text":"2"}},
		{"id":"c","tool":"write","params":{"text":"3"},"depends_on":["b"]}]}`)
	w.succeed("c0-s0", `"written"`)
	st := w.step("c0-s1")
	w.process(w.cause(subject.Cancel, "web", fmt.Sprintf(`{"sequence":%d}`, in.Sequence)),
		decide.Closings{st.Call: {Answer: executor.Answer{Attempt: st.Attempt, State: executor.Stopped}}})
	w.codes(map[string]tool.Code{"c0-s0": "ok", "c0-s1": tool.CodeOutcomeUnknown, "c0-s2": tool.CodeCancelled, "c0": tool.CodeFailed})
	shown := string(w.resultOf("c0").Data)
	for _, want := range []string{`"data":"written"`, `"code":"outcome_unknown"`, `"code":"cancelled"`} {
		if !strings.Contains(shown, want) {
			t.Fatalf("the model is not told %s: %s", want, shown)
		}
	}
}

func TestPoison(t *testing.T) {
	noHooks := func(w *world) {
		for _, p := range hook.Points() {
			w.on(p, func(e hook.Envelope) hook.Decision {
				w.t.Fatalf("%s was asked about poison", e.Point)
				return hook.Decision{}
			})
		}
	}
	t.Run("a cause is ended unseen and without hooks", func(t *testing.T) {
		w := newWorld(t)
		noHooks(w)
		c := w.cause(subject.Input, "web", `{"text":"x"}`)
		w.commit(decide.OnPoison(w.state, c.Sequence, c.Sequence, c.Time, "it kills", w.env()), c.Sequence)
		w.ends(c.Sequence, "poison")
	})
	t.Run("it leaves the running turn alone", func(t *testing.T) {
		w := newWorld(t)
		in := w.say("x")
		c := w.cause(subject.Input, "web", `{"text":"y"}`)
		w.commit(decide.OnPoison(w.state, c.Sequence, c.Sequence, c.Time, "it kills", w.env()), c.Sequence)
		if w.state.Driver != in.Sequence || w.state.Turn == nil {
			t.Fatalf("driver %d", w.state.Driver)
		}
	})
	t.Run("a turn is closed without hooks; the next one has them", func(t *testing.T) {
		w := newWorld(t)
		in, next := w.say("x"), w.say("y")
		w.calls("write", `{"text":"x"}`)
		asked := 0
		noHooks(w)
		w.on(hook.BeforePlan, func(hook.Envelope) hook.Decision { asked++; return hook.Decision{Verb: hook.Continue} })
		w.commit(decide.OnPoisonTurn(w.state, w.state.Driver, nil, "it kills", w.env()), w.state.Driver)
		w.ends(in.Sequence, "poison")
		if w.state.Turn.Sequence != next.Sequence || asked != 1 {
			t.Fatalf("turn of %d, hooks asked %d times", w.state.Turn.Sequence, asked)
		}
	})
	t.Run("a poisonous timer leaves nobody waiting for ever", func(t *testing.T) {
		w := newWorld(t)
		in := w.say("x")
		w.calls("mail:send", `{"to":"you"}`)
		w.now = w.step("c0").ExpiresAt
		c := w.cause(subject.Timer, subject.TimerWriter, `{"id":"t1-p1-c0"}`)
		w.commit(decide.OnPoison(w.state, c.Sequence, c.Sequence, c.Time, "it kills", w.env()), c.Sequence)
		if w.state.Parked() || w.state.Driver != c.Sequence || !w.state.Waits() {
			t.Fatal("nobody has to drive")
		}
		if w.progress() {
			t.Fatal("the request was ended while an answer may still come in")
		}
		w.now = w.now.Add(31e9)
		w.progress()
		w.codes(map[string]tool.Code{"c0": tool.CodeExpired})
		w.final("well")
		w.ends(in.Sequence, "recorded")
	})
}

func TestCommands(t *testing.T) {
	t.Run("are answered beside the running turn", func(t *testing.T) {
		for _, name := range []string{"help", "/help", "tools", "provider", "metrics"} {
			w := newWorld(t)
			in := w.say("x")
			c := w.cause(subject.Command, "web", fmt.Sprintf(`{"name":%q}`, name))
			w.process(c, nil)
			w.ends(c.Sequence, "recorded")
			r := events[event.Recorded](w)[0]
			if r.Command != strings.TrimPrefix(name, "/") || r.Answer == "" || w.state.Driver != in.Sequence {
				t.Fatalf("%s: %+v, driver %d", name, r, w.state.Driver)
			}
			for _, e := range w.last().Events {
				if e.Turn != "" {
					t.Fatalf("%s is told as of turn %s", e.Type, e.Turn)
				}
			}
			w.final("done")
			w.ends(in.Sequence, "recorded")
		}
	})
	for _, c := range []struct{ name, body, want string }{
		{"unknown", `{"name":"quit"}`, "unknown_command"},
		{"garbage", `{`, "malformed"},
		{"an id too long", `{"name":"help","id":"` + strings.Repeat("i", 129) + `"}`, "malformed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			x := w.cause(subject.Command, "web", c.body)
			w.process(x, nil)
			w.ends(x.Sequence, c.want)
		})
	}
	t.Run("a repeated one is a duplicate", func(t *testing.T) {
		w := newWorld(t)
		one, two := w.cause(subject.Command, "web", `{"name":"help","id":"1"}`), w.cause(subject.Command, "web", `{"name":"reset","id":"1"}`)
		w.process(one, nil)
		w.process(two, nil)
		w.ends(one.Sequence, "recorded")
		w.ends(two.Sequence, "duplicate_of")
	})
	t.Run("/reset ends everything, forgets and unlocks", func(t *testing.T) {
		w := newWorld(t)
		lock(w)
		c := w.cause(subject.Command, "web", `{"name":"/reset"}`)
		w.process(c, nil)
		w.ends(c.Sequence, "recorded")
		one, two := w.say("one"), w.say("two")
		c = w.cause(subject.Command, "web", `{"name":"/reset"}`)
		w.process(c, nil)
		w.ends(one.Sequence, "reset")
		w.ends(two.Sequence, "reset")
		w.ends(c.Sequence, "recorded")
		if w.state.Locked != "" || len(w.state.Window) != 0 || w.state.Driver != 0 || !slices.Equal(w.state.Breaker.Recent, nil) {
			t.Fatalf("%+v", w.state)
		}
		w.reload()
	})
	t.Run("/cancel ends what ran when it was stored", func(t *testing.T) {
		w := newWorld(t)
		one, two := w.say("one"), w.say("two")
		c := w.cause(subject.Command, "web", `{"name":"/cancel"}`)
		w.process(c, nil)
		w.ends(one.Sequence, "cancelled")
		w.ends(c.Sequence, "recorded")
		if w.state.Turn.Sequence != two.Sequence {
			t.Fatal("the next one has not begun")
		}
	})
	t.Run("/cancel hits no turn that began after it was stored", func(t *testing.T) {
		w := newWorld(t)
		in := w.cause(subject.Input, "web", `{"text":"x"}`)
		c := w.cause(subject.Command, "web", `{"name":"/cancel"}`)
		w.process(in, nil) // its commit stands behind the command
		if must := decide.MustClose(w.state, c); len(must) > 0 {
			t.Fatal("it would stop calls")
		}
		w.process(c, nil)
		w.ends(in.Sequence, "")
		w.ends(c.Sequence, "recorded")
	})
}

// lock opens the circuit breaker: eight calls fail.
func lock(w *world) {
	w.t.Helper()
	w.agent.Limits.Calls = 0
	w.say("break it")
	var all []string
	for range 8 {
		all = append(all, "nonsense", "{}")
	}
	w.calls(all...)
	if w.state.Locked == "" {
		w.fail("eight failures have not locked the session")
	}
}

func TestWhatSendersSayIsBounded(t *testing.T) {
	w := newWorld(t)
	long := strings.Repeat("ä", 100_000)
	in := w.cause(subject.Input, "web", `{"text":"x","source":"`+long+`"}`)
	w.process(in, nil)
	if n := len(w.state.Turn.Source); n > 300 {
		t.Fatalf("a source of %d bytes is kept", n)
	}
	w.answer(provider.Response{ToolCalls: calls("mail:send", `{"to":"x"}`)})
	st := w.step("c0")
	w.process(w.cause(subject.Confirmation, "web", fmt.Sprintf(`{"confirmation_id":%q,"hash":%q,"reason":%q}`, st.Call, st.Hash, long)), nil)
	w.process(w.cause(subject.Cancel, "web", fmt.Sprintf(`{"sequence":%d,"reason":%q}`, in.Sequence, long)), nil)
	w.ends(in.Sequence, "cancelled")
	for _, m := range w.log {
		if len(m.body) > 20_000 {
			t.Fatalf("commit %d has %d bytes", m.seq, len(m.body))
		}
	}
}
