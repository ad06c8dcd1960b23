package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/bounds"
	"skandha.dev/services/uibridge/contract"
	"skandha.dev/services/uibridge/request"
)

// Path is where the handler is served.
const Path = "/mcp"

// Config configures the handler. A zero field means its default.
type Config struct {
	MaxMessage int64         `default:"4 MiB"` // bytes of a body
	Sessions   int           `default:"256"`   // of one principal that are open, in the protocol's earlier era
	Idle       time.Duration `default:"10m"`   // after which such a session without requests ends
	WriteWait  time.Duration `default:"10s"`   // how long a peer may take to read an event
	KeepAlive  time.Duration `default:"15s"`   // between comments of a stream
	Patience   time.Duration `default:"10s"`   // how long core may take to take up an input whose task is created
	Linger     time.Duration `default:"5s"`    // between a lost connection and the cancel that may follow it
	Lag        time.Duration `default:"3s"`    // how long a handle is looked for in the log of this bridge
	TaskLife   time.Duration `default:"24h"`   // how long the result of a task can be fetched, from the input on
	Poll       time.Duration `default:"1s"`    // what clients that poll a task are asked to wait
}

// Deps are the package's dependencies.
type Deps struct {
	Backend contract.Backend
	// Artifact returns the content of an artifact by its name in the session. It checks the rights.
	Artifact func(ctx context.Context, p contract.Principal, ref subject.Ref, name string) ([]byte, error)
	Version  string // of the program
	Log      *slog.Logger
}

// Handler serves [Path]. It must run behind the access layer.
type Handler struct {
	cfg  Config
	deps Deps
	log  *slog.Logger
	more func(*sdk.Server) // adds what a test needs; nil: nothing

	reading chan struct{} // a place for each artifact in memory

	mu      sync.Mutex
	clients map[string]*client // by the principal's name; all of these are configured

	open, requests, failed atomic.Int64
}

// artifactsAtOnce limits how many artifacts are in memory at a time.
const artifactsAtOnce = 4

// maxBatch is the most messages of a batch, which only the oldest clients send.
const maxBatch = 16

// New creates a handler. Close ends it.
func New(cfg Config, deps Deps) *Handler {
	return &Handler{
		cfg: bounds.Filled(cfg), deps: deps, log: deps.Log.With("transport", "mcp"), clients: map[string]*client{},
		reading: make(chan struct{}, artifactsAtOnce),
	}
}

// Counters returns the metrics: open requests, open sessions, all requests, and refused ones.
func (d *Handler) Counters() map[string]int64 {
	sessions := 0
	for _, c := range d.all() {
		sessions += c.sessions()
	}
	return map[string]int64{
		"mcp_open": d.open.Load(), "mcp_sessions": int64(sessions), "mcp_requests_total": d.requests.Load(),
		"mcp_failed_total": d.failed.Load(),
	}
}

func (d *Handler) all() (out []*client) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.clients {
		out = append(out, c)
	}
	return out
}

// Close ends all sessions. Requests must have ended before.
func (d *Handler) Close() {
	for _, c := range d.all() {
		for s := range c.server.Sessions() {
			c.end(s.ID())
			_ = s.Close() // there is nobody to tell
		}
	}
}

// ServeHTTP implements [http.Handler].
func (d *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.requests.Add(1)
	d.open.Add(1)
	defer d.open.Add(-1)
	if status, err := d.serve(w, r); err != nil {
		d.failed.Add(1)
		d.log.Debug("request refused", "from", r.RemoteAddr, "principal", contract.PrincipalOf(r.Context()).Name,
			"error", err)
		request.Refuse(w, err, status)
	}
}

// serve returns an error, and possibly a status, if the request was not answered.
func (d *Handler) serve(w http.ResponseWriter, r *http.Request) (status int, err error) {
	p := contract.PrincipalOf(r.Context())
	if p.Name == "" {
		return 0, &contract.Error{Code: contract.CodeUnauthenticated, Message: "missing token"}
	}
	c := d.clientOf(p)
	newEra, starts := r.Header.Get(versionHeader) >= stateless, false
	switch r.Method {
	case http.MethodPost:
		m, status, err := d.peek(w, r)
		if err != nil {
			return status, err
		}
		_, named := m.Params.Meta[sdk.MetaKeyProtocolVersion]
		newEra, starts = newEra || named, m.Method == "initialize"
		if newEra {
			if slices.Contains(taskMethods, m.Method) && r.Header.Get(nameHeader) != m.Params.TaskID {
				m.mismatch(w)
				return 0, nil
			}
			break
		}
		if !starts && r.Header.Get(sessionHeader) == "" {
			return 0, contract.Invalid(sessionHeader, "missing; send initialize first, or a request of "+stateless)
		}
	case http.MethodGet, http.MethodDelete:
		newEra = false
	default:
		w.Header().Set("Allow", "GET, POST, DELETE")
		return http.StatusMethodNotAllowed, contract.Invalid("method", "use POST")
	}
	if starts && r.Header.Get(sessionHeader) == "" {
		begun, err := c.begin(d.cfg.Sessions)
		if err != nil {
			return 0, err
		}
		defer begun()
	}
	w.Header().Set("X-Accel-Buffering", "no") // stops a proxy from buffering
	out := newWriter(w, d.cfg.WriteWait, d.cfg.KeepAlive)
	defer out.close()
	c.serve(out, r, p, newEra)
	return 0, nil
}

// The headers of the protocol, and the first version that has no sessions.
const (
	versionHeader = "Mcp-Protocol-Version"
	sessionHeader = "Mcp-Session-Id"
	nameHeader    = "Mcp-Name"
	stateless     = "2026-07-28"
)

// message is what decides how a message is served.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Meta   map[string]json.RawMessage `json:"_meta"`
		TaskID string                     `json:"taskId"`
	} `json:"params"`
}

// mismatch answers a message of the extension for tasks whose name is not in the header, by which
// proxies route it. The library checks the other methods.
func (m message) mismatch(w http.ResponseWriter) {
	request.JSON(w, http.StatusBadRequest, map[string]any{
		"jsonrpc": "2.0", "id": m.ID, "error": map[string]any{
			"code": sdk.CodeHeaderMismatch, "message": nameHeader + ": want the taskId of the body",
		},
	})
}

// peek reads the body, and leaves it to be read again. Of a batch it returns no message.
func (d *Handler) peek(w http.ResponseWriter, r *http.Request) (m message, status int, err error) {
	body, status, err := request.Body(w, r, d.cfg.MaxMessage)
	if err != nil {
		return m, status, err
	}
	r.Body = http.NoBody
	if body = bytes.TrimSpace(body); len(body) > 0 {
		r.Body = readCloser{bytes.NewReader(body)}
	}
	if len(body) > 0 && body[0] == '[' {
		var batch []json.RawMessage
		if err := json.Unmarshal(body, &batch); err == nil && len(batch) > maxBatch {
			return m, 0, contract.Invalid("body", fmt.Sprintf("a batch of %d messages; the limit is %d", len(batch), maxBatch))
		}
		return m, 0, nil
	}
	_ = json.Unmarshal(body, &m) // what is wrong with it is answered where it is served
	return m, 0, nil
}

type readCloser struct{ *bytes.Reader }

// Close implements [io.Closer].
func (readCloser) Close() error { return nil }

// client serves one principal: a session is found only by the principal that began it.
type client struct {
	server              *sdk.Server // of sessions
	stateful, stateless http.Handler

	mu       sync.Mutex
	starting int                                          // sessions that are being opened
	handled  map[string]map[*context.CancelCauseFunc]bool // ends what is handled for a session
}

func (d *Handler) clientOf(p contract.Principal) *client {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.clients[p.Name]
	if c == nil {
		c = d.newClient()
		d.clients[p.Name] = c
	}
	return c
}

func (d *Handler) newClient() *client {
	serve := func(s *sdk.Server, o sdk.StreamableHTTPOptions) http.Handler {
		o.Logger, o.MaxRequestBodyBytes = d.sdkLog(), d.cfg.MaxMessage
		o.DisableLocalhostProtection = true // the access layer knows the bridge's names
		return identified(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, &o))
	}
	c := &client{server: d.newServer(false), handled: map[string]map[*context.CancelCauseFunc]bool{}}
	c.stateful = serve(c.server, sdk.StreamableHTTPOptions{SessionTimeout: d.cfg.Idle})
	c.stateless = serve(d.newServer(true), sdk.StreamableHTTPOptions{Stateless: true, PropagateRequestCancellation: true})
	return c
}

// sdkLog is for the library, whose errors are mostly those of clients.
func (d *Handler) sdkLog() *slog.Logger { return slog.New(quiet{d.log.Handler()}) }

// sessions returns the number of open sessions.
func (c *client) sessions() (n int) {
	for range c.server.Sessions() {
		n++
	}
	return n
}

// begin notes that a session is being opened, unless there are too many.
func (c *client) begin(most int) (begun func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sessions()+c.starting >= most {
		return nil, &contract.Error{
			Code: contract.CodeRateLimited, RetryAfterMS: 60_000,
			Message: fmt.Sprintf("%d sessions of MCP are open with this token, which is the limit; end one with DELETE, "+
				"or wait until an unused one ends", most),
		}
	}
	c.starting++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.starting--
	}, nil
}

var errSessionEnded = &contract.Error{
	Code: contract.CodeUnavailable, Message: "the client has ended its session; the turn continues",
}

// serve serves a request of the principal.
func (c *client) serve(w *writer, r *http.Request, p contract.Principal, newEra bool) {
	if r.Method == http.MethodDelete {
		c.end(r.Header.Get(sessionHeader))
	}
	r = r.WithContext(context.WithValue(r.Context(), connectionKey{},
		&connection{p: p, client: c, http: r.Context(), out: w, stateless: newEra}))
	// The library knows the sender of a message only behind its own check of a token. The access layer
	// has checked the token, and removed it.
	r.Header.Set("Authorization", "Bearer checked")
	if newEra {
		c.stateless.ServeHTTP(w, r)
	} else {
		c.stateful.ServeHTTP(w, r)
	}
}

// enter notes what is handled for a session, which ends with it.
func (c *client) enter(session string, end *context.CancelCauseFunc) (leave func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.handled[session] == nil {
		c.handled[session] = map[*context.CancelCauseFunc]bool{}
	}
	c.handled[session][end] = true
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if delete(c.handled[session], end); len(c.handled[session]) == 0 {
			delete(c.handled, session)
		}
	}
}

// end ends what is handled for a session, for which the library would wait.
func (c *client) end(session string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for end := range c.handled[session] {
		(*end)(errSessionEnded)
	}
}

// connection is the HTTP request that a message came with.
type connection struct {
	p         contract.Principal
	client    *client
	http      context.Context //nolint:containedctx // the library replaces it by that of the session's first request
	out       *writer
	stateless bool
}

type connectionKey struct{}

// connectionOf is the name of the connection in what the library keeps of a token.
const connectionOf = "connection"

// identified gives the library the connection, which it passes on with each message.
var identified = auth.RequireBearerToken(
	func(ctx context.Context, _ string, _ *http.Request) (*auth.TokenInfo, error) {
		c, ok := ctx.Value(connectionKey{}).(*connection)
		if !ok {
			return nil, errors.New("no connection")
		}
		return &auth.TokenInfo{UserID: c.p.Name, Extra: map[string]any{connectionOf: c}}, nil
	}, &auth.RequireBearerTokenOptions{AllowMissingExpiration: true})
