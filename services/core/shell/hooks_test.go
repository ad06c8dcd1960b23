package shell_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core"
	contract "skandha.dev/services/internal/executor"
	"skandha.dev/services/test/natstest"
)

// once makes the model call tools in its first answer, and then repeat their results.
func once(cs ...provider.ToolCall) func(provider.Message) provider.Response {
	return func(m provider.Message) provider.Response {
		if m.Role == provider.RoleUser {
			return calls(cs...)
		}
		return provider.Response{TextContent: "it said " + m.Text}
	}
}

func do(args string) provider.ToolCall {
	return provider.ToolCall{ID: "1", Tool: "test:do", Args: json.RawMessage(args)}
}

// A plugin at every hook point is asked exactly where each point belongs, in order.
func TestEveryHookPointIsAskedWhereItBelongs(t *testing.T) {
	t.Parallel()
	const sense, plan, reflect = "before_sense after_sense", "before_plan after_plan", "before_reflect after_reflect"
	s := start(t, core.Config{Policy: []core.Rule{{Tool: "test:once", Effect: "deny", Reason: "never"}}})
	spy := s.plug(plugin.Manifest{Name: "spy", Hooks: everyPoint()}, nil)
	natstest.Eventually(t, "the plugin is asked at the start",
		func() bool { return points(spy.take("")) == "on_agent_start" })

	for _, c := range []struct {
		name  string
		model func(provider.Message) provider.Response
		want  string
	}{
		{"an answer", nil, sense + " " + plan + " " + reflect},
		{"a tool", once(do(`{}`)), sense + " " + plan + " before_act:c0 after_act:c0 " + plan + " " + reflect},
		{
			"a tool that policy denies", once(provider.ToolCall{ID: "1", Tool: "test:once", Args: json.RawMessage(`{}`)}),
			sense + " " + plan + " before_act:c0 after_act:c0 " + plan + " " + reflect,
		},
		{
			"an unknown tool, which never comes near running",
			once(provider.ToolCall{ID: "1", Tool: "no:such", Args: json.RawMessage(`{}`)}),
			sense + " " + plan + " after_act:c0 " + plan + " " + reflect,
		},
		{
			"the steps of a plan", once(provider.ToolCall{ID: "1", Tool: "plan:execute", Args: json.RawMessage(
				`{"steps":[{"id":"a","tool":"test:do","args":{}},{"id":"b","tool":"test:do","args":{},"depends_on":["a"]}]}`)}),
			sense + " " + plan + " before_act:s0 after_act:s0 before_act:s1 after_act:s1 after_act:c0 " + plan + " " + reflect,
		},
		{
			"a model that answers nothing", func(provider.Message) provider.Response { return provider.Response{} },
			sense + " before_plan after_plan after_plan after_plan after_plan on_error",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			ref := subject.Ref{Agent: "main", Session: subject.Session(fmt.Sprintf("s%d", time.Now().UnixNano()))}
			model := s.model
			if c.model != nil {
				s.model = c.model
				defer func() { s.model = model }()
			}
			ch := s.follow(ref)
			s.say(ref, event.Input{Text: "go"})
			s.ended(ch)
			asked := spy.take(ref.Session)
			if got := points(asked); got != c.want {
				t.Errorf("asked at\n%s, want\n%s", got, c.want)
			}
			for _, e := range asked {
				if e.Plugin != "spy" || e.Agent != "main" || e.InvocationID == "" || e.Deadline.IsZero() || len(e.Data) == 0 {
					t.Errorf("%+v", e)
				}
			}
			if got := strings.Join(verdicts(t, s, ref), " "); got != points(asked) {
				t.Errorf("the commits record\n%s, but asked was\n%s", got, points(asked))
			}
		})
	}

	t.Run("nothing around a slash command", func(t *testing.T) {
		ref := subject.Ref{Agent: "main", Session: "slash"}
		ch := s.follow(ref)
		b, err := json.Marshal(event.Command{Name: "help"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.bus.PublishCause(t.Context(), ref, subject.Command, "test", "", b); err != nil {
			t.Fatal(err)
		}
		s.await(ch, event.TypeUIMessage)
		if got := points(spy.take("slash")); got != "" {
			t.Errorf("asked at %s", got)
		}
	})
	t.Run("an error alone where an input cannot be read", func(t *testing.T) {
		ref := subject.Ref{Agent: "main", Session: "malformed"}
		ch := s.follow(ref)
		if _, err := s.bus.PublishCause(t.Context(), ref, subject.Input, "test", "", []byte(`{"text":7}`)); err != nil {
			t.Fatal(err)
		}
		s.ended(ch)
		if got := points(spy.take("malformed")); got != "on_error" {
			t.Errorf("asked at %s", got)
		}
	})
	t.Run("a later core asks it at that core's start and end", func(t *testing.T) {
		s.startCore(core.Config{})
		if got := points(spy.take("")); got != "on_agent_start" {
			t.Errorf("asked at %q", got)
		}
		s.stopCore()
		if got := points(spy.take("")); got != "on_agent_stop" {
			t.Errorf("asked at %q", got)
		}
	})
}

// ended returns the event that ends the turn.
func (s *system) ended(ch <-chan event.Event) event.Event {
	s.t.Helper()
	for {
		if e := s.next(ch); e.Type.Terminal() {
			return e
		}
	}
}

// verdicts returns the points that the session's commits record.
func verdicts(t *testing.T, s *system, ref subject.Ref) []string {
	t.Helper()
	var asked []hook.Envelope
	for m, err := range s.bus.Commits(t.Context(), ref, 0) {
		if err != nil {
			t.Fatal(err)
		}
		c, err := event.DecodeCommit(ref, m.Data)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range c.Header.Hooks {
			if v.Plugin != "spy" || v.Error != "" || v.LatencyUS <= 0 {
				t.Errorf("%+v", v)
			}
			asked = append(asked, hook.Envelope{Point: v.Point, Step: v.Step})
		}
	}
	return strings.Fields(points(asked))
}

// A policy that arrives while an agent runs takes effect at the next call, and has no
// effect once it has left.
func TestAPolicyComesAndGoes(t *testing.T) {
	t.Parallel()
	s := start(t, core.Config{})
	s.model = once(do(`{"path":"/etc/passwd"}`))
	ref := subject.Ref{Agent: "main", Session: "s1"}
	ch := s.follow(ref)
	action := func() event.Action {
		t.Helper()
		s.say(ref, event.Input{Text: "go"})
		var rec event.Recorded
		if err := s.await(ch, event.TypeRecorded).DataAs(&rec); err != nil {
			t.Fatal(err)
		}
		return rec.Actions[0]
	}
	if a := action(); !a.Success {
		t.Fatalf("before: %+v", a)
	}
	p := s.plug(plugin.Manifest{Name: "policy", Hooks: []plugin.Hook{{Point: hook.BeforeAct}}},
		func(e hook.Envelope) string {
			if strings.Contains(string(e.Data), "/etc") {
				return `{"verb":"deny","reason":"not there"}`
			}
			return ""
		})
	if a := action(); a.Code != tool.CodeDenied {
		t.Fatalf("while the policy is registered: %+v", a)
	}
	p.leave()
	natstest.Eventually(t, "the policy is gone", func() bool { return !s.core.Plugins().Active("policy") })
	if a := action(); !a.Success {
		t.Fatalf("after: %+v", a)
	}
}

// Hook calls of a turn belong to the turn's trace.
func TestHooksAreInTheTrace(t *testing.T) {
	t.Parallel()
	s := start(t, core.Config{})
	s.model = once(do(`{}`))
	p := s.plug(plugin.Manifest{Name: "spy", Hooks: everyPoint()}, nil)
	ref := subject.Ref{Agent: "main", Session: "s1"}
	ch := s.follow(ref)
	s.say(ref, event.Input{Text: "go"})
	s.await(ch, event.TypeRecorded)
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.traces) != 1 || p.traces[""] {
		t.Errorf("traces: %v", p.traces)
	}
}

// A point may require a plugin: without it, everything is denied.
func TestARequiredPlugin(t *testing.T) {
	t.Parallel()
	s := start(t, core.Config{Hooks: map[hook.Point]core.HookConfig{hook.BeforeAct: {Required: []string{"policy"}}}})
	s.model = once(do(`{}`))
	ref := subject.Ref{Agent: "main", Session: "s1"}
	ch := s.follow(ref)
	action := func() event.Action {
		t.Helper()
		s.say(ref, event.Input{Text: "go"})
		var rec event.Recorded
		if err := s.await(ch, event.TypeRecorded).DataAs(&rec); err != nil {
			t.Fatal(err)
		}
		return rec.Actions[0]
	}
	if a := action(); a.Code != tool.CodeDenied {
		t.Fatalf("without it: %+v", a)
	}
	s.plug(plugin.Manifest{Name: "policy", Hooks: []plugin.Hook{{Point: hook.BeforeAct}}}, nil)
	if a := action(); !a.Success {
		t.Fatalf("with it: %+v", a)
	}
}

// Users see and approve the call as a chain of plugins has changed it.
func TestAConfirmationShowsWhatPluginsReplaced(t *testing.T) {
	t.Parallel()
	s := start(t, core.Config{})
	var ran string
	s.tool = func(_ context.Context, c contract.ToolCall) tool.Result { ran = string(c.Args); return tool.OK("done") }
	s.model = once(do(`{"to":"all@example.com"}`))
	s.plug(plugin.Manifest{Name: "narrow", Priority: 10, Hooks: []plugin.Hook{{Point: hook.BeforeAct}}},
		func(e hook.Envelope) string {
			return `{"verb":"replace","data":` + strings.Replace(string(e.Data), "all@", "one@", 1) + `}`
		})
	s.plug(plugin.Manifest{Name: "ask", Hooks: []plugin.Hook{{Point: hook.BeforeAct}}}, func(hook.Envelope) string {
		return `{"verb":"confirm","warning":{"level":"critical","message":"it leaves the house"}}`
	})
	ref := subject.Ref{Agent: "main", Session: "s1"}
	ch := s.follow(ref)
	s.say(ref, event.Input{Text: "go"})
	var q event.ToolCallRequest
	if err := s.await(ch, event.TypeToolCallRequest).DataAs(&q); err != nil {
		t.Fatal(err)
	}
	if string(q.Args) != `{"to":"one@example.com"}` || q.SecurityWarning == nil ||
		q.SecurityWarning.Level != hook.LevelCritical {
		t.Fatalf("%+v", q)
	}
	b, err := json.Marshal(event.Confirmation{ConfirmationID: q.ConfirmationID, Hash: q.Hash, Approved: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.bus.PublishCause(t.Context(), ref, subject.Confirmation, "ui", "", b); err != nil {
		t.Fatal(err)
	}
	s.await(ch, event.TypeRecorded)
	if ran != `{"to":"one@example.com"}` {
		t.Errorf("it ran with %s", ran)
	}
}

// Plugins may take longer than AckWait: the input is not redelivered to another core
// meanwhile, and is not suspected as poison.
func TestHooksThatTakeTheirTime(t *testing.T) {
	t.Parallel()
	s := start(t, core.Config{})
	other := s.startCore(core.Config{})
	release := make(chan struct{})
	p := s.plug(plugin.Manifest{Name: "slow", Hooks: []plugin.Hook{{Point: hook.BeforeSense}}},
		func(hook.Envelope) string {
			<-release
			return ""
		})
	time.AfterFunc(7*time.Second, func() { close(release) })
	ref := subject.Ref{Agent: "main", Session: "s1"}
	ch := s.follow(ref)
	s.say(ref, event.Input{Text: "go"})
	if e := s.ended(ch); e.Type != event.TypeRecorded {
		t.Errorf("it ended as %s %s", e.Type, e.Data)
	}
	if n := len(p.take("s1")); n != 1 {
		t.Errorf("it was asked %d times", n)
	}
	if n := s.core.Stats().Deliveries.Load() + other.Stats().Deliveries.Load(); n != 1 {
		t.Errorf("the input was delivered %d times", n)
	}
}

// on_error hears of tool calls that failed, of hooks that failed, and of a plugin that was
// suspended for that; never of its failures.
func TestOnErrorHearsOfEveryFailure(t *testing.T) {
	t.Parallel()
	s := start(t, core.Config{Plugins: core.PluginsConfig{SuspendAfter: new(2)}})
	s.model = once(provider.ToolCall{ID: "1", Tool: "test:do", Args: json.RawMessage(`{}`)})
	s.tool = func(context.Context, contract.ToolCall) tool.Result {
		return tool.Failure(tool.CodeFailed, "no such thing")
	}
	heard := make(chan hook.Envelope, 100)
	s.plug(plugin.Manifest{Name: "watcher", Hooks: []plugin.Hook{{Point: hook.OnError}}}, func(e hook.Envelope) string {
		heard <- e
		return ""
	})
	s.plug(plugin.Manifest{Name: "broken", Hooks: []plugin.Hook{{Point: hook.AfterPlan}, {Point: hook.OnError}}},
		func(e hook.Envelope) string {
			if e.Point == hook.OnError && strings.Contains(string(e.Data), `"plugin":"broken"`) {
				t.Errorf("it is asked about itself: %s", e.Data)
			}
			return "garbage"
		})
	ref := subject.Ref{Agent: "main", Session: "s1"}
	ch := s.follow(ref)
	s.say(ref, event.Input{Text: "go"})
	turn := s.await(ch, event.TypeRecorded).Turn
	want := map[string]hook.ErrorData{
		"tool_failed":      {Message: "no such thing", Tool: "test:do"},
		"hook_failed":      {Message: "hook after_plan of plugin broken failed", Plugin: "broken"},
		"plugin_suspended": {Message: "plugin broken is suspended: it failed 2 times in a row", Plugin: "broken"},
	}
	for len(want) > 0 {
		var e hook.Envelope
		select {
		case e = <-heard:
		case <-natstest.Context(t).Done():
			t.Fatalf("on_error has not heard of %v", want)
		}
		var d hook.ErrorData
		if err := json.Unmarshal(e.Data, &d); err != nil {
			t.Fatal(err)
		}
		w, first := want[d.Code]
		if !first && d.Code != hook.ErrHookFailed {
			t.Errorf("on_error heard of %s", e.Data)
		}
		if delete(want, d.Code); !first {
			continue
		}
		if !strings.Contains(d.Message, w.Message) || d.Tool != w.Tool || d.Plugin != w.Plugin || e.Agent != "main" {
			t.Errorf("on_error heard of %+v, want %+v", d, w)
		}
		if inTurn := d.Code != hook.ErrSuspended; inTurn != (e.Turn == turn) || inTurn != (e.Session == "s1") {
			t.Errorf("%s came with session %q, turn %q", d.Code, e.Session, e.Turn)
		}
		if isCall := d.Code == "tool_failed"; isCall != (e.Step != "") {
			t.Errorf("%s came with step %q", d.Code, e.Step)
		}
	}
}
