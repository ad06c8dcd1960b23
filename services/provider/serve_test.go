package provider_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	contract "skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/executor"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/natsserver"
	"skandha.dev/services/provider"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/test/scripted"
)

// core asks a provider service over a real bus and hears what it streams.
type core struct {
	t      *testing.T
	server *natsserver.Server
	bus    *journal.Journal
	caller *bus.Caller
	conn   *nats.Conn
	exec   subject.Instance
	stop   context.CancelFunc
	ended  chan error

	mu       sync.Mutex
	events   []event.Event
	announce []executor.Announcement
}

var session = subject.Ref{Agent: "a", Session: "s"}

func start(t *testing.T, cfg provider.Config, adapters ...provider.Adapter) *core {
	t.Helper()
	if len(adapters) == 0 {
		adapters = []provider.Adapter{scripted.New()}
	}
	return startOn(t, natstest.Start(t), cfg, adapters...)
}

// startOn starts the service as a new process on a bus.
func startOn(t *testing.T, srv *natsserver.Server, cfg provider.Config, adapters ...provider.Adapter) *core {
	t.Helper()
	return startWith(t, srv, cfg, provider.Deps{}, adapters...)
}

func startWith(
	t *testing.T, srv *natsserver.Server, cfg provider.Config, deps provider.Deps, adapters ...provider.Adapter,
) *core {
	t.Helper()
	b := natstest.Connect(t, srv)
	exec := natstest.Dial(t, bus.Config{InProcess: srv, Name: "provider"})
	c := &core{t: t, server: srv, bus: b, conn: b.Conn(), exec: exec.Instance(), ended: make(chan error, 1)}
	var err error
	if c.caller, err = b.NewCaller(); err != nil {
		t.Fatal(err)
	}
	c.hear("stream.*.*", func(m *nats.Msg) {
		e, err := event.Decode(m.Data)
		if err != nil || m.Subject != e.Ref().Stream() || e.Type != event.TypeDelta {
			t.Errorf("on %s: %s: %v", m.Subject, m.Data, err)
		}
		c.events = append(c.events, e)
	})
	c.hear(subject.AllAnnouncements, func(m *nats.Msg) {
		var a executor.Announcement
		if err := json.Unmarshal(m.Data, &a); err != nil {
			t.Error(err)
		}
		c.announce = append(c.announce, a)
	})
	if cfg.DrainTimeout == 0 {
		cfg.DrainTimeout = 10 * time.Millisecond // most tests release nothing
	}
	ctx, cancel := context.WithCancel(context.Background())
	c.stop = cancel
	done := make(chan struct{})
	go func() {
		deps.Bus, deps.Logger = exec, natstest.Logger(t)
		c.ended <- provider.Serve(ctx, cfg, adapters, deps)
		close(done)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	natstest.Eventually(t, "the first announcement", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.announce) > 0
	})
	return c
}

func (c *core) hear(subj string, on func(*nats.Msg)) {
	c.t.Helper()
	_, err := c.conn.Subscribe(subj, func(m *nats.Msg) {
		c.mu.Lock()
		defer c.mu.Unlock()
		on(m)
	})
	if err == nil {
		err = c.conn.Flush()
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

func question(t *testing.T, plan, text string) executor.Request {
	t.Helper()
	m, err := json.Marshal(contract.Message{Role: contract.RoleUser, Text: text})
	if err != nil {
		t.Fatal(err)
	}
	return executor.Request{
		Op: executor.OpRun, Agent: session.Agent, Session: session.Session, Call: plan, Attempt: "n1",
		StartBy: time.Now().Add(natstest.Patience), NotAfter: time.Now().Add(natstest.Patience),
		Model: &contract.Request{Messages: []json.RawMessage{m}},
	}
}

// ask sends a request; the channel gets the final answer.
func (c *core) ask(r executor.Request) <-chan executor.Answer {
	c.t.Helper()
	body, err := json.Marshal(r)
	if err != nil {
		c.t.Fatal(err)
	}
	final := make(chan executor.Answer, 1)
	cancel, err := c.caller.Send(natstest.Context(c.t), subject.Executor(subject.Provider, c.exec), string(c.exec), nil,
		body, func(m bus.Reply) {
			var a executor.Answer
			if err := json.Unmarshal(m.Data, &a); err != nil || m.Err != nil {
				c.t.Errorf("got %+v (%v)", m, err)
			}
			if a.State.Final() {
				select {
				case final <- a:
				default:
				}
			}
		})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(cancel)
	return final
}

func (c *core) answer(final <-chan executor.Answer) executor.Answer {
	c.t.Helper()
	select {
	case a := <-final:
		return a
	case <-time.After(natstest.Patience):
		c.t.Fatal("no answer")
		return executor.Answer{}
	}
}

// deltas are those of a plan that have come so far.
func (c *core) deltas(plan string) []contract.Delta {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []contract.Delta
	for _, e := range c.events {
		var d contract.Delta
		if err := json.Unmarshal(e.Data, &d); err != nil {
			c.t.Error(err)
		}
		if d.Plan == plan {
			out = append(out, d)
		}
	}
	return out
}

func joined(ds []contract.Delta) string {
	var b strings.Builder
	for _, d := range ds {
		b.WriteString(d.Text)
	}
	return b.String()
}

func TestQuestionIsAnsweredAndStreamed(t *testing.T) {
	c := start(t, provider.Config{})
	began := time.Now()
	a := c.answer(c.ask(question(t, "t7-p1", "stream 200 words every 1 ms")))
	intervals := int(time.Since(began) / (25 * time.Millisecond))
	if a.State != executor.Finished || a.Response == nil || !a.Response.IsFinal || a.Error != nil {
		t.Fatalf("answer is %+v", a)
	}
	natstest.Eventually(t, "all deltas", func() bool { return joined(c.deltas("t7-p1")) == a.Response.TextContent })
	ds := c.deltas("t7-p1")
	for i, d := range ds {
		if d.N != i || d.Attempt != "n1" {
			t.Errorf("delta %d is %+v", i, d)
		}
	}
	if len(ds) < 2 || len(ds) > intervals+2 { // the first goes out at once, the last at the end
		t.Errorf("200 words in %d messages, within %d intervals", len(ds), intervals)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.events[0]
	if e.Ref() != session || e.Turn != "t7" || e.ID != "t7-p1/n1/0" || !strings.Contains(e.Source, string(c.exec)) {
		t.Errorf("event is %+v", e)
	}
}

// A caller that has the answer has received every delta before it.
func TestLastDeltaGoesOutBeforeTheAnswer(t *testing.T) {
	c := start(t, provider.Config{FlushEvery: time.Hour})
	var order []string // as one subscription hears it
	var said string
	c.hear(">", func(m *nats.Msg) {
		var a executor.Answer
		switch {
		case strings.HasPrefix(m.Subject, "stream."):
			var d contract.Delta
			if e, err := event.Decode(m.Data); err != nil || json.Unmarshal(e.Data, &d) != nil {
				t.Errorf("on %s: %s: %v", m.Subject, m.Data, err)
			}
			order, said = append(order, "delta"), said+d.Text
		case strings.HasPrefix(m.Subject, "reply.") && json.Unmarshal(m.Data, &a) == nil && a.State == executor.Finished:
			order = append(order, "answer")
		}
	})
	a := c.answer(c.ask(question(t, "p", "stream 20 words every 5 ms")))
	natstest.Eventually(t, "the answer", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return slices.Contains(order, "answer")
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	if got := strings.Join(order, " "); got != "delta delta answer" {
		t.Errorf("the order is %s", got)
	}
	if said != a.Response.TextContent {
		t.Errorf("the deltas say %q, the answer %q", said, a.Response.TextContent)
	}
}

func TestCallsAreAnswered(t *testing.T) {
	c := start(t, provider.Config{})
	a := c.answer(c.ask(question(t, "p", `call2 x:y {"n":1} ; z {}`)))
	if a.Response == nil || len(a.Response.ToolCalls) != 2 || a.Response.IsFinal || a.Response.ToolCalls[0].Tool != "x:y" {
		t.Errorf("answer is %+v", a)
	}
}

func TestFailureIsAnAnswer(t *testing.T) {
	c := start(t, provider.Config{})
	for text, want := range map[string]contract.ErrorCode{
		"fail rate_limited retry 1500 ms": contract.ErrRateLimited,
		"garbage":                         contract.ErrGarbage,
		"never ends":                      contract.ErrTooLong,
		"text 300000 bytes":               contract.ErrTooLong,
	} {
		a := c.answer(c.ask(question(t, "p "+text, text)))
		if a.State != executor.Finished || a.Error == nil || a.Error.Code != want || a.Response != nil {
			t.Errorf("%s: answer is %+v", text, a)
		}
	}
}

func TestDeadlineIsATimeout(t *testing.T) {
	c := start(t, provider.Config{})
	for wait := 200 * time.Millisecond; ; wait *= 4 {
		q := question(t, "p "+wait.String(), "hang")
		q.NotAfter = time.Now().Add(wait)
		a := c.answer(c.ask(q))
		if a.Reason == executor.RefusedLate {
			continue // it came when its time was over already, and gets more
		}
		if a.Error == nil || a.Error.Code != contract.ErrTimeout {
			t.Errorf("answer is %+v", a)
		}
		return
	}
}

func TestStopEndsAQuestion(t *testing.T) {
	c := start(t, provider.Config{})
	running := c.ask(question(t, "p", "stream 10000 words every 10 ms"))
	natstest.Eventually(t, "the first delta", func() bool { return len(c.deltas("p")) > 0 })
	stop := executor.Request{Op: executor.OpStop, Agent: "a", Session: "s", Call: "p", Attempt: "n1"}
	if a := c.answer(c.ask(stop)); a.State != executor.Stopped {
		t.Errorf("answer to the stop is %+v", a)
	}
	if a := c.answer(running); a.State != executor.Stopped {
		t.Errorf("answer to the question is %+v", a)
	}
}

func TestNamedProviderAnswers(t *testing.T) {
	c := start(t, provider.Config{}, careless{name: "one", text: "1"}, careless{name: "two", text: "2"})
	for name, want := range map[string]string{"": "1", "one": "1", "two": "2"} {
		q := question(t, "p"+name, "?")
		q.Provider = name
		if a := c.answer(c.ask(q)); a.Response == nil || a.Response.TextContent != want {
			t.Errorf("%q: answer is %+v", name, a)
		}
	}
	q := question(t, "p3", "?")
	q.Provider = "three"
	if a := c.answer(c.ask(q)); a.State != executor.Refused || a.Reason != executor.RefusedUnknown {
		t.Errorf("a provider that is not there: %+v", a)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if ps := c.announce[0].Providers; len(ps) != 2 || ps[0].Name != "one" || ps[1].Name != "two" {
		t.Errorf("announced are %+v", ps)
	}
}

// A request must not be able to publish on a subject of its choice.
func TestSessionMustBeAnID(t *testing.T) {
	c := start(t, provider.Config{})
	for _, bad := range []string{"", "s.commit", ">", "*", "s t"} {
		q := question(t, "p"+bad, "hello")
		q.Session = subject.Session(bad)
		if a := c.answer(c.ask(q)); a.Error == nil || a.Error.Code != contract.ErrBadRequest {
			t.Errorf("session %q: answer is %+v", bad, a)
		}
	}
	if len(c.deltas("p>")) > 0 {
		t.Error("a delta went out all the same")
	}
}

// careless is an adapter that does not keep the contract.
type careless struct {
	name, text string
	do         func(ctx context.Context, delta func(string, string)) (contract.Response, error)
}

func (s careless) Info() contract.Info { return contract.Info{Name: s.name, Model: "m"} }

func (s careless) Generate(
	ctx context.Context, _ contract.Request, delta func(string, string),
) (contract.Response, error) {
	if s.do != nil {
		return s.do(ctx, delta)
	}
	return contract.Response{TextContent: s.text}, nil
}

func TestServiceHoldsWhatAnAdapterDoesNot(t *testing.T) {
	huge := strings.Repeat("x", 300<<10)
	args := json.RawMessage(`{}`)
	for _, c := range []struct {
		name string
		do   func(ctx context.Context, delta func(string, string)) (contract.Response, error)
		want contract.ErrorCode
	}{
		{
			"panics", func(context.Context, func(string, string)) (contract.Response, error) { panic("boom") },
			contract.ErrInternal,
		},
		{"fails in its own way", func(context.Context, func(string, string)) (contract.Response, error) {
			return contract.Response{}, errors.New("?")
		}, contract.ErrInternal},
		{"streams without end", func(ctx context.Context, delta func(string, string)) (contract.Response, error) {
			for ctx.Err() == nil {
				delta("and on and on ", "")
			}
			return contract.Response{TextContent: "x"}, nil
		}, contract.ErrTooLong},
		{"thinks without end", func(ctx context.Context, delta func(string, string)) (contract.Response, error) {
			for ctx.Err() == nil {
				delta("", huge[:1000])
			}
			return contract.Response{}, ctx.Err()
		}, contract.ErrTooLong},
		{"says nothing", func(context.Context, func(string, string)) (contract.Response, error) {
			return contract.Response{}, nil
		}, contract.ErrGarbage},
		{"says too much", answers(contract.Response{TextContent: huge}), contract.ErrTooLong},
		{
			"arguments that are no JSON",
			answers(contract.Response{ToolCalls: []contract.ToolCall{{ID: "1", Tool: "t", Args: json.RawMessage("{")}}}),
			contract.ErrGarbage,
		},
		{
			"two calls with one id",
			answers(contract.Response{
				ToolCalls: []contract.ToolCall{{ID: "1", Tool: "t", Args: args}, {ID: "1", Tool: "t", Args: args}},
			}), contract.ErrGarbage,
		},
		{
			"a call without a tool", answers(contract.Response{ToolCalls: []contract.ToolCall{{ID: "1", Args: args}}}),
			contract.ErrGarbage,
		},
		{
			"arguments that are too long",
			answers(contract.Response{
				ToolCalls: []contract.ToolCall{{ID: "1", Tool: "t", Args: json.RawMessage(`"` + huge + `"`)}},
			}), contract.ErrTooLong,
		},
		{
			"a state that is too long",
			answers(contract.Response{TextContent: "x", ProviderState: json.RawMessage(`"` + huge + `"`)}), contract.ErrTooLong,
		},
		{
			"a state that is no JSON", answers(contract.Response{TextContent: "x", ProviderState: json.RawMessage("{")}),
			contract.ErrGarbage,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			core := start(t, provider.Config{}, careless{name: "bad", do: c.do})
			if a := core.answer(core.ask(question(t, "p", "?"))); a.Error == nil || a.Error.Code != c.want || a.Response != nil {
				t.Errorf("answer is %+v (%v), want %s", a, a.Error, c.want)
			}
		})
	}
}

func answers(r contract.Response) func(context.Context, func(string, string)) (contract.Response, error) {
	return func(context.Context, func(string, string)) (contract.Response, error) { return r, nil }
}

// Calls win over is_final, whatever the adapter says.
func TestIsFinalFollowsFromTheCalls(t *testing.T) {
	r := contract.Response{
		IsFinal: true, ToolCalls: []contract.ToolCall{{ID: "1", Tool: "t", Args: json.RawMessage(`{}`)}},
	}
	c := start(t, provider.Config{}, careless{name: "bad", do: answers(r)})
	if a := c.answer(c.ask(question(t, "p", "?"))); a.Response == nil || a.Response.IsFinal {
		t.Errorf("answer is %+v", a)
	}
}

func TestServeNeedsABusAndAnAdapter(t *testing.T) {
	if err := provider.Serve(t.Context(), provider.Config{}, nil, provider.Deps{}); err == nil {
		t.Error("nothing to serve, and no error")
	}
	if err := provider.Serve(t.Context(), provider.Config{Slots: -1}, []provider.Adapter{careless{}},
		provider.Deps{}); err == nil || !strings.Contains(err.Error(), "slots") {
		t.Errorf("error is %v", err)
	}
}
