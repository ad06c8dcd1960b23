package plugintest

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/test/natstest"
)

// newRemoteRig is a rig on a server that can be killed.
func newRemoteRig(t *testing.T) (*rig, *natstest.Process) {
	t.Helper()
	s := natstest.StartProcess(t, "", 0)
	r := &rig{T: t, dial: func() *journal.Journal { return natstest.Dial(t, bus.Config{URL: s.URL()}) }}
	natstest.EnsureStreams(t, r.dial())
	r.desk, r.bus = newDesk(t, r.dial()), r.dial()
	r.ask = caller(t, r.bus)
	return r, s
}

// The bus is killed while a tool runs. The tool goes on; its answer is lost, and
// a caller that asks again gets it without a second run.
func TestTheBusRestartsInMidRequest(t *testing.T) {
	r, server := newRemoteRig(t)
	var ran atomic.Int64
	begun, finish, finished := make(chan struct{}), make(chan struct{}), make(chan struct{})
	p := r.active(manifest("slow"), plugin.Handlers{
		plugin.Tool("slow:it", "d", func(ctx context.Context, _ struct{}) (string, error) {
			ran.Add(1)
			close(begun)
			<-finish
			defer close(finished)
			return "done", ctx.Err()
		}),
	})
	lost := make(chan error, 1)
	go func() {
		_, err := r.call(natstest.Context(t), "slow", "t1-p1-c0", `{}`)
		lost <- err
	}()
	<-begun
	server.Kill()
	if err := <-lost; !errors.Is(err, bus.ErrUnavailable) {
		t.Errorf("the caller gets %v", err)
	}
	close(finish)
	<-finished
	server.Restart()
	r.desk.await(subject.Heartbeat, 3)
	natstest.Eventually(t, "the asker is back", r.bus.Connected)
	res, err := r.call(natstest.Context(t), "slow", "t1-p1-c0", `{}`)
	if err != nil || string(res.Data) != `"done"` || ran.Load() != 1 {
		t.Errorf("%+v, %v; it ran %d times", res, err, ran.Load())
	}
	if n := r.desk.count(subject.Register); n != 1 || p.seen() != "active" {
		t.Errorf("it registered %d times: %s", n, p.seen())
	}
	if err := p.stop(); err != nil {
		t.Error(err)
	}
}

// An input that is sent while the bus is away is stored when it is back, once.
func TestAnInputWaitsForTheBus(t *testing.T) {
	r, server := newRemoteRig(t)
	send, done := make(chan struct{}), make(chan error, 1)
	b := r.dial()
	r.startOn(b, manifest("ears"), plugin.Handlers{
		plugin.Listen("mic", func(ctx context.Context, e *plugin.Emitter) error {
			<-send
			_, err := e.EmitInput(ctx, session, event.Input{Text: "hello"})
			done <- err
			return nil
		}),
	}).await("active")
	server.Kill()
	natstest.Eventually(t, "the plugin notices", func() bool { return !b.Connected() })
	close(send)
	server.Restart()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	n := 0
	natstest.Eventually(t, "we are back", r.bus.Connected)
	for _, err := range r.bus.Messages(natstest.Context(t), session, 0) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != 1 {
		t.Errorf("it was stored %d times", n)
	}
}

// A plugin may be started before the bus, and stopped before it ever comes.
func TestAPluginWaitsForTheBus(t *testing.T) {
	server := natstest.StartProcess(t, "", 0)
	server.Kill()
	t.Setenv("SKANDHA_NATS", server.URL())
	for _, comes := range []bool{false, true} {
		states := make(chan plugin.LeaseState, 10)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- plugin.Serve(ctx, manifest("early"), plugin.Handlers{deny("no")}, plugin.WithLogger(natstest.Logger(t)),
				plugin.OnState(func(s plugin.LeaseState, _ string) { states <- s }))
		}()
		if comes {
			server.Restart()
			newDesk(t, natstest.Dial(t, bus.Config{URL: server.URL()}))
			for s := range states {
				if s == plugin.Active {
					break
				}
			}
		}
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the bus comes %t: %v", comes, err)
		}
	}
}

// The end of a connection that was lent to it ends Serve, with an error.
func TestTheConnectionEnds(t *testing.T) {
	r := newRig(t)
	b := r.dial()
	p := r.startOn(b, manifest("policy"), plugin.Handlers{deny("no")})
	p.await("active")
	b.Close()
	if err := p.end(); !errors.Is(err, bus.ErrUnavailable) {
		t.Error(err)
	}
}

// While the plugin leaves, the bus or the core may be away: it leaves all the same.
func TestLeavingAlone(t *testing.T) {
	r, server := newRemoteRig(t)
	p := r.active(manifest("policy"), plugin.Handlers{deny("no")})
	r.desk.close()
	if err := p.stop(); err != nil {
		t.Errorf("without a core: %v", err)
	}
	r.desk.open()
	p = r.active(manifest("other"), plugin.Handlers{deny("no")}, plugin.WithLogger(slog.New(slog.DiscardHandler)))
	server.Kill()
	if err := p.stop(); err != nil {
		t.Errorf("without a bus: %v", err)
	}
}
