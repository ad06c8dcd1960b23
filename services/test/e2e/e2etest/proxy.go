package e2etest

import (
	"bytes"
	"context"
	"net"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"testing"
)

// Proxy is a way to the bus that can be cut: what is sent then arrives when the
// cut is healed, late, as after a real partition, or never if the connection has
// been given up meanwhile. Neither end is notified.
type Proxy struct {
	t      testing.TB
	target string
	l      net.Listener

	mu    sync.Mutex
	open  chan struct{} // closed: traffic flows
	up    bool          // towards the server it flows although it is cut
	from  []byte        // only clients that introduced themselves with this are cut; nil: all
	mark  []byte        // what the client says cuts the replies; nil: nothing
	after int           // how often it says it before
	conns map[net.Conn]struct{}
	over  bool
	wg    sync.WaitGroup
}

// NewProxy listens on the loopback interface for the server at a nats:// URL.
func NewProxy(t testing.TB, target string) *Proxy {
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
	p := &Proxy{t: t, target: u.Host, l: l, open: make(chan struct{}), conns: map[net.Conn]struct{}{}}
	close(p.open)
	p.wg.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// URL is where clients connect.
func (p *Proxy) URL() string { return "nats://" + p.addr() }

func (p *Proxy) addr() string { return p.l.Addr().String() }

// Cut holds up all traffic.
func (p *Proxy) Cut() { p.cut(false) }

// CutFrom holds up the traffic of the server of that name, in both directions.
func (p *Proxy) CutFrom(server string) {
	p.mu.Lock()
	p.from = strconv.AppendQuote(nil, server)
	p.mu.Unlock()
	p.cut(false)
}

// CutReplies holds up what the server sends; what is sent to it still arrives.
func (p *Proxy) CutReplies() { p.cut(true) }

// CutRepliesAt holds up all that the server says from the moment in which the
// client has said the mark n times: the last one arrives, and is not answered.
func (p *Proxy) CutRepliesAt(mark string, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mark, p.after = []byte(mark), n
}

// IsCut reports whether traffic is held up.
func (p *Proxy) IsCut() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.open:
		return false
	default:
		return true
	}
}

// watch looks for the mark in what the client says, before it is passed on, and returns
// the end of it, in which the next one may begin.
func (p *Proxy) watch(end, said []byte) []byte {
	p.mu.Lock()
	found := false
	said = append(end, said...)
	if p.mark != nil {
		p.after -= bytes.Count(said, p.mark)
		if found = p.after <= 0; found {
			p.mark = nil
		}
	}
	keep := max(0, len(p.mark)-1)
	p.mu.Unlock()
	if found {
		p.cut(true)
	}
	return slices.Clone(said[max(0, len(said)-keep):])
}

func (p *Proxy) cut(up bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.open:
		p.open = make(chan struct{})
	default:
	}
	p.up = up
}

// Heal lets what was held up flow, and all that follows.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.open:
	default:
		close(p.open)
	}
	p.from = nil
}

func (p *Proxy) close() {
	p.mu.Lock()
	p.over = true
	for c := range p.conns {
		_ = c.Close()
	}
	p.mu.Unlock()
	_ = p.l.Close()
	p.Heal()
	p.wg.Wait()
}

func (p *Proxy) accept() {
	for {
		c, err := p.l.Accept()
		if err != nil {
			return
		}
		p.wg.Go(func() { p.serve(c) })
	}
}

func (p *Proxy) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		_ = c.Close()
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

func (p *Proxy) serve(client net.Conn) {
	if !p.keep(client) {
		return
	}
	c := new(conn)
	p.gate(c, true)
	var d net.Dialer
	server, err := d.DialContext(context.Background(), "tcp", p.target)
	if err != nil || !p.keep(server) {
		_ = client.Close()
		return
	}
	var both sync.WaitGroup
	both.Go(func() { p.pipe(c, server, client, true) })
	both.Go(func() { p.pipe(c, client, server, false) })
	both.Wait()
	p.mu.Lock()
	delete(p.conns, client)
	delete(p.conns, server)
	p.mu.Unlock()
}

// conn is what the proxy knows of a connection.
type conn struct{ said []byte } // the first of it, by its client

// gate waits until traffic in the direction may flow.
func (p *Proxy) gate(c *conn, toServer bool) {
	p.mu.Lock()
	open, up := p.open, p.up
	spared := p.from != nil && !bytes.Contains(c.said, p.from)
	p.mu.Unlock()
	if toServer && up || spared {
		return
	}
	<-open
}

// introduce keeps the first two lines of a client, CONNECT and INFO of a server: later it also speaks of others.
func (p *Proxy) introduce(c *conn, said []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for bytes.Count(c.said, []byte("\n")) < 2 && len(said) > 0 {
		end := bytes.IndexByte(said, '\n') + 1
		if end == 0 {
			end = len(said)
		}
		c.said, said = append(c.said, said[:end]...), said[end:]
	}
}

// pipe copies until one end closes; that, too, is passed on late when the way is cut.
func (p *Proxy) pipe(c *conn, to, from net.Conn, toServer bool) {
	buf := make([]byte, 64<<10)
	var end []byte // of what was said
	for {
		n, err := from.Read(buf)
		if toServer {
			end = p.watch(end, buf[:n])
			p.introduce(c, buf[:n])
		}
		p.gate(c, toServer)
		if n > 0 {
			if _, werr := to.Write(buf[:n]); werr != nil {
				err = werr
			}
		}
		if err != nil {
			_ = to.Close()
			_ = from.Close()
			return
		}
	}
}
