package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/telemetry"
	"skandha.dev/pkg/tool"
	contract "skandha.dev/services/internal/executor"
	"skandha.dev/services/internal/executor/engine"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/natsserver"
	"skandha.dev/services/test/natstest"
)

// core is the other end: it asks one executor and receives its announcements.
type core struct {
	t      testing.TB
	server *natsserver.Server
	caller *bus.Caller
	exec   *journal.Journal
	kind   subject.ExecutorKind
	stop   context.CancelFunc
	ended  chan error

	mu    sync.Mutex
	heard []contract.Announcement
}

func start(t testing.TB, cfg engine.Config) *core {
	t.Helper()
	s := natstest.Start(t)
	b := natstest.Connect(t, s)
	c := &core{
		t: t, server: s, exec: natstest.Dial(t, bus.Config{InProcess: s, Name: "exec"}), kind: cfg.Kind,
		ended: make(chan error, 1),
	}
	var err error
	if c.caller, err = b.NewCaller(); err != nil {
		t.Fatal(err)
	}
	_, err = b.Conn().Subscribe(subject.AllAnnouncements, func(m *nats.Msg) {
		var a contract.Announcement
		if err := json.Unmarshal(m.Data, &a); err != nil {
			t.Errorf("an announcement cannot be read: %v", err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.heard = append(c.heard, a)
	})
	if err == nil {
		err = b.Conn().Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Logger == nil {
		cfg.Logger = natstest.Logger(t)
	}
	if cfg.DrainTimeout == 0 {
		cfg.DrainTimeout = 10 * time.Millisecond // most tests release nothing
	}
	ctx, cancel := context.WithCancel(context.Background())
	c.stop = cancel
	done := make(chan struct{})
	go func() {
		c.ended <- engine.Serve(ctx, c.exec, cfg)
		close(done)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	c.await("the first announcement", func(contract.Announcement) bool { return true })
	return c
}

// await waits for an announcement that fits and returns it.
func (c *core) await(what string, fits func(contract.Announcement) bool) contract.Announcement {
	c.t.Helper()
	var found contract.Announcement
	natstest.Eventually(c.t, what, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, a := range c.heard {
			if fits(a) {
				found = a
				return true
			}
		}
		return false
	})
	return found
}

func (c *core) forgetAnnouncements() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heard = nil
}

// send sends a request and gives its answers.
func (c *core) send(r contract.Request) <-chan contract.Answer {
	c.t.Helper()
	body, err := json.Marshal(r)
	if err != nil {
		c.t.Fatal(err)
	}
	return c.sendRaw(body)
}

func (c *core) sendRaw(body []byte) <-chan contract.Answer {
	c.t.Helper()
	out := make(chan contract.Answer, 100)
	inst := c.exec.Instance()
	cancel, err := c.caller.Send(natstest.Context(c.t), subject.Executor(c.kind, inst), string(inst), nil, body,
		func(m bus.Reply) {
			var a contract.Answer
			if err := json.Unmarshal(m.Data, &a); err != nil || m.Err != nil || m.NoResponders {
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

func (c *core) final(answers <-chan contract.Answer) contract.Answer {
	c.t.Helper()
	for {
		if a := c.next(answers); a.State.Final() {
			return a
		}
	}
}

func (c *core) next(answers <-chan contract.Answer) contract.Answer {
	c.t.Helper()
	select {
	case a := <-answers:
		return a
	case <-time.After(natstest.Patience):
		c.t.Fatal("no answer")
		return contract.Answer{}
	}
}

func run(call, toolName string) contract.Request {
	return contract.Request{
		Op: contract.OpRun, Agent: "a", Session: "s", Call: call, Attempt: "n",
		StartBy: time.Now().Add(natstest.Patience), NotAfter: time.Now().Add(2 * natstest.Patience),
		Tool: &contract.ToolCall{Name: toolName, Args: json.RawMessage(`{}`), Turn: "t"},
	}
}

func op(o contract.Op, call string) contract.Request {
	return contract.Request{Op: o, Agent: "a", Session: "s", Call: call, Attempt: "n"}
}

// runner offers "now", "trace", "big" and "block", which waits for the gate.
func runner(gate chan struct{}) engine.Config {
	return engine.Config{
		Kind: subject.Runner, Service: "test",
		Offer: engine.Offer{Tools: []tool.Spec{{Name: "now"}, {Name: "block"}, {Name: "trace"}, {Name: "big"}}},
		Pools: []contract.Pool{{Name: "default", Slots: 1}},
		Work: func(ctx context.Context, r contract.Request, _ func(string)) contract.Answer {
			res := tool.OK(r.Call)
			switch r.Tool.Name {
			case "block":
				select {
				case <-gate:
				case <-ctx.Done():
					res = tool.Failure(tool.CodeFailed, "interrupted")
				}
			case "trace":
				res = tool.OK(telemetry.TraceID(ctx))
			case "big":
				res = tool.OK(strings.Repeat("x", 1<<20))
			}
			return contract.Answer{Result: &res}
		},
	}
}

// That instant work is one message, TestInstantWorkIsOneAnswer shows.
func TestRunAskAndReleaseOverTheBus(t *testing.T) {
	c := start(t, runner(nil))
	answers := c.send(run("c1", "now"))
	a := c.final(answers)
	if a.State != contract.Finished || string(a.Result.Data) != `"c1"` || a.Instance != c.exec.Instance() {
		t.Fatalf("got %+v", a)
	}
	if a := c.next(c.send(op(contract.OpAsk, "c1"))); a.State != contract.Finished {
		t.Fatalf("got %+v", a)
	}
	c.send(op(contract.OpRelease, "c1"))
	natstest.Eventually(t, "the result is released", func() bool {
		return c.next(c.send(op(contract.OpAsk, "c1"))).State == contract.Unknown
	})
}

func TestAResultAboveTheThresholdArrives(t *testing.T) {
	c := start(t, runner(nil))
	if a := c.final(c.send(run("c1", "big"))); a.State != contract.Finished || len(a.Result.Data) != 1<<20+2 {
		t.Fatalf("got %q with %d bytes", a.State, len(a.Result.Data))
	}
}

func TestTheTraceReachesTheWork(t *testing.T) {
	c := start(t, runner(nil))
	body, _ := json.Marshal(run("c1", "trace"))
	ctx := telemetry.EnsureTrace(natstest.Context(t))
	got := make(chan contract.Answer, 1)
	inst := c.exec.Instance()
	_, err := c.caller.Send(ctx, subject.Executor(c.kind, inst), string(inst), nil, body, func(m bus.Reply) {
		var a contract.Answer
		_ = json.Unmarshal(m.Data, &a)
		got <- a
	})
	if err != nil {
		t.Fatal(err)
	}
	if a := c.final(got); string(a.Result.Data) != `"`+telemetry.TraceID(ctx)+`"` {
		t.Fatalf("got %s, want %s", a.Result.Data, telemetry.TraceID(ctx))
	}
}

func TestStopOverTheBus(t *testing.T) {
	c := start(t, runner(make(chan struct{})))
	running := c.send(run("c1", "block"))
	if a := c.next(running); a.State != contract.Running {
		t.Fatalf("got %+v", a)
	}
	waiting := c.send(run("c2", "now"))
	if a := c.next(waiting); a.State != contract.Running {
		t.Fatalf("got %+v", a)
	}
	if a := c.final(c.send(op(contract.OpStop, "c2"))); a.State != contract.Never {
		t.Fatalf("got %+v", a)
	}
	if a := c.final(c.send(op(contract.OpStop, "c1"))); a.State != contract.Stopped {
		t.Fatalf("got %+v", a)
	}
	if a, b := c.final(running), c.final(waiting); a.State != contract.Stopped || b.State != contract.Never {
		t.Fatalf("the first callers heard %+v and %+v", a, b)
	}
	if a := c.next(c.send(op(contract.OpStop, "c3"))); a.State != contract.Never {
		t.Fatalf("got %+v", a)
	}
}

func TestMalformedRequestsAreRefused(t *testing.T) {
	c := start(t, runner(nil))
	for body, call := range map[string]string{
		"nonsense": "",
		`{"op":"dance","call":"c1","attempt":"n"}`:               "c1",
		`{"op":"run","call":"c2","attempt":"n","start_by":true}`: "c2",
		`{"op":"run","call":"c3","attempt":"n"}` + "\nmore":      "c3",
	} {
		a := c.next(c.sendRaw([]byte(body)))
		if a.State != contract.Refused || a.Reason != contract.RefusedBad || a.Message == "" || a.Call != call {
			t.Errorf("%s: got %+v", body, a)
		}
		if call == "" {
			continue
		}
		if a := c.next(c.send(run(call, "now"))); a.State != contract.Refused {
			t.Errorf("%s: refused for ever, and then %+v", body, a)
		}
	}
}

func TestAnnouncements(t *testing.T) {
	gate := make(chan struct{})
	updates := make(chan engine.Offer)
	cfg := runner(gate)
	cfg.Updates, cfg.Host = updates, "h"
	c := start(t, cfg)
	a := c.await("one", func(contract.Announcement) bool { return true })
	if a.Instance != c.exec.Instance() || a.Kind != subject.Runner || a.Service != "test" || a.Host != "h" ||
		len(a.Tools) != 4 ||
		len(a.Pools) != 1 || a.Pools[0] != (contract.Pool{Name: "default", Slots: 1}) || a.Started.IsZero() || a.Draining ||
		a.Gone {
		t.Fatalf("got %+v", a)
	}
	running := c.send(run("c1", "block"))
	c.await("a full pool", func(a contract.Announcement) bool { return a.Pools[0].Busy == 1 })
	c.forgetAnnouncements()
	gate <- struct{}{}
	c.final(running)
	c.await("a free pool", func(a contract.Announcement) bool { return a.Pools[0].Busy == 0 })

	updates <- engine.Offer{Tools: []tool.Spec{{Name: "now"}, {Name: "bad", Pool: "none"}}} // ignored
	updates <- engine.Offer{Tools: []tool.Spec{{Name: "now"}}}
	c.await("a smaller offer", func(a contract.Announcement) bool { return len(a.Tools) == 1 })
	if a := c.final(c.send(run("c2", "block"))); a.Reason != contract.RefusedUnknown {
		t.Fatalf("got %+v", a)
	}
}

func TestDiscoveryIsAnsweredAtOnce(t *testing.T) {
	c := start(t, runner(nil))
	other := natstest.Dial(t, bus.Config{InProcess: c.server, Name: "other"})
	for range 5 { // one may be answered by the regular announcement
		c.forgetAnnouncements()
		if err := other.Publish(natstest.Context(t), subject.Discover(subject.Runner), nil, nil); err != nil {
			t.Fatal(err)
		}
		c.await("an announcement", func(contract.Announcement) bool { return true })
	}
}

func TestDrainOverTheBus(t *testing.T) {
	gate := make(chan struct{})
	cfg := runner(gate)
	cfg.DrainTimeout = natstest.Patience
	c := start(t, cfg)
	running := c.send(run("c1", "block"))
	c.next(running)
	c.stop()
	c.await("that it drains", func(a contract.Announcement) bool { return a.Draining && !a.Gone })
	if a := c.next(c.send(run("c2", "now"))); a.State != contract.Refused || a.Reason != contract.RefusedDraining {
		t.Fatalf("got %+v", a)
	}
	gate <- struct{}{}
	if a := c.final(running); a.State != contract.Finished {
		t.Fatalf("got %+v", a)
	}
	select {
	case err := <-c.ended:
		t.Fatalf("it went although a result is not released: %v", err)
	default:
	}
	c.send(op(contract.OpRelease, "c1"))
	if err := <-c.ended; err != nil {
		t.Fatal(err)
	}
	c.await("that it is gone", func(a contract.Announcement) bool { return a.Gone })
}

func TestDrainEndsInTheEnd(t *testing.T) {
	c := start(t, runner(make(chan struct{})))
	running := c.send(run("c1", "block"))
	c.next(running)
	c.stop()
	if a := c.final(running); a.State != contract.Stopped {
		t.Fatalf("got %+v", a)
	}
	if err := <-c.ended; err != nil {
		t.Fatal(err)
	}
}

func TestAProviderServesItsProviders(t *testing.T) {
	var asked atomic.Value
	c := start(t, engine.Config{
		Kind: subject.Provider, Service: "provider",
		Offer: engine.Offer{Providers: []provider.Info{{Name: "one", Model: "m"}, {Name: "two"}}},
		Work: func(_ context.Context, r contract.Request, _ func(string)) contract.Answer {
			asked.Store(r.Provider)
			return contract.Answer{Response: &provider.Response{IsFinal: true, TextContent: "hello"}}
		},
	})
	for name, want := range map[string]contract.State{
		"": contract.Finished, "two": contract.Finished, "three": contract.Refused,
	} {
		r := run("c"+name, "")
		r.Tool, r.Model, r.Provider = nil, &provider.Request{}, name
		a := c.final(c.send(r))
		if a.State != want ||
			want == contract.Finished && (a.Response == nil || a.Response.TextContent != "hello" || asked.Load() != name) {
			t.Errorf("%q: got %+v", name, a)
		}
	}
}

func TestManyAtOnceFinishOnce(t *testing.T) {
	var starts atomic.Int64
	cfg := runner(nil)
	cfg.Pools[0].Slots, cfg.Waiting = 8, 1000
	work := cfg.Work
	cfg.Work = func(ctx context.Context, r contract.Request, p func(string)) contract.Answer {
		starts.Add(1)
		return work(ctx, r, p)
	}
	c := start(t, cfg)
	const n = 500
	var answers []<-chan contract.Answer
	for i := range n {
		answers = append(answers, c.send(run(strings.Repeat("x", i%50+1)+string(rune('a'+i/50)), "now")))
	}
	for _, a := range answers {
		if got := c.final(a); got.State != contract.Finished {
			t.Fatalf("got %+v", got)
		}
	}
	if starts.Load() != n {
		t.Fatalf("%d starts of %d attempts", starts.Load(), n)
	}
	c.await("an idle pool", func(a contract.Announcement) bool { return a.Pools[0].Busy == 0 })
}

func TestConfigNamesWhatIsWrong(t *testing.T) {
	err := engine.Serve(context.Background(), nil, engine.Config{
		Kind: "cook", Service: "a b", DrainTimeout: -1, Pools: []contract.Pool{{Name: "p"}},
		Offer: engine.Offer{Tools: []tool.Spec{{Name: ""}, {Name: "x", Pool: "q"}, {Name: "x"}}},
	})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"kind", "service", "work", "drain_timeout", `"p" with 0 slots`, `name ""`, `pool "q"`, `name "x"`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not name %s: %v", want, err)
		}
	}
}

func TestServeEndsWithItsConnection(t *testing.T) {
	c := start(t, runner(nil))
	c.exec.Close()
	if err := <-c.ended; err == nil || errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
}
