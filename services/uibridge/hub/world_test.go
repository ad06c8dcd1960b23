package hub_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/client"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/natsserver"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/uibridge/contract"
	"skandha.dev/services/uibridge/hub"
)

var (
	ref   = subject.Ref{Agent: "main", Session: "one"}
	other = subject.Ref{Agent: "main", Session: "other"}
)

// world is a real bus whose log the test writes itself, so that it can contain what core
// would not write. A core that knows no session answers for it.
type world struct {
	*hub.Hub
	t      *testing.T
	bus    *journal.Journal // of who writes
	client *client.Client
	link   *link // from the hub to the bus
	near   *link // from who writes
	prev   uint64
	answer atomic.Pointer[bus.Code] // of core, for every session
	log    int                      // counts the logs, so that each has different events
	ids    []string                 // of all notifications to be sent, commits too
}

func newWorld(t *testing.T, cfg hub.Config, md hub.Markdown) *world {
	t.Helper()
	return newWorldAt(t, natstest.Start(t), cfg, md)
}

// newWorldAt makes a world of a server that the test may replace.
func newWorldAt(t *testing.T, srv *natsserver.Server, cfg hub.Config, md hub.Markdown) *world {
	t.Helper()
	w := &world{t: t, link: &link{srv: srv}, near: &link{srv: srv}}
	w.bus = natstest.Dial(t, bus.Config{InProcess: w.near, Token: srv.Token()})
	natstest.EnsureStreams(t, w.bus)
	w.answers(bus.CodeNotFound)
	core, err := w.bus.Respond(subject.Service(coreapi.ServiceName, coreapi.VerbSession), coreapi.ServiceName,
		coreapi.ServiceName, func(q *bus.Request) {
			_ = q.ReplyError(bus.Errorf(*w.answer.Load(), "of the test"))
		})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(core.Stop)
	if err := w.bus.Conn().Flush(); err != nil { // the client asks over another connection
		t.Fatal(err)
	}
	if w.client, err = client.New(natstest.Dial(t, bus.Config{InProcess: w.link, Token: srv.Token()}), "uibridge",
		natstest.Logger(t)); err != nil {
		t.Fatal(err)
	}
	w.Hub = hub.New(cfg, hub.Deps{Client: w.client, Log: natstest.Logger(t), Markdown: md})
	t.Cleanup(w.Close)
	return w
}

// answers sets core's answer to the request for a session's state.
func (w *world) answers(code bus.Code) { w.answer.Store(&code) }

// link is a connection to the server that can be cut.
type link struct {
	srv *natsserver.Server

	mu    sync.Mutex
	away  bool
	conns []net.Conn
}

// InProcessConn implements nats.InProcessConnProvider.
func (l *link) InProcessConn() (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.away {
		return nil, errors.New("the link is cut")
	}
	c, err := l.srv.InProcessConn()
	if err == nil {
		l.conns = append(l.conns, c)
	}
	return c, err
}

// cut closes connections, and allows no new ones until it is restored.
func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.away = true
	for _, c := range l.conns {
		_ = c.Close() // it may be closed already
	}
}

func (l *link) mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.away = false
}

// use connects to another server.
func (l *link) use(srv *natsserver.Server) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.srv = srv
}

// newHub makes one more hub in the same world.
func newHub(w *world) *hub.Hub {
	h := hub.New(hub.Config{}, hub.Deps{Client: w.client, Log: natstest.Logger(w.t)})
	w.t.Cleanup(h.Close)
	return h
}

// commit stores a commit of these payloads, and returns a function that publishes the live
// copies.
func (w *world) commit(payloads ...event.Payload) (seq uint64, live func(index int)) {
	w.t.Helper()
	c := event.Commit{Ref: ref, Header: event.Header{
		CommitID: fmt.Sprintf("c%d.%d", w.log, w.prev), Prev: w.prev, Now: time.Now().UTC(),
		Trigger: event.Trigger{Kind: event.ByProgress},
	}}
	for i, p := range payloads {
		e := event.New(ref, fmt.Sprintf("e%d.%d.%d", w.log, w.prev, i), event.Source, p)
		e.Turn = "t1"
		c.Events = append(c.Events, e)
	}
	body, err := c.Encode()
	if err != nil {
		w.t.Fatal(err)
	}
	prev := w.prev
	if w.prev, err = w.bus.AppendCommit(natstest.Context(w.t), ref, body, prev); err != nil {
		w.t.Fatal(err)
	}
	seq = w.prev
	w.ids = append(w.ids, fmt.Sprintf("%d.h", seq))
	for i := range c.Events {
		w.ids = append(w.ids, fmt.Sprintf("%d.%d", seq, i))
	}
	return seq, func(i int) {
		h := nats.Header{
			journal.HeaderCommit: {strconv.FormatUint(seq, 10)}, journal.HeaderIndex: {strconv.Itoa(i)},
			journal.HeaderEvents: {strconv.Itoa(len(c.Events))}, journal.HeaderPrev: {strconv.FormatUint(prev, 10)},
		}
		w.publish(c.Events[i].Live(), h, c.Events[i].AppendJSON(nil))
	}
}

func (w *world) publish(subj string, h nats.Header, body []byte) {
	w.t.Helper()
	if err := w.bus.Publish(natstest.Context(w.t), subj, h, body); err != nil {
		w.t.Fatal(err)
	}
}

// said stores a commit with these messages and publishes all of it.
func (w *world) said(texts ...string) {
	w.t.Helper()
	payloads := make([]event.Payload, len(texts))
	for i, s := range texts {
		payloads[i] = event.UIMessage{Content: s, Format: event.Markdown}
	}
	_, live := w.commit(payloads...)
	for i := range texts {
		live(i)
	}
}

type deltaPayload provider.Delta

func (deltaPayload) EventType() event.Type { return event.TypeDelta }

// delta publishes a piece of an answer.
func (w *world) delta(d provider.Delta) {
	w.t.Helper()
	e := event.New(ref, fmt.Sprintf("%s/%d", d.Attempt, d.N), "test", deltaPayload(d))
	e.Turn = "t1"
	w.publish(ref.Stream(), nil, e.AppendJSON(nil))
}

func (w *world) attach(a contract.Attachment) contract.Feed {
	w.t.Helper()
	a.Ref = ref
	f, err := w.Attach(context.Background(), a)
	if err != nil {
		w.t.Fatalf("attaching after %q: %v", a.After, err)
	}
	w.t.Cleanup(f.Close)
	n := next(w.t, f)
	var at contract.Attached
	if err := json.Unmarshal(n.Params, &at); err != nil || n.Method != contract.OnAttached {
		w.t.Fatalf("the first is %s, %v", n.Method, err)
	}
	// A feed without a past hears at once that the session waits for input.
	if at.State == event.StateWaiting && (a.After == "" || at.After == "0" && at.Until == "0") {
		if n := next(w.t, f); n.Method != contract.OnReadyForInput || n.ID != "" {
			w.t.Fatalf("the second is %s %s", n.Method, n.ID)
		}
	}
	return f
}

func next(t testing.TB, f contract.Feed) contract.Notification {
	t.Helper()
	n, err := f.Next(natstest.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// read reads until the id, and returns the ids that were sent.
func read(ctx context.Context, f contract.Feed, until string) (ids []string, err error) {
	for {
		n, err := f.Next(ctx)
		if err != nil {
			return ids, err
		}
		if n.ID != "" {
			ids = append(ids, n.ID)
		}
		if n.ID == until {
			return ids, nil
		}
	}
}

func decode[P any](t testing.TB, n contract.Notification) (p P) {
	t.Helper()
	if err := json.Unmarshal(n.Params, &p); err != nil {
		t.Fatal(err)
	}
	return p
}
