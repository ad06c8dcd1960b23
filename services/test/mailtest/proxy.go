package mailtest

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
)

// Proxy is between a client and a server, and breaks their connections.
type Proxy struct {
	Port int

	target int
	mu     sync.Mutex
	open   map[*link]bool
	cutAt  []byte
	refuse bool
}

// link is a connection through a proxy.
type link struct {
	client, server net.Conn
	frozen         chan struct{} // closed: nothing is passed on any more
	once           sync.Once
}

func (l *link) close() {
	_ = l.client.Close()
	_ = l.server.Close()
}

// NewProxy listens until the test ends.
func NewProxy(tb testing.TB, target int) *Proxy {
	tb.Helper()
	var c net.ListenConfig
	ln, err := c.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	p := &Proxy{target: target, open: map[*link]bool{}, Port: ln.Addr().(*net.TCPAddr).Port} //nolint:forcetypeassert // it is TCP
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			running.Go(func() { p.serve(conn) })
		}
	})
	tb.Cleanup(func() {
		_ = ln.Close()
		p.Cut()
		running.Wait()
	})
	return p
}

func (p *Proxy) serve(client net.Conn) {
	var d net.Dialer
	server, err := d.DialContext(context.Background(), "tcp", fmt.Sprintf("127.0.0.1:%d", p.target))
	p.mu.Lock()
	if err != nil || p.refuse {
		p.mu.Unlock()
		_ = client.Close()
		return
	}
	l := &link{client: client, server: server, frozen: make(chan struct{})}
	p.open[l] = true
	p.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { p.pass(l, client, server, true) })
	both.Go(func() { p.pass(l, server, client, false) })
	both.Wait()
	p.mu.Lock()
	delete(p.open, l)
	p.mu.Unlock()
}

// pass passes on what one side says, until it ends.
func (p *Proxy) pass(l *link, from, to net.Conn, fromClient bool) {
	defer l.close()
	buf := make([]byte, 32<<10)
	var tail []byte
	for {
		n, err := from.Read(buf)
		select {
		case <-l.frozen:
			n = 0 // it is swallowed
		default:
		}
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		tail = append(tail, buf[:n]...)
		if fromClient && p.cuts(tail) {
			return
		}
		tail = tail[max(0, len(tail)-64):]
		if err != nil {
			return
		}
	}
}

func (p *Proxy) cuts(said []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.cutAt) == 0 || !bytes.Contains(said, p.cutAt) {
		return false
	}
	p.cutAt = nil
	return true
}

// CutAfter makes the proxy cut the next connection in which the client says this, after it was
// passed on.
func (p *Proxy) CutAfter(said string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cutAt = []byte(said)
}

// Freeze makes the open connections pass nothing on any more, without ending them.
func (p *Proxy) Freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.open {
		l.once.Do(func() { close(l.frozen) })
	}
}

// Cut ends the open connections.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.open {
		l.close()
	}
}

// Refuse says whether new connections are ended at once.
func (p *Proxy) Refuse(refuse bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = refuse
}
