package shell_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core"
)

// command runs a slash command and returns its answer.
func (s *system) command(ref subject.Ref, ch <-chan event.Event, name string, args ...string) string {
	s.t.Helper()
	b, err := json.Marshal(event.Command{Name: name, Args: args})
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := s.bus.PublishCause(s.t.Context(), ref, subject.Command, "test", "", b); err != nil {
		s.t.Fatal(err)
	}
	var r event.Recorded
	for r.Command != name {
		if err := s.await(ch, event.TypeRecorded).DataAs(&r); err != nil {
			s.t.Fatal(err)
		}
	}
	return r.Answer
}

func contains(t *testing.T, text string, want ...string) {
	t.Helper()
	for _, w := range want {
		i := strings.Index(text, w)
		if i < 0 {
			t.Fatalf("%q does not follow in\n%s", w, text)
		}
		text = text[i+len(w):]
	}
}

// /replay shows a turn from the log alone: the input, each round, the answers of hooks,
// approvals and their users, and the result.
func TestReplayTellsOfATurn(t *testing.T) {
	t.Parallel()
	s := start(t, core.Config{})
	s.plug(plugin.Manifest{Name: "watch", Hooks: []plugin.Hook{{Point: hook.BeforeAct}}}, nil)
	s.model = once(provider.ToolCall{ID: "1", Tool: "test:risky", Args: json.RawMessage(`{"note":"a ` + "`tick`" + `"}`)})
	ref := subject.Ref{Agent: "main", Session: "replay"}
	ch := s.follow(ref)
	if got := s.command(ref, ch, "replay"); got != "This session has no turns yet." {
		t.Fatal(got)
	}
	seq := s.say(ref, event.Input{Text: "be *bold*", Source: "page"})
	var q event.ToolCallRequest
	if err := s.await(ch, event.TypeToolCallRequest).DataAs(&q); err != nil {
		t.Fatal(err)
	}
	contains(t, s.command(ref, ch, "replay"), "it goes on", "a person was asked about `test:risky`")
	b, err := json.Marshal(event.Confirmation{ConfirmationID: q.ConfirmationID, Hash: q.Hash, Approved: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.bus.PublishCause(t.Context(), ref, subject.Confirmation, "ui-web", "", b); err != nil {
		t.Fatal(err)
	}
	s.await(ch, event.TypeRecorded)
	s.model = func(m provider.Message) provider.Response { return provider.Response{TextContent: "echo: " + m.Text} }
	s.say(ref, event.Input{Text: "second"})
	s.await(ch, event.TypeRecorded)

	id := fmt.Sprint("t", seq)
	text := s.command(ref, ch, "replay", id)
	contains(t, text, "**Turn "+id+"**", "2 rounds, 1 tool call,",
		"- `+0.000s` test said in `page`: `be *bold*`", "round 1 at", "it called `test:risky`",
		"hook before_act of watch", "a person was asked about `test:risky` with `{\"note\":\"a 'tick'\"}`", "critical",
		"approved by ui-web after", "`test:risky` with `{\"note\":\"a 'tick'\"}` on", "ok, `\"done\"`", "round 2 at",
		"it answered", "answered: `it said")
	if strings.Contains(text, "second") {
		t.Fatalf("it shows another turn:\n%s", text)
	}
	contains(t, s.command(ref, ch, "replay"), "test said: `second`")
	contains(t, s.command(ref, ch, "replay", "2"), "**Turn "+id+"**", "**Turn t", "`second`")
	contains(t, s.command(ref, ch, "replay", "t1"), "Turn t1 is not in this session's log")
}

// Inputs that waited are shown with their text, which was stored in an earlier turn.
func TestReplayTellsOfWhatHadWaited(t *testing.T) {
	t.Parallel()
	s := start(t, core.Config{})
	s.model = func(m provider.Message) provider.Response {
		if m.Text == "first" {
			return calls(provider.ToolCall{ID: "1", Tool: "test:risky", Args: json.RawMessage(`{}`)})
		}
		return provider.Response{TextContent: "fine"}
	}
	ref := subject.Ref{Agent: "main", Session: "waits"}
	ch := s.follow(ref)
	s.say(ref, event.Input{Text: "first"})
	s.await(ch, event.TypeToolCallRequest)
	for _, text := range []string{"waits one", "waits two"} {
		s.say(ref, event.Input{Text: text})
		s.await(ch, event.TypePerceived)
	}
	if _, err := s.bus.PublishCause(t.Context(), ref, subject.Command, "test", "",
		[]byte(`{"name":"cancel"}`)); err != nil {
		t.Fatal(err)
	}
	for n := 0; n < 2; {
		if e := s.next(ch); e.Type == event.TypeRecorded && strings.Contains(string(e.Data), "waits") {
			n++
		}
	}
	contains(t, s.command(ref, ch, "replay"), "test said: `waits two`", "answered: `fine`")
	contains(t, s.command(ref, ch, "replay", "3"), "test said: `first`", "failed, cancelled", "`waits one`", "`waits two`")
}

func TestPluginsAndMetricsAreShown(t *testing.T) {
	t.Parallel()
	s := start(t, core.Config{})
	s.plug(plugin.Manifest{Name: "watch", Version: "1.2.3", Hooks: []plugin.Hook{{Point: hook.BeforePlan}}}, nil)
	ref := subject.Ref{Agent: "main", Session: "look"}
	ch := s.follow(ref)
	contains(t, s.command(ref, ch, "plugins"), "- **watch** 1.2.3 — active\n  - hooks: `before_plan`")
	s.say(ref, event.Input{Text: "hello"})
	s.await(ch, event.TypeRecorded)
	contains(t, s.command(ref, ch, "metrics"), "1 turn, of which 0 failed", "tokens:", "**Hooks**",
		"- watch at `before_plan`: asked 1 time, failed 0")
}
