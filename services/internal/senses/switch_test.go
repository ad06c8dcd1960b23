package senses_test

import (
	"strings"
	"testing"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/senses"
	"skandha.dev/services/test/natstest"
)

func TestASwitchIsFollowedAndSurvivesItsWriter(t *testing.T) {
	s := natstest.Start(t)
	ctx, one, two := natstest.Context(t), natstest.Connect(t, s), natstest.Connect(t, s)
	natstest.EnsureStreams(t, one)
	all, err := senses.Switches(ctx, one)
	if err != nil || len(all) != 0 {
		t.Fatalf("%v, %v, want no switch yet", all, err)
	}
	changes := make(chan senses.Position, 10)
	defer senses.FollowSwitch(two, "porch", func(p senses.Position) { changes <- p }).Stop()
	next := func() (s senses.Position) {
		select {
		case s = <-changes:
		case <-ctx.Done():
			t.Fatal("the switch is not followed")
		}
		return s
	}
	if s := next(); s.Switched || !s.Missed {
		t.Fatalf("%+v, want no switch", s)
	}
	for _, on := range []bool{false, true, false} {
		if _, err := senses.Turn(ctx, one, "porch", on, "ann"); err != nil {
			t.Fatal(err)
		}
		s := next()
		if last, err := senses.SwitchRevision(ctx, one, "porch"); err != nil || last == 0 || last != s.Revision {
			t.Fatalf("revision %d, %v, want %d", last, err, s.Revision)
		}
		if !s.Switched || s.Missed || s.On != on || s.By != "ann" || s.At.IsZero() {
			t.Fatalf("%+v, want %t by ann", s, on)
		}
	}
	if last, err := senses.SwitchRevision(ctx, one, "ear"); err != nil || last != 0 {
		t.Errorf("%d, %v, want no switch", last, err)
	}
	if _, err := senses.Turn(ctx, two, "ear", true, "bob"); err != nil {
		t.Fatal(err)
	}
	all, err = senses.Switches(ctx, natstest.Connect(t, s))
	if err != nil || len(all) != 2 || all["porch"].On || !all["ear"].On {
		t.Errorf("%v, %v", all, err)
	}
	if said := all["porch"].String(); !strings.HasPrefix(said, "switched off by ann at 2") {
		t.Error(said)
	}
}

func TestADamagedSwitchIsOff(t *testing.T) {
	s := natstest.Start(t)
	ctx, j := natstest.Context(t), natstest.Connect(t, s)
	natstest.EnsureStreams(t, j)
	if _, err := j.Bucket(journal.BucketListeners).Put(ctx, "switch.porch", []byte("{"), journal.Fence{}); err != nil {
		t.Fatal(err)
	}
	all, err := senses.Switches(ctx, j)
	if is, ok := all["porch"]; err != nil || !ok || is.On {
		t.Errorf("%v, %v", all, err)
	}
}

func TestASwitchNamesAListenerAndAPerson(t *testing.T) {
	for _, c := range []struct {
		listener subject.Writer
		by       string
	}{{"a.b", "ann"}, {"", "ann"}, {"porch", ""}, {"porch", "a\nb"}, {"porch", strings.Repeat("a", 129)}} {
		_, err := senses.Turn(natstest.Context(t), nil, c.listener, true, c.by)
		if err == nil {
			t.Errorf("%q by %q is accepted", c.listener, c.by)
		}
		if c.listener == "porch" && bus.CodeOf(err) != bus.CodeInvalidArgument {
			t.Errorf("%q: %v", c.by, err)
		}
	}
}

func TestAClockThatIsAheadSwitchesNothingInTheFuture(t *testing.T) {
	s := natstest.Start(t)
	ctx, j := natstest.Context(t), natstest.Connect(t, s)
	natstest.EnsureStreams(t, j)
	ahead := []byte(`{"on":false,"by":"ann","at":"2999-01-01T00:00:00Z"}`)
	if _, err := j.Bucket(journal.BucketListeners).Put(ctx, "switch.porch", ahead, journal.Fence{}); err != nil {
		t.Fatal(err)
	}
	if all, err := senses.Switches(ctx, j); err != nil || all["porch"].At.Year() == 2999 {
		t.Errorf("%v, %v, want the time of the bus", all, err)
	}
}
