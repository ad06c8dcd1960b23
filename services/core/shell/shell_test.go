package shell_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core"
	"skandha.dev/services/core/shell"
	contract "skandha.dev/services/internal/executor"
	"skandha.dev/services/internal/executor/engine"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/memory"
	"skandha.dev/services/internal/natsserver"
	"skandha.dev/services/internal/store"
	"skandha.dev/services/internal/store/sqlite"
	"skandha.dev/services/test/natstest"
)

// system is a complete agent in one process, with a scripted model and tools.
type system struct {
	t     testing.TB
	srv   *natsserver.Server
	bus   *journal.Journal
	core  *shell.Core
	model func(last provider.Message) provider.Response
	asked func(provider.Request) // called with each model request; may be nil
	tool  func(ctx context.Context, c contract.ToolCall) tool.Result
	files func(ref subject.Ref) tool.Result // instead of tool; may be nil
	// stopCore and stopRunner stop the last one started.
	stopCore, stopRunner func()
	slots                int                     // of the runner
	view                 store.Store             // of every core; nil: each has its own
	index                memory.Store            // of memories; nil: none
	executors            []subject.Instance      // the first runner and provider
	connect              func() *journal.Journal // nil: to srv
	schedules            bool                    // cores offer the tools schedule:*
	compare, settle      time.Duration           // see [core.Options]
	cache                int                     // likewise
	config               core.Config             // of retained
}

func start(t testing.TB, cfg core.Config, options ...func(*system)) *system {
	s := &system{t: t, slots: 128}
	for _, o := range options {
		o(s)
	}
	if s.srv == nil && s.connect == nil {
		s.srv = natstest.Start(t)
	}
	if s.connect == nil {
		s.connect = func() *journal.Journal { return natstest.Connect(t, s.srv) }
	}
	s.bus = s.connect()
	s.model = func(m provider.Message) provider.Response { return provider.Response{TextContent: "echo: " + m.Text} }
	s.tool = func(context.Context, contract.ToolCall) tool.Result { return tool.OK("done") }
	runner, model := s.connect(), s.connect()
	s.runner(runner)
	s.provider(model)
	s.core = s.startCore(cfg)
	s.executors = []subject.Instance{runner.Instance(), model.Instance()}
	if err := s.core.AwaitExecutors(natstest.Context(t), s.executors...); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *system) background(what string, f func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			s.t.Errorf("%s: %v", what, err)
		}
	})
	s.t.Cleanup(stop)
	return stop
}

// startCore starts one more core.
func (s *system) startCore(cfg core.Config) *shell.Core {
	c := s.newCore(cfg, s.connect())
	s.stopCore = s.background("core", c.Run)
	if err := c.AwaitReady(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	return c
}

// newCore prepares a core, whose hooks have a large budget.
func (s *system) newCore(cfg core.Config, b *journal.Journal) *shell.Core {
	s.t.Helper()
	points := map[hook.Point]core.HookConfig{}
	for _, p := range hook.Points() {
		points[p] = cfg.Hooks[p]
		if h := points[p]; h.Budget == 0 {
			h.Budget = 2 * natstest.Patience
			points[p] = h
		}
	}
	cfg.Hooks = points
	c, err := core.New(cfg, core.Options{Drain: 100 * time.Millisecond, Schedules: s.schedules, Compare: s.compare, Settle: s.settle, Cache: s.cache},
		core.Deps{Bus: b, Store: s.store(), Index: s.index, Log: natstest.Logger(s.t)})
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

// store returns the view, or a new one.
func (s *system) store() store.Store {
	if s.view != nil {
		return s.view
	}
	st, err := sqlite.Open(s.t.Context(), sqlite.Config{Path: filepath.Join(s.t.TempDir(), "view.db")})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = st.Close() })
	return st
}

func (s *system) runner(b *journal.Journal) {
	specs := []tool.Spec{
		{Name: "test:do", Description: "does", Args: json.RawMessage(`{"type":"object"}`), Idempotent: true},
		{
			Name: "test:once", Description: "does once",
			Args: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}}}`),
		},
		{Name: "test:inner", Description: "for services", Internal: true, Args: json.RawMessage(
			`{"type":"object","properties":{"query":{"type":"string"}},"additionalProperties":false}`)},
		{
			Name: "test:grave", Description: "for services, at high risk", Args: json.RawMessage(`{"type":"object"}`),
			Internal: true, Risk: tool.RiskHigh,
		},
		{Name: "test:risky", Description: "asks first", Args: json.RawMessage(`{"type":"object"}`), Risk: tool.RiskHigh},
	}
	s.stopRunner = s.background("runner", func(ctx context.Context) error {
		return engine.Serve(ctx, b, engine.Config{
			Kind: subject.Runner, Service: "toolrunner", Offer: engine.Offer{Tools: specs},
			DrainTimeout: 100 * time.Millisecond,
			Pools:        []contract.Pool{{Name: "default", Slots: s.slots}},
			Work: func(ctx context.Context, r contract.Request, _ func(string)) contract.Answer {
				if s.files != nil {
					res := s.files(subject.Ref{Agent: r.Agent, Session: r.Session})
					return contract.Answer{State: contract.Finished, Result: &res}
				}
				res := s.tool(ctx, *r.Tool)
				return contract.Answer{State: contract.Finished, Result: &res}
			},
		})
	})
}

func (s *system) provider(b *journal.Journal) {
	s.background("provider", func(ctx context.Context) error {
		return engine.Serve(ctx, b, engine.Config{
			Kind: subject.Provider, Service: "provider",
			Offer:        engine.Offer{Providers: []provider.Info{{Name: "scripted", Model: "m"}}},
			DrainTimeout: 100 * time.Millisecond, Pools: []contract.Pool{{Name: "default", Slots: 128}},
			Work: func(_ context.Context, r contract.Request, _ func(string)) contract.Answer {
				var last provider.Message
				if err := json.Unmarshal(r.Model.Messages[len(r.Model.Messages)-1], &last); err != nil {
					return contract.Answer{
						State: contract.Finished, Error: &provider.Error{Code: provider.ErrInternal, Message: err.Error()},
					}
				}
				if s.asked != nil {
					s.asked(*r.Model)
				}
				res := s.model(last)
				return contract.Answer{State: contract.Finished, Response: &res}
			},
		})
	})
}

// follow collects the live events of a session.
func (s *system) follow(ref subject.Ref) <-chan event.Event {
	ch := make(chan event.Event, 4096)
	sub, err := s.bus.Conn().Subscribe(ref.All(), func(m *nats.Msg) {
		if strings.Contains(m.Subject, ".sense.input.") || strings.HasSuffix(m.Subject, ".commit") {
			return
		}
		if e, err := event.Decode(m.Data); err == nil {
			ch <- e
		}
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = sub.Unsubscribe() })
	if err := s.bus.Conn().Flush(); err != nil {
		s.t.Fatal(err)
	}
	return ch
}

func (s *system) say(ref subject.Ref, in event.Input) uint64 {
	b, err := json.Marshal(in)
	if err != nil {
		s.t.Fatal(err)
	}
	seq, err := s.bus.PublishCause(s.t.Context(), ref, subject.Input, "test", in.ID, b)
	if err != nil {
		s.t.Fatal(err)
	}
	return seq
}

func (s *system) await(ch <-chan event.Event, want event.Type) event.Event {
	s.t.Helper()
	for {
		e := s.next(ch)
		if e.Type == want {
			return e
		}
		if e.Type.Terminal() {
			s.t.Fatalf("terminal %s %s while waiting for %s", e.Type, e.Data, want)
		}
	}
}

// next returns the next event.
func (s *system) next(ch <-chan event.Event) event.Event {
	s.t.Helper()
	select {
	case e := <-ch:
		return e
	case <-time.After(natstest.Patience):
		s.t.Fatal("timed out waiting for an event")
		return event.Event{}
	}
}

func calls(cs ...provider.ToolCall) provider.Response { return provider.Response{ToolCalls: cs} }

func TestATurnWithATool(t *testing.T) {
	t.Parallel()
	s := start(t, core.Config{})
	s.model = func(m provider.Message) provider.Response {
		if m.Role == provider.RoleUser {
			return calls(provider.ToolCall{ID: "1", Tool: "test:do", Args: json.RawMessage(`{"x":1}`)})
		}
		return provider.Response{TextContent: "it said " + m.Text}
	}
	ref := subject.Ref{Agent: "main", Session: "s1"}
	ch := s.follow(ref)
	s.say(ref, event.Input{Text: "go"})
	var rec event.Recorded
	if err := s.await(ch, event.TypeRecorded).DataAs(&rec); err != nil {
		t.Fatal(err)
	}
	if rec.Answer != `it said "done"` || len(rec.Actions) != 1 || !rec.Actions[0].Success {
		t.Fatalf("%+v", rec)
	}
	n := 0
	for _, err := range s.bus.Commits(t.Context(), ref, 0) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != 4 {
		t.Errorf("%d commits, want 4 (and the input: five appends)", n)
	}
}

func TestFiftyInputsTwoCores(t *testing.T) {
	t.Parallel()
	s := start(t, core.Config{})
	s.startCore(core.Config{})
	ref := subject.Ref{Agent: "main", Session: "busy"}
	ch := s.follow(ref)
	want := map[uint64]bool{}
	for i := range 50 {
		want[s.say(ref, event.Input{Text: fmt.Sprint(i)})] = true
	}
	for range 50 {
		var rec event.Recorded
		if err := s.await(ch, event.TypeRecorded).DataAs(&rec); err != nil {
			t.Fatal(err)
		}
		if !want[rec.Sequence] {
			t.Fatalf("input %d ended twice or was never sent", rec.Sequence)
		}
		delete(want, rec.Sequence)
	}
}

func TestConfirmation(t *testing.T) {
	t.Parallel()
	s := start(t, core.Config{})
	s.model = func(m provider.Message) provider.Response {
		if m.Role == provider.RoleUser {
			return calls(provider.ToolCall{ID: "1", Tool: "test:risky", Args: json.RawMessage(`{}`)})
		}
		return provider.Response{TextContent: "ok"}
	}
	ref := subject.Ref{Agent: "main", Session: "ask"}
	ch := s.follow(ref)
	s.say(ref, event.Input{Text: "go"})
	var q event.ToolCallRequest
	if err := s.await(ch, event.TypeToolCallRequest).DataAs(&q); err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(event.Confirmation{ConfirmationID: q.ConfirmationID, Hash: q.Hash, Approved: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.bus.PublishCause(t.Context(), ref, subject.Confirmation, "ui", "", b); err != nil {
		t.Fatal(err)
	}
	s.await(ch, event.TypeRecorded)
}

func TestConfirmationExpires(t *testing.T) {
	t.Parallel()
	s := start(t, core.Config{Agents: map[string]core.AgentConfig{"main": {Confirm: time.Second}}})
	s.model = func(m provider.Message) provider.Response {
		if m.Role == provider.RoleUser {
			return calls(provider.ToolCall{ID: "1", Tool: "test:risky", Args: json.RawMessage(`{}`)})
		}
		return provider.Response{TextContent: m.Text}
	}
	ref := subject.Ref{Agent: "main", Session: "late"}
	ch := s.follow(ref)
	s.say(ref, event.Input{Text: "go"})
	var rec event.Recorded
	if err := s.await(ch, event.TypeRecorded).DataAs(&rec); err != nil {
		t.Fatal(err)
	}
	if len(rec.Actions) != 1 || rec.Actions[0].Code != tool.CodeExpired {
		t.Fatalf("%+v", rec)
	}
}

func TestUnknownAgentEnds(t *testing.T) {
	t.Parallel()
	s := start(t, core.Config{})
	ref := subject.Ref{Agent: "nobody", Session: "s"}
	ch := s.follow(ref)
	s.say(ref, event.Input{Text: "hello?"})
	var f event.TurnFailed
	if err := s.await(ch, event.TypeTurnFailed).DataAs(&f); err != nil {
		t.Fatal(err)
	}
	if f.Code != event.FailUnknownAgent {
		t.Fatalf("%+v", f)
	}
}

// A forged or broken commit must not block a session, and must not be trusted.
func TestABrokenLogLocksTheSession(t *testing.T) {
	t.Parallel()
	s := start(t, core.Config{})
	ref := subject.Ref{Agent: "main", Session: "broken"}
	ch := s.follow(ref)
	s.say(ref, event.Input{Text: "one"})
	s.await(ch, event.TypeRecorded)
	last, err := s.bus.LastCommitSeq(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.bus.AppendCommit(t.Context(), ref, []byte(`[{"forged":true}]`), last); err != nil {
		t.Fatal(err)
	}
	s.say(ref, event.Input{Text: "two"})
	var f event.TurnFailed
	if err := s.await(ch, event.TypeTurnFailed).DataAs(&f); err != nil {
		t.Fatal(err)
	}
	if f.Code != event.FailLocked {
		t.Fatalf("%+v", f)
	}
	contains(t, f.Reason, "its log is damaged: ", "/repair continues with what was recovered, 1 turn", "/reset")
	b, err := json.Marshal(event.Command{Name: "reset"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.bus.PublishCause(t.Context(), ref, subject.Command, "test", "", b); err != nil {
		t.Fatal(err)
	}
	s.await(ch, event.TypeRecorded)
	s.say(ref, event.Input{Text: "three"})
	s.await(ch, event.TypeRecorded)
}
