package access

import (
	"context"
	"crypto/tls"
	"math"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"skandha.dev/services/internal/inflight"
	"skandha.dev/services/uibridge/contract"
)

// open holds the accepted requests that have not ended: also streams and WebSockets, whose
// requests last as long as they do. It is the bridge's only account of them.
type open struct {
	max, maxAll int
	requests    inflight.Group[connection]

	mu sync.Mutex
	of map[string]int // by token
}

type connection struct {
	contract.Principal
	reads bool // it changes nothing, and the client can continue elsewhere
}

func newOpen(l Limits) *open {
	return &open{max: l.Connections, maxAll: l.AllConnections, of: map[string]int{}}
}

// enter registers a request. Its context ends when the principal expires, and when end or
// Shutdown ends it. Decisions have a separate limit: they are accepted even if other
// requests of the token use all its connections.
func (o *open) enter(
	ctx context.Context, p contract.Principal, reads bool, use Use,
) (_ context.Context, leave func(), err *contract.Error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	ctx, left, shut := o.requests.Enter(ctx, connection{p, reads})
	if shut != nil {
		return nil, nil, contract.ErrorOf(shut)
	}
	switch {
	case o.of[p.Name] >= o.max && use != Decision:
		err = tooMany("connection limit of this token reached (ui.limits.connections)", time.Second)
	case o.requests.Len() > o.maxAll:
		err = tooMany("connection limit reached (ui.limits.all_connections)", time.Second)
	}
	if err != nil {
		left()
		return nil, nil, err
	}
	o.of[p.Name]++
	ctx, end := context.WithCancelCause(ctx)
	// Not a deadline, which would be passed on in requests to other services.
	stop := func() bool { return true }
	if !p.Expires.IsZero() {
		stop = time.AfterFunc(time.Until(p.Expires),
			func() { end(unauthenticated("the token or login has expired; log in again")) }).Stop
	}
	return ctx, func() {
		stop()
		end(nil)
		left()
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.of[p.Name]--; o.of[p.Name] == 0 {
			delete(o.of, p.Name)
		}
	}, nil
}

// Shutdown accepts no more requests. Requests that only read end at once, with
// [contract.ErrGoingAway] as their context's cause: their clients continue after the last
// id they saw. Requests that may change something are waited for until ctx ends. Then they
// end, too, and have a second to tell their clients.
func (a *Access) Shutdown(ctx context.Context) error {
	requests := &a.open.requests
	requests.Close(contract.ErrGoingAway)
	requests.End(func(c connection) bool { return c.reads }, contract.ErrGoingAway)
	err := requests.Drain(ctx, contract.ErrGoingAway)
	if err == nil {
		return nil
	}
	requests.End(func(connection) bool { return true }, contract.ErrGoingAway)
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	_ = requests.Drain(last, contract.ErrGoingAway) // the caller learns that ctx ended
	return err
}

// farewell is the time that requests have to tell their clients that the bridge cut them off.
const farewell = time.Second

// anonymous holds the open connections without an authenticated request. When there are too
// many, the oldest of the address that has the most is closed, so that a client that only
// opens connections cannot keep out others.
type anonymous struct {
	max     int
	dropped atomic.Int64

	mu    sync.Mutex
	next  uint64
	conns map[net.Conn]arrival
	of    map[netip.Addr]int
}

type arrival struct {
	from  netip.Addr
	order uint64
}

type connKey struct{}

// Watch limits the server's connections without an authenticated request. It must be called
// before the server serves.
func (a *Access) Watch(srv *http.Server) {
	srv.ConnContext = func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) }
	srv.ConnState = func(c net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			a.anonymous.enter(c)
		case http.StateHijacked, http.StateClosed:
			a.anonymous.leave(c)
		}
	}
}

func (n *anonymous) enter(c net.Conn) {
	n.mu.Lock()
	n.next++
	from := peer(c.RemoteAddr().String())
	n.conns[c] = arrival{from, n.next}
	n.of[from]++
	var oldest net.Conn
	if len(n.conns) > n.max {
		oldest = n.oldest()
	}
	n.mu.Unlock()
	if oldest == nil {
		return
	}
	n.leave(oldest)
	n.dropped.Add(1)
	if t, ok := oldest.(*tls.Conn); ok {
		oldest = t.NetConn() // without a TLS close message, for which a client could keep us waiting
	}
	_ = oldest.Close() // the server notices
}

// oldest returns the first connection of the address that has the most.
func (n *anonymous) oldest() (oldest net.Conn) {
	most := 0
	for _, count := range n.of {
		most = max(most, count)
	}
	first := uint64(math.MaxUint64)
	for c, at := range n.conns {
		if n.of[at.from] == most && at.order < first {
			oldest, first = c, at.order
		}
	}
	return oldest
}

// leave removes a connection that has ended, or that has an authenticated request.
func (n *anonymous) leave(c net.Conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	at, ok := n.conns[c]
	if !ok {
		return
	}
	delete(n.conns, c)
	if n.of[at.from]--; n.of[at.from] == 0 {
		delete(n.of, at.from)
	}
}

func (n *anonymous) len() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.conns)
}
