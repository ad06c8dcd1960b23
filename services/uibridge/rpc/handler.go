package rpc

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/bounds"
	"skandha.dev/services/uibridge/contract"
	"skandha.dev/services/uibridge/request"
)

// Path is the path to serve the handler at.
const Path = "/v1/ws"

// Protocol is the subprotocol that clients may ask for.
const Protocol = "skandha.v1"

// Config configures the handler. A zero field means its default.
type Config struct {
	Agent      subject.Agent `default:"main"`  // for connections that do not name one
	MaxMessage int64         `default:"1 MiB"` // bytes
	AtOnce     int           `default:"64"`    // maximum requests in flight per connection
	Timeout    time.Duration `default:"30s"`   // for a request
	WriteWait  time.Duration `default:"10s"`   // how long a peer may take to read a frame, and to answer a ping
	PingEvery  time.Duration `default:"20s"`
	// Limit counts a principal's call of a method. It returns an error to refuse the call:
	// over a rate limit, or because the token or login has expired. nil: nothing is refused.
	Limit func(ctx context.Context, p contract.Principal, method string) error
}

func (c Config) withDefaults() Config {
	c = bounds.Filled(c)
	if c.Limit == nil {
		c.Limit = func(context.Context, contract.Principal, string) error { return nil }
	}
	return c
}

// Handler serves [Path]. It must run behind the access layer, which limits the connections
// and ends the contexts of their requests: a connection then closes after its open requests
// are answered.
type Handler struct {
	cfg     Config
	backend contract.Backend
	desk    *request.Desk
	log     *slog.Logger

	open, connected, dropped, requests, failed atomic.Int64
}

// New creates a handler.
func New(cfg Config, b contract.Backend, log *slog.Logger) *Handler {
	log = log.With("transport", "rpc")
	return &Handler{cfg: cfg.withDefaults(), backend: b, desk: request.NewDesk(b, log, Attach, Detach), log: log}
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
	d.open.Add(1)
	defer d.open.Add(-1)
	d.connected.Add(1)
	c := newConn(d, r, p, first)
	defer c.end()
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
