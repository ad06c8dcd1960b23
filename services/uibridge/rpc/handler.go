package rpc

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/uibridge/contract"
	"skandha.dev/services/uibridge/request"
)

// Path is where the door is to be served.
const Path = "/v1/ws"

// Protocol is the subprotocol that may be asked for.
const Protocol = "skandha.v1"

// Config of the door. What is zero has a default.
type Config struct {
	Agent          subject.Agent // of connections that name none; default main
	MaxMessage     int64         // bytes; default 1 MiB
	MaxConnections int           // default 2048
	AtOnce         int           // requests of a connection that may be under way; default 64
	Timeout        time.Duration // of a request; default 30 s
	WriteWait      time.Duration // how long a peer may take for a frame, and to answer a ping; default 10 s
	PingEvery      time.Duration // default 20 s
	// Limit counts a principal's call of a method. Its error refuses the call: because of
	// a rate limit, or because the token or login has expired. nil: nothing is refused.
	Limit func(ctx context.Context, p contract.Principal, method string) error
}

func (c Config) withDefaults() Config {
	c.Agent = cmp.Or(c.Agent, "main")
	c.MaxMessage = cmp.Or(c.MaxMessage, 1<<20)
	c.MaxConnections = cmp.Or(c.MaxConnections, 2048)
	c.AtOnce = cmp.Or(c.AtOnce, 64)
	c.Timeout = cmp.Or(c.Timeout, 30*time.Second)
	c.WriteWait = cmp.Or(c.WriteWait, 10*time.Second)
	c.PingEvery = cmp.Or(c.PingEvery, 20*time.Second)
	if c.Limit == nil {
		c.Limit = func(context.Context, contract.Principal, string) error { return nil }
	}
	return c
}

// Handler is the handler of [Path]. The access layer stands before it.
type Handler struct {
	cfg     Config
	backend contract.Backend
	desk    *request.Desk
	log     *slog.Logger

	mu    sync.Mutex
	going bool
	conns map[*conn]struct{}
	empty sync.WaitGroup // of conns

	open, connected, dropped, requests, failed atomic.Int64
}

// New makes the door.
func New(cfg Config, b contract.Backend, log *slog.Logger) *Handler {
	log = log.With("door", "rpc")
	return &Handler{cfg: cfg.withDefaults(), backend: b, desk: request.NewDesk(b, log, Attach, Detach), log: log, conns: map[*conn]struct{}{}}
}

// Counters are for metrics: connections that are open, that were opened, that were
// dropped because they did not keep up, requests, and those that failed.
func (d *Handler) Counters() map[string]int64 {
	return map[string]int64{
		"ws_open": d.open.Load(), "ws_connected_total": d.connected.Load(), "ws_dropped_total": d.dropped.Load(),
		"ws_requests_total": d.requests.Load(), "ws_failed_total": d.failed.Load(),
	}
}

// ServeHTTP implements [http.Handler].
func (d *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p := contract.PrincipalOf(r.Context())
	first, err := d.admit(r, p)
	if err != nil {
		status := 0
		if !upgrades(r) {
			status = http.StatusUpgradeRequired
			w.Header().Set("Upgrade", "websocket")
		}
		d.log.Info("a connection was refused", "from", r.RemoteAddr, "principal", p.Name, "error", err)
		request.Refuse(w, err, status)
		return
	}
	c := newConn(d, r, p, first)
	if err := d.enter(c); err != nil {
		request.Refuse(w, err, 0)
		return
	}
	defer d.leave(c)
	// The access layer has looked at Host and Origin.
	c.ws, err = websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{Protocol}, InsecureSkipVerify: true})
	if err != nil {
		d.log.Info("a connection was refused", "from", r.RemoteAddr, "principal", p.Name, "error", err)
		return
	}
	c.serve(r.Context())
}

func upgrades(r *http.Request) bool {
	return r.Method == http.MethodGet && strings.EqualFold(r.Header.Get("Upgrade"), "websocket")
}

// admit reads what a connection wants to be told.
func (d *Handler) admit(r *http.Request, p contract.Principal) (a contract.Attachment, err error) {
	if p.Name == "" {
		return a, &contract.Error{Code: contract.CodeUnauthenticated, Message: "show a token"}
	}
	if !upgrades(r) {
		return a, contract.Invalid("Upgrade", "this is a WebSocket; connect with one, or use POST /v1/rpc/{method} and the events below /v1/agents/")
	}
	o := request.Origin{Ref: subject.Ref{Agent: d.cfg.Agent}}
	if len(p.Agents) > 0 && !slices.Contains(p.Agents, d.cfg.Agent) {
		o.Ref.Agent = p.Agents[0]
	}
	q := r.URL.Query()
	if o.Source, err = request.UI(q, "websocket"); err != nil {
		return a, err
	}
	return request.FromQuery(q, o, "agent", "session", "after", "html", "commits", "ui")
}

func (d *Handler) enter(c *conn) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.going:
		return contract.ErrGoingAway
	case len(d.conns) >= d.cfg.MaxConnections:
		return &contract.Error{Code: contract.CodeUnavailable, Message: "there are as many connections as there may be", RetryAfterMS: 5000}
	}
	d.conns[c] = struct{}{}
	d.empty.Add(1)
	d.open.Add(1)
	d.connected.Add(1)
	return nil
}

func (d *Handler) leave(c *conn) {
	c.end()
	d.mu.Lock()
	delete(d.conns, c)
	d.mu.Unlock()
	d.open.Add(-1)
	d.empty.Done()
}

// Shutdown lets nobody in any more, and closes every connection with 1001 after what
// was due on it was answered. When ctx ends first they are cut off; the error says so.
func (d *Handler) Shutdown(ctx context.Context) error {
	d.mu.Lock()
	d.going = true
	all := make([]*conn, 0, len(d.conns))
	for c := range d.conns {
		all = append(all, c)
	}
	d.mu.Unlock()
	for _, c := range all {
		c.goAway()
	}
	done := make(chan struct{})
	go func() {
		d.empty.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	for _, c := range all {
		c.end()
	}
	<-done
	return ctx.Err()
}
