package decide_test

import (
	"fmt"
	"strings"
	"testing"

	"skandha.dev/pkg/event"
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
	if d := decide.OnPoison(w.state, c.Sequence, c, "poison", w.env()); d != nil {
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
		{
			"an envelope of another type",
			`{"specversion":"1.0","id":"1","source":"s","type":"skandha.sense.command.v1","data":{"text":"x"}}`, "malformed",
			nil,
		},
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
				return hook.Decision{
					Verb: hook.Replace, Data: []byte(fmt.Sprintf(`{"perceptions":[{"id":"%d","drop":true}]}`, w.seq)),
				}
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
	put := func(i int) {
		c := w.cause(subject.Input, "web", fmt.Sprintf(`{"text":"x","id":"%d"}`, i))
		d, _ := decide.OnCause(w.state, c.Sequence, c, nil, w.env())
		w.seq++
		next, err := w.state.Apply(d.Commit, w.seq)
		if err != nil {
			t.Fatal(err)
		}
		w.state = next
	}
	for i := range 1030 {
		put(i)
	}
	if n := len(w.state.Seen); n != 1024 {
		t.Fatalf("%d ids are kept", n)
	}
	queued := len(w.state.Queue)
	put(6) // the oldest that is kept: 0 to 5 were dropped
	if len(w.state.Queue) != queued {
		t.Fatal("a repeated id within the last 1024 was taken")
	}
	put(5)
	if len(w.state.Queue) != queued+1 {
		t.Fatal("an id that was forgotten was refused")
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
		w.commit(decide.OnPoison(w.state, c.Sequence, c, "it kills", w.env()), c.Sequence)
		w.ends(c.Sequence, "poison")
	})
	t.Run("a cause is poison once enough cores have ended while they decided it", func(t *testing.T) {
		w := newWorld(t)
		in := w.say("x")
		c := w.cause(subject.Input, "web", `{"text":"y"}`)
		all := func(subject.Instance) bool { return true }
		begin := func(core subject.Instance) {
			w.commit(decide.OnBegin(w.state, c.Sequence, c.Sequence, core, w.env()), c.Sequence)
		}
		begin("core-1")
		begin("core-1") // the same one: it lives
		begin("core-2")
		w.commit(decide.OnSurvived(w.state, c.Sequence, c.Sequence, "core-2", w.env()), c.Sequence)
		w.answer(provider.Response{TextContent: "answer"}) // another cause's commit does not reset the marks
		if w.state.Poisonous(c.Sequence, all) || w.state.Poisonous(in.Sequence, all) {
			t.Fatalf("%+v is poison", w.state.Begun)
		}
		begin("core-3")
		if !w.state.Poisonous(c.Sequence, all) || w.state.Poisonous(in.Sequence, all) {
			t.Fatalf("%+v", w.state.Begun)
		}
		if w.state.Poisonous(c.Sequence, func(core subject.Instance) bool { return core != "core-3" }) {
			t.Fatal("a core that still decides it counts")
		}
		w.commit(decide.OnPoison(w.state, c.Sequence, c, "it kills", w.env()), c.Sequence)
		if w.state.Begun != nil {
			t.Fatalf("%+v goes on counting", w.state.Begun)
		}
	})
	t.Run("what the turn goes on with settles its marks, an input that queues does not", func(t *testing.T) {
		w := newWorld(t)
		in := w.say("x")
		w.commit(decide.OnBegin(w.state, in.Sequence, in.Sequence, "core-1", w.env()), in.Sequence)
		c := w.cause(subject.Input, "web", `{"text":"y"}`)
		w.commit(decide.OnBegin(w.state, c.Sequence, c.Sequence, "core-1", w.env()), c.Sequence)
		w.process(c, nil)
		if w.state.Driven == nil || w.state.Driver != in.Sequence || w.state.Begun != nil {
			t.Fatalf("driven %+v, begun %+v, driver %d", w.state.Driven, w.state.Begun, w.state.Driver)
		}
		w.calls("write", `{"text":"x"}`)
		if w.state.Driven != nil {
			t.Fatalf("%+v goes on counting", w.state.Driven)
		}
	})
	t.Run("it leaves the running turn alone", func(t *testing.T) {
		w := newWorld(t)
		in := w.say("x")
		c := w.cause(subject.Input, "web", `{"text":"y"}`)
		w.commit(decide.OnPoison(w.state, c.Sequence, c, "it kills", w.env()), c.Sequence)
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
	t.Run("a poisonous timer leaves no request pending forever", func(t *testing.T) {
		w := newWorld(t)
		in := w.say("x")
		w.calls("mail:send", `{"to":"you"}`)
		w.now = w.step("c0").ExpiresAt
		c := w.cause(subject.Timer, subject.TimerWriter, `{"id":"t1-p1-c0"}`)
		w.commit(decide.OnPoison(w.state, c.Sequence, c, "it kills", w.env()), c.Sequence)
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

// lock opens the circuit breaker: eight calls fail.
func lock(w *world) {
	w.t.Helper()
	w.agent.Limits.Calls = 0
	w.say("break it")
	var all []string
	for range 8 {
		all = append(all, "write", `{"text":"x"}`)
	}
	w.calls(all...)
	for i := range 8 {
		w.result(fmt.Sprintf("c%d", i), tool.Failure(tool.CodeFailed, "broken"))
	}
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
	w.process(w.cause(subject.Confirmation, "web",
		fmt.Sprintf(`{"confirmation_id":%q,"hash":%q,"reason":%q}`, st.Call, st.Hash, long)), nil)
	w.process(w.cause(subject.Cancel, "web", fmt.Sprintf(`{"sequence":%d,"reason":%q}`, in.Sequence, long)), nil)
	w.ends(in.Sequence, "cancelled")
	for _, m := range w.log {
		if len(m.body) > 20_000 {
			t.Fatalf("commit %d has %d bytes", m.seq, len(m.body))
		}
	}
}
