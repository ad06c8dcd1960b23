package decide_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/internal/executor"
)

// starts reports whether an event starts something, which a paused session must not. A probe only
// finds out what became of a call that ran.
func starts(e event.Event) (yes bool) {
	_ = event.Visitor{
		Perceived: func(p event.Perceived) {
			yes = p.Disposition == event.Started || p.Disposition == event.FromQueue
		},
		PlanRequested:   func(event.PlanRequested) { yes = true },
		ToolCallRequest: func(event.ToolCallRequest) { yes = true },
		ActRequested:    func(p event.ActRequested) { yes = p.Probe.IsZero() },
	}.Visit(e)
	return yes
}

// witness checks one event, which a paused session may have or not; about says whether it changes the
// open turn.
func (o *observer) witness(c event.Commit, e event.Event, seq uint64) (about bool, err error) {
	switch {
	case o.paused && starts(e):
		return true, errors.New("the session is paused")
	case e.Type == event.TypeSessionPaused:
		return see(e, o.pausing)
	}
	return o.event(c, e, seq)
}

// pausing checks one event. A resume makes its delivery the driver of the open turn.
func (o *observer) pausing(p event.SessionPaused) (about bool, err error) {
	if o.paused == p.Paused {
		return false, fmt.Errorf("paused %t, again", p.Paused)
	}
	o.paused = p.Paused
	return !p.Paused && o.open != "", nil
}

// rests checks that a session is paused, and that nobody needs to drive it.
func (w *world) rests() {
	w.t.Helper()
	if w.state.Turn != nil && !w.state.Parked() || w.state.Waits() || w.state.UI != event.StatePaused {
		w.t.Fatalf("parked %t, waits %t, shown as %s", w.state.Parked(), w.state.Waits(), w.state.UI)
	}
	if w.progress() {
		w.t.Fatal("it goes on")
	}
}

func TestAPausedSessionKeepsWhatIsSaid(t *testing.T) {
	w := newWorld(t)
	w.order("pause", "recorded")
	w.rests()
	one, two := w.say("one"), w.say("two")
	now := w.cause(subject.Input, "web", `{"text":"now!","mode":"interrupt"}`)
	w.process(now, nil)
	if w.rests(); w.state.Turn != nil || w.state.Driver != 0 || len(w.state.Queue) != 3 {
		t.Fatalf("%+v", w.state)
	}
	if notice := events[event.UIMessage](w); !strings.Contains(notice[len(notice)-1].Content, "/resume") {
		t.Errorf("nobody says so: %+v", notice)
	}
	w.order("resume", "recorded")
	for _, in := range []decide.Cause{one, two, now} {
		w.final("done")
		w.ends(in.Sequence, "recorded")
	}
	if w.state.UI != event.StateWaiting {
		t.Errorf("shown as %s", w.state.UI)
	}
}

func TestAFullQueueOfAPausedSessionSaysWhy(t *testing.T) {
	w := newWorld(t)
	w.agent.Limits.Queue = 1
	w.order("pause", "recorded")
	w.say("one")
	w.ends(w.say("two").Sequence, "queue_full")
	if failed := events[event.TurnFailed](w); !strings.Contains(failed[0].Reason, "/resume") {
		t.Errorf("%+v", failed)
	}
}

func TestWhatRunsInAPausedSessionIsKept(t *testing.T) {
	w := newWorld(t)
	in := w.say("x")
	w.order("pause", "recorded")
	if w.state.Driver != in.Sequence || w.state.Parked() {
		t.Fatal("the model's answer would be lost")
	}
	w.calls("write", `{"text":"a"}`)
	w.rests()
	if w.status("c0") != decide.Waiting {
		t.Fatal("a call began")
	}
	w.order("resume", "recorded")
	if w.status("c0") != decide.Assigned || w.state.Driver != w.state.Cursor {
		t.Fatalf("call is %s, driver %d", w.status("c0"), w.state.Driver)
	}
	w.order("pause", "recorded")
	w.succeed("c0", `"written"`)
	w.rests()
	w.order("resume", "recorded")
	w.order("pause", "recorded")
	w.final("done")
	w.ends(in.Sequence, "recorded")
	w.rests()
}

func TestTheTimeOfAPauseDoesNotCount(t *testing.T) {
	w := newWorld(t)
	w.agent.Limits.Wall = time.Minute
	in := w.say("x")
	w.order("pause", "recorded")
	w.calls("read", `{}`)
	w.now = w.now.Add(72 * time.Hour)
	if d := decide.OnDeadline(w.state, w.state.Driver, nil, w.env()); d != nil {
		t.Fatal("it ended")
	}
	w.runners = nil // since yesterday
	w.order("resume", "recorded")
	w.now = w.now.Add(20 * time.Second)
	w.progress()
	w.runners = []subject.Instance{"r1"}
	w.progress()
	w.succeed("c0", `1`)
	w.final("done")
	w.ends(in.Sequence, "recorded")
	w.now = w.now.Add(time.Hour)
	in = w.say("y")
	w.now = w.now.Add(61 * time.Second)
	if d := decide.OnDeadline(w.state, w.state.Driver, nil, w.env()); d == nil {
		t.Error("the next turn has no deadline")
	}
	w.ends(in.Sequence, "")
}

func TestAnApprovalInAPausedSessionWaits(t *testing.T) {
	w, in := asking(t)
	w.order("pause", "recorded")
	if w.state.UI != event.StateConfirming || !w.state.Parked() {
		t.Fatalf("shown as %s", w.state.UI)
	}
	if why := w.confirm("c0", true); why != "" {
		t.Fatal(why)
	}
	w.rests()
	if w.status("c0") != decide.Approved {
		t.Fatalf("call is %s", w.status("c0"))
	}
	w.order("resume", "recorded")
	w.succeed("c0", `"sent"`)
	w.final("done")
	w.ends(in.Sequence, "recorded")

	t.Run("and a denial counts", func(t *testing.T) {
		w, in := asking(t)
		w.order("pause", "recorded")
		w.confirm("c0", false)
		w.codes(map[string]tool.Code{"c0": tool.CodeDenied})
		w.rests()
		w.order("resume", "recorded")
		w.final("then not")
		w.ends(in.Sequence, "recorded")
	})
	t.Run("and it expires", func(t *testing.T) {
		w, _ := asking(t)
		w.order("pause", "recorded")
		w.now = w.now.Add(16 * time.Minute)
		w.process(w.cause(subject.Timer, subject.TimerWriter, `{"id":"`+w.step("c0").Call+`"}`), nil)
		w.codes(map[string]tool.Code{"c0": tool.CodeExpired})
		w.rests()
	})
}

// A failed attempt is not repeated while the session is paused, and not given up.
func TestAnotherAttemptWaitsForTheResume(t *testing.T) {
	for _, a := range []executor.Answer{{State: executor.Never}, {State: executor.Refused, Reason: executor.RefusedFull}} {
		w := newWorld(t)
		w.say("x")
		w.calls("read", `{}`)
		w.order("pause", "recorded")
		for range 20 {
			w.now = w.now.Add(time.Minute)
			if !w.replied("c0", a) {
				t.Fatal("it is decided")
			}
		}
		w.order("resume", "recorded")
		if w.replied("c0", a); w.step("c0").Attempts != 2 {
			t.Errorf("%+v", w.step("c0"))
		}
	}
	w := newWorld(t)
	in := w.say("x")
	w.order("pause", "recorded")
	p := w.state.Turn.Plan
	if d, retry := decide.OnPlanAnswer(w.state, w.state.Driver, executor.Answer{
		Call: p.ID, Attempt: p.Attempt, State: executor.Finished, Error: &provider.Error{Code: provider.ErrUnavailable, Retryable: true},
	}, w.env()); d != nil || !retry {
		t.Fatalf("decided: %t", d != nil)
	}
	w.order("resume", "recorded")
	w.fails(provider.ErrUnavailable, true)
	if p := w.state.Turn.Plan; p.Attempts != 2 {
		t.Fatalf("%+v", p)
	}
	w.final("done")
	w.ends(in.Sequence, "recorded")
}

func TestAPausedSessionCanBeEnded(t *testing.T) {
	for _, name := range []string{"cancel", "reset", "delete"} {
		w := newWorld(t)
		in := w.say("x")
		w.calls("write", `{"text":"a"}`)
		w.order("pause", "recorded")
		w.succeed("c0", `1`)
		next := w.say("y")
		w.order(name, "recorded")
		if w.outcome(in.Sequence) == "" {
			t.Errorf("/%s leaves the turn open", name)
		}
		if name == "cancel" {
			w.rests()
			w.order("resume", "recorded")
			w.final("done")
			w.ends(next.Sequence, "recorded")
		}
	}
}

func TestPauseAndResumeAreSaidOnce(t *testing.T) {
	w := newWorld(t)
	w.on(hook.BeforeSense, func(hook.Envelope) hook.Decision { return hook.Decision{Verb: hook.Continue} })
	w.order("resume", "recorded")
	w.order("pause", "recorded")
	w.order("pause", "recorded")
	w.order("resume", "recorded")
	w.order("resume", "recorded")
	var said []string
	for _, r := range events[event.Recorded](w) {
		said = append(said, r.Answer)
	}
	for i, want := range []string{"not paused", "Paused.", "already paused, by web", "Resumed; web", "not paused"} {
		if !strings.Contains(said[i], want) {
			t.Errorf("%q, want %q", said[i], want)
		}
	}
	if got := len(events[event.SessionPaused](w)); got != 2 {
		t.Errorf("%d events", got)
	}
	if b, err := json.Marshal(w.state); err != nil || strings.Contains(string(b), `"paused":{`) {
		t.Errorf("%s, %v", b, err)
	}
}
