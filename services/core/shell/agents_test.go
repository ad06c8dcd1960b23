package shell_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core"
	"skandha.dev/services/internal/executor"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/test/natstest"
)

// team is a configuration in which main may give tasks to helper, and helper to itself.
func team() core.Config {
	deep := 2
	with := func(agents ...string) *core.TeamConfig { return &core.TeamConfig{Agents: agents, Depth: &deep} }
	return core.Config{Agents: map[string]core.AgentConfig{"main": {Team: with("helper")}, "helper": {Team: with("helper")}}}
}

func delegate(id, args string) provider.ToolCall {
	return provider.ToolCall{ID: id, Tool: executor.Delegate, Args: json.RawMessage(args)}
}

// reports decodes the result of a call of agent:delegate as the model sees it.
func reported(t *testing.T, m provider.Message) (r struct{ Session, Agent, Status, Answer string }) {
	t.Helper()
	if err := json.Unmarshal([]byte(m.Text), &r); err != nil {
		t.Errorf("%v: %s", err, m.Text)
	}
	return r
}

// Two sub-agents work side by side, one of them through another one; their answers are the results of
// the calls, in the right places, and what they have spent counts for the first session.
func TestAgentsShareATask(t *testing.T) {
	t.Parallel()
	s := start(t, team())
	usage := provider.Usage{InputTokens: 10, OutputTokens: 1}
	s.model = func(m provider.Message) provider.Response {
		task, _, _ := strings.Cut(m.Text, "\n")
		var r provider.Response
		switch {
		case m.Role == provider.RoleTool && m.Tool == executor.Delegate:
			r = provider.Response{TextContent: "so: " + reported(t, m).Answer}
		case task == "all":
			r = calls(delegate("1", `{"task":"left"}`), delegate("2", `{"task":"right"}`))
		case task == "left":
			r = calls(delegate("1", `{"task":"deep"}`))
		default:
			r = provider.Response{TextContent: task + " is done"}
		}
		r.Usage = usage
		return r
	}
	ref := subject.Ref{Agent: "main", Session: "boss"}
	ch := s.follow(ref)
	s.say(ref, event.Input{Text: "all"})
	var results []string
	var rec event.Recorded
	for {
		e := s.next(ch)
		err := event.Visitor{
			ActCompleted: func(p event.ActCompleted) {
				results = append(results, p.Call[len(p.Call)-2:]+" "+string(p.Result.Data))
			},
			Recorded:   func(p event.Recorded) { rec = p },
			TurnFailed: func(p event.TurnFailed) { t.Fatalf("%+v", p) },
		}.Visit(e)
		if err != nil {
			t.Fatal(err)
		}
		if rec.Sequence > 0 {
			break
		}
	}
	all := strings.Join(results, "\n")
	for _, want := range []string{`"answer":"so: deep is done"`, `"answer":"right is done"`, `"agent":"helper"`, `"session":"boss_`} {
		contains(t, all, want)
	}
	if want := int64(6 * 10); rec.Usage.InputTokens != want { // main 2, left 2, right 1, deep 1
		t.Errorf("the turn cost %d input tokens, want %d", rec.Usage.InputTokens, want)
	}
}

// A core that dies while a sub-agent works leaves one task, whose result reaches the call.
func TestATaskSurvivesTheCore(t *testing.T) {
	t.Parallel()
	s := start(t, team(), func(s *system) { s.view = s.store() })
	began, release := make(chan struct{}, 8), make(chan struct{})
	s.model = func(m provider.Message) provider.Response {
		task, _, _ := strings.Cut(m.Text, "\n")
		switch {
		case m.Role == provider.RoleTool:
			return provider.Response{TextContent: "so: " + reported(t, m).Answer}
		case task == "go":
			return calls(delegate("1", `{"task":"slow"}`))
		}
		began <- struct{}{}
		<-release
		return provider.Response{TextContent: task + " is done"}
	}
	ref := subject.Ref{Agent: "main", Session: "dies"}
	ch := s.follow(ref)
	s.say(ref, event.Input{Text: "go"})
	<-began
	s.stopCore()
	s.core = s.startCore(team())
	close(release)
	var rec event.Recorded
	if err := s.await(ch, event.TypeRecorded).DataAs(&rec); err != nil {
		t.Fatal(err)
	}
	if rec.Answer != "so: slow is done" {
		t.Errorf("%+v", rec)
	}
	if n := inputs(t, s.bus); n != 2 {
		t.Errorf("%d inputs were stored, want the question and one task", n)
	}
}

// inputs counts the stored inputs.
func inputs(t *testing.T, b *journal.Journal) (n int) {
	t.Helper()
	last, err := b.LastSequence(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for seq := uint64(1); seq <= last; seq++ {
		if m, err := b.Message(t.Context(), seq); err == nil && strings.Contains(m.Subject, ".sense.input.") {
			n++
		}
	}
	return n
}

// When the turn of the parent is cancelled, so are those of its sub-agents, at any depth, and of those
// that it does not wait for.
func TestACancelReachesAllThatWorkForTheTurn(t *testing.T) {
	t.Parallel()
	s := start(t, team())
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	began := make(chan string, 8)
	s.model = func(m provider.Message) provider.Response {
		task, _, _ := strings.Cut(m.Text, "\n")
		switch task {
		case "go":
			return calls(delegate("1", `{"task":"behind","wait":false}`), delegate("2", `{"task":"middle"}`))
		case "middle":
			return calls(delegate("1", `{"task":"deep"}`))
		}
		began <- task
		<-release
		return provider.Response{TextContent: "late"}
	}
	ref := subject.Ref{Agent: "main", Session: "cancelled"}
	var ended []string
	all := make(chan string, 64)
	for _, agent := range []subject.Agent{"main", "helper"} {
		sub, err := s.bus.Conn().Subscribe(subject.Ref{Agent: agent, Session: "*"}.Live("turn", "failed"), func(m *nats.Msg) {
			var p event.TurnFailed
			if e, err := event.Decode(m.Data); err == nil && e.DataAs(&p) == nil {
				all <- fmt.Sprintf("%s %s", agent, p.Code)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = sub.Unsubscribe() })
	}
	seq := s.say(ref, event.Input{Text: "go", ID: "first"})
	for range 2 {
		<-began
	}
	if _, err := s.bus.PublishCause(t.Context(), ref, subject.Cancel, "test", "", fmt.Appendf(nil, `{"sequence":%d}`, seq)); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		select {
		case e := <-all:
			ended = append(ended, e)
		case <-t.Context().Done():
		case <-natstest.Context(t).Done():
			t.Fatalf("ended: %q", ended)
		}
	}
	if n := strings.Count(strings.Join(ended, "\n"), "helper cancelled"); n != 3 {
		t.Errorf("ended: %q", ended)
	}
}
