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

type seen struct {
	senses.Switch
	ok bool
}

func TestASwitchIsFollowedAndSurvivesItsWriter(t *testing.T) {
	s := natstest.Start(t)
	ctx, one, two := natstest.Context(t), natstest.Connect(t, s), natstest.Connect(t, s)
	natstest.EnsureStreams(t, one)
	all, err := senses.Switches(ctx, one)
	if err != nil || len(all) != 0 {
		t.Fatalf("%v, %v, want no switch yet", all, err)
	}
	changes := make(chan seen, 10)
	stop := senses.FollowSwitch(two, "porch", func(s senses.Switch, ok bool) { changes <- seen{s, ok} })
	defer stop()
	next := func() (s seen) {
		select {
		case s = <-changes:
		case <-ctx.Done():
			t.Fatal("the switch is not followed")
		}
		return s
	}
	if s := next(); s.ok {
		t.Fatalf("%+v, want no switch", s)
	}
	for _, on := range []bool{false, true, false} {
		if _, err := senses.Turn(ctx, one, "porch", on, "ann"); err != nil {
			t.Fatal(err)
		}
		if s := next(); !s.ok || s.On != on || s.By != "ann" || s.At.IsZero() {
			t.Fatalf("%+v, want %t by ann", s, on)
		}
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
