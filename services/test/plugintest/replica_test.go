package plugintest

import (
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/test/natstest"
)

// send asks a plugin's only replica; answers come on the channel.
func (r *rig) send(m plugin.Manifest, call string, answers chan<- bus.Reply) {
	r.Helper()
	it := string(m.Name) + ":it"
	body, err := json.Marshal(tool.Call{
		Call: call, Attempt: "a1", Agent: "demo", Session: "s1", Turn: "t1", Tool: it, Args: json.RawMessage(`{}`),
		Deadline: time.Now().Add(10 * natstest.Patience),
	})
	if err != nil {
		r.Fatal(err)
	}
	forget, err := r.ask.SendWhole(natstest.Context(r), subject.Replica(subject.Tool(m.Name, it), m.Instance),
		string(m.Name), nil, body,
		func(a bus.Reply) { answers <- a })
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(forget)
}

func replica(name subject.Plugin) plugin.Manifest {
	m := manifest(name)
	m.Instance = bus.NewInstance(string(name))
	return m
}

// A repeated request waits outside of the slots while the first one runs: a plugin
// with one slot stays with one, and each copy is answered.
func TestACallThatIsAskedAgainTakesNoPlaceAndRunsOnce(t *testing.T) {
	r := newRig(t)
	var ran atomic.Int64
	begun, finish := make(chan struct{}, 2), make(chan struct{})
	m := replica("slow")
	r.active(m, plugin.Handlers{
		plugin.Tool("slow:it", "d", func(ctx context.Context, _ struct{}) (string, error) {
			call, _ := plugin.CallOf(ctx)
			if ran.Add(1); call.Call == "t1-p1-c0" {
				begun <- struct{}{}
				<-finish
			}
			return call.Call, nil
		}),
	}, plugin.Concurrency(2))
	answers, other := make(chan bus.Reply, 8), make(chan bus.Reply, 1)
	for range 4 {
		r.send(m, "t1-p1-c0", answers)
	}
	<-begun
	r.send(m, "t1-p1-c1", other) // the other slot is free
	if a := <-other; !strings.Contains(string(a.Data), "t1-p1-c1") {
		t.Fatalf("got %s, %v", a.Data, a.Err)
	}
	close(finish)
	for range 4 {
		if a := <-answers; !strings.Contains(string(a.Data), "t1-p1-c0") {
			t.Errorf("got %s, %v", a.Data, a.Err)
		}
	}
	if n := ran.Load(); n != 2 {
		t.Errorf("%d runs, want one of each call", n)
	}
}

// An answer given without a bus is sent when the bus is back, to callers that still
// wait, without a new request.
func TestAnAnswerWithoutABusIsSentWhenItIsBack(t *testing.T) {
	r, server := newRemoteRig(t)
	begun, finish, finished := make(chan struct{}), make(chan struct{}), make(chan struct{})
	m := replica("slow")
	r.active(m, plugin.Handlers{
		plugin.Tool("slow:it", "d", func(context.Context, struct{}) (string, error) {
			close(begun)
			<-finish
			defer close(finished)
			return "done", nil
		}),
	})
	answers := make(chan bus.Reply, 8)
	r.send(m, "t1-p1-c0", answers)
	<-begun
	server.Kill()
	natstest.Eventually(t, "the loss of the connection", func() bool { return !r.bus.Connected() })
	close(finish)
	<-finished
	server.Restart()
	select {
	case a := <-answers:
		if !strings.Contains(string(a.Data), "done") {
			t.Errorf("got %s, %v", a.Data, a.Err)
		}
	case <-time.After(natstest.Patience):
		t.Fatal("no answer")
	}
}

// A caller that comes back later than the plugin has its answer, too.
func TestAnAnswerIsSentAgainWhenCallersAreBack(t *testing.T) {
	r, server := newRemoteRig(t)
	begun, finish := make(chan struct{}, 8), make(chan struct{})
	m, b := replica("slow"), r.dial()
	r.startOn(b, m, plugin.Handlers{
		plugin.Tool("slow:it", "d", func(_ context.Context, c struct{}) (string, error) {
			begun <- struct{}{}
			<-finish
			return "done", nil
		}),
	}).await("active")
	it := subject.Replica(subject.Tool(m.Name, "slow:it"), m.Instance)
	body, err := json.Marshal(tool.Call{
		Call: "t1-p1-c0", Attempt: "a1", Agent: "demo", Session: "s1", Turn: "t1", Tool: "slow:it",
		Args:     json.RawMessage(`{}`),
		Deadline: time.Now().Add(10 * natstest.Patience),
	})
	if err != nil {
		t.Fatal(err)
	}
	caller, reply := r.dial(), subject.Reply("caller", string(m.Name), "late", 1)
	if err := caller.Conn().PublishRequest(it, reply, body); err != nil {
		t.Fatal(err)
	}
	<-begun
	caller.Close()
	server.Kill()
	natstest.Eventually(t, "the loss of the connection", func() bool { return !b.Conn().IsConnected() })
	close(finish)
	server.Restart()
	// Another call is answered: what the plugin sent when it was back is gone.
	answers := make(chan bus.Reply, 1)
	natstest.Eventually(t, "the bus", func() bool { return r.bus.Conn().IsConnected() && b.Conn().IsConnected() })
	r.send(m, "t1-p1-c1", answers)
	<-answers
	late, err := r.dial().Conn().SubscribeSync(reply)
	if err != nil {
		t.Fatal(err)
	}
	a, err := late.NextMsg(natstest.Patience)
	if err != nil || !strings.Contains(string(a.Data), "done") {
		t.Fatalf("got %v, %v", a, err)
	}
}

// A hook is asked again when the bus is back: a healthy policy does not deny because
// the bus restarted.
func TestAHookIsAskedAgainAfterABounce(t *testing.T) {
	r, server := newRemoteRig(t)
	begun, finish := make(chan struct{}, 8), make(chan struct{})
	r.active(manifest("policy"), plugin.Handlers{
		plugin.BeforeAct(func(context.Context, *plugin.HookCall[hook.ActData]) (plugin.Reply, error) {
			begun <- struct{}{}
			<-finish
			return plugin.Continue(), nil
		}),
	})
	body, err := json.Marshal(hook.Envelope{
		InvocationID: "1", Point: hook.BeforeAct, Plugin: "policy", Agent: "demo", Session: "s1",
		Deadline: time.Now().Add(natstest.Patience), Data: json.RawMessage(`{"call":"c","tool":"x","args":{},"risk":"low"}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan []bus.Answer, 1)
	go func() {
		got <- r.ask.RequestAll(natstest.Context(t), []bus.Question{{
			Subject: subject.Hook("before_act", "policy"), Responder: "policy", Body: body,
			Deadline: time.Now().Add(natstest.Patience),
		}})
	}()
	<-begun
	server.Kill()
	natstest.Eventually(t, "the loss of the connection", func() bool { return !r.bus.Connected() })
	close(finish)
	server.Restart()
	if a := (<-got)[0]; a.Err != nil || !strings.Contains(string(a.Data), "continue") {
		t.Errorf("got %s, %v", a.Data, a.Err)
	}
	if n := len(begun); n > 0 {
		t.Errorf("it was asked to decide %d times more", n)
	}
}

// A heartbeat to a core that hangs is repeated long before the next one is due.
func TestAHeartbeatWithoutAnAnswerIsRepeated(t *testing.T) {
	r := newRig(t)
	r.desk.close()
	heard := make(chan *nats.Msg, 16)
	hung := r.dial()
	if _, err := hung.Conn().Subscribe(subject.Registry(subject.Heartbeat, "*"),
		func(q *nats.Msg) { heard <- q }); err != nil {
		t.Fatal(err)
	}
	m := replica("policy")
	if _, err := hung.Conn().Subscribe(subject.Registry(subject.Register, "*"), func(q *nats.Msg) {
		l, err := json.Marshal(plugin.Lease{
			Plugin: m.Name, Instance: m.Instance, State: plugin.Active, TTLMS: 30, Hash: m.Hash(),
		})
		if err != nil {
			t.Error(err)
		}
		_ = q.Respond(l)
	}); err != nil {
		t.Fatal(err)
	}
	if err := hung.Conn().Flush(); err != nil {
		t.Fatal(err)
	}
	r.active(m, plugin.Handlers{deny("no")}, plugin.DrainTimeout(time.Millisecond))
	first := <-heard
	again := <-heard
	if string(first.Data) != string(again.Data) {
		t.Errorf("first %s, then %s", first.Data, again.Data)
	}
	before, _ := bus.Deadline(first.Header)
	if after, ok := bus.Deadline(again.Header); !ok || !after.Equal(before) {
		t.Errorf("the first was given up before the second was sent: their deadlines are %v and %v", before, after)
	}
	l, err := json.Marshal(plugin.Lease{
		Plugin: m.Name, Instance: m.Instance, State: plugin.Active, TTLMS: time.Hour.Milliseconds(), Hash: m.Hash(),
	})
	if err == nil {
		err = first.Respond(l) // a late answer to the first one counts
	}
	if err != nil {
		t.Fatal(err)
	}
}
