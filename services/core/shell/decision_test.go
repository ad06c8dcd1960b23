package shell_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/guide"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core"
	contract "skandha.dev/services/internal/executor"
)

// Whole turns, as each decision has them.

func TestATurnWithAShortlist(t *testing.T) {
	t.Parallel()
	one := 1
	s := start(t, core.Config{Agents: map[string]core.AgentConfig{"main": {Shortlist: &one}}})
	round := 0
	s.model = func(provider.Message) provider.Response {
		switch round++; round {
		case 1:
			return calls(provider.ToolCall{ID: "1", Tool: "tools:find", Args: json.RawMessage(`{"query":"test"}`)})
		case 2:
			return calls(provider.ToolCall{ID: "2", Tool: "test:once", Args: json.RawMessage(`{"n":3}`)})
		}
		return provider.Response{TextContent: "done"}
	}
	ref := subject.Ref{Agent: "main", Session: "s"}
	ch := s.follow(ref)
	s.say(ref, event.Input{Text: "test something"})
	var why event.PlanConsidered
	if err := s.await(ch, event.TypePlanConsidered).DataAs(&why); err != nil || why.Of != 4 || why.Offered != 3 {
		t.Fatalf("%v, %+v", err, why)
	}
	var rec event.Recorded
	if err := s.await(ch, event.TypeRecorded).DataAs(&rec); err != nil {
		t.Fatal(err)
	}
	if len(rec.Actions) != 2 || !rec.Actions[0].Success || !rec.Actions[1].Success || rec.Answer != "done" {
		t.Fatalf("%+v", rec)
	}
}

func TestATurnThatTheEngineDecides(t *testing.T) {
	t.Parallel()
	s := start(t, core.Config{Agents: map[string]core.AgentConfig{"main": {Decision: guide.Engine}}})
	s.model = func(m provider.Message) provider.Response {
		switch {
		case m.Role == provider.RoleTool:
			return provider.Response{TextContent: "it said " + m.Text}
		case strings.Contains(m.Text, "\nTools:\n"):
			return provider.Response{TextContent: "```json\n" +
				`{"steps":[{"tool":"test:once","parameters":{"n":3}}],"ask":"","confidence":0.9,"reasoning":"it says so"}` + "\n```"}
		}
		return provider.Response{TextContent: "the engine was not asked"}
	}
	ref := subject.Ref{Agent: "main", Session: "s"}
	ch := s.follow(ref)
	s.say(ref, event.Input{Text: "test something that is risky, for Ann"})
	var rec event.Recorded
	if err := s.await(ch, event.TypeRecorded).DataAs(&rec); err != nil {
		t.Fatal(err)
	}
	if len(rec.Actions) != 1 || rec.Actions[0].Tool != "test:once" || !strings.HasPrefix(rec.Answer, "it said") || rec.Rounds != 3 {
		t.Fatalf("%+v", rec)
	}
}

// The engine's answer with two steps becomes a plan: the second one runs with what the first one
// has returned.
func TestAPlanOfTheEngine(t *testing.T) {
	t.Parallel()
	s := start(t, core.Config{Agents: map[string]core.AgentConfig{"main": {Decision: guide.Engine}}})
	s.model = func(m provider.Message) provider.Response {
		switch {
		case m.Role == provider.RoleTool:
			return provider.Response{TextContent: "done: " + m.Text}
		case strings.Contains(m.Text, "\nTools:\n"):
			return provider.Response{TextContent: `{"steps":[
				{"id":"count","tool":"test:do","parameters":{}},
				{"id":"use","tool":"test:once","parameters":{"n":"${count.total}"}}],
				"ask":"","confidence":0.9,"reasoning":"first count, then use it"}`}
		}
		return provider.Response{TextContent: "the engine was not asked"}
	}
	var mu sync.Mutex
	var ran []string
	s.tool = func(_ context.Context, c contract.ToolCall) tool.Result {
		mu.Lock()
		defer mu.Unlock()
		ran = append(ran, c.Name+" "+string(c.Args))
		return tool.OK(map[string]any{"total": 42})
	}
	ref := subject.Ref{Agent: "main", Session: "s"}
	ch := s.follow(ref)
	s.say(ref, event.Input{Text: "test something that counts, then do it once with the total"})
	var rec event.Recorded
	if err := s.await(ch, event.TypeRecorded).DataAs(&rec); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if want := []string{"test:do {}", `test:once {"n":42}`}; !slices.Equal(ran, want) {
		t.Errorf("%q ran, want %q", ran, want)
	}
	if !strings.HasPrefix(rec.Answer, "done: ") || !strings.Contains(rec.Answer, `"use"`) {
		t.Errorf("%+v", rec)
	}
	for _, a := range rec.Actions {
		if !a.Success {
			t.Errorf("%+v", a)
		}
	}
}
