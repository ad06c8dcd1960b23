package sandbox_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/trace"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/executor"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/natsserver"
	"skandha.dev/services/sandbox"
	"skandha.dev/services/sandbox/driver"
	"skandha.dev/services/test/drivertest"
	"skandha.dev/services/test/natstest"
)

// core calls one sandbox service over a real bus, as core does.
type core struct {
	t      testing.TB
	server *natsserver.Server
	bus    *journal.Journal
	caller *bus.Caller
	*instance
}

// instance is one sandbox service.
type instance struct {
	offer   executor.Announcement
	driver  *drivertest.Driver // nil: it has another one
	service *sandbox.Service
	stop    func() // and wait until it has drained
}

func start(t testing.TB, cfg sandbox.Config, prepare ...func(*drivertest.Driver)) *core {
	t.Helper()
	d := drivertest.New(t)
	for _, f := range prepare {
		f(d)
	}
	return startWith(t, cfg, d)
}

func startWith(t testing.TB, cfg sandbox.Config, d driver.Driver) *core {
	t.Helper()
	s := natstest.Start(t)
	c := &core{t: t, server: s, bus: natstest.Connect(t, s)}
	var err error
	if c.caller, err = c.bus.NewCaller(); err != nil {
		t.Fatal(err)
	}
	c.instance = c.serve(cfg, d, nil)
	return c
}

// serve starts an instance.
func (c *core) serve(cfg sandbox.Config, d driver.Driver, packages sandbox.Packages) *instance {
	c.t.Helper()
	announced := make(chan executor.Announcement, 1000)
	b := natstest.Dial(c.t, bus.Config{InProcess: c.server, Name: "sandbox"})
	sub, err := c.bus.Conn().Subscribe(subject.Announce(subject.Runner, b.Instance()), func(m *nats.Msg) {
		var a executor.Announcement
		if err := json.Unmarshal(m.Data, &a); err != nil {
			c.t.Errorf("an announcement cannot be read: %v", err)
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
		c.t.Fatal(err)
	}
	if cfg.DrainTimeout == 0 {
		cfg.DrainTimeout = 10 * time.Millisecond // results are not released here
	}
	i := &instance{}
	i.driver, _ = d.(*drivertest.Driver)
	i.service, err = sandbox.New(cfg, sandbox.Deps{Bus: b, Logger: natstest.Logger(c.t), Driver: d, Packages: packages})
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- i.service.Run(ctx) }()
	var stopped atomic.Bool
	i.stop = func() {
		if stopped.Swap(true) {
			return
		}
		cancel()
		if err := <-ended; err != nil {
			c.t.Errorf("it ended with %v", err)
		}
		if i.driver == nil {
			return
		}
		if n := len(i.driver.Sandboxes()); n != 0 {
			c.t.Errorf("it left %d sandboxes", n)
		}
		_ = sub.Unsubscribe()
	}
	c.t.Cleanup(i.stop)
	select {
	case i.offer = <-announced:
	case <-time.After(natstest.Patience):
		c.t.Fatal("no announcement")
	}
	return i
}

// session is a session whose calls are sent to an instance, as core would.
type session struct {
	c      *core
	at     *instance
	ref    subject.Ref
	by     subject.Writer
	lease  string
	turn   uint64
	before subject.Instance
	under  trace.SpanContext // of the calls; zero: none
}

var calls atomic.Int64

// session begins one at the core's instance.
func (c *core) session(name string) *session {
	s := &session{c: c, at: c.instance, ref: subject.Ref{Agent: "main", Session: subject.Session(name)}}
	s.reset()
	return s
}

// reset does what core does for /reset: it sets another lease, under which no instance has
// run a call.
func (s *session) reset() {
	s.turn++
	s.lease, s.before = fmt.Sprintf("t%d-p1-c0", s.turn), ""
}

func (s *session) request(name, args string) executor.Request {
	n := calls.Add(1)
	return executor.Request{
		Op: executor.OpRun, Agent: s.ref.Agent, Session: s.ref.Session, Call: fmt.Sprintf("t%d-p1-c%d", s.turn, n),
		Attempt: "n",
		StartBy: time.Now().Add(executor.StartWithin), NotAfter: time.Now().Add(2 * natstest.Patience),
		Tool: &executor.ToolCall{
			Name: name, Args: json.RawMessage(args), Turn: fmt.Sprintf("t%d", s.turn), Principal: s.by, Lease: s.lease,
			Before: s.before,
		},
	}
}

func (s *session) send(r executor.Request) <-chan executor.Answer {
	s.c.t.Helper()
	body, err := json.Marshal(r)
	if err != nil {
		s.c.t.Fatal(err)
	}
	out := make(chan executor.Answer, 1000)
	inst := s.at.offer.Instance
	cancel, err := s.c.caller.Send(trace.ContextWithRemoteSpanContext(natstest.Context(s.c.t), s.under), subject.Executor(subject.Runner, inst), string(inst), nil,
		body, func(m bus.Reply) {
			var a executor.Answer
			if err := json.Unmarshal(m.Data, &a); err != nil || m.Err != nil {
				s.c.t.Errorf("got %+v (%v)", m, err)
			}
			out <- a
		})
	if err != nil {
		s.c.t.Fatal(err)
	}
	s.c.t.Cleanup(cancel)
	return out
}

// final waits for the final answer.
func (s *session) final(answers <-chan executor.Answer) executor.Answer {
	s.c.t.Helper()
	for {
		select {
		case a := <-answers:
			if a.State.Final() {
				return a
			}
		case <-time.After(natstest.Patience):
			s.c.t.Fatal("no answer")
		}
	}
}

// call runs a tool in a new turn, and returns its result.
func (s *session) call(name string, args any) tool.Result {
	s.c.t.Helper()
	s.turn++
	text, err := json.Marshal(args)
	if err != nil {
		s.c.t.Fatal(err)
	}
	a := s.final(s.send(s.request(name, string(text))))
	if a.State != executor.Finished {
		s.c.t.Fatalf("%s: got %+v", name, a)
	}
	s.before = s.at.offer.Instance
	return *a.Result
}

// begin runs Python code in a new turn, and returns when the code has started.
func (s *session) begin(code string) (executor.Request, <-chan executor.Answer) {
	s.c.t.Helper()
	heard := make(chan *nats.Msg, 100)
	sub, err := s.c.bus.Conn().ChanSubscribe(s.ref.Stream(), heard)
	if err == nil {
		err = s.c.bus.Conn().Flush()
	}
	if err != nil {
		s.c.t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	text, err := json.Marshal(args{"code": "print('begun')\n" + code, "timeout": 60})
	if err != nil {
		s.c.t.Fatal(err)
	}
	s.turn++
	r := s.request("python:execute", string(text))
	answers := s.send(r)
	select {
	case <-heard:
	case <-time.After(natstest.Patience):
		s.c.t.Fatal("it does not begin")
	}
	return r, answers
}

type args map[string]any

// ran is the data of a run.
type ran struct {
	Stdout, Stderr string
	Result         json.RawMessage
	ExitCode       int `json:"exit_code"`
	Signal         string
	DurationMS     int64 `json:"duration_ms"`
	Truncated      bool
	Artifacts      []struct {
		Path, Ref string
		MediaType string `json:"media_type"`
		Bytes     int64
	}
	LeftOut  []string `json:"artifacts_left_out"`
	Notice   string
	Packages []string
}

func (s *session) decode(r tool.Result) (out ran) {
	s.c.t.Helper()
	if err := json.Unmarshal(r.Data, &out); err != nil {
		s.c.t.Fatalf("%v: %s, %+v", err, r.Data, r.Error)
	}
	return out
}

// python runs code and checks that it succeeds.
func (s *session) python(code string) ran {
	s.c.t.Helper()
	r := s.call("python:execute", args{"code": code})
	if !r.Success {
		s.c.t.Fatalf("%s: %+v", code, r.Error)
	}
	return s.decode(r)
}

// live publishes a live event of the session, as core does after its commit.
func (s *session) live(p event.Payload, cause string) {
	s.c.t.Helper()
	e := event.New(s.ref, "e", "core", p)
	e.Cause, e.Turn = cause, fmt.Sprintf("t%d", s.turn)
	if err := s.c.bus.PublishLive(natstest.Context(s.c.t), s.ref, e.Live(), nil, e.AppendJSON(nil)); err != nil {
		s.c.t.Fatal(err)
	}
}

func (c *core) sandboxes(n int) {
	c.t.Helper()
	natstest.Eventually(c.t, fmt.Sprintf("there are %d sandboxes", n),
		func() bool { return len(c.driver.Sandboxes()) == n })
}

func contains(t testing.TB, what, text string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("%s is %q, want it to say %q", what, text, w)
		}
	}
}
