package shell_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core"
	contract "skandha.dev/services/internal/executor"
	"skandha.dev/services/test/natstest"
)

// crowd sends several inputs to each of several sessions, while the tool that all of
// them need blocks. It then unblocks the tool and returns the sessions of the inputs in
// the order in which they ended.
func (s *system) crowd(sessions, inputs int, before func()) []subject.Session {
	s.t.Helper()
	s.model = func(m provider.Message) provider.Response {
		if m.Role == provider.RoleUser {
			return calls(provider.ToolCall{ID: "1", Tool: "test:do", Args: json.RawMessage(`{}`)})
		}
		return provider.Response{TextContent: "done"}
	}
	open := make(chan struct{})
	s.tool = func(context.Context, contract.ToolCall) tool.Result {
		<-open
		return tool.OK("done")
	}
	ch := s.follow(subject.Ref{Agent: "main", Session: "*"})
	for n := range inputs {
		for i := range sessions {
			ref := subject.Ref{Agent: "main", Session: subject.Session(fmt.Sprintf("s%02d", i))}
			s.say(ref, event.Input{Text: fmt.Sprint(n)})
		}
	}
	before()
	close(open)
	var ended []subject.Session
	for len(ended) < sessions*inputs {
		e := s.next(ch)
		if e.Type == event.TypeTurnFailed {
			s.t.Fatalf("%s: %s", e.Session, e.Data)
		}
		var r event.Recorded
		if e.Type == event.TypeRecorded && e.DataAs(&r) == nil && r.Rounds > 0 { // not a command's
			ended = append(ended, e.Session)
		}
	}
	return ended
}

// With far more work than slots, the session that has waited longest is served first.
func TestEverySessionHasItsTurnBeforeAnyHasItsThird(t *testing.T) {
	const sessions, inputs = 24, 4
	s := start(t, core.Config{}, func(s *system) { s.slots = 2 })
	ended := s.crowd(sessions, inputs, func() {
		natstest.Eventually(t, "all sessions wait for the tool", func() bool {
			return s.core.Counters()["queued_sessions"] >= sessions-2
		})
	})
	answers := map[subject.Session]int{}
	for _, id := range ended {
		if answers[id]++; answers[id] == 3 && len(answers) < sessions {
			t.Fatalf("%s has its third answer, and %d sessions have none: %v", id, sessions-len(answers), ended)
		}
	}
}

func TestOnlySoManySessionsAreOpen(t *testing.T) {
	const sessions, inputs, most = 12, 3, 4
	s := start(t, core.Config{OpenSessions: most})
	ended := s.crowd(sessions, inputs, func() {
		natstest.Eventually(t, "the others wait", func() bool {
			c := s.core.Counters()
			return c["open_sessions"] == most && c["waiting_sessions"] >= sessions-most
		})
		// A command need not wait: it opens its session.
		ref := subject.Ref{Agent: "main", Session: "s11"}
		ch := s.follow(ref)
		body, err := json.Marshal(event.Command{Name: "help"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.bus.PublishCause(t.Context(), ref, subject.Command, "test", "", body); err != nil {
			t.Fatal(err)
		}
		for s.next(ch).Type != event.TypeUIMessage {
		}
	})
	answers := map[subject.Session]int{}
	for _, id := range ended {
		answers[id]++
	}
	for id, n := range answers {
		if n != inputs {
			t.Errorf("%s has %d answers, want %d", id, n, inputs)
		}
	}
	natstest.Eventually(t, "nothing waits any more", func() bool {
		c := s.core.Counters()
		return c["open_sessions"] == 0 && c["waiting_sessions"] == 0 && c["queued_sessions"] == 0
	})
}

// A core and its runner start together, and the core is faster: the model must not be
// asked without tools.
func TestACoreThatStartsWaitsForToolsThatWereThere(t *testing.T) {
	s := start(t, core.Config{}, func(s *system) { s.view = s.store() })
	s.model = func(m provider.Message) provider.Response {
		if m.Role == provider.RoleUser {
			return calls(provider.ToolCall{ID: "1", Tool: "test:do", Args: json.RawMessage(`{}`)})
		}
		return provider.Response{TextContent: "done"}
	}
	natstest.Eventually(t, "the offer is remembered", func() bool {
		n, err := s.view.Mark(t.Context(), "tools_offered")
		return err == nil && n > 0
	})
	s.stopCore()
	s.stopRunner()
	ref := subject.Ref{Agent: "main", Session: "s1"}
	ch := s.follow(ref)
	s.say(ref, event.Input{Text: "go"})
	s.startCore(core.Config{})
	s.await(ch, event.TypePerceived)
	s.runner(natstest.Connect(t, s.srv))
	var p event.PlanRequested
	if err := s.await(ch, event.TypePlanRequested).DataAs(&p); err != nil {
		t.Fatal(err)
	}
	if len(p.Tools) == 0 {
		t.Fatal("the model was asked without tools")
	}
	s.await(ch, event.TypeRecorded)
}
