package bustest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/test/natstest"
)

func messages(t testing.TB, b *journal.Journal, r subject.Ref) []bus.StoredMsg {
	t.Helper()
	var all []bus.StoredMsg
	for m, err := range b.Messages(natstest.Context(t), r, 0) {
		if err != nil {
			t.Fatalf("reading %s: %v", r, err)
		}
		all = append(all, m)
	}
	return all
}

func TestSameCauseTwiceIsStoredOnce(t *testing.T) {
	b := start(t)
	first := cause(t, b, ref("one"), "id", "hello")
	if again := cause(t, b, ref("one"), "id", "hello"); again != first {
		t.Errorf("stored again at %d, want %d", again, first)
	}
	other := cause(t, b, ref("two"), "id", "hello")
	if other == first {
		t.Error("the id of one session swallowed the cause of another")
	}
	ctx := natstest.Context(t)
	if kind, err := b.PublishCause(ctx, ref("one"), subject.Cancel, "w", "id", []byte("hello")); err != nil ||
		kind == first {
		t.Errorf("the same id as another kind: %d, %v", kind, err)
	}
	if writer, err := b.PublishCause(ctx, ref("one"), subject.Input, "x", "id", []byte("hello")); err != nil ||
		writer == first {
		t.Errorf("the same id of another writer: %d, %v", writer, err)
	}
	if n := len(messages(t, b, ref("one"))); n != 3 {
		t.Errorf("session one has %d messages, want 3", n)
	}
}

func TestCausesWithoutAnIDAreAllStored(t *testing.T) {
	b := start(t)
	first := cause(t, b, ref("one"), "", "x")
	if second := cause(t, b, ref("one"), "", "x"); second == first {
		t.Error("two causes without an id became one")
	}
}

func TestTakenIDSwallowsNothing(t *testing.T) {
	ctx, b := natstest.Context(t), start(t)
	subj := ref("one").Cause(subject.Input, "w")
	for _, squat := range []*nats.Msg{
		{Subject: subj, Data: []byte("something else")},
		{Subject: ref("one").Cause(subject.Input, "mallory"), Data: []byte("hello")},
	} {
		id := fmt.Sprint(len(squat.Data))
		squat.Header = nats.Header{nats.MsgIdHdr: {subj + "/" + id}}
		squatted, err := b.JetStream().PublishMsg(ctx, squat)
		if err != nil {
			t.Fatal(err)
		}
		seq := cause(t, b, ref("one"), id, "hello")
		if seq == squatted.Sequence {
			t.Fatalf("the cause was swallowed by message %d", seq)
		}
		m, err := b.Message(ctx, seq)
		if err != nil || m.Subject != subj || string(m.Data) != "hello" {
			t.Fatalf("stored %+v, %v", m, err)
		}
	}
}

func TestCauseKeepsItsBodyAndATrace(t *testing.T) {
	b := start(t)
	body := bytes.Repeat([]byte{0, 1, 0xff, '\r', '\n'}, 1000)
	if _, err := b.PublishCause(natstest.Context(t), ref("one"), subject.Command, "tui", "", body); err != nil {
		t.Fatal(err)
	}
	m := messages(t, b, ref("one"))[0]
	if !bytes.Equal(m.Data, body) || len(m.Header.Get("traceparent")) != 55 {
		t.Errorf("header %v, body of %d bytes", m.Header, len(m.Data))
	}
}

func TestCauseWithABadNameIsRefused(t *testing.T) {
	b := start(t)
	for _, c := range []struct {
		r subject.Ref
		w subject.Writer
	}{
		{ref("a.b"), "w"}, {ref("*"), "w"}, {ref(""), "w"}, {ref("one"), "w.x"}, {ref("one"), ""}, {ref("one"), "w x"},
	} {
		if _, err := b.PublishCause(natstest.Context(t), c.r, subject.Input, c.w, "", []byte("x")); !errors.Is(err,
			bus.ErrInvalidArgument) {
			t.Errorf("%v %q: %v, want ErrInvalidArgument", c.r, c.w, err)
		}
	}
}

func TestCauseThatIsTooLargeIsRefused(t *testing.T) {
	b := start(t)
	_, err := b.PublishCause(natstest.Context(t), ref("one"), subject.Input, "w", "", make([]byte, b.MaxPayload()))
	if !errors.Is(err, bus.ErrTooLarge) || !strings.Contains(err.Error(), fmt.Sprint(b.MaxPayload())) {
		t.Fatalf("%v, want ErrTooLarge that names the limit", err)
	}
}

func TestCauseWaitsForTheServer(t *testing.T) {
	p := natstest.StartProcess(t, "", 0)
	b := natstest.ConnectURL(t, p.URL())
	p.Kill()
	stored := make(chan error, 1)
	ctx := natstest.Context(t)
	go func() {
		_, err := b.PublishCause(ctx, ref("one"), subject.Input, "w", "id", []byte("x"))
		stored <- err
	}()
	p.Restart()
	if err := <-stored; err != nil {
		t.Fatal(err)
	}
	if n := len(messages(t, b, ref("one"))); n != 1 {
		t.Errorf("%d messages, want 1", n)
	}
}

func TestCauseWithoutAServerIsAmbiguousWhenTimeIsUp(t *testing.T) {
	p := natstest.StartProcess(t, "", 0)
	b := natstest.ConnectURL(t, p.URL())
	p.Kill()
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	if _, err := b.PublishCause(ctx, ref("one"), subject.Input, "w", "id",
		[]byte("x")); !errors.Is(err, bus.ErrAmbiguous) || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("%v, want ErrAmbiguous because the deadline passed", err)
	}
}

// lossy passes connections through. Those that are made deaf hear no more of what
// the server says, until they are cut.
type lossy struct {
	addr string
	mu   sync.Mutex
	open []*lossyConn
}

type lossyConn struct {
	client, up net.Conn
	deaf       atomic.Bool
}

func startLossy(t *testing.T, server string) *lossy {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(natstest.Context(t), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &lossy{addr: "nats://" + l.Addr().String()}
	t.Cleanup(func() { _ = l.Close(); p.cut() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			var d net.Dialer
			up, err := d.DialContext(context.Background(), "tcp", strings.TrimPrefix(server, "nats://"))
			if err != nil {
				_ = client.Close()
				continue
			}
			c := &lossyConn{client: client, up: up}
			p.mu.Lock()
			p.open = append(p.open, c)
			p.mu.Unlock()
			go func() { _, _ = io.Copy(up, client); _ = up.Close() }()
			go c.down()
		}
	}()
	return p
}

func (c *lossyConn) down() {
	buf := make([]byte, 64<<10)
	for {
		n, err := c.up.Read(buf)
		if err != nil {
			_ = c.client.Close()
			return
		}
		if c.deaf.Load() {
			continue
		}
		if _, err := c.client.Write(buf[:n]); err != nil {
			_ = c.up.Close()
			return
		}
	}
}

// deafen makes all connections deaf.
func (p *lossy) deafen() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.open {
		c.deaf.Store(true)
	}
}

// cut ends all connections.
func (p *lossy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.open {
		_ = c.client.Close()
		_ = c.up.Close()
	}
	p.open = nil
}

func TestLostAcknowledgementIsNeitherALostNorADoubledInput(t *testing.T) {
	s := natstest.Start(t, natstest.WithTCP())
	direct := natstest.Connect(t, s)
	proxy := startLossy(t, s.ClientURL())
	b := natstest.Dial(t, bus.Config{URL: proxy.addr})
	for i := range 5 {
		proxy.deafen()
		done := make(chan error, 1)
		ctx := natstest.Context(t)
		go func() {
			_, err := b.PublishCause(ctx, ref("one"), subject.Input, "w", strconv.Itoa(i), []byte(strconv.Itoa(i)))
			done <- err
		}()
		natstest.Eventually(t, "the cause to be stored", func() bool { return len(messages(t, direct, ref("one"))) > i })
		proxy.cut()
		if err := <-done; err != nil {
			t.Fatalf("cause %d: %v", i, err)
		}
	}
	all := messages(t, direct, ref("one"))
	if len(all) != 5 {
		t.Fatalf("%d messages, want 5", len(all))
	}
	for i, m := range all {
		if string(m.Data) != strconv.Itoa(i) {
			t.Errorf("message %d is %q", i, m.Data)
		}
	}
}

func TestCommitWhoseAcknowledgementIsLostIsAmbiguousAtOnce(t *testing.T) {
	ctx, s := natstest.Context(t), natstest.Start(t, natstest.WithTCP())
	direct := natstest.Connect(t, s)
	proxy := startLossy(t, s.ClientURL())
	b := natstest.Dial(t, bus.Config{URL: proxy.addr})
	proxy.deafen()
	p := b.AppendCommitAsync(natstest.Context(t), ref("one"), []byte("x"), 0, false)
	natstest.Eventually(t, "the commit to be stored", func() bool {
		m, err := direct.LastCommit(ctx, ref("one"))
		return err == nil && string(m.Data) == "x"
	})
	proxy.cut()
	if _, err := p.Wait(ctx); !errors.Is(err, bus.ErrAmbiguous) || !errors.Is(err, nats.ErrDisconnected) {
		t.Fatalf("%v, want ErrAmbiguous because of the lost connection", err)
	}
}

func TestRestartOfTheServerForgetsNoID(t *testing.T) {
	p := natstest.StartProcess(t, "", 0)
	b := natstest.ConnectURL(t, p.URL())
	first := cause(t, b, ref("one"), "id", "hello")
	p.Restart()
	if again := cause(t, b, ref("one"), "id", "hello"); again != first {
		t.Errorf("stored again at %d, want %d", again, first)
	}
}
