package listenertest

import (
	"testing"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/test/natstest"
)

// Stored is an input in the log.
type Stored struct {
	event.Input
	Sequence uint64
	Writer   subject.Writer
}

// Log lists the inputs of a session that the log holds, in order.
func Log(t testing.TB, b *journal.Journal, ref subject.Ref) (out []Stored) {
	t.Helper()
	for m, err := range b.Messages(natstest.Context(t), ref, 0) {
		if err != nil {
			t.Fatalf("reading the log: %v", err)
		}
		c, err := subject.ParseCause(m.Subject)
		if err != nil || c.Kind != subject.Input {
			continue
		}
		in := Stored{Sequence: m.Seq, Writer: c.Writer}
		if err := event.DecodeCause(m.Data, &in.Input); err != nil {
			t.Fatalf("message %d: %v", m.Seq, err)
		}
		out = append(out, in)
	}
	return out
}
