package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/coder/websocket"
	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/natsserver"
	"skandha.dev/services/uibridge/backend"
	"skandha.dev/services/uibridge/contract"
	"skandha.dev/services/uibridge/hub"
	"skandha.dev/services/uibridge/markdown"
	"skandha.dev/services/uibridge/rpc"
)

// frames is B14: from the publication of an event to its frame in a browser, beside the
// same message to a plain subscription in the browser's process, which is one of its
// own. Bus and bridge are in the publisher's process, as in `skandha up`, or each in its
// own, as deployed.
func frames(ctx context.Context, o Options) (rows []Row, err error) {
	for _, m := range []struct {
		what  string
		apart bool
	}{
		{"bus event → WebSocket frame, embedded", false},
		{"bus event → WebSocket frame, bus and bridge apart", true},
	} {
		if m.apart && o.Spawn == nil {
			continue
		}
		ours, raw, err := watchFrames(ctx, o, m.apart)
		if err != nil {
			return rows, err
		}
		rows = append(rows, ratio("B14", m.what, ours, raw, 2))
	}
	return rows, nil
}

func watchFrames(ctx context.Context, o Options, apart bool) (ours, raw time.Duration, err error) {
	dir, err := os.MkdirTemp(o.Dir, "bench-")
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // scratch
	w := &watcher{rig: &rig{dir: dir}, o: o, ref: watched}
	defer w.stop()
	open := w.embedded
	if apart {
		open = w.deployed
	}
	if err := open(ctx); err != nil {
		return 0, 0, err
	}
	return w.measure(ctx, o.n(3000))
}

var watched = subject.Ref{Agent: "main", Session: "watched"}

// The subjects of a measurement.
const (
	plainSubject   = "bench.frame"   // what the browser's process subscribes to itself
	arrivedSubject = "bench.arrived" // its clock when something has arrived, in nanoseconds
)

// watcher publishes events as core does, and is notified when they have arrived.
type watcher struct {
	*rig
	o       Options
	ref     subject.Ref
	bus     *journal.Journal // of who publishes
	prev    uint64
	arrived *nats.Subscription
}

// embedded has bus, core and bridge in this process.
func (w *watcher) embedded(ctx context.Context) (err error) {
	if w.srv, err = natsserver.Start(natsserver.Config{
		StoreDir: filepath.Join(w.dir, "nats"), Sync: natsserver.Relaxed, Addr: "127.0.0.1:-1", Logger: quiet,
	}); err != nil {
		return err
	}
	w.stops = append(w.stops, w.srv.Shutdown)
	if err := w.startCore(ctx); err != nil {
		return err
	}
	b, err := w.connect(ctx, "uibridge")
	if err != nil {
		return err
	}
	w.stops = append(w.stops, b.Close)
	ws, stop, err := bridge(ctx, b)
	if err != nil {
		return err
	}
	w.stops = append(w.stops, stop)
	if w.bus, err = w.connect(ctx, "publisher"); err != nil {
		return err
	}
	w.stops = append(w.stops, w.bus.Close)
	return w.browser(ctx, w.srv.ClientURL(), ws)
}

// deployed has each in a separate process.
func (w *watcher) deployed(ctx context.Context) (err error) {
	url := ""
	for _, role := range []string{"server", "core", "bridge"} {
		p, err := spawn(ctx, w.o.Spawn(role), "SKANDHA_BENCH_DIR="+w.dir, "SKANDHA_BENCH_SYNC="+string(natsserver.Relaxed),
			"SKANDHA_BENCH_URL="+url)
		if err != nil {
			return err
		}
		w.stops = append(w.stops, p.stop)
		switch role {
		case "server":
			url = p.ready
		case "bridge":
			if w.bus, err = journal.Connect(ctx, bus.Config{URL: url, Name: "publisher", Logger: quiet}); err != nil {
				return err
			}
			w.stops = append(w.stops, w.bus.Close)
			return w.browser(ctx, url, p.ready)
		}
	}
	return nil
}

// browser starts one and listens to when it says that something has arrived.
func (w *watcher) browser(ctx context.Context, url, ws string) (err error) {
	if w.arrived, err = w.bus.Conn().SubscribeSync(arrivedSubject); err != nil {
		return err
	}
	if err := w.bus.Conn().Flush(); err != nil {
		return err
	}
	if w.o.Spawn != nil {
		p, err := spawn(ctx, w.o.Spawn("browser"), "SKANDHA_BENCH_URL="+url, "SKANDHA_BENCH_WS="+ws)
		if err == nil {
			w.stops = append(w.stops, p.stop)
		}
		return err
	}
	b, err := journal.Connect(ctx, bus.Config{URL: url, Name: "browser", Logger: quiet})
	if err != nil {
		return err
	}
	ready, ended := make(chan struct{}), make(chan struct{})
	var failed error
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer close(ended)
		failed = browse(ctx, b, ws, func() { close(ready) })
	}()
	w.stops = append(w.stops, func() { cancel(); <-ended; b.Close() })
	select {
	case <-ready:
		return nil
	case <-ended:
		return failed
	}
}

// bridge starts a bridge without its access layer, which a frame does not pass, and
// returns where a browser attaches to the watched session.
func bridge(ctx context.Context, b *journal.Journal) (ws string, stop func(), err error) {
	k, err := backend.New(backend.Config{}, backend.Deps{Bus: b, Log: quiet, Markdown: hub.Rendering(markdown.New())})
	if err != nil {
		return "", nil, err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		k.Close()
		return "", nil, err
	}
	handler := rpc.New(rpc.Config{}, k, quiet)
	me := contract.Principal{Name: "bench", Writer: "ui-bench", Rights: contract.AllRights()}
	srv := &http.Server{
		ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(rw http.ResponseWriter, q *http.Request) {
			handler.ServeHTTP(rw, q.WithContext(contract.WithPrincipal(q.Context(), me)))
		}),
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(l) // until it is closed
	}()
	ws = fmt.Sprintf("ws://%s%s?agent=%s&session=%s", l.Addr(), rpc.Path, watched.Agent, watched.Session)
	return ws, func() { _ = srv.Close(); <-done; k.Close() }, nil
}

// browse is the browser: it says when a frame has arrived, and when a message has.
func browse(ctx context.Context, b *journal.Journal, ws string, ready func()) error {
	arrived := func() error {
		now := uint64(time.Now().UnixNano()) //nolint:gosec // it is after 1970
		return b.Conn().Publish(arrivedSubject, binary.BigEndian.AppendUint64(nil, now))
	}
	// who waits in vain says so
	if _, err := b.Conn().Subscribe(plainSubject, func(*nats.Msg) { _ = arrived() }); err != nil {
		return err
	}
	if err := b.Conn().Flush(); err != nil {
		return err
	}
	socket, _, err := websocket.Dial(ctx, ws, nil) //nolint:bodyclose // of an upgrade it is nil
	if err != nil {
		return err
	}
	defer func() { _ = socket.CloseNow() }()
	for attached := false; ; {
		_, frame, err := socket.Read(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		case !attached && strings.Contains(string(frame), contract.OnAttached):
			attached = true
			ready()
		case strings.Contains(string(frame), contract.OnReadyForInput): // the session is idle
		case !attached || !strings.Contains(string(frame[:min(len(frame), 60)]), contract.OnNewMessage):
			return fmt.Errorf("a frame is %.200s", frame)
		default:
			if err := arrived(); err != nil {
				return err
			}
		}
	}
}

// measure interleaves both ways; each event is stored before the clock runs.
func (w *watcher) measure(ctx context.Context, n int) (ours, raw time.Duration, err error) {
	var a, b []time.Duration
	warm := n/10 + 3
	for i := range n + warm {
		live, err := w.store(ctx, i)
		if err != nil {
			return 0, 0, err
		}
		x, err := w.until(func() error { return w.bus.PublishLive(ctx, w.ref, live.Subject, live.Header, live.Data) })
		if err != nil {
			return 0, 0, fmt.Errorf("waiting for the frame: %w", err)
		}
		y, err := w.until(func() error { return w.bus.Publish(ctx, plainSubject, live.Header, live.Data) })
		if err != nil {
			return 0, 0, fmt.Errorf("waiting for the message: %w", err)
		}
		if i >= warm {
			a, b = append(a, x), append(b, y)
		}
	}
	return median(a), median(b), nil
}

// until is how long something takes to arrive. The clock is the machine's.
func (w *watcher) until(publish func() error) (time.Duration, error) {
	begin := time.Now().UnixNano()
	if err := publish(); err != nil {
		return 0, err
	}
	m, err := w.arrived.NextMsg(time.Minute)
	if err != nil {
		return 0, err
	}
	if len(m.Data) != 8 {
		return 0, errors.New("an arrival without a time")
	}
	return time.Duration(int64(binary.BigEndian.Uint64(m.Data)) - begin), nil //nolint:gosec // it is after 1970
}

// store stores a commit with one message and returns its live copy.
func (w *watcher) store(ctx context.Context, i int) (*nats.Msg, error) {
	id := strconv.Itoa(i)
	e := event.New(w.ref, "e"+id, event.Source, event.UIMessage{Content: payload, Format: event.Markdown})
	e.Turn, e.Time = "t1", time.Now().UTC()
	c := event.Commit{
		Ref:    w.ref,
		Header: event.Header{CommitID: "c" + id, Prev: w.prev, Now: e.Time, Trigger: event.Trigger{Kind: event.ByProgress}},
		Events: []event.Event{e},
	}
	body, err := c.Encode()
	if err != nil {
		return nil, err
	}
	seq, err := w.bus.AppendCommit(ctx, w.ref, body, w.prev)
	if err != nil {
		return nil, err
	}
	m := &nats.Msg{Subject: e.Live(), Data: e.AppendJSON(nil), Header: nats.Header{
		journal.HeaderCommit: {strconv.FormatUint(seq, 10)}, journal.HeaderIndex: {"0"}, journal.HeaderEvents: {"1"},
		journal.HeaderPrev: {strconv.FormatUint(w.prev, 10)},
	}}
	w.prev = seq
	return m, nil
}
