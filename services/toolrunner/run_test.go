package toolrunner_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/executor"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/natsserver"
	"skandha.dev/services/internal/result"
	"skandha.dev/services/internal/toolschema"
	"skandha.dev/services/test/effects"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/toolrunner"
	"skandha.dev/services/toolrunner/tools"
	"skandha.dev/services/toolrunner/tools/web"
)

// core asks one tool runner over a real bus.
type core struct {
	t         testing.TB
	server    *natsserver.Server
	bus       *journal.Journal
	caller    *bus.Caller
	announced <-chan executor.Announcement
	offer     executor.Announcement
	spec      string // of calls; empty: none is named
	workspace string
	calls     int
}

func start(t testing.TB, cfg toolrunner.Config, extra ...tools.Tool) *core {
	t.Helper()
	return startOn(t, natstest.Start(t), cfg, extra...)
}

// startWithEffects starts a runner with the tools of package effects, too.
func startWithEffects(t testing.TB, cfg toolrunner.Config, extra ...tools.Tool) *core {
	t.Helper()
	cfg.WorkspaceDir = filepath.Join(t.TempDir(), "w")
	list, err := effects.In(cfg.WorkspaceDir)
	if err != nil {
		t.Fatal(err)
	}
	return start(t, cfg, append(list, extra...)...)
}

func startOn(t testing.TB, s *natsserver.Server, cfg toolrunner.Config, extra ...tools.Tool) *core {
	t.Helper()
	c := &core{t: t, server: s, bus: natstest.Connect(t, s), workspace: cfg.WorkspaceDir}
	if c.workspace == "" {
		c.workspace = filepath.Join(t.TempDir(), "w")
	}
	var err error
	if c.caller, err = c.bus.NewCaller(); err != nil {
		t.Fatal(err)
	}
	announced := make(chan executor.Announcement, 1000)
	c.announced = announced
	_, err = c.bus.Conn().Subscribe(subject.AllAnnouncements, func(m *nats.Msg) {
		var a executor.Announcement
		if err := json.Unmarshal(m.Data, &a); err != nil {
			t.Errorf("an announcement cannot be read: %v", err)
		}
		select {
		case announced <- a:
		default:
		}
	})
	if err == nil {
		err = c.bus.Conn().Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	cfg.WorkspaceDir, cfg.DrainTimeout = c.workspace, 10*time.Millisecond
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	deps := toolrunner.Deps{
		Bus: natstest.Dial(t, bus.Config{InProcess: s, Name: "toolrunner"}), Logger: natstest.Logger(t), Extra: extra,
	}
	go func() { ended <- toolrunner.Run(ctx, cfg, deps) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("it ended with %v", err)
		}
	})
	select {
	case c.offer = <-announced:
	case <-time.After(natstest.Patience):
		t.Fatal("no announcement")
	}
	return c
}

func (c *core) send(op executor.Op, call, name, args string) <-chan executor.Answer {
	c.t.Helper()
	r := executor.Request{Op: op, Agent: "a", Session: "s", Call: call, Attempt: "n"}
	if op == executor.OpRun {
		r.StartBy, r.NotAfter = time.Now().Add(executor.StartWithin), time.Now().Add(2*natstest.Patience)
		r.Tool = &executor.ToolCall{Name: name, Args: json.RawMessage(args), Turn: "t", Spec: c.spec}
	}
	body, err := json.Marshal(r)
	if err != nil {
		c.t.Fatal(err)
	}
	out := make(chan executor.Answer, 100)
	inst := c.offer.Instance
	cancel, err := c.caller.Send(natstest.Context(c.t), subject.Executor(subject.Runner, inst), string(inst), nil, body,
		func(m bus.Reply) {
			var a executor.Answer
			if err := json.Unmarshal(m.Data, &a); err != nil || m.Err != nil {
				c.t.Errorf("got %+v (%v)", m, err)
			}
			out <- a
		})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(cancel)
	return out
}

func (c *core) final(answers <-chan executor.Answer) executor.Answer {
	c.t.Helper()
	for {
		select {
		case a := <-answers:
			if a.State.Final() {
				return a
			}
		case <-time.After(natstest.Patience):
			c.t.Fatal("no answer")
		}
	}
}

// call runs a tool and gives its result.
func (c *core) call(name, args string) tool.Result {
	c.t.Helper()
	c.calls++
	a := c.final(c.send(executor.OpRun, fmt.Sprintf("c%d", c.calls), name, args))
	if a.State != executor.Finished {
		c.t.Fatalf("%s: got %+v", name, a)
	}
	return *a.Result
}

func (c *core) offered() []string {
	var names []string
	for _, s := range c.offer.Tools {
		names = append(names, s.Name)
	}
	return names
}

func TestWhatIsOfferedByDefault(t *testing.T) {
	c := start(t, toolrunner.Config{})
	want := []string{
		"camera:look",
		"file_system:append_file", "file_system:delete_file", "file_system:list", "file_system:read_file",
		"file_system:write_file",
		"log:record", "math:evaluate", "mcp:servers", "memory:retrieve", "notes:add", "notes:search", "status:query", "time:now",
	}
	if got := c.offered(); !slices.Equal(got, want) {
		t.Fatalf("got %v", got)
	}
	if c.offer.Kind != subject.Runner || c.offer.Service != "toolrunner" ||
		c.offer.Pools[0] != (executor.Pool{Name: "default", Slots: 16}) {
		t.Fatalf("got %+v", c.offer)
	}
	for _, name := range []string{"test:count", "http:request"} {
		if a := c.final(c.send(executor.OpRun, "x"+name, name, `{}`)); a.State != executor.Refused ||
			a.Reason != executor.RefusedUnknown {
			t.Errorf("%s: got %+v", name, a)
		}
	}
}

func TestTheConfigurationChoosesTools(t *testing.T) {
	c := startWithEffects(t, toolrunner.Config{
		Enable: []string{"file_system:*", "http:*", "time:now"}, Disable: []string{"*:append_file", "*:write_file"},
		HTTP: web.Hosts{Allow: []string{"api.example.com"}},
	},
		tools.Tool{
			Spec: tool.Spec{Name: "extra"}, Run: func(context.Context, tools.Call) tool.Result { return tool.OK("mine") },
		})
	want := []string{
		"extra", "file_system:delete_file", "file_system:list", "file_system:read_file", "http:request",
		"test:big", "test:count", "test:count_idempotent", "test:ignore_cancel", "test:panic", "test:sleep", "time:now",
	}
	if got := c.offered(); !slices.Equal(got, want) {
		t.Fatalf("got %v", got)
	}
	if r := c.call("extra", `{}`); string(r.Data) != `"mine"` {
		t.Fatalf("got %+v", r)
	}
}

func TestEverySpecIsFitForAModel(t *testing.T) {
	c := startWithEffects(t, toolrunner.Config{
		HTTP: web.Hosts{Allow: []string{"api.example.com"}},
		Web:  web.Config{Search: "searxng", SearchURL: "http://127.0.0.1:1", Fetch: []string{"*"}},
	})
	for _, s := range c.offer.Tools {
		var schema struct {
			Type                 string `json:"type"`
			AdditionalProperties *bool  `json:"additionalProperties"`
			Properties           map[string]struct {
				Type, Description string
				Enum              []string
			} `json:"properties"`
		}
		if err := json.Unmarshal(s.Args, &schema); err != nil || schema.Type != "object" ||
			schema.AdditionalProperties == nil {
			t.Errorf("%s: its arguments are %s (%v)", s.Name, s.Args, err)
		}
		if _, err := toolschema.Compile(s); err != nil {
			t.Error(err)
		}
		if len(s.Description) < 20 || s.Risk == "" {
			t.Errorf("%s: description %q, risk %q", s.Name, s.Description, s.Risk)
		}
		for _, tag := range s.ScenarioTags {
			if !slices.Contains(tool.Scenarios(), tag) {
				t.Errorf("%s: scenario %q is not known", s.Name, tag)
			}
		}
		if !s.Internal && !strings.HasPrefix(s.Name, "test:") && len(s.ScenarioTags) == 0 {
			t.Errorf("%s has no scenario", s.Name)
		}
	}
}

func TestToolsWorkOverTheBus(t *testing.T) {
	c := start(t, toolrunner.Config{})
	for _, step := range []struct{ name, args, want string }{
		{"math:evaluate", `{"expression":"0.1+0.2"}`, `{"exact":true,"result":"0.3"}`},
		{"time:now", `null`, `"timezone":"UTC"`},
		{"file_system:write_file", `{"path":"a/b.txt","content":"hello"}`, `{"path":"a/b.txt","size":5}`},
		{"file_system:append_file", `{"path":"a/b.txt","content":" world"}`, `"size":11`},
		{"file_system:read_file", `{"path":"a/b.txt"}`, `"content":"hello world"`},
		{"file_system:list", `{"recursive":true}`, `"path":"a/b.txt","type":"file","size":11`},
		{"notes:add", `{"text":"buy milk"}`, `"text":"buy milk"`},
		{"notes:search", `{"query":"MILK"}`, `"found":1`},
		{"memory:retrieve", `{"query":"What did I want to buy?"}`, `"text":"buy milk"`},
		{"log:record", `{"message":"hello"}`, `null`},
		{"status:query", `{}`, `"slots":16,"running":1,`},
	} {
		r := c.call(step.name, step.args)
		if !r.Success || !strings.Contains(string(r.Data), step.want) {
			t.Errorf("%s: got %s %v, want %s", step.name, r.Data, r.Error, step.want)
		}
	}
}

func TestArgumentsThatDoNotFitDoNotRun(t *testing.T) {
	c := start(t, toolrunner.Config{})
	r := c.call("file_system:write_file", `{"path":"","content":1,"mode":"append","x":true}`)
	want := []string{
		"/content: got number, want string", "/mode: value must be one of 'create', 'overwrite'",
		"/path: minLength: got 0, want 1", "/x: is not an argument of this tool",
	}
	if r.Success || r.Error.Code != tool.CodeInvalidArgs || !slices.Equal(r.Error.Details, want) {
		t.Fatalf("got %+v", r.Error)
	}
	if left, err := os.ReadDir(c.workspace); err != nil || len(left) != 0 {
		t.Fatalf("it ran: %v %v", left, err)
	}
}

func TestALargeResultIsCutAndItsArtifactIsWhole(t *testing.T) {
	c := startWithEffects(t, toolrunner.Config{})
	r := c.call("test:big", `{"bytes":3000000}`)
	if !r.Success || len(r.Data) > result.MaxData {
		t.Fatalf("got %d bytes, %v", len(r.Data), r.Error)
	}
	a, ok := r.Metadata["artifact"].(map[string]any)
	if !ok {
		t.Fatalf("got metadata %v", r.Metadata)
	}
	whole, err := c.bus.GetArtifact(natstest.Context(t), fmt.Sprint(a["ref"]))
	if err != nil {
		t.Fatal(err)
	}
	var text string
	if err := json.Unmarshal(whole, &text); err != nil || len(text) != 3_000_000 || float64(len(whole)) != a["size"] {
		t.Fatalf("got %d bytes, %v; metadata %v", len(text), err, a)
	}
}

// A picture of the workspace is an artifact of the call's session.
func TestAPictureIsShown(t *testing.T) {
	c := start(t, toolrunner.Config{})
	const png = "\x89PNG\r\n\x1a\n\x00\xff"
	if err := os.WriteFile(filepath.Join(c.workspace, "plot.png"), []byte(png), 0o600); err != nil {
		t.Fatal(err)
	}
	r := c.call("file_system:read_file", `{"path":"plot.png"}`)
	if !r.Success || len(r.Files) != 1 {
		t.Fatalf("got %+v", r)
	}
	f := r.Files[0]
	got, err := c.bus.GetArtifact(natstest.Context(t), f.Ref)
	if err != nil || string(got) != png || f.Check() != nil || !f.In(subject.Ref{Agent: "a", Session: "s"}) ||
		f.MediaType != "image/png" {
		t.Errorf("got %+v, %d bytes, %v", f, len(got), err)
	}
}

func TestAPanicIsTheCallsFailureAlone(t *testing.T) {
	c := startWithEffects(t, toolrunner.Config{})
	if r := c.call("test:panic", `{}`); r.Success || r.Error.Code != tool.CodeInternal {
		t.Fatalf("got %+v", r)
	}
	if r := c.call("time:now", `{}`); !r.Success {
		t.Fatalf("got %+v", r)
	}
}

func TestStoppingACall(t *testing.T) {
	c := startWithEffects(t, toolrunner.Config{Slots: 1})
	running := c.send(executor.OpRun, "r", "test:count", `{"key":"k","sleep_ms":600000}`)
	<-running // it runs
	effect := filepath.Join(c.workspace, "effects.log")
	natstest.Eventually(t, "the effect", func() bool {
		b, _ := os.ReadFile(effect)
		return string(b) == "k r n\n"
	})
	waiting := c.send(executor.OpRun, "w", "test:count", `{"key":"w"}`)
	if a := c.final(c.send(executor.OpStop, "w", "", "")); a.State != executor.Never {
		t.Fatalf("got %+v", a)
	}
	if a := c.final(c.send(executor.OpStop, "r", "", "")); a.State != executor.Stopped {
		t.Fatalf("got %+v", a)
	}
	if a, b := c.final(running), c.final(waiting); a.State != executor.Stopped || b.State != executor.Never {
		t.Fatalf("the first callers heard %+v and %+v", a, b)
	}
	if b, _ := os.ReadFile(effect); string(b) != "k r n\n" {
		t.Fatalf("the effects are %q", b)
	}
}

func TestConfigNamesWhatIsWrong(t *testing.T) {
	err := toolrunner.Run(t.Context(), toolrunner.Config{
		Slots: -1, DrainTimeout: -1, HTTP: web.Hosts{Allow: []string{"*"}}, Enable: []string{"["}, Disable: []string{""},
		Web: web.Config{Search: "none", Fetch: []string{"*.com"}},
	}, toolrunner.Deps{})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"slots", "drain_timeout", "http_allow", "enable", "disable", "web_search", "web_fetch"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not name %s: %v", want, err)
		}
	}
}

// What a tool says about its progress is shown while the call runs, and a flood of it is cut.
func TestProgressIsShownToPeople(t *testing.T) {
	loud := tools.Tool{
		Spec: tool.Spec{Name: "test:loud", Description: "says much", Args: json.RawMessage(`{"type":"object"}`)},
		Run: func(_ context.Context, c tools.Call) tool.Result {
			for i := range 1000 {
				c.Progress(fmt.Sprint("step ", i))
			}
			return tool.OK("done")
		},
	}
	c := start(t, toolrunner.Config{}, loud)
	shown := make(chan *nats.Msg, 1000)
	if _, err := c.bus.Conn().ChanSubscribe(subject.Ref{Agent: "a", Session: "s"}.Stream(), shown); err != nil {
		t.Fatal(err)
	}
	if err := c.bus.Conn().Flush(); err != nil {
		t.Fatal(err)
	}
	for a := range c.send(executor.OpRun, "c", "test:loud", `{}`) {
		if a.State.Final() {
			break
		}
	}
	e, err := event.Decode((<-shown).Data)
	var o tool.Output
	if err == nil {
		err = json.Unmarshal(e.Data, &o)
	}
	if err != nil || e.Turn != "t" || o.Call != "c" || o.Attempt != "n" || o.Text != "step 0\n" {
		t.Errorf("%+v, %v", o, err)
	}
	if n := len(shown); n > 100 {
		t.Errorf("%d of 1000 lines are shown", n)
	}
}
