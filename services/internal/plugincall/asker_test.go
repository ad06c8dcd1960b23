package plugincall_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/natsserver"
	"skandha.dev/services/internal/plugincall"
	"skandha.dev/services/internal/registry"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/test/plugincalltest"
)

const grace = 50 * time.Millisecond

// world is a plugin "p" with two replicas, and a process that asks it.
type world struct {
	t        *testing.T
	server   *natsserver.Server
	registry *plugincalltest.Registry
	view     *registry.View
	bus      *journal.Journal
	asker    *plugincall.Asker
	manifest plugin.Manifest
}

const subj = "tool.p.x"

func start(t *testing.T) *world {
	t.Helper()
	s := natstest.Start(t)
	w := &world{t: t, server: s, bus: natstest.Connect(t, s), manifest: plugin.Manifest{Name: "p", Version: "1.0.0"}}
	w.registry = plugincalltest.New(t, w.bus)
	w.registry.Register(w.manifest, "one", "two")
	var err error
	if w.view, err = registry.Watch(natstest.Context(t), w.bus, natstest.Logger(t)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.view.Close)
	if w.asker, err = plugincall.New(w.bus, w.view, plugincall.Grace(grace)); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) answer(f func(*nats.Msg)) *nats.Conn {
	nc := plugincalltest.Client(w.t, w.server)
	plugincalltest.Answer(w.t, nc, "p", subj, f)
	return nc
}

// silent is a plugin that gets requests and does not answer them by itself.
func (w *world) silent() (*nats.Conn, <-chan *nats.Msg) {
	got := make(chan *nats.Msg, 16)
	return w.answer(func(m *nats.Msg) { got <- m }), got
}

func (w *world) request() plugincall.Request {
	return plugincall.Request{Plugin: "p", Hash: w.manifest.Hash(), Subject: subj, Body: []byte("hello")}
}

type outcome struct {
	body string
	err  error
}

// ask asks in the background.
func (w *world) ask(ctx context.Context, r plugincall.Request) <-chan outcome {
	out := make(chan outcome, 1)
	go func() {
		b, err := w.asker.Ask(ctx, r)
		out <- outcome{string(b), err}
	}()
	return out
}

func (w *world) await(c <-chan outcome) outcome {
	w.t.Helper()
	select {
	case o := <-c:
		return o
	case <-time.After(natstest.Patience):
		w.t.Fatal("no outcome")
		return outcome{}
	}
}

// late is a context whose deadline passes when the test says so.
type late struct {
	context.Context //nolint:containedctx // it is one
	over            chan struct{}
}

func newLate(t *testing.T) late {
	return late{natstest.Context(t), make(chan struct{})}
}

func (l late) Done() <-chan struct{} { return l.over }

func (l late) Err() error {
	select {
	case <-l.over:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// ended ends leases and waits until the view knows.
func (w *world) ended(left int, replicas ...subject.Instance) {
	w.t.Helper()
	w.registry.End("p", replicas...)
	natstest.Eventually(w.t, "the end of the leases", func() bool {
		p := w.view.Snapshot().Get("p")
		return p == nil && left == 0 || p != nil && len(p.Instances) == left
	})
}

func TestAnAnswerAndTheDeadlineThatWasTold(t *testing.T) {
	w := start(t)
	deadlines := make(chan time.Time, 1)
	w.answer(func(m *nats.Msg) {
		at, _ := bus.Deadline(m.Header)
		deadlines <- at
		_ = m.Respond([]byte("you said " + string(m.Data)))
	})
	ctx := natstest.Context(t)
	if o := w.await(w.ask(ctx, w.request())); o.body != "you said hello" || o.err != nil {
		t.Fatalf("got %+v", o)
	}
	want, _ := ctx.Deadline()
	if got := <-deadlines; got.UnixMilli() != want.UnixMilli() {
		t.Errorf("the plugin got the deadline %v, want %v", got, want)
	}
}

func TestWhatCertainlyDidNotArriveSaysSo(t *testing.T) {
	over, cancel := context.WithCancel(context.Background())
	cancel()
	for name, c := range map[string]struct {
		ctx    context.Context //nolint:containedctx // a case's
		change func(w *world, r *plugincall.Request)
		want   string
	}{
		"no plugin listens": {nil, func(*world, *plugincall.Request) {}, "no plugin listens on tool.p.x"},
		"not registered":    {nil, func(_ *world, r *plugincall.Request) { r.Plugin = "q" }, "not registered"},
		"another version": {
			nil, func(_ *world, r *plugincall.Request) { r.Hash = "old" }, "replaced by version 1.0.0",
		},
		"the context is over": {over, func(*world, *plugincall.Request) {}, "before it was sent"},
		"it has no lease any more": {
			nil, func(w *world, _ *plugincall.Request) { w.ended(0, "one", "two") }, "plugin p is gone",
		},
		"the connection is closed": {nil, func(w *world, _ *plugincall.Request) { w.bus.Close() }, "closed"},
		"it is suspended": {nil, func(w *world, _ *plugincall.Request) {
			w.registry.Suspend(w.manifest, "it lies")
			natstest.Eventually(t, "the suspension", func() bool { return !w.view.Snapshot().Active("p") })
		}, "it lies"},
	} {
		t.Run(name, func(t *testing.T) {
			w := start(t)
			r := w.request()
			c.change(w, &r)
			ctx := c.ctx
			if ctx == nil {
				ctx = natstest.Context(t)
			}
			_, err := w.asker.Ask(ctx, r)
			if !errors.Is(err, plugincall.ErrNotAsked) || errors.Is(err, plugincall.ErrLost) ||
				!strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v", err)
			}
		})
	}
}

func TestAnErrorReplyIsThePluginsOwn(t *testing.T) {
	w := start(t)
	w.answer(func(m *nats.Msg) {
		_ = m.RespondMsg(&nats.Msg{
			Header: nats.Header{bus.ErrorHeader: {"not_found"}},
			Data:   []byte(`{"code":"not_found","message":"no such city","retryable":false}`),
		})
	})
	_, err := w.asker.Ask(natstest.Context(t), w.request())
	if !errors.Is(err, bus.ErrNotFound) || errors.Is(err, plugincall.ErrUnreadable) ||
		!strings.Contains(err.Error(), "no such city") {
		t.Fatalf("got %v", err)
	}
}

// A plugin needs SUB and PUB, nothing more: what it is asked is in the message.
func TestALargeQuestionArrivesWhole(t *testing.T) {
	w := start(t)
	w.answer(func(m *nats.Msg) { _ = m.Respond([]byte(strconv.Itoa(len(m.Data)))) })
	r := w.request()
	r.Body = []byte(`"` + strings.Repeat("x", 5<<20) + `"`)
	got, err := w.asker.Ask(natstest.Context(t), r)
	if err != nil || string(got) != strconv.Itoa(len(r.Body)) {
		t.Fatalf("the plugin saw %s bytes, %v", got, err)
	}
	r.Body = make([]byte, 9<<20)
	if _, err := w.asker.Ask(natstest.Context(t), r); !errors.Is(err, plugincall.ErrNotAsked) {
		t.Fatalf("what the server does not take: %v", err)
	}
}

func TestABodyThatCannotBeFetchedIsAnAnswer(t *testing.T) {
	w := start(t)
	w.answer(func(m *nats.Msg) { _ = m.RespondMsg(&nats.Msg{Header: nats.Header{bus.ClaimHeader: {"ab.cd"}}}) })
	if _, err := w.asker.Ask(natstest.Context(t), w.request()); !errors.Is(err, plugincall.ErrUnreadable) {
		t.Fatalf("got %v", err)
	}
}

func TestTheFirstAnswerUnderTheRightNameCounts(t *testing.T) {
	w := start(t)
	late := make(chan *nats.Msg, 1)
	w.answer(func(m *nats.Msg) {
		a, err := subject.ParseReply(m.Reply)
		if err != nil {
			t.Error(err)
		}
		nc := plugincalltest.Client(t, w.server)
		_ = nc.Publish(a.From("other").Subject(), []byte("forged"))
		a.N++
		_ = nc.Publish(a.Subject(), []byte("to another question"))
		_ = nc.Flush()
		_ = m.Respond([]byte("first"))
		_ = m.Respond([]byte("second"))
		late <- m
	})
	if o := w.await(w.ask(natstest.Context(t), w.request())); o.body != "first" {
		t.Fatalf("got %+v", o)
	}
	m := <-late
	_ = m.Respond([]byte("much later")) // is dropped
	if o := w.await(w.ask(natstest.Context(t), w.request())); o.body != "first" {
		t.Fatalf("got %+v", o)
	}
}

func TestTheDeadlineEndsTheWait(t *testing.T) {
	w := start(t)
	_, got := w.silent()
	ctx := newLate(t)
	c := w.ask(ctx, w.request())
	<-got
	close(ctx.over)
	if o := w.await(c); !errors.Is(o.err, context.DeadlineExceeded) || errors.Is(o.err, plugincall.ErrNotAsked) ||
		errors.Is(o.err, plugincall.ErrLost) {
		t.Fatalf("got %+v", o)
	}
}

func TestCancelEndsTheWait(t *testing.T) {
	w := start(t)
	_, got := w.silent()
	ctx, cancel := context.WithCancel(t.Context())
	c := w.ask(ctx, w.request())
	<-got
	cancel()
	if o := w.await(c); !errors.Is(o.err, context.Canceled) || errors.Is(o.err, plugincall.ErrNotAsked) {
		t.Fatalf("got %+v", o)
	}
}

func TestAllReplicasGoneWhileACoreIsThere(t *testing.T) {
	w := start(t)
	plugincalltest.Core(t, w.server)
	nc, got := w.silent()
	c := w.ask(natstest.Context(t), w.request())
	<-got
	nc.Close()
	w.ended(0, "one", "two")
	if o := w.await(c); !errors.Is(o.err, plugincall.ErrLost) || !strings.Contains(o.err.Error(), "gone") {
		t.Fatalf("got %+v", o)
	}
}

// Another replica than those that were there cannot have the request.
func TestAReplicaThatCameLaterDoesNotCount(t *testing.T) {
	w := start(t)
	plugincalltest.Core(t, w.server)
	_, got := w.silent()
	c := w.ask(natstest.Context(t), w.request())
	<-got
	w.registry.End("p", "one", "two")
	w.registry.Register(w.manifest, "three")
	if o := w.await(c); !errors.Is(o.err, plugincall.ErrLost) {
		t.Fatalf("got %+v", o)
	}
}

// It is unknown which replica has the request, so the asker waits for the one that is
// left. At the deadline, the error says that the other one may have had it.
func TestOneOfTwoReplicasGone(t *testing.T) {
	w := start(t)
	plugincalltest.Core(t, w.server)
	_, got := w.silent()
	answered := w.ask(natstest.Context(t), w.request())
	first := <-got
	ctx := newLate(t)
	lost := w.ask(ctx, w.request())
	<-got
	w.ended(1, "one")
	time.AfterFunc(10*grace, func() { close(ctx.over) })
	if o := w.await(lost); !errors.Is(o.err, plugincall.ErrLost) || !errors.Is(o.err, context.DeadlineExceeded) {
		t.Fatalf("got %+v", o)
	}
	if err := first.Respond([]byte("here I am")); err != nil {
		t.Fatal(err)
	}
	if o := w.await(answered); o.body != "here I am" {
		t.Fatalf("got %+v", o)
	}
}

// Without a core, no lease can be renewed, so missing leases mean nothing. The plugin
// may be back before a core is.
func TestNothingIsConcludedWhileNoCoreAnswers(t *testing.T) {
	w := start(t)
	_, got := w.silent()
	c := w.ask(natstest.Context(t), w.request())
	m := <-got
	// Another question is what shows that time has passed: it ends at its deadline,
	// many graces later.
	ctx := newLate(t)
	clock := w.ask(ctx, w.request())
	<-got
	w.ended(0, "one", "two")
	time.AfterFunc(10*grace, func() { close(ctx.over) })
	if o := w.await(clock); !errors.Is(o.err, context.DeadlineExceeded) {
		t.Fatalf("got %+v", o)
	}
	select {
	case o := <-c:
		t.Fatalf("it was given up: %+v", o)
	default:
	}
	w.registry.Register(w.manifest, "one")
	natstest.Eventually(t, "the lease", func() bool { return w.view.Snapshot().Active("p") })
	plugincalltest.Core(t, w.server)
	if err := m.Respond([]byte("still at it")); err != nil {
		t.Fatal(err)
	}
	if o := w.await(c); o.body != "still at it" {
		t.Fatalf("got %+v", o)
	}
}

// An answer that is on its way when the plugin's lease ends still counts.
func TestAnAnswerWithinTheGraceIsHeard(t *testing.T) {
	w := start(t)
	plugincalltest.Core(t, w.server)
	asker, err := plugincall.New(w.bus, w.view, plugincall.Grace(natstest.Patience))
	if err != nil {
		t.Fatal(err)
	}
	w.asker = asker
	_, got := w.silent()
	c := w.ask(natstest.Context(t), w.request())
	m := <-got
	w.ended(0, "one", "two")
	if err := m.Respond([]byte("goodbye")); err != nil {
		t.Fatal(err)
	}
	if o := w.await(c); o.body != "goodbye" {
		t.Fatalf("got %+v", o)
	}
}

func TestManyAtOnceAndNothingIsLeft(t *testing.T) {
	w := start(t)
	w.answer(func(m *nats.Msg) { _ = m.Respond(m.Data) })
	var all []<-chan outcome
	for i := range 500 {
		r := w.request()
		r.Body = []byte{byte(i), byte(i >> 8)}
		all = append(all, w.ask(natstest.Context(t), r))
	}
	for i, c := range all {
		if o := w.await(c); !slices.Equal([]byte(o.body), []byte{byte(i), byte(i >> 8)}) || o.err != nil {
			t.Fatalf("question %d: %+v", i, o)
		}
	}
}
