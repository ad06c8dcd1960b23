package conformance

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"
)

// passage is an operation that passed a tap.
type passage struct {
	op
	at   time.Time
	sent bool // by the plugin; otherwise to it
}

// tap is a proxy between one process and the bus; it passes on every byte and records the
// operations.
type tap struct {
	bus string // host:port

	mu     sync.Mutex
	events []passage
	moved  chan struct{} // closed at the next passage
	conns  map[net.Conn]struct{}
	dialed int // connections so far
	ln     net.Listener
	addr   string
	going  sync.WaitGroup
}

func newTap(bus string) (*tap, error) {
	t := &tap{bus: bus, moved: make(chan struct{}), conns: map[net.Conn]struct{}{}, addr: "127.0.0.1:0"}
	if err := t.up(context.Background()); err != nil {
		return nil, err
	}
	return t, nil
}

// up accepts connections, on its previous address if it had one.
func (t *tap) up(ctx context.Context) error {
	for {
		var lc net.ListenConfig
		ln, err := lc.Listen(ctx, "tcp", t.addr)
		if err == nil {
			t.mu.Lock()
			t.ln, t.addr = ln, ln.Addr().String()
			t.mu.Unlock()
			t.going.Go(func() { t.accept(ln) })
			return nil
		}
		select { // the port may be taken for a moment
		case <-ctx.Done():
			return fmt.Errorf("listening for the plugin: %w", err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// down refuses connections and closes existing ones.
func (t *tap) down() {
	t.mu.Lock()
	if t.ln != nil {
		_ = t.ln.Close()
		t.ln = nil
	}
	for c := range t.conns {
		_ = c.Close()
	}
	t.mu.Unlock()
	t.going.Wait()
}

func (t *tap) accept(ln net.Listener) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		t.going.Go(func() { t.pass(c) })
	}
}

// track lets down close the connection; it returns false if the tap is down already.
func (t *tap) track(c net.Conn, ln bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ln == nil {
		_ = c.Close()
		return false
	}
	t.conns[c] = struct{}{}
	if ln {
		t.dialed++
	}
	return true
}

func (t *tap) pass(client net.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	var d net.Dialer
	server, err := d.DialContext(ctx, "tcp", t.bus)
	if err != nil {
		_ = client.Close()
		return
	}
	var g sync.WaitGroup
	if t.track(client, true) && t.track(server, false) {
		g.Go(func() { t.copy(server, client, true) })
		g.Go(func() { t.copy(client, server, false) })
		g.Wait()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range []net.Conn{client, server} {
		_ = c.Close()
		delete(t.conns, c)
	}
	t.stir()
}

// stir wakes the callers that wait for a passage.
func (t *tap) stir() {
	close(t.moved)
	t.moved = make(chan struct{})
}

// left waits until no connection is left: then every message has passed.
func (t *tap) left(ctx context.Context) {
	for {
		t.mu.Lock()
		n, moved := len(t.conns), t.moved
		t.mu.Unlock()
		if n == 0 {
			return
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return
		}
	}
}

// copy passes on what one side sends, and closes both when it ends.
func (t *tap) copy(to, from net.Conn, sent bool) {
	defer func() { _, _ = to.Close(), from.Close() }()
	r := bufio.NewReaderSize(from, 64<<10)
	for {
		raw, o, err := readOp(r)
		if err == nil && o.verb != "" {
			t.add(passage{o, time.Now(), sent}) // before it is passed on, so that an answer is recorded after its question
		}
		if _, werr := to.Write(raw); werr != nil {
			return
		}
		var netErr net.Error
		switch {
		case err == nil:
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed), errors.As(err,
			&netErr):
			return
		default: // the server will reject it
			_, _ = io.Copy(to, r)
			return
		}
	}
}

func (t *tap) add(e passage) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.events = append(t.events, e)
	t.stir()
}

// all returns the passages so far.
func (t *tap) all() []passage {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.events)
}

// published returns the messages that the plugin sent to matching subjects.
func (t *tap) published(fits func(subject string) bool) (out []passage) {
	for _, e := range t.all() {
		if e.sent && e.carries() && fits(e.subject) {
			out = append(out, e)
		}
	}
	return out
}

// connected returns how many connections there were.
func (t *tap) connected() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.dialed
}

// await waits until a passage after the first n fits; ok is false when ctx ended or
// stop was closed before.
func (t *tap) await(ctx context.Context, stop <-chan struct{}, n int, fits func(passage) bool) (e passage, ok bool) {
	for {
		t.mu.Lock()
		events, moved := t.events[min(n, len(t.events)):], t.moved
		t.mu.Unlock()
		for _, e := range events {
			if fits(e) {
				return e, true
			}
		}
		n += len(events)
		select {
		case <-moved:
		case <-stop:
			return passage{}, false
		case <-ctx.Done():
			return passage{}, false
		}
	}
}

// mark returns the number of events, to begin an await with.
func (t *tap) mark() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.events)
}
