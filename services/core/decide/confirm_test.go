package decide_test

import (
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

// asking returns a world in which a person is asked about call c0.
func asking(t *testing.T) (*world, decide.Cause) {
	w := newWorld(t)
	in := w.say("write to <them> & us")
	w.calls("mail:send", `{"to":"<them> & us"}`)
	if w.status("c0") != decide.Confirming || !w.state.Parked() || w.state.UI != event.StateConfirming {
		t.Fatalf("call is %s, parked %t", w.status("c0"), w.state.Parked())
	}
	return w, in
}

func TestAnApprovalRunsExactlyWhatWasShown(t *testing.T) {
	w, in := asking(t)
	shown := events[event.ToolCallRequest](w)[0]
	if shown.Hash != decide.Hash(catalog[shown.ToolName].Spec, shown.Args, nil) {
		t.Fatal("the hash is not that of the arguments as they are shown")
	}
	if want := w.now.Add(15 * time.Minute); !shown.ExpiresAt.Equal(want) ||
		shown.SecurityWarning.Level != hook.LevelCritical {
		t.Fatalf("%+v", shown)
	}
	before := len(w.log)
	if why := w.confirm("c0", true); why != "" {
		t.Fatal(why)
	}
	if len(w.log) != before+1 {
		t.Fatal("approval and assignment are not one commit")
	}
	runs := events[event.ActRequested](w)[0]
	if string(runs.Args) != string(shown.Args) || runs.Hash != shown.Hash || runs.ApprovedBy != "web" {
		t.Fatalf("shown %+v\nruns %+v", shown, runs)
	}
	if w.state.Driver == in.Sequence || w.state.Driver != w.last().Header.Trigger.Sequence {
		t.Fatalf("driver %d", w.state.Driver)
	}
	w.succeed("c0", `"sent"`)
	w.final("done")
	w.ends(in.Sequence, "recorded")
}

func TestWhatIsNoApproval(t *testing.T) {
	type answer struct {
		id, hash string
		at       time.Duration // after the request
	}
	for name, change := range map[string]func(*answer){
		"another call":                 func(a *answer) { a.id = "t1-p1-c9" },
		"no call":                      func(a *answer) { a.id = "" },
		"another hash":                 func(a *answer) { a.hash = strings.Repeat("0", 32) },
		"no hash":                      func(a *answer) { a.hash = "" },
		"the moment it expires":        func(a *answer) { a.at = 15 * time.Minute },
		"after it expired, unnoticed":  func(a *answer) { a.at = 15*time.Minute + 3*time.Second },
		"a prefix of the hash":         func(a *answer) { a.hash = a.hash[:31] },
		"the hash in upper case, also": func(a *answer) { a.hash = strings.ToUpper(a.hash) },
	} {
		t.Run(name, func(t *testing.T) {
			w, in := asking(t)
			st := w.step("c0")
			a := answer{id: st.Call, hash: st.Hash}
			change(&a)
			w.now = w.now.Add(a.at)
			c := w.cause(subject.Confirmation, "web",
				string(mustJSON(event.Confirmation{ConfirmationID: a.id, Hash: a.hash, Approved: true})))
			before := *w.state
			if reason := w.process(c, nil); reason != "" {
				t.Fatalf("it is not audited: %s", reason)
			}
			w.refused(before, a.id, a.hash)
			if n := len(events[event.ActRequested](w)); n > 0 || w.status("c0") != decide.Confirming {
				t.Fatal("it ran")
			}
			w.ends(in.Sequence, "")
		})
	}
	t.Run("stored before the request was", func(t *testing.T) {
		w := newWorld(t)
		w.say("x")
		early := w.cause(subject.Confirmation, "web", string(mustJSON(event.Confirmation{
			ConfirmationID: "t1-p1-c0", Hash: decide.Hash(catalog["mail:send"].Spec, []byte(`{"to":"x"}`), nil), Approved: true,
		})))
		w.calls("mail:send", `{"to":"x"}`)
		before := *w.state
		w.process(early, nil)
		if p := w.refused(before, "t1-p1-c0",
			decide.Hash(catalog["mail:send"].Spec, []byte(`{"to":"x"}`), nil)); !strings.Contains(p.Reason,
			"before the request") {
			t.Fatalf("%+v", p)
		}
	})
	t.Run("twice", func(t *testing.T) {
		w, _ := asking(t)
		st := w.step("c0")
		w.confirm("c0", true)
		again := w.cause(subject.Confirmation, "web",
			string(mustJSON(event.Confirmation{ConfirmationID: st.Call, Hash: st.Hash, Approved: true})))
		before := *w.state
		w.process(again, nil)
		if w.refused(before, st.Call, st.Hash); len(events[event.ActRequested](w)) != 1 {
			t.Fatal("it counted twice")
		}
	})
	for _, body := range []string{``, `{`, `[]`, `{"confirmation_id":7}`} {
		t.Run("garbage "+body, func(t *testing.T) {
			w, _ := asking(t)
			before := *w.state
			w.process(w.cause(subject.Confirmation, "web", body), nil)
			w.refused(before, "", "")
		})
	}
}

func TestARefusalIsTheCallsResult(t *testing.T) {
	w, in := asking(t)
	w.confirm("c0", false)
	w.codes(map[string]tool.Code{"c0": tool.CodeDenied})
	w.final("then not")
	w.ends(in.Sequence, "recorded")
}

func TestExpiryMeansDenied(t *testing.T) {
	w, in := asking(t)
	for _, c := range []decide.Cause{
		w.cause(subject.Timer, "web", `{"id":"t1-p1-c0"}`), // only core's timers count
		w.cause(subject.Timer, subject.TimerWriter, `{"id":"t1-p1-c9"}`),
		w.cause(subject.Timer, subject.TimerWriter, `{`),
	} {
		if reason := w.process(c, nil); reason == "" {
			t.Fatalf("%s of %s had an effect", w.seen.causes[c.Sequence].body, c.Writer)
		}
	}
	w.now = w.now.Add(15 * time.Minute)
	w.process(w.cause(subject.Timer, subject.TimerWriter, `{"id":"t1-p1-c0"}`), nil)
	w.codes(map[string]tool.Code{"c0": tool.CodeExpired})
	if c := events[event.ActConfirmed](w)[0]; c.Outcome != event.Expired || c.By != subject.TimerWriter {
		t.Fatalf("%+v", c)
	}
	w.final("pity")
	w.ends(in.Sequence, "recorded")
}

func TestAnApprovedCallWaitsForARunner(t *testing.T) {
	w, _ := asking(t)
	w.runners = nil
	w.confirm("c0", true)
	if w.status("c0") != decide.Approved || w.state.Parked() {
		t.Fatalf("call is %s", w.status("c0"))
	}
	w.runners = []subject.Instance{"r9"}
	w.progress()
	if st := w.step("c0"); st.Status != decide.Assigned || st.Runner != "r9" {
		t.Fatalf("%+v", st)
	}
	w.now = w.now.Add(time.Second)
	w.replied("c0", executor.Answer{State: executor.Refused, Reason: executor.RefusedLate})
	if st := w.step("c0"); st.Attempts != 2 || st.ApprovedBy != "web" {
		t.Fatalf("a refused attempt is not tried again: %+v", st)
	}
}

func TestThePersonsTimeIsNotTheTurns(t *testing.T) {
	minutes := func(n int) time.Duration { return time.Duration(n) * time.Minute }
	w := newWorld(t)
	w.agent.Limits.Wall = minutes(10)
	in := w.say("x")
	start := w.now
	w.now = w.now.Add(minutes(4))
	w.calls("mail:send", `{"to":"a"}`, "mail:send", `{"to":"b"}`, "write", `{"text":"c"}`)
	w.now = w.now.Add(minutes(12)) // both are pending, one call runs
	if d := decide.OnDeadline(w.state, w.state.Driver, nil, w.env()); d != nil {
		t.Fatal("the turn ended while people were asked")
	}
	w.confirm("c0", true)
	w.now = w.now.Add(minutes(1))
	w.confirm("c1", true)
	if want := start.Add(minutes(10 + 13)); !w.state.Turn.Deadline.Equal(want) {
		t.Fatalf("the deadline is %s, want %s: 13 minutes were the person's, not 25", w.state.Turn.Deadline, want)
	}
	if st := w.step("c1"); !st.NotAfter.After(w.now) {
		t.Fatalf("the call may not run: it is %s, not after %s", w.now, st.NotAfter)
	}
	w.now = start.Add(minutes(23) - time.Millisecond)
	if d := decide.OnDeadline(w.state, w.state.Driver, nil, w.env()); d != nil {
		t.Fatal("too early")
	}
	w.now = w.now.Add(time.Millisecond)
	d := decide.OnDeadline(w.state, w.state.Driver, nil, w.env())
	if d == nil {
		t.Fatal("too late")
	}
	w.commit(d, w.state.Driver)
	w.ends(in.Sequence, "deadline")
}

func TestPolicyDenialIsTheCallsResultAndNobodyIsAsked(t *testing.T) {
	w := newWorld(t)
	w.on(hook.BeforeAct, func(hook.Envelope) hook.Decision { return hook.Decision{Verb: hook.Confirm} })
	in := w.say("x")
	w.calls("forbidden", `{}`)
	w.codes(map[string]tool.Code{"c0": tool.CodeDenied})
	if len(events[event.ToolCallRequest](w)) > 0 {
		t.Fatal("a person was asked about what policy denies")
	}
	w.final("no")
	w.ends(in.Sequence, "recorded")
}

func TestARulingThatMeansNothingDenies(t *testing.T) {
	w := newWorld(t)
	w.policy = func(decide.Access) decide.Ruling { return decide.Ruling{} }
	w.say("x")
	w.calls("write", `{"text":"x"}`)
	w.codes(map[string]tool.Code{"c0": tool.CodeDenied})
}

func TestPolicyIsAskedAboutWhatRuns(t *testing.T) {
	w := newWorld(t)
	w.on(hook.BeforeAct, func(hook.Envelope) hook.Decision {
		return hook.Decision{Verb: hook.Replace, Data: []byte(`{"args":{"text":"changed"}}`)}
	})
	var got decide.Access
	w.policy = func(a decide.Access) decide.Ruling { got = a; return decide.Ruling{Effect: decide.Allow} }
	w.process(w.cause(subject.Input, "cron", `{"text":"x","source":"crontab"}`), nil)
	w.calls("write", `{"text":"x"}`)
	at := got.Context
	if got.Principal != "cron" || got.Action != "tool.call" || got.Resource.Name != "write" ||
		string(at.Args) != `{"text":"changed"}` ||
		at.Ref != ref || at.Turn != "t1" || at.Call != "t1-p1-c0" || at.Source != "crontab" {
		t.Fatalf("%+v", got)
	}
}

func TestConfirmationsAreListed(t *testing.T) {
	w, _ := asking(t)
	if n := len(w.state.Confirmations()); n != 1 {
		t.Fatalf("%d requests are pending", n)
	}
	w.confirm("c0", false)
	w.final("ok")
	if n := len(w.state.Confirmations()); n != 0 {
		t.Fatalf("%d requests are pending", n)
	}
}
