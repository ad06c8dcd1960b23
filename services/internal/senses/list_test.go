package senses_test

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/senses"
	"skandha.dev/services/test/natstest"
)

// camera is a report of a camera that follows the change of its switch with a revision.
func camera(instance subject.Instance, follows uint64, on, recording bool) senses.Report {
	return senses.Report{
		Listener: "yard", Kind: "camera", State: "ok", Instance: instance, Media: senses.MediaCamera,
		Follows: follows, On: on, Recording: recording,
	}
}

func TestALightClaimsNoMoreThanIsKnown(t *testing.T) {
	off, on := &senses.Switch{Revision: 7}, &senses.Switch{On: true, Revision: 7}
	failed := camera("a", 0, true, false)
	failed.State, failed.Reason = "down", "no data for 4s; trying again every 1m0s"
	const fresh, late = 2 * time.Second, 26 * time.Second
	for name, c := range map[string]struct {
		r     senses.Report
		s     *senses.Switch
		age   time.Duration
		want  string
		state string
		on    bool // the switch
	}{
		"it records":                           {camera("a", 0, true, true), nil, fresh, "recording", "ok", true},
		"it was switched on and records":       {camera("a", 7, true, true), on, fresh, "recording", "ok", true},
		"its source fails":                     {failed, nil, fresh, "not recording", "down", true},
		"it is off by its configuration":       {camera("a", 0, false, false), nil, fresh, "not recording", "ok", false},
		"it is off":                            {camera("a", 7, false, false), off, fresh, "not recording", "ok", false},
		"it was switched on again meanwhile":   {camera("a", 8, true, true), off, fresh, "recording", "ok", false},
		"it does not follow":                   {camera("a", 5, true, true), off, fresh, "switched off, not confirmed by a", "ok", false},
		"off, and it was off before":           {camera("a", 5, false, false), off, fresh, "switched off, not confirmed by a", "ok", false},
		"it was off, and does not follow on":   {camera("a", 5, false, false), on, fresh, "not recording", "ok", true},
		"killed while it recorded":             {camera("a", 0, true, true), nil, late, "unknown, last heard 26 s ago, recording then", "unknown", true},
		"cut off while its source failed":      {failed, nil, 3 * time.Minute, "unknown, last heard 3 min ago", "unknown", true},
		"cut off while it was off, now on":     {camera("a", 5, false, false), on, late, "unknown, last heard 26 s ago", "unknown", true},
		"switched off while it was stopped":    {camera("a", 0, true, true), off, late, "switched off, not confirmed by a, last heard 26 s ago", "unknown", false},
		"stopped after it has confirmed":       {camera("a", 7, false, false), off, late, "not recording", "unknown", false},
		"no camera":                            {senses.Report{Listener: "irc", State: "ok"}, nil, late, "", "ok", false},
		"no camera, which is not heard of":     {senses.Report{Listener: "irc", State: "ok"}, nil, 32 * time.Second, "", "unknown", false},
		"a camera that is late by no interval": {camera("a", 0, true, true), nil, 4 * time.Second, "recording", "ok", true},
	} {
		l := senses.Judged(c.r, c.s, c.age)
		if l.Says != c.want || l.State != c.state || l.Wanted() != c.on {
			t.Errorf("%s: %q, %s, switched on: %t; want %q, %s, %t", name, l.Says, l.State, l.Wanted(), c.want, c.state, c.on)
		}
		if sure := l.Light == senses.LightNot || l.Light == senses.LightRecording; c.want != "" &&
			sure == (strings.Contains(c.want, "unknown") || strings.Contains(c.want, "confirmed")) {
			t.Errorf("%s: the light is %s", name, l.Light)
		}
	}
}

func TestEachProcessOfAListenerIsListedAndConfirms(t *testing.T) {
	ctx, j := natstest.Context(t), natstest.Connect(t, natstest.Start(t))
	natstest.EnsureStreams(t, j)
	put := func(r senses.Report) {
		t.Helper()
		if err := senses.Put(ctx, j, r); err != nil {
			t.Fatal(err)
		}
	}
	list := func(want ...string) {
		t.Helper()
		all, err := senses.List(ctx, j)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, l := range all {
			got = append(got, string(l.Instance)+": "+l.Says)
		}
		if strings.Join(got, "; ") != strings.Join(want, "; ") {
			t.Errorf("listed are %q, want %q", got, want)
		}
	}
	put(camera("one", 0, true, true))
	put(camera("two", 0, true, true))
	list("one: recording", "two: recording")
	revision, err := senses.Turn(ctx, j, "yard", false, "ann")
	if err != nil {
		t.Fatal(err)
	}
	put(camera("one", revision, false, false))
	list("one: not recording", "two: switched off, not confirmed by two")
	if err := senses.Remove(ctx, j, "yard", "one"); err != nil {
		t.Fatal(err)
	}
	list("two: switched off, not confirmed by two")
	put(camera("two", revision, false, false))
	list("two: not recording")
	if known, err := senses.Known(ctx, j, "yard"); err != nil || !known {
		t.Errorf("%t, %v", known, err)
	}
}

// ended is a process of this machine that has ended.
func ended(t *testing.T) senses.Process {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/bin/true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	p := senses.Here()
	p.PID, p.Began = cmd.Process.Pid, "1"
	return p
}

func TestADeadProcessIsRecognizedOnItsMachineOnly(t *testing.T) {
	here, dead := senses.Here(), ended(t)
	reused := here
	reused.Began = "1"
	elsewhere, otherBoot := dead, dead
	elsewhere.Host, otherBoot.Space = "elsewhere", "another"
	for name, c := range map[string]struct {
		p    senses.Process
		dead bool
	}{
		"this one": {here, false}, "one that has ended": {dead, true}, "one whose pid another one has": {reused, true},
		"one of another machine": {elsewhere, false}, "one of another boot": {otherBoot, false}, "unknown": {senses.Process{}, false},
	} {
		if got := c.p.Dead(); got != c.dead {
			t.Errorf("%s: dead is %t", name, got)
		}
	}
}

func TestADeadProcessIsNotWaitedForAndRemovedByTheNext(t *testing.T) {
	ctx, j := natstest.Context(t), natstest.Connect(t, natstest.Start(t))
	natstest.EnsureStreams(t, j)
	killed := camera("killed", 0, true, true)
	killed.Process = ended(t)
	other := killed
	other.Listener = "hall"
	for _, r := range []senses.Report{killed, other} {
		if err := senses.Put(ctx, j, r); err != nil {
			t.Fatal(err)
		}
	}
	all, err := senses.List(ctx, j)
	if err != nil || len(all) != 2 || all[1].State != senses.StateDown || all[1].Light != senses.LightNot || !all[1].Confirmed(99) {
		t.Errorf("%+v, %v", all, err)
	}
	live := camera("live", 0, true, true)
	live.Process = senses.Here()
	if err := senses.Put(ctx, j, live); err != nil {
		t.Fatal(err)
	}
	if all, err = senses.List(ctx, j); err != nil || len(all) != 2 || all[1].Instance != "live" {
		t.Errorf("%+v, %v; want the dead process of hall and the live one of yard", all, err)
	}
	if err := senses.Sweep(ctx, j, []subject.Writer{"yard"}); err != nil {
		t.Fatal(err)
	}
	left := 0
	for e, err := range j.Bucket(journal.BucketListeners).Matching(ctx, "health.>") {
		if err != nil {
			t.Fatal(err)
		}
		if !e.Deleted {
			left++
		}
	}
	if left != 2 {
		t.Errorf("%d reports are left, want that of hall and that of the live process", left)
	}
}
