package main

import (
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/senses"
	"skandha.dev/services/test/natstest"
)

// yard is a camera as a process has reported it.
func yard(instance subject.Instance, follows uint64, on bool) senses.Report {
	return senses.Report{
		Listener: "yard", Kind: "camera", State: "ok", Instance: instance, Media: senses.MediaCamera,
		Follows: follows, On: on, Recording: on, Process: senses.Process{Host: "garage", PID: 4711},
	}
}

// Two processes have one camera: it is off when both have confirmed, and not before.
func TestACameraIsOffWhenEveryProcessHasConfirmed(t *testing.T) {
	w := newWorld(t)
	ctx := natstest.Context(t)
	put := func(r senses.Report) {
		t.Helper()
		if err := senses.Put(ctx, w.c.Journal, r); err != nil {
			t.Fatal(err)
		}
	}
	follow := func(stop <-chan struct{}, instance subject.Instance) { // as a process does
		end := senses.FollowSwitch(w.c.Journal, "yard", func(p senses.Position) {
			_ = senses.Put(ctx, w.c.Journal, yard(instance, p.Revision, p.On || !p.Switched))
		})
		<-stop
		end.Stop()
	}
	stop := make(chan struct{})
	defer close(stop)
	go follow(stop, "one")
	natstest.Eventually(t, "both record", func() bool {
		put(yard("frozen", 0, true))
		out, _, err := says(t, "listeners", "--data", w.data)
		return err == nil && strings.Count(out, "● recording") == 2
	})

	out, _, err := says(t, "listeners", "off", "yard", "--wait", "100ms", "--data", w.data)
	if err == nil || !strings.Contains(out, "frozen (pid 4711 on garage): last heard") ||
		!strings.Contains(out, "it may still record") || strings.Contains(out, "records nothing") {
		t.Errorf("%v\n%s", err, out)
	}
	out, _, err = says(t, "listeners", "--data", w.data)
	if err != nil || !strings.Contains(out, "! switched off, not confirmed by frozen") {
		t.Errorf("%v\n%s", err, out)
	}
	if out, _, err = says(t, "status", "--data", w.data); err != nil || !strings.Contains(out, "! switched off, not confirmed by frozen") {
		t.Errorf("%v\n%s", err, out)
	}
	go follow(stop, "frozen") // it runs again
	natstest.Eventually(t, "both have confirmed", func() bool {
		out, _, err = says(t, "listeners", "off", "yard", "--data", w.data)
		return err == nil
	})
	if out != "yard is off and records nothing.\n" {
		t.Errorf("%s", out)
	}
	if out, _, err = says(t, "listeners", "on", "yard", "--data", w.data); err != nil || out != "yard records.\n" {
		t.Errorf("%v\n%s", err, out)
	}
	if _, all, err := says(t, "listeners", "off", "porch", "--data", w.data); err == nil ||
		!strings.Contains(all, `no camera or microphone "porch"; there are yard`+"\n") {
		t.Errorf("%v, %s", err, all)
	}
}

func TestASwitchThatSomebodyTurnedAgainIsNotClaimed(t *testing.T) {
	by := &senses.Switch{On: true, By: "bob", At: time.Unix(1764115200, 0), Revision: 9}
	var out strings.Builder
	sure := oneListener{Name: "yard"}.outcome(&out, []senses.Listed{{Report: yard("one", 9, true), Switch: by}}, false, 8)
	if sure || out.String() != "yard was switched on by bob at 2025-11-26 00:00:00 UTC meanwhile.\n" {
		t.Errorf("%t: %s", sure, &out)
	}
}

// Revisions begin anew if the bus has lost its data.
func TestWhatRecordsIsNeverCalledOff(t *testing.T) {
	var out strings.Builder
	records := senses.Listed{Report: yard("one", 500, true), Switch: &senses.Switch{Revision: 3}}
	if (oneListener{Name: "yard"}).outcome(&out, []senses.Listed{records}, false, 3) || !strings.Contains(out.String(), "NOT CONFIRMED") {
		t.Errorf("%s", &out)
	}
}

// What does not record is not said to be switched off.
func TestTheSwitchTheLightAndTheHealthAreThreeThings(t *testing.T) {
	failing := senses.Listed{Report: yard("one", 0, true), Light: senses.LightNot, Says: "not recording"}
	failing.State, failing.Reason = "down", "no data for 4s; trying again every 1m0s"
	off := senses.Listed{Report: yard("two", 3, false), Light: senses.LightNot, Says: "not recording", Switch: &senses.Switch{}}
	gone := senses.Listed{Report: yard("three", 0, true), Light: senses.LightUnknown, Says: "unknown, last heard 26 s ago, recording then"}
	gone.State = senses.StateUnknown
	var out strings.Builder
	if err := printListeners(&out, []senses.Listed{failing, off, gone, {Report: senses.Report{Listener: "irc", State: "ok"}}}); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{
		"LISTENER KIND SWITCH LIGHT STATE SINCE INSTANCE REASON",
		"yard camera on ○ not recording down one no data for 4s; trying again every 1m0s",
		"yard camera off ○ not recording ok two",
		"yard camera on ! unknown, last heard 26 s ago, recording then unknown three",
		"irc ok",
	} {
		if got := strings.Join(strings.Fields(strings.Split(out.String(), "\n")[i]), " "); got != want {
			t.Errorf("line %d is %q, want %q", i, got, want)
		}
	}
}

func TestOnlyAProcessThatDoesNotReportIsForgotten(t *testing.T) {
	reports, silent := senses.Listed{Report: yard("one", 0, true)}, senses.Listed{Report: yard("one", 0, true)}
	silent.State = senses.StateUnknown
	c := listenersForgetCmd{oneListener{"yard"}, "one"}
	for _, all := range [][]senses.Listed{nil, {reports}} {
		if err := c.check(all); err == nil {
			t.Errorf("%+v is forgotten", all)
		}
	}
	if err := c.check([]senses.Listed{silent}); err != nil {
		t.Error(err)
	}
}
