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

// Path is the path to serve the handler at.
const Path = "/v1/ws"

// Protocol is the subprotocol that clients may ask for.
const Protocol = "skandha.v1"

// Config configures the handler. A zero field means its default.
type Config struct {
	Agent          subject.Agent // for connections that do not name one; default main
	MaxMessage     int64         // bytes; default 1 MiB
	MaxConnections int           // default 2048
	AtOnce         int           // maximum requests in flight per connection; default 64
	Timeout        time.Duration // for a request; default 30 s
	WriteWait      time.Duration // how long a peer may take to read a frame, and to answer a ping; default 10 s
	PingEvery      time.Duration // default 20 s
	// Limit counts a principal's call of a method. It returns an error to refuse the call:
	// over a rate limit, or because the token or login has expired. nil: nothing is refused.
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

// Handler serves [Path]. It must run behind the access layer.
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

// New creates a handler.
func New(cfg Config, b contract.Backend, log *slog.Logger) *Handler {
	log = log.With("transport", "rpc")
	return &Handler{
		cfg: cfg.withDefaults(), backend: b, desk: request.NewDesk(b, log, Attach, Detach), log: log,
		conns: map[*conn]struct{}{},
	}
}

// Counters returns the metrics: connections that are open, were opened, and were dropped
// because they did not keep up; requests, and failed ones.
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
		d.log.Info("connection refused", "from", r.RemoteAddr, "principal", p.Name, "error", err)
		request.Refuse(w, err, status)
		return
	}
	c := newConn(d, r, p, first)
	if err := d.enter(c); err != nil {
		request.Refuse(w, err, 0)
		return
	}
	defer d.leave(c)
	// The access layer has checked Host and Origin.
	c.ws, err = websocket.Accept(w, r,
		&websocket.AcceptOptions{Subprotocols: []string{Protocol}, InsecureSkipVerify: true})
	if err != nil {
		d.log.Info("connection refused", "from", r.RemoteAddr, "principal", p.Name, "error", err)
		return
	}
	c.serve(r.Context())
}

func upgrades(r *http.Request) bool {
	return r.Method == http.MethodGet && strings.EqualFold(r.Header.Get("Upgrade"), "websocket")
}

// admit reads the connection's attachment from the URL.
func (d *Handler) admit(r *http.Request, p contract.Principal) (a contract.Attachment, err error) {
	if p.Name == "" {
		return a, &contract.Error{Code: contract.CodeUnauthenticated, Message: "missing token"}
	}
	if !upgrades(r) {
		return a, contract.Invalid("Upgrade",
			"this path serves WebSockets; connect with one, or use POST /v1/rpc/{method} and GET …/events below "+
				"/v1/agents/")
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
		return &contract.Error{Code: contract.CodeUnavailable, Message: "connection limit reached", RetryAfterMS: 5000}
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

// Shutdown accepts no more connections, and closes every open one with 1001 after its open
// requests are answered. If ctx ends first, it cuts them off and returns ctx's error.
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
