package shell_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
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

// A message to a sub-agent arrives before its next step, once and in order; so does one to the session
// that it works for, as data from outside.
func TestMessagesReachARunningTurn(t *testing.T) {
	t.Parallel()
	s := start(t, team())
	working, posted := make(chan struct{}, 1), make(chan struct{})
	var mu sync.Mutex
	seen := map[string]string{} // what the model saw last, by the first message of its conversation
	s.asked = func(r provider.Request) {
		mu.Lock()
		defer mu.Unlock()
		all := fmt.Sprintf("%s", r.Messages)
		for _, task := range []string{"dig", "go"} {
			if strings.Contains(all, `"text":"`+task) {
				seen[task] = all
				break
			}
		}
	}
	var child string
	s.model = func(m provider.Message) provider.Response {
		task, _, _ := strings.Cut(m.Text, "\n")
		send := func(to, text string) provider.Response {
			return calls(provider.ToolCall{
				ID: "s" + text, Tool: executor.SendAgent, Args: fmt.Appendf(nil, `{"session":%q,"text":%q}`, to, text),
			})
		}
		switch {
		case m.Role == provider.RoleTool && m.Tool == executor.Delegate:
			<-working
			child = reported(t, m).Session
			return calls(send(child, "first").ToolCalls[0], provider.ToolCall{
				ID: "w", Tool: executor.SendAgent, DependsOn: []string{"sfirst"}, Args: fmt.Appendf(nil, `{"session":%q,"text":"second"}`, child),
			})
		case m.Role == provider.RoleTool && m.Tool == executor.SendAgent && strings.Contains(m.Text, child):
			defer close(posted)
			return calls(provider.ToolCall{ID: "w2", Tool: executor.WaitAgents, Args: json.RawMessage(`{}`)})
		case task == "second": // after the result of test:do and the first message
			return send("parent", "found it")
		case task == "go":
			return calls(delegate("1", `{"task":"dig","wait":false}`))
		case task == "dig":
			return calls(provider.ToolCall{ID: "d", Tool: "test:do", Args: json.RawMessage(`{}`)})
		}
		return provider.Response{TextContent: "done"}
	}
	s.tool = func(context.Context, executor.ToolCall) tool.Result {
		working <- struct{}{}
		<-posted
		return tool.OK("dug")
	}
	ref := subject.Ref{Agent: "main", Session: "talks"}
	ch := s.follow(ref)
	s.say(ref, event.Input{Text: "go"})
	found := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return strings.Contains(seen["go"], "found it")
	}
	for !found() { // in this turn or, if the call that waits has ended first, in the next one
		s.await(ch, event.TypeRecorded)
	}
	mu.Lock()
	defer mu.Unlock()
	contains(t, seen["dig"], `"dug`, "first\\n[from agent main", "second\\n[from agent main")
	contains(t, seen["go"], "is a message of agent helper, which works for you in session "+child, "found it")
	for _, text := range []string{"first\\n", "second\\n"} {
		if n := strings.Count(seen["dig"], text); n != 1 {
			t.Errorf("the sub-agent sees %q %d times", text, n)
		}
	}
}

// The files that a sub-agent has made come back as files of the session that it worked for; those that it
// only names do not.
func TestFilesOfASubAgentComeBack(t *testing.T) {
	t.Parallel()
	s := start(t, team())
	s.model = func(m provider.Message) provider.Response {
		task, _, _ := strings.Cut(m.Text, "\n")
		switch {
		case m.Role == provider.RoleTool && m.Tool == executor.Delegate:
			return provider.Response{TextContent: m.Text}
		case m.Role == provider.RoleTool:
			return provider.Response{TextContent: "made it"}
		case task == "go":
			return calls(delegate("1", `{"task":"make it"}`))
		}
		return calls(provider.ToolCall{ID: "1", Tool: "test:do", Args: json.RawMessage(`{}`)})
	}
	if err := s.bus.PutArtifact(t.Context(), "main/secret/c/a/key", []byte("secret")); err != nil {
		t.Fatal(err)
	}
	s.files = func(ref subject.Ref) tool.Result {
		name := ref.String() + "/t1-p1-c0/a/out.txt"
		if err := s.bus.PutArtifact(t.Context(), name, []byte("hello")); err != nil {
			t.Error(err)
		}
		file := func(ref string) map[string]any {
			return map[string]any{"path": "out.txt", "ref": ref, "media_type": "text/plain", "bytes": 5}
		}
		return tool.OK(map[string]any{"artifacts": []any{file(name), file("main/secret/c/a/key")}})
	}
	ref := subject.Ref{Agent: "main", Session: "files"}
	ch := s.follow(ref)
	s.say(ref, event.Input{Text: "go"})
	var rec event.Recorded
	if err := s.await(ch, event.TypeRecorded).DataAs(&rec); err != nil {
		t.Fatal(err)
	}
	var got struct{ Artifacts []struct{ Path, Ref string } }
	if err := json.Unmarshal([]byte(rec.Answer), &got); err != nil || len(got.Artifacts) != 1 {
		t.Fatalf("%v: %s", err, rec.Answer)
	}
	a := got.Artifacts[0]
	if b, err := s.bus.GetArtifact(t.Context(), a.Ref); err != nil || string(b) != "hello" || !strings.HasPrefix(a.Ref, "main/files/") {
		t.Errorf("%+v: %q, %v", a, b, err)
	}
}
