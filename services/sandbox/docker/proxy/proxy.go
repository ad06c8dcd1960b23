package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/docker/docker/api/types/system"
	"github.com/docker/docker/client"
	lru "github.com/hashicorp/golang-lru/v2"

	"skandha.dev/services/internal/httpd"
	"skandha.dev/services/sandbox/docker/form"
)

const (
	idleTime     = 10 * time.Minute // longer than clients keep a connection that they do not use
	maxHeader    = 16 << 10
	maxOwned     = 4096 // containers that are remembered
	shutdownTime = 5 * time.Second
	pingTime     = 2 * time.Second
)

// Proxy filters requests to an engine. Create it with New.
type Proxy struct {
	cfg       Config
	log       *slog.Logger
	routes    []route
	cli       *client.Client // for questions of the proxy
	transport *http.Transport
	health    http.Handler
	owned     *lru.Cache[string, struct{}] // containers of the owner
	making    struct{ containers, volumes atomic.Int64 }
	ctx       context.Context //nolint:containedctx // of the connections that were taken over
	end       context.CancelFunc
	draining  atomic.Bool
	bodies    chan struct{} // one for each body that is being checked
	calls     sync.WaitGroup

	streams, passed, refused, crowded atomic.Int64

	mu     sync.Mutex
	facts  *system.Info // nil: not known
	images map[string]form.Image
}

// New returns a proxy. It does not connect to the engine.
func New(cfg Config) (*Proxy, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("engine proxy: %w", err)
	}
	cfg = cfg.withDefaults()
	p := &Proxy{
		cfg: cfg, log: cfg.Log, routes: routes(cfg), images: map[string]form.Image{}, bodies: make(chan struct{}, bodies),
	}
	p.ctx, p.end = context.WithCancel(context.Background())
	p.transport = &http.Transport{
		DialContext:        func(ctx context.Context, _, _ string) (net.Conn, error) { return p.dial(ctx) },
		DisableCompression: true, MaxIdleConns: 32, MaxIdleConnsPerHost: 32, IdleConnTimeout: time.Minute,
	}
	p.health = httpd.Handler(httpd.Config{Ready: p.ready, Metrics: p.counters, Log: p.log})
	var err error
	if p.owned, err = lru.New[string, struct{}](maxOwned); err != nil {
		return nil, err
	}
	p.cli, err = client.NewClientWithOpts(client.WithHost(cfg.Engine), client.WithAPIVersionNegotiation())
	if err != nil {
		return nil, fmt.Errorf("engine proxy: the engine's address: %w", err)
	}
	return p, nil
}

func (p *Proxy) dial(ctx context.Context) (stream, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", strings.TrimPrefix(p.cfg.Engine, scheme))
	if err != nil {
		return nil, err
	}
	return c.(*net.UnixConn), nil //nolint:forcetypeassert // the network is unix
}

// Serve serves until ctx ends. Then it creates no more containers, waits until no sandbox is attached, at most
// Config.Drain, and ends what is left. It closes the listener.
func (p *Proxy) Serve(ctx context.Context, l net.Listener) error {
	defer func() {
		p.transport.CloseIdleConnections()
		_ = p.cli.Close()
	}()
	srv := &http.Server{
		Handler: p, ReadHeaderTimeout: p.cfg.HeaderTimeout, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader,
		DisableGeneralOptionsHandler: true, ErrorLog: slog.NewLogLogger(p.log.Handler(), slog.LevelDebug),
	}
	failed := make(chan error, 1)
	go func() {
		failed <- srv.Serve(&limited{Listener: l, most: int64(p.cfg.Connections), full: func() {
			if p.crowded.Add(1)%1000 == 1 { // not a line for each
				p.log.Warn("connection limit reached", "limit", p.cfg.Connections)
			}
		}})
	}()
	var err error
	select {
	case err = <-failed:
	case <-ctx.Done():
		p.draining.Store(true)
		p.awaitStreams(failed)
	}
	p.end()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTime)
	defer cancel()
	if e := srv.Shutdown(last); e != nil {
		err = errors.Join(err, srv.Close())
	}
	p.calls.Wait()
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	return err
}

// awaitStreams waits until no sandbox is attached, for the time that the configuration grants.
func (p *Proxy) awaitStreams(failed <-chan error) {
	late := time.NewTimer(p.cfg.Drain)
	defer late.Stop()
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for p.streams.Load() > 0 {
		select {
		case err := <-failed:
			p.log.Warn("serving has ended", "error", err)
			return
		case <-late.C:
			p.log.Warn("drain timed out; sandboxes that are attached end", "sandboxes", p.streams.Load())
			return
		case <-look.C:
		}
	}
}

// ServeHTTP implements http.Handler.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.calls.Add(1)
	defer p.calls.Done()
	_ = http.NewResponseController(w).SetWriteDeadline(time.Time{}) // an earlier call may have left one
	switch r.RequestURI {
	case "/healthz", "/readyz", "/metrics":
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTime))
		p.health.ServeHTTP(w, r)
		return
	}
	c, err := p.admit(w, r)
	if err == nil {
		defer c.free()
		err = c.serve(p, c)
	}
	if err == nil {
		p.passed.Add(1)
		return
	}
	if errors.Is(r.Context().Err(), context.Canceled) {
		panic(http.ErrAbortHandler) // the client has gone
	}
	p.fail(w, r, asProblem(err))
}

// fail answers in the engine's way.
func (p *Proxy) fail(w http.ResponseWriter, r *http.Request, why *problem) {
	message := strings.ReplaceAll(why.message, "\n", "; ")
	target, _, _ := strings.Cut(r.RequestURI, "?")
	level := slog.LevelWarn
	if why.status == http.StatusNotFound {
		level = slog.LevelDebug
	}
	if why.status == http.StatusForbidden {
		p.refused.Add(1)
	}
	p.log.Log(r.Context(), level, "request not passed on", "method", fmt.Sprintf("%.20s", r.Method),
		"path", fmt.Sprintf("%.200s", target), "status", why.status, "why", message)
	body, err := json.Marshal(map[string]string{"message": message})
	if err != nil {
		return // impossible: it is text
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTime))
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Connection", "close") // whatever else the client has sent on it
	w.WriteHeader(why.status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body)
	}
}

func (p *Proxy) ready() error {
	ctx, cancel := context.WithTimeout(p.ctx, pingTime)
	defer cancel()
	if p.draining.Load() {
		return errors.New("shutting down")
	}
	if _, err := p.cli.Ping(ctx); err != nil {
		return p.unavailable(err)
	}
	return nil
}

func (p *Proxy) counters() map[string]int64 {
	return map[string]int64{
		"engine_passed": p.passed.Load(), "engine_refused": p.refused.Load(), "engine_attached": p.streams.Load(),
		"engine_crowded": p.crowded.Load(),
	}
}
