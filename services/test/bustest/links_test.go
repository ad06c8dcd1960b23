package bustest

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/bus"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/test/natstest"
)

// way is a proxy to a server that can hold up the connections of a name: what the
// client sends on them does not arrive, as when the server is busy with earlier
// messages.
type way struct {
	target string
	l      net.Listener

	mu   sync.Mutex
	hold string // text in the client's first message
	free chan struct{}
}

func newWay(t *testing.T, target string) *way {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &way{target: u.Host, l: l, free: make(chan struct{})}
	close(w.free)
	t.Cleanup(func() { _ = l.Close(); w.release() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go w.pass(c)
		}
	}()
	return w
}

func (w *way) URL() string { return "nats://" + w.l.Addr().String() }

// holdUp holds up the connections of clients with that name, until release.
func (w *way) holdUp(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hold, w.free = name, make(chan struct{})
}

func (w *way) release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-w.free:
	default:
		close(w.free)
	}
}

func (w *way) wait(name []byte) {
	w.mu.Lock()
	free := w.free
	if !bytes.Contains(name, []byte(w.hold)) {
		free = nil
	}
	w.mu.Unlock()
	if free != nil {
		<-free
	}
}

func (w *way) pass(c net.Conn) {
	defer func() { _ = c.Close() }()
	var d net.Dialer
	up, err := d.DialContext(context.Background(), "tcp", w.target)
	if err != nil {
		return
	}
	defer func() { _ = up.Close() }()
	go func() { _, _ = io.Copy(c, up); _ = c.Close() }()
	var first []byte
	buf := make([]byte, 64<<10)
	for {
		n, err := c.Read(buf)
		if err != nil {
			return
		}
		if len(first) < 4096 {
			first = append(first, buf[:n]...)
		}
		w.wait(first)
		if _, err := up.Write(buf[:n]); err != nil {
			return
		}
	}
}

// The server is behind with the appends to the log, for longer than pings every two
// seconds would tolerate. Everything else goes on meanwhile, and nothing is lost.
func TestABusyLogHoldsUpNothingElse(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, natstest.WithTCP())
	natstest.Connect(t, s)
	w := newWay(t, s.ClientURL())
	b, ctx := natstest.Dial(t, bus.Config{URL: w.URL()}), natstest.Context(t)
	got := newCollector()
	acked := make(chan error, 1)
	consume(t, b, journal.ConsumeConfig{Durable: "busy", AckWait: time.Second}, func(d journal.Delivery) {
		got.take(d)
		select {
		case acked <- d.Ack():
		default:
		}
	})
	heard := make(chan struct{}, 1)
	if _, err := b.Conn().Subscribe("announce.>", func(*nats.Msg) { heard <- struct{}{} }); err != nil {
		t.Fatal(err)
	}
	respond(t, b, "runner.r1", "r1", echo)
	asker := caller(t, b)

	began := time.Now()
	w.holdUp(`/log"`)
	commit := b.AppendCommitAsync(natstest.Context(t), ref("held"), []byte("x"), 0, false)
	seq := cause(t, natstest.Dial(t, bus.Config{URL: s.ClientURL()}), ref("one"), "", "x")
	natstest.Eventually(t, "the delivery", func() bool { return got.times(seq) > 0 })
	if err := <-acked; err != nil {
		t.Error(err)
	}
	if err := b.Publish(ctx, "announce.runner.r1", nil, nil); err != nil {
		t.Error(err)
	}
	<-heard
	if _, err := asker.Request(ctx, "runner.r1", "r1", []byte("x")); err != nil {
		t.Error(err)
	}
	for done := false; !done; { // while the server is behind
		done = time.Since(began) > 7*time.Second
		if _, err := asker.Request(ctx, "runner.r1", "r1", []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	if n := got.times(seq); n != 1 {
		t.Errorf("it was delivered %d times although it was acknowledged", n)
	}
	w.release()
	natstest.Eventually(t, "the commit", func() bool {
		last, err := b.LastCommitSeq(ctx, ref("held"))
		return err == nil && last > 0
	})
	if _, err := commit.Wait(ctx); err != nil {
		t.Errorf("its acknowledgement came, and %v", err)
	}
	if n := b.Conn().Stats().Reconnects; n != 0 || !b.Connected() {
		t.Errorf("the connection was lost %d times", n)
	}
}

// A server that disappears silently is noticed although pings are patient.
func TestASilentServerIsGivenUp(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, natstest.WithTCP())
	w := newWay(t, s.ClientURL())
	b := natstest.Dial(t, bus.Config{URL: w.URL()})
	began := time.Now()
	w.holdUp(`/`)
	natstest.Eventually(t, "the silence to be noticed", func() bool { return !b.Connected() })
	t.Logf("noticed after %v", time.Since(began).Round(100*time.Millisecond))
	w.release()
	natstest.Eventually(t, "the connection", b.Connected)
	natstest.EnsureStreams(t, b)
	cause(t, b, ref("one"), "", "x")
}
