package shell_test

import (
	"encoding/json"
	"testing"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core"
	"skandha.dev/services/test/natstest"
)

// What runs when a session is paused is finished and kept. Then the session is closed, and a core that
// starts does not touch it; /resume continues the turn, and then what waited.
func TestAPausedSessionIsResumedAfterARestart(t *testing.T) {
	t.Parallel()
	s := start(t, core.Config{}, func(s *system) { s.view = s.store() })
	asked, release := make(chan struct{}, 1), make(chan struct{})
	s.model = func(m provider.Message) provider.Response {
		if m.Role == provider.RoleUser && m.Text == "slow" {
			asked <- struct{}{}
			<-release
			return calls(provider.ToolCall{ID: "1", Tool: "test:do", Args: json.RawMessage(`{}`)})
		}
		return provider.Response{TextContent: "done: " + m.Text}
	}
	ref := subject.Ref{Agent: "main", Session: "paused"}
	ch := s.follow(ref)
	s.say(ref, event.Input{Text: "slow"})
	<-asked
	contains(t, s.command(ref, ch, "pause"), "What runs is finished")
	close(release)
	s.await(ch, event.TypePlanCompleted)
	s.say(ref, event.Input{Text: "next"})
	s.await(ch, event.TypePerceived)
	closed := func() bool { return s.core.Counters()["open_sessions"] == 0 }
	natstest.Eventually(t, "the session is closed", closed)

	s.stopCore()
	s.core = s.startCore(core.Config{})
	s.complete(1)
	other := subject.Ref{Agent: "main", Session: "other"}
	live := s.follow(other)
	s.talk(live, other, "hello")
	natstest.Eventually(t, "the session is closed", closed)
	if n := s.core.Counters()["sessions_loaded"]; n != 1 {
		t.Errorf("%d sessions were loaded, for an input of one", n)
	}
	contains(t, s.command(ref, ch, "resume"), "Resumed; test", "1 input waited")
	for _, want := range []event.Type{
		event.TypeActRequested, event.TypeActCompleted, event.TypeRecorded, event.TypePerceived, event.TypeRecorded,
	} {
		s.await(ch, want)
	}
	natstest.Eventually(t, "the session is closed", closed)
}
