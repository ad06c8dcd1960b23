package shell_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/executor"
	"skandha.dev/services/test/natstest"
)

// Messages to many sub-agents arrive once each and in order, although cores are stopped in between.
func TestMessagesAmongAgentsWhileCoresStop(t *testing.T) {
	t.Parallel()
	const agents, rounds = 6, 12
	cfg := team()
	main, none := cfg.Agents["main"], 0
	main.Limits.Rounds, main.Limits.Tokens = &none, new(int64)
	cfg.Agents["main"] = main
	s := start(t, cfg, func(s *system) { s.view = s.store() })
	var mu sync.Mutex
	var sessions []string
	heard := map[string][]string{} // by task: the messages, in the longest conversation that the model saw
	s.asked = func(r provider.Request) {
		var task string
		var texts, known []string
		for _, raw := range r.Messages {
			var m provider.Message
			if json.Unmarshal(raw, &m) != nil {
				continue
			}
			if m.Tool == executor.Delegate {
				known = append(known, reported(t, m).Session)
			}
			if m.Role != provider.RoleUser {
				continue
			}
			first, _, _ := strings.Cut(m.Text, "\n")
			switch {
			case strings.HasPrefix(first, "task "):
				task = first
			case strings.HasPrefix(first, "message "):
				texts = append(texts, first)
			}
		}
		mu.Lock()
		defer mu.Unlock()
		if len(known) == agents && len(sessions) == 0 {
			sessions = known
		}
		if task != "" && len(texts) >= len(heard[task]) {
			heard[task] = texts
		}
	}
	stop := make(chan struct{}, rounds)
	s.model = func(m provider.Message) provider.Response {
		task, _, _ := strings.Cut(m.Text, "\n")
		n := 0
		switch {
		case task == "go":
			var all []provider.ToolCall
			for i := range agents {
				all = append(all, delegate(fmt.Sprint(i), fmt.Sprintf(`{"task":"task %d","wait":false}`, i)))
			}
			return calls(all...)
		case m.Role != provider.RoleTool:
			return provider.Response{TextContent: "heard"}
		case m.Tool == executor.Delegate:
		case m.Tool == executor.SendAgent:
			if _, err := fmt.Sscanf(m.CallID, "m%d-", &n); err != nil || n == rounds-1 {
				return provider.Response{TextContent: "sent"}
			}
			n++
		}
		mu.Lock()
		defer mu.Unlock()
		if len(sessions) == 0 {
			t.Error("a message is due before the sessions are known")
		}
		var all []provider.ToolCall
		for i, session := range sessions {
			all = append(all, provider.ToolCall{
				ID: fmt.Sprintf("m%d-%d", n, i), Tool: executor.SendAgent,
				Args: fmt.Appendf(nil, `{"session":%q,"text":"message %d"}`, session, n),
			})
		}
		if n%4 == 2 {
			stop <- struct{}{}
		}
		return calls(all...)
	}
	ref := subject.Ref{Agent: "main", Session: "storm"}
	ch := s.follow(ref)
	s.say(ref, event.Input{Text: "go"})
	for range rounds / 4 {
		<-stop
		s.stopCore()
		s.core = s.startCore(cfg)
	}
	s.await(ch, event.TypeRecorded)
	var want []string
	for i := range rounds {
		want = append(want, fmt.Sprintf("message %d", i))
	}
	all := func() bool {
		mu.Lock()
		defer mu.Unlock()
		for i := range agents {
			if len(heard[fmt.Sprintf("task %d", i)]) < rounds {
				return false
			}
		}
		return true
	}
	natstest.Eventually(t, "every message is heard", all)
	mu.Lock()
	defer mu.Unlock()
	for task, got := range heard {
		if !slices.Equal(got, want) {
			t.Errorf("%s heard %q, want %q", task, got, want)
		}
	}
}

// A judge that the configuration requires, and that fails after it has let the task pass, stops the calls
// of the sub-agent; an approval that is due there is given there.
func TestSubAgentsAreJudgedLikeAnyAgent(t *testing.T) {
	t.Parallel()
	agrees := `{"verb":"continue"}`
	for name, c := range map[string]struct {
		tool, want string
		judge      string // about the sub-agent's call
	}{
		"garbage":  {"test:once", "denied", "?"},
		"denies":   {"test:once", "denied", `{"verb":"deny","reason":"not you"}`},
		"approval": {"test:risky", "done", agrees},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := team()
			cfg.Hooks = judgedBy("guard")
			s := start(t, cfg)
			ran := s.counting("")
			s.plug(plugin.Manifest{Name: "guard", Hooks: []plugin.Hook{{Point: hook.BeforeAct}}}, func(e hook.Envelope) string {
				if e.Agent == "main" {
					return agrees
				}
				return c.judge
			})
			s.model = func(m provider.Message) provider.Response {
				task, _, _ := strings.Cut(m.Text, "\n")
				switch {
				case m.Role == provider.RoleTool:
					return provider.Response{TextContent: m.Text}
				case task == "go":
					return calls(delegate("1", `{"task":"do it"}`))
				}
				return calls(provider.ToolCall{ID: "1", Tool: c.tool, Args: json.RawMessage(`{}`)})
			}
			s.approves(t, "helper")
			ref := subject.Ref{Agent: "main", Session: "judged"}
			ch := s.follow(ref)
			s.say(ref, event.Input{Text: "go"})
			var rec event.Recorded
			if err := s.await(ch, event.TypeRecorded).DataAs(&rec); err != nil {
				t.Fatal(err)
			}
			contains(t, rec.Answer, c.want)
			if n := ran.Load(); (n == 1) != (c.want == "done") {
				t.Errorf("it ran %d times", n)
			}
		})
	}
}

// approves approves every request of an agent's sessions.
func (s *system) approves(t *testing.T, agent subject.Agent) {
	t.Helper()
	all := subject.Ref{Agent: agent, Session: "*"}.Live("ui", "tool_call_request")
	if _, err := s.bus.Conn().Subscribe(all, func(m *nats.Msg) {
		var q event.ToolCallRequest
		e, err := event.Decode(m.Data)
		if err == nil {
			err = e.DataAs(&q)
		}
		b, bad := json.Marshal(event.Confirmation{ConfirmationID: q.ConfirmationID, Hash: q.Hash, Approved: true})
		if err = errors.Join(err, bad); err == nil {
			_, err = s.bus.PublishCause(t.Context(), subject.Ref{Agent: e.Agent, Session: e.Session}, subject.Confirmation, "ui", "", b)
		}
		if err != nil {
			t.Error(err)
		}
	}); err != nil {
		t.Fatal(err)
	}
}
