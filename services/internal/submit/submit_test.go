package submit_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/submit"
	"skandha.dev/services/test/natstest"
)

func TestWhyACauseIsNotStored(t *testing.T) {
	fault := &bus.StorageFault{Reason: "disk full"}
	for _, c := range []struct {
		err  error
		want submit.Reason
	}{
		{bus.Errorf(bus.CodeOverloaded, "7 inputs wait"), submit.Overloaded},
		{fmt.Errorf("%w: %w", bus.ErrRefused, fault), submit.Full},
		{fmt.Errorf("%w: %w", bus.ErrAmbiguous, fault), submit.Unknown},
		{fmt.Errorf("storing: %w", bus.ErrAmbiguous), submit.Unknown},
		{bus.ErrRefused, submit.Refused},
		{bus.ErrDenied, submit.Denied},
		{bus.ErrTooLarge, submit.TooLarge},
		{bus.ErrInvalidArgument, submit.Invalid},
		{event.Input{}.Check(), submit.Invalid},
		{errors.New("no responders"), submit.Unavailable},
	} {
		got, seen := submit.Why(c.err)
		if got != c.want || (seen == fault) != errors.Is(c.err, fault) {
			t.Errorf("%v: reason %d, fault %v; want %d", c.err, got, seen, c.want)
		}
	}
}

func TestACauseIsStoredUnderItsWriter(t *testing.T) {
	b := natstest.Connect(t, natstest.Start(t))
	s, ref := submit.Sender{Bus: b.Bus, Writer: "ann"}, subject.Ref{Agent: "main", Session: "s"}
	first, err := s.Say(natstest.Context(t), ref, event.Input{Text: "hello", ID: "one"})
	if err != nil {
		t.Fatal(err)
	}
	again, err := s.Say(natstest.Context(t), ref, event.Input{Text: "hello", ID: "one"})
	if err != nil || again != first {
		t.Errorf("the same input again is %d, %v; want %d", again, err, first)
	}
	m, err := b.Message(natstest.Context(t), first)
	if err != nil || m.Subject != ref.Cause(subject.Input, "ann") || !strings.Contains(string(m.Data), `"id":"one"`) {
		t.Errorf("stored %+v, %v", m, err)
	}
	if _, err := s.Say(natstest.Context(t), ref, event.Input{}); !errors.Is(err, event.ErrMalformed) {
		t.Errorf("an empty input: %v", err)
	}
}
