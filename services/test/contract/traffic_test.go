package contract

import (
	"bytes"
	"context"
	"encoding/json"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/executor"
	"skandha.dev/services/internal/executor/engine"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/natsserver"
	"skandha.dev/services/internal/store/sqlite"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/toolrunner"
)

// What a real core, runner and provider put on a real bus, in turns that go well and turns that do not, is what
// asyncapi.yaml says: every message belongs to a channel and validates as one of its messages, with declared headers.
func TestWhatRunsOnTheBusIsTheContract(t *testing.T) {
	srv := natstest.Start(t)
	b := natstest.Connect(t, srv)
	tap := listen(t, b)
	startSystem(t, srv)
	leave := startPlugin(t, srv)

	p := person{t: t, b: b}
	natstest.Eventually(t, "core offers the plugin's tool", func() bool {
		// Nobody says that core does not listen yet, as the tap does.
		ctx, cancel := context.WithTimeout(natstest.Context(t), time.Second)
		defer cancel()
		m, err := p.tryAsk(ctx, coreapi.VerbTools, ``)
		return err == nil && bytes.Contains(m.Data, []byte("plugin:do"))
	})
	p.turn("plugin", "plugin", event.TypeRecorded)
	p.turn("good", "call", event.TypeRecorded)
	p.turn("plan", "plan", event.TypeRecorded)
	p.turn("refused", "nonsense", event.TypeRecorded)
	p.turn("broken", "broken", event.TypeTurnFailed)
	p.turn("approved", "risky", event.TypeRecorded)
	p.turn("denied", "risky, but no", event.TypeRecorded)
	p.send("commands", subject.Command, `{"name":"/help"}`, event.TypeRecorded)
	p.send("commands", subject.Command, `{"name":"dance"}`, event.TypeTurnFailed)
	p.send("commands", subject.Command, `{"name":"pause"}`, event.TypeRecorded)
	p.send("commands", subject.Command, `{"name":"reset"}`, event.TypeRecorded)
	p.send("malformed", subject.Input, `{"txt":"hello"}`, event.TypeTurnFailed)
	p.send("odd", "telepathy", `{}`, event.TypeTurnFailed)
	p.ask(coreapi.VerbSessions, `{"limit":5}`)
	p.ask(coreapi.VerbSession, `{"agent":"main","session":"good"}`)
	p.ask(coreapi.VerbSession, `{"agent":"main","session":"nobody"}`)
	p.ask("past.main.good", `{"limit":2}`)
	p.ask(coreapi.VerbMessages, `{"agent":"main","session":"good","limit":2}`)
	p.ask(coreapi.VerbStatus, ``)
	p.ask(coreapi.VerbRefill, `{"agent":"main","session":"good"}`)
	p.ask(coreapi.VerbRefill, `{"all":true}`)
	p.ask(coreapi.VerbHooks, ``)
	p.ask(coreapi.VerbCall, `{"agent":"main","session":"good","caller":"test","tool":"status:query"}`)
	p.ask(coreapi.VerbPlugins, ``)
	p.ask(coreapi.VerbPlugin, `{"op":"suspend","plugin":"everything","reason":"to see"}`)
	p.ask(coreapi.VerbPlugin, `{"op":"resume","plugin":"everything"}`)
	p.ask(coreapi.VerbPlugin, `{"op":"unload","plugin":"nobody"}`)
	natstest.Eventually(t, "a heartbeat", func() bool {
		return slices.ContainsFunc(tap.all(),
			func(m *nats.Msg) bool { return strings.HasPrefix(m.Subject, "plugin.heartbeat.") })
	})
	leave()

	seen := map[string]int{}
	tap.fence(t, b)
	for _, m := range tap.all() {
		if id := checkMessage(t, m); id != "" {
			seen[id]++
		}
	}
	t.Logf("%v", seen)
	for _, id := range []string{
		"input", "confirmation", "command", "commit", "perceived", "planRequested", "planCompleted", "actRequested",
		"actConfirmed", "actCompleted", "recorded", "turnFailed", "sessionPaused", "sessionReset", "uiMessage",
		"toolCallRequest", "uiReady", "uiState", "timerSchedule", "runnerRequest", "providerRequest", "executorAnswer",
		"announcement", "beacon", "discovery", "coreToolsQuery", "coreTools", "coreSessions", "coreSession", "corePast",
		"coreMessages", "coreStatus", "error", "register", "heartbeat", "unregister", "lease", "hookCall", "hookReply",
		"toolCall", "toolResult", "coreCallRequest", "coreHooks", "corePlugins", "corePlugin",
	} {
		if seen[id] == 0 {
			t.Errorf("no message %s was seen: what it looks like was not checked", id)
		}
	}
}

// tap keeps what is published.
type tap struct {
	mu     sync.Mutex
	msgs   []*nats.Msg
	fenced chan struct{} // holds one: the message on fence came
}

const fence = "tap.fence"

func listen(t *testing.T, b *journal.Journal) *tap {
	t.Helper()
	p := &tap{fenced: make(chan struct{}, 1)}
	_, err := b.Conn().Subscribe(">", func(m *nats.Msg) {
		if m.Subject == fence {
			p.fenced <- struct{}{}
			return
		}
		// The server's, and notices of buckets, which it sends to services.
		if strings.HasPrefix(m.Subject, "$") || strings.HasPrefix(m.Subject, "_INBOX.") || strings.HasPrefix(m.Subject, "watch.") {
			return // the server's and its clients' own
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.msgs = append(p.msgs, m)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Conn().Flush(); err != nil {
		t.Fatal(err)
	}
	return p
}

// fence returns when all is kept that was published before.
func (p *tap) fence(t *testing.T, b *journal.Journal) {
	t.Helper()
	if err := b.Conn().Publish(fence, nil); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.fenced:
	case <-natstest.Context(t).Done():
		t.Fatal("the tap does not hear what is published")
	}
}

func (p *tap) all() []*nats.Msg {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.msgs)
}

// checkMessage finds the message of the contract that m is.
func checkMessage(t *testing.T, m *nats.Msg) string {
	t.Helper()
	var on []string
	for name, ch := range channels() {
		if ch.Address != "" && ch.matches(m.Subject) {
			on = append(on, name)
		}
	}
	if len(on) != 1 {
		if !strings.Contains(m.Subject, ".sense.telepathy.") { // likewise
			t.Errorf("%s belongs to the channels %v, want one", m.Subject, on)
		}
		return ""
	}
	isError := m.Header.Get(bus.ErrorHeader) != ""
	var why []string
	for id := range channels()[on[0]].Messages {
		if isError != (id == "error") {
			continue
		}
		err := validMessage(t, id, m)
		if err == nil {
			return id
		}
		why = append(why, id+": "+err.Error())
	}
	if !strings.Contains(m.Subject, ".malformed.sense.input.") { // which is sent on purpose
		t.Errorf("%s: %s\n%s", m.Subject, m.Data, strings.Join(why, "\n"))
	}
	return ""
}

type contractError string

func (e contractError) Error() string { return string(e) }

func validMessage(t *testing.T, id string, m *nats.Msg) error {
	t.Helper()
	msg := api().Components.Messages[id]
	if err := validHeaders(msg, m.Header); err != nil {
		return err
	}
	if msg.OpaqueBody ||
		len(m.Data) == 0 && (msg.EmptyBody || id == "coreSessionsQuery" || m.Header.Get(bus.ClaimHeader) != "") {
		return nil
	}
	if msg.EmptyBody {
		return contractError("the body is not empty")
	}
	path, fragment, _ := strings.Cut(strings.TrimPrefix(msg.Payload.Schema.Ref, "./"), "#")
	name := strings.TrimSuffix(path, ".json")
	if fragment != "" {
		name += ".message"
	}
	body, _, _ := bytes.Cut(m.Data, []byte{'\n'}) // for the lines that follow see wire_test.go
	return files(t).schema(t, name).Validate(decode(t, body))
}

func validHeaders(msg message, h nats.Header) error {
	declared := map[string]bool{}
	for _, r := range msg.Traits {
		for name := range api().Components.MessageTraits[strings.TrimPrefix(r.Ref,
			"#/components/messageTraits/")].Headers.Properties {
			declared[name] = true
		}
	}
	for name, values := range h {
		s, known := api().Components.Schemas[name]
		switch {
		case strings.HasPrefix(name, "Skandha-") && !declared[name]:
			return contractError("header " + name + " is not declared")
		case known && s.Pattern != "" && !regexp.MustCompile(s.Pattern).MatchString(values[0]):
			return contractError("header " + name + ": " + values[0])
		}
	}
	return nil
}

// startSystem runs a core, a runner and a provider until the test ends.
func startSystem(t *testing.T, srv *natsserver.Server) {
	t.Helper()
	st, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "view.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	c, err := core.New(core.Config{Plugins: core.PluginsConfig{Lease: 5 * time.Second}},
		core.Options{Drain: 100 * time.Millisecond},
		core.Deps{Bus: natstest.Connect(t, srv), Store: st, Log: natstest.Logger(t)})
	if err != nil {
		t.Fatal(err)
	}
	background(t, "core", c.Run)
	object := json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}}}`)
	serve := func(cfg engine.Config) {
		cfg.DrainTimeout, cfg.Pools = 100*time.Millisecond, []executor.Pool{{Name: "default", Slots: 8}}
		b := natstest.Connect(t, srv)
		background(t, cfg.Service, func(ctx context.Context) error { return engine.Serve(ctx, b, cfg) })
	}
	serve(engine.Config{
		Kind: subject.Runner, Service: "toolrunner", Work: runTool,
		Offer: engine.Offer{Tools: []tool.Spec{
			{Name: "test:do", Description: "does", Args: object, Idempotent: true},
			{Name: "test:fail", Description: "fails", Args: object},
			{Name: "test:risky", Description: "asks first", Args: object, Risk: tool.RiskHigh},
		}},
	})
	serve(engine.Config{
		Kind: subject.Provider, Service: "provider", Work: answer,
		Offer: engine.Offer{Providers: []provider.Info{{Name: "scripted", Model: "m"}}},
	})
}

// startPlugin serves a plugin with hooks at every point and a tool, and runs a tool
// runner that calls it.
func startPlugin(t *testing.T, srv *natsserver.Server) (leave func()) {
	t.Helper()
	b := natstest.Connect(t, srv)
	background(t, "plugins' runner", func(ctx context.Context) error {
		return toolrunner.Run(ctx, toolrunner.Config{
			WorkspaceDir: filepath.Join(t.TempDir(), "w"), Enable: []string{"plugin:*"}, DrainTimeout: 100 * time.Millisecond,
		}, toolrunner.Deps{Bus: b, Logger: natstest.Logger(t)})
	})
	active, done := make(chan struct{}), make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	own := natstest.Connect(t, srv)
	go func() {
		done <- plugin.Serve(ctx, plugin.Manifest{Name: "everything", Version: "1.0.0"}, handlers(), plugin.WithBus(own.Bus),
			plugin.WithLogger(natstest.Logger(t)),
			plugin.OnState(func(s plugin.LeaseState, _ string) {
				if s == plugin.Active {
					closeOnce(active)
				}
			}))
	}()
	<-active
	return sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the plugin: %v", err)
		}
	})
}

func closeOnce(c chan struct{}) {
	select {
	case <-c:
	default:
		close(c)
	}
}

func handlers() plugin.Handlers {
	return plugin.Handlers{
		plugin.OnAgentStart(func(context.Context, *plugin.HookCall[hook.AgentData]) error { return nil }),
		plugin.BeforeSense(func(_ context.Context, c *plugin.HookCall[hook.SenseData]) (plugin.Reply, error) {
			return plugin.Replace(c.Data), nil
		}),
		plugin.AfterSense(func(_ context.Context, c *plugin.HookCall[hook.PerceptionsData]) (plugin.Reply, error) {
			return plugin.Replace(c.Data), nil
		}),
		plugin.BeforePlan(func(_ context.Context, c *plugin.HookCall[hook.PlanData]) (plugin.Reply, error) {
			c.Data.System = "be brief"
			return plugin.Replace(c.Data), nil
		}),
		plugin.AfterPlan(func(_ context.Context, c *plugin.HookCall[hook.AfterPlanData]) (plugin.Reply, error) {
			return plugin.Replace(c.Data), nil
		}),
		plugin.BeforeAct(func(_ context.Context, c *plugin.HookCall[hook.ActData]) (plugin.Reply, error) {
			return plugin.Replace(c.Data), nil
		}),
		plugin.AfterAct(func(context.Context, *plugin.HookCall[hook.AfterActData]) (plugin.Reply, error) {
			return plugin.Stop(), nil
		}),
		plugin.BeforeReflect(func(_ context.Context, c *plugin.HookCall[hook.ReflectData]) (plugin.Reply, error) {
			c.Data.Notes = []string{"done"}
			return plugin.Replace(c.Data), nil
		}),
		plugin.AfterReflect(func(context.Context, *plugin.HookCall[hook.ReflectData]) error { return nil }),
		plugin.OnError(func(context.Context, *plugin.HookCall[hook.ErrorData]) error { return nil }),
		plugin.OnAgentStop(func(context.Context, *plugin.HookCall[hook.AgentData]) error { return nil }),
		plugin.Tool("plugin:do", "Does.", func(context.Context, struct{}) (string, error) { return "done", nil }),
	}
}

func background(t *testing.T, what string, run func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("%s: %v", what, err)
		}
	})
}

func runTool(_ context.Context, r executor.Request, progress func(string)) executor.Answer {
	progress("half way")
	res := tool.OK(map[string]any{"n": 1, "text": "<é>"})
	if r.Tool.Name == "test:fail" {
		res = tool.Failure(tool.CodeFailed, "it broke", "in the middle")
		res.Data = json.RawMessage(`{"partial":true}`)
	}
	return executor.Answer{Result: &res}
}

// answer is a model that does what the last message of the user says.
func answer(_ context.Context, r executor.Request, _ func(string)) executor.Answer {
	said, err := r.Model.Conversation()
	if err != nil {
		return executor.Answer{Error: &provider.Error{Code: provider.ErrInternal, Message: err.Error()}}
	}
	last := said[len(said)-1]
	out := provider.Response{
		TextContent: "done", StopReason: provider.StopEnd, Model: "m", Usage: provider.Usage{InputTokens: 3, OutputTokens: 2},
	}
	call := func(id, name, args string) {
		out.ToolCalls = append(out.ToolCalls, provider.ToolCall{ID: id, Tool: name, Args: json.RawMessage(args)})
	}
	if last.Role == provider.RoleUser {
		switch word, _, _ := strings.Cut(last.Text, ","); word {
		case "plugin":
			call("1", "plugin:do", `{}`)
		case "call":
			out.ProviderState = json.RawMessage(`{"signature":"c2ln"}`)
			call("1", "test:do", `{"n":1}`)
			call("2", "test:fail", `{}`)
			call("3", "test:do", `{"n":"${1.n}"}`)
		case "plan":
			call("p", "plan:execute",
				`{"steps":[{"tool":"test:do","params":{"n":1}},{"tool":"test:fail"},{"tool":"test:do","depends_on":[1]}]}`)
		case "nonsense":
			call("1", "no such tool", `"not json {"`)
			call("2", "test:do", `{"n":"one"}`)
			call("3", "test:do", `[1]`)
		case "broken":
			return executor.Answer{Error: &provider.Error{Code: provider.ErrAuth, Message: "no key"}}
		case "risky":
			call("1", "test:risky", `{}`)
		}
	}
	return executor.Answer{Response: &out}
}

// person is the user that talks to the agent.
type person struct {
	t *testing.T
	b *journal.Journal
}

// turn sends an input, answers what is asked, and waits for its terminal event.
func (p person) turn(session, text string, want event.Type) {
	p.t.Helper()
	in, err := json.Marshal(event.Input{Text: text, ID: session + "-1", Source: "test"})
	if err != nil {
		p.t.Fatal(err)
	}
	p.send(session, subject.Input, string(in), want)
}

func (p person) send(session string, kind subject.CauseKind, body string, want event.Type) {
	p.t.Helper()
	ref := subject.Ref{Agent: core.DefaultAgent, Session: subject.Session(session)}
	ends := make(chan event.Event, 16)
	sub, err := p.b.Conn().Subscribe(ref.Live("*", "*"), func(m *nats.Msg) {
		e, err := event.Decode(m.Data)
		switch {
		case err != nil:
			p.t.Errorf("%s: %v", m.Subject, err)
		case e.Type.Terminal():
			ends <- e
		case e.Type == event.TypeToolCallRequest:
			p.confirm(ref, e, !strings.Contains(body, "but no"))
		}
	})
	if err != nil {
		p.t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := p.b.Conn().Flush(); err != nil {
		p.t.Fatal(err)
	}
	ctx := natstest.Context(p.t)
	if _, err := p.b.Conn().RequestWithContext(ctx, ref.Cause(kind, "me"), []byte(body)); err != nil {
		p.t.Fatal(err)
	}
	select {
	case e := <-ends:
		if e.Type != want {
			p.t.Errorf("%s ended with %s %s, want %s", body, e.Type, e.Data, want)
		}
	case <-ctx.Done():
		p.t.Fatalf("%s has no terminal event", body)
	}
}

// confirm runs on the connection's goroutine, and so must not wait for an answer.
func (p person) confirm(ref subject.Ref, e event.Event, approved bool) {
	var q event.ToolCallRequest
	err := e.DataAs(&q)
	if err == nil {
		var body []byte
		if body, err = json.Marshal(event.Confirmation{
			ConfirmationID: q.ConfirmationID, Hash: q.Hash, Approved: approved, Reason: "because",
		}); err == nil {
			err = p.b.Conn().Publish(ref.Cause(subject.Confirmation, "me"), body)
		}
	}
	if err != nil {
		p.t.Error(err)
	}
}

// ask asks a service as the manual says; an error reply is an answer, too.
func (p person) ask(verb, body string) {
	p.t.Helper()
	if _, err := p.tryAsk(natstest.Context(p.t), verb, body); err != nil {
		p.t.Fatalf("%s: %v", verb, err)
	}
}

func (p person) tryAsk(ctx context.Context, verb, body string) (*nats.Msg, error) {
	p.t.Helper()
	service := coreapi.ServiceOf(verb)
	m := nats.NewMsg(subject.Service(service, verb))
	if verb == coreapi.VerbCall {
		m.Subject = subject.Call("test")
	}
	m.Data, m.Reply = []byte(body), subject.Reply("me", service, "me-1", 7)
	sub, err := p.b.Conn().SubscribeSync(subject.Replies("me", "me-1"))
	if err != nil {
		p.t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := p.b.Conn().PublishMsg(m); err != nil {
		p.t.Fatal(err)
	}
	return sub.NextMsgWithContext(ctx)
}
