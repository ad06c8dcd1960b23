package websocket

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/inflight"
	"skandha.dev/services/listener/contract"
	"skandha.dev/services/listener/web"
)

// The subprotocols.
const (
	Protocol     = "skandha.v1"
	BearerPrefix = "skandha.bearer."
)

// Stats counts connections.
type Stats struct {
	Open     atomic.Int64 // now
	Rejected atomic.Int64 // refused
	Dropped  atomic.Int64 // disconnected because the client was too slow or did not answer
}

// Deps are a listener's dependencies.
type Deps struct {
	Logger    *slog.Logger  // default slog.Default
	PingEvery time.Duration // default 20s; a pong may take half of it
	Stats     *Stats        // may be nil
}

// Listener is the listener and the HTTP handler of its path.
type Listener struct {
	name   subject.Writer
	cfg    Config
	tokens [][sha256.Size]byte
	log    *slog.Logger
	ping   time.Duration
	stats  *Stats

	started  atomic.Bool
	emitter  contract.Emitter
	inFlight contract.InFlight // messages
	limit    chan struct{}     // of connections
	conns    inflight.Group[struct{}]
	life     context.Context //nolint:containedctx // of the listener: connections end with it, not with their requests
	end      context.CancelFunc
}

var (
	_ contract.Listener = (*Listener)(nil)
	_ http.Handler      = (*Listener)(nil)
)

// New returns a listener and reads its tokens; an error names the field.
func New(name subject.Writer, cfg Config, deps Deps) (*Listener, error) {
	if _, err := subject.Parse[subject.Writer](string(name)); err != nil {
		return nil, err
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	tokens, err := cfg.readTokens()
	if err != nil {
		return nil, err
	}
	deps.Logger = cmp.Or(deps.Logger, slog.Default())
	deps.PingEvery = cmp.Or(deps.PingEvery, 20*time.Second)
	deps.Stats = cmp.Or(deps.Stats, &Stats{})
	cfg = cfg.withDefaults()
	l := &Listener{
		name: name, cfg: cfg, tokens: tokens, log: deps.Logger.With("listener", string(name)), ping: deps.PingEvery,
		stats: deps.Stats,
		limit: make(chan struct{}, cfg.MaxConnections),
	}
	l.life, l.end = context.WithCancel(context.Background())
	return l, nil
}

// Name implements [contract.Listener].
func (l *Listener) Name() subject.Writer { return l.name }

// Path returns the path that the listener is to be served on.
func (l *Listener) Path() string { return "/ws/" + string(l.name) }

// OnStart implements [contract.Listener]. Before OnStart and after OnStop, connections are refused.
func (l *Listener) OnStart(_ context.Context, e contract.Emitter) error {
	if !l.started.CompareAndSwap(false, true) {
		return fmt.Errorf("listener %s was already started", l.name)
	}
	l.emitter = e
	l.inFlight.Open()
	return nil
}

// OnStop implements [contract.Listener].
func (l *Listener) OnStop(ctx context.Context) error {
	l.conns.Close(errStopping)
	err := l.inFlight.Shut(ctx)
	l.conns.End(func(struct{}) bool { return true }, errStopping)
	defer context.AfterFunc(ctx, l.end)()
	_ = l.conns.Drain(context.WithoutCancel(ctx), errStopping) // ends at the latest with the listener's life
	l.end()
	if err != nil {
		return fmt.Errorf("listener %s: %w; their senders got no acknowledgement", l.name, err)
	}
	return nil
}

// ServeHTTP implements [http.Handler].
func (l *Listener) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	status, field, why := l.admit(r)
	if status != 0 {
		l.stats.Rejected.Add(1)
		l.log.Info("connection rejected", "from", r.RemoteAddr, "status", status, "field", field, "error", why)
		if status == http.StatusUnauthorized {
			w.Header().Set("WWW-Authenticate", "Bearer")
		}
		web.Error(w, status, field, why)
		return
	}
	select {
	case l.limit <- struct{}{}:
		defer func() { <-l.limit }()
	default:
		w.Header().Set("Retry-After", "10")
		web.Error(w, http.StatusServiceUnavailable, "", "connection limit reached (max_connections)")
		return
	}
	stopping, leave, err := l.enter()
	if err != nil {
		w.Header().Set("Retry-After", "10")
		web.Error(w, http.StatusServiceUnavailable, "", "the listener is not running")
		return
	}
	defer leave()
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{
		Subprotocols: []string{Protocol}, InsecureSkipVerify: true, // admit has checked Origin more strictly
	})
	if err != nil {
		l.log.Info("connection rejected", "from", r.RemoteAddr, "error", err)
		return
	}
	l.serve(stopping, ws, r.RemoteAddr)
}

var errStopping = errors.New("the listener is stopping")

// enter adds a connection if the listener is running. The context ends when the listener
// stops.
func (l *Listener) enter() (stopping context.Context, leave func(), err error) {
	if !l.started.Load() {
		return nil, nil, errors.New("the listener was not started")
	}
	return l.conns.Enter(context.Background(), struct{}{})
}

// admit decides whether the client may connect; status 0 means yes.
func (l *Listener) admit(r *http.Request) (status int, field, why string) {
	if r.Method != http.MethodGet || !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return http.StatusUpgradeRequired, "Upgrade", "this path serves WebSocket only; send an upgrade request"
	}
	if r.URL.RawQuery != "" {
		return http.StatusBadRequest, "query", "no query is allowed, as URLs end up in logs: " +
			"send the token in Authorization or as a subprotocol"
	}
	if origins := r.Header.Values("Origin"); len(origins) > 0 &&
		(len(origins) > 1 || !slices.Contains(l.cfg.Origins, origins[0])) {
		return http.StatusForbidden, "Origin", "unknown origin; add it to origins to allow its pages"
	}
	if !l.cfg.Insecure && !l.known(tokenOf(r)) {
		return http.StatusUnauthorized, "Authorization", "token missing or unknown; send Authorization: " +
			"Bearer …, or the subprotocols " + Protocol + " and " + BearerPrefix + "…"
	}
	return 0, "", ""
}

// tokenOf returns the token that the request presents.
func tokenOf(r *http.Request) string {
	if scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Bearer") {
		return token
	}
	for _, v := range r.Header.Values("Sec-WebSocket-Protocol") {
		for p := range strings.SplitSeq(v, ",") {
			if token, ok := strings.CutPrefix(strings.TrimSpace(p), BearerPrefix); ok {
				return token
			}
		}
	}
	return ""
}

func (l *Listener) known(token string) bool {
	sum, fits := sha256.Sum256([]byte(token)), 0
	for i := range l.tokens {
		fits |= subtle.ConstantTimeCompare(sum[:], l.tokens[i][:])
	}
	return fits == 1
}
