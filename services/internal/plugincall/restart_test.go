package plugincall_test

import (
	"context"
	"errors"
	"testing"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/plugin"
	"skandha.dev/services/internal/plugincall"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/test/plugincalltest"
)

// The bus dies while a plugin works that only subscribes. A request that is not
// repeatable waits, since its answer may still come; a repeatable one is sent again.
func TestTheBusRestartsInMidRequest(t *testing.T) {
	p := natstest.StartProcess(t, "", 0)
	b := natstest.ConnectURL(t, p.URL())
	m := plugin.Manifest{Name: "p", Version: "1.0.0"}
	asker, err := plugincall.New(b, viewOf(m), plugincall.Grace(grace))
	if err != nil {
		t.Fatal(err)
	}
	back := make(chan struct{}, 1)
	nc, err := nats.Connect(p.URL(), nats.MaxReconnects(-1), nats.ReconnectWait(grace),
		nats.ReconnectHandler(func(*nats.Conn) { back <- struct{}{} }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	got := make(chan *nats.Msg, 2)
	plugincalltest.Answer(t, nc, "p", subj, func(m *nats.Msg) { got <- m })

	w := &world{t: t, asker: asker, manifest: m}
	r := w.request()
	once := w.ask(natstest.Context(t), r)
	first := <-got
	ctx, cancel := context.WithCancel(natstest.Context(t))
	defer cancel()
	r.Repeatable = true
	repeatable := w.ask(ctx, r)
	<-got
	p.Restart()
	<-back
	again := <-got
	if err := again.Respond([]byte("again")); err != nil {
		t.Fatal(err)
	}
	if o := w.await(repeatable); o.body != "again" {
		t.Fatalf("got %+v", o)
	}
	natstest.Eventually(t, "the connection", func() bool { return b.Conn().Flush() == nil })
	if err := first.Respond([]byte("I have been at it all the time")); err != nil {
		t.Fatal(err)
	}
	if o := w.await(once); o.body != "I have been at it all the time" {
		t.Fatalf("got %+v", o)
	}
}

// The answer may have been lost with the connection, and the request, too.
func TestTheDeadlineAfterTheBusRestarted(t *testing.T) {
	p := natstest.StartProcess(t, "", 0)
	b := natstest.ConnectURL(t, p.URL())
	m := plugin.Manifest{Name: "p", Version: "1.0.0"}
	asker, err := plugincall.New(b, viewOf(m), plugincall.Grace(grace))
	if err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect(p.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	got := make(chan *nats.Msg, 2)
	plugincalltest.Answer(t, nc, "p", subj, func(m *nats.Msg) { got <- m })
	w := &world{t: t, asker: asker, manifest: m}
	ctx := newLate(t)
	c := w.ask(ctx, w.request())
	<-got
	p.Restart()
	natstest.Eventually(t, "the connection to be another", func() bool { return b.Conn().Stats().Reconnects > 0 })
	close(ctx.over)
	if o := w.await(c); !errors.Is(o.err, plugincall.ErrLost) || !errors.Is(o.err, context.DeadlineExceeded) {
		t.Fatalf("got %+v", o)
	}
	if _, err := asker.Ask(natstest.Context(t),
		plugincall.Request{Plugin: "p", Hash: "other", Subject: subj}); !errors.Is(err, plugincall.ErrNotAsked) {
		t.Fatalf("got %v", err)
	}
}

// While there is no connection nothing is sent, nor kept to be sent later.
func TestNothingIsSentWithoutAConnection(t *testing.T) {
	p := natstest.StartProcess(t, "", 0)
	b := natstest.ConnectURL(t, p.URL())
	m := plugin.Manifest{Name: "p", Version: "1.0.0"}
	asker, err := plugincall.New(b, viewOf(m), plugincall.Grace(grace))
	if err != nil {
		t.Fatal(err)
	}
	p.Kill()
	natstest.Eventually(t, "the loss of the connection", func() bool { return !b.Conn().IsConnected() })
	w := &world{t: t, asker: asker, manifest: m}
	if o := w.await(w.ask(natstest.Context(t), w.request())); !errors.Is(o.err, plugincall.ErrNotAsked) {
		t.Fatalf("got %+v", o)
	}
}
