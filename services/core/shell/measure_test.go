package shell_test

import (
	"fmt"
	"testing"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core"
	"skandha.dev/services/test/natstest"
)

// What cannot be read as a cause is a dead letter, and is counted.
func TestDeadLettersAreCounted(t *testing.T) {
	s := start(t, core.Config{})
	if _, err := s.bus.JetStream().Publish(t.Context(), "agent.main.s1.sense.cancel.ada", []byte("{}")); err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, "it is counted", func() bool { return s.core.Counters()["dead_letters"] == 1 })
}

// A core whose state of a session is older than the log loses the fence, and goes on with the newer one.
func TestLostFencesAreCounted(t *testing.T) {
	s := start(t, core.Config{})
	other := s.startCore(core.Config{})
	ref := subject.Ref{Agent: "main", Session: "s1"}
	ch := s.follow(ref)
	for i := range 200 { // the bus decides which core gets an input
		s.say(ref, event.Input{Text: fmt.Sprint("hi ", i)})
		s.await(ch, event.TypeRecorded)
		if s.core.Counters()["fence_lost"]+other.Counters()["fence_lost"] > 0 {
			return
		}
	}
	t.Error("no core has lost a fence in 200 turns of two")
}
