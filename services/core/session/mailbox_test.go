package session

import (
	"testing"

	"skandha.dev/services/core/attempt"
	"skandha.dev/services/internal/executor"
)

// A user's message about a turn does not wait behind inputs that only queue up.
func TestMailThatPresses(t *testing.T) {
	b := newMailbox()
	beat := attempt.Answer{Answer: executor.Answer{State: executor.Running}}
	quiet := []any{delivery{queues: true}, beat, delivery{queues: true}}
	for _, m := range quiet {
		b.put(m)
	}
	if b.urgent() {
		t.Fatal("inputs and heartbeats must not be urgent")
	}
	b.put(delivery{})
	b.put(pokeMail{})
	if !b.urgent() || b.turnless() {
		t.Fatal("a cancel and a free slot must be urgent")
	}
	for _, want := range []any{beat, pokeMail{}} {
		if m, _ := b.take(); m == nil || isUrgent(m) != isUrgent(want) {
			t.Fatalf("got %#v, want %#v: mail for the turn comes first", m, want)
		}
	}
	if !b.turnless() || len(b.takeDeliveries()) != 3 || b.urgent() || !b.empty() {
		t.Error("only the deliveries must be left, and nothing after them")
	}
}
