package session

import (
	"testing"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/test/natstest"
)

// A delivery of a lost log does not make its session skip causes of the new log, whose
// sequences are lower. A cause that was deleted from the log is skipped.
func TestADeliveryOfALostLogPassesOverNothing(t *testing.T) {
	b := natstest.Connect(t, natstest.Start(t))
	ref := subject.Ref{Agent: "main", Session: "one"}
	var last uint64
	for range 2 {
		seq, err := b.PublishCause(natstest.Context(t), subject.Ref{Agent: "main", Session: "other"}, subject.Input, "w", "",
			[]byte(`{}`))
		if err != nil {
			t.Fatal(err)
		}
		last = seq
	}
	for _, c := range []struct {
		seq    uint64
		passed uint64
	}{{50, 0}, {last, last}} {
		d := journal.Delivery{StoredMsg: bus.StoredMsg{Seq: c.seq, Time: time.Now()}, NumDelivered: 1}
		s := &session{
			Deps: &Deps{Bus: b, Log: natstest.Logger(t)}, set: &Set{pressure: newPressure(0, nil)}, ref: ref, ctx: t.Context(),
			held: map[uint64]*held{c.seq: {delivery: delivery{Delivery: d}}},
		}
		if m, found := s.readCauses(0, c.seq)(); found {
			t.Fatalf("%+v", m)
		}
		if s.passed != c.passed {
			t.Errorf("a delivery at %d, while the log ends at %d: passed over everything up to %d", c.seq, last, s.passed)
		}
		if dropped := s.held[c.seq] == nil; dropped == (c.passed != 0) {
			t.Errorf("the delivery at %d is dropped: %t", c.seq, dropped)
		}
	}
}
