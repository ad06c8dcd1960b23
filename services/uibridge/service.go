package uibridge

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/net/netutil"

	"skandha.dev/services/internal/hosts"
	"skandha.dev/services/internal/httpbody"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/uibridge/access"
)

// defaultDrain is the default grace period for requests on shutdown.
const defaultDrain = 10 * time.Second

// maxSockets limits the open connections, idle ones included.
const maxSockets = 8192

// Options configure a bridge.
type Options struct {
	Drain time.Duration // grace period for requests on shutdown; default 10 s
	// AnyPort chooses another port if that of Config.Listen is in use: one of the following
	// ones, so that the next start finds the same one again, or else any free port.
	AnyPort bool
}

// Deps are a bridge's dependencies.
type Deps struct {
	Bus     *journal.Journal
	Log     *slog.Logger // default slog.Default
	DataDir string       // where the owner's token is kept; empty: the token must be configured
}

// Service is a bridge.
type Service struct {
	cfg        Config
	opts       Options
	deps       Deps
	access     *access.Access
	transports *transports
	cert       *tls.Certificate // nil: HTTP

	listener net.Listener
	moved    bool          // it listens on another port than the configured one
	up       atomic.Bool   // the page is being served
	begun    chan struct{} // closed when the page is served for the first time
	ended    chan struct{} // closed when Run has returned
}

// New creates a bridge and reads its secrets; an error names the field.
func New(cfg Config, opts Options, deps Deps) (*Service, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if deps.Bus == nil {
		return nil, errors.New("configuring the UI bridge: missing bus")
	}
	deps.Log = cmp.Or(deps.Log, slog.Default())
	opts.Drain = cmp.Or(opts.Drain, defaultDrain)
	s := &Service{cfg: cfg.withDefaults(), opts: opts, deps: deps, begun: make(chan struct{}), ended: make(chan struct{})}
	var err error
	if s.cert, err = cfg.certificate(); err != nil {
		return nil, err
	}
	if s.access, err = access.New(cfg.Config,
		access.Deps{Log: deps.Log, DataDir: deps.DataDir, Refuse: refuse, Body: bodyOf}); err != nil {
		return nil, prefixed(err)
	}
	if s.transports, err = newTransports(s.access, deps); err != nil {
		return nil, err
	}
	return s, nil
}

// Listen opens the port. Run does so if Listen was not called.
func (s *Service) Listen(ctx context.Context) error {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", s.cfg.Listen)
	if s.opts.AnyPort {
		for _, other := range otherPorts(s.cfg.Listen) {
			if !errors.Is(err, syscall.EADDRINUSE) {
				break
			}
			l, err = lc.Listen(ctx, "tcp", other)
			s.moved = err == nil
		}
	}
	if err != nil {
		return fmt.Errorf("ui.listen: %w; choose another with --ui of skandha, "+
			"--listen of skandha-uibridge or ui.listen of the configuration file", err)
	}
	s.listener = netutil.LimitListener(l, maxSockets)
	if s.cert != nil {
		s.listener = tls.NewListener(s.listener, &tls.Config{
			Certificates: []tls.Certificate{*s.cert}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
		})
	}
	return nil
}

// otherPorts returns the addresses with the ports that follow, then one with port 0 (any
// port).
func otherPorts(addr string) (out []string) {
	const following = 16
	host, text, _ := net.SplitHostPort(addr)
	port, _ := strconv.Atoi(text) // it was checked
	for p := port + 1; p <= min(port+following, 1<<16-1); p++ {
		out = append(out, net.JoinHostPort(host, strconv.Itoa(p)))
	}
	return append(out, net.JoinHostPort(host, "0"))
}

// Run serves until ctx ends, and then lets open requests finish. It returns nil if none was
// cut off. It may be called only once.
func (s *Service) Run(ctx context.Context) error {
	defer close(s.ended)
	if s.listener == nil {
		if err := s.Listen(ctx); err != nil {
			return err
		}
	}
	log := s.deps.Log
	srv := &http.Server{
		Handler: httpbody.Drain(s.handler()), ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 32 << 10,
		ErrorLog:       slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	url := s.URL()
	if !hosts.ListensOnLoopback(s.listener.Addr().String()) && !strings.HasPrefix(url, "https://") {
		log.Warn(
			"the page is reachable from other machines without TLS; put a TLS proxy in front and set its URL as "+
				"ui.url, or set ui.tls_cert and ui.tls_key", "addr", s.Addr())
	}
	s.access.Watch(srv)
	stopAnswers, err := s.answer()
	if err == nil {
		stopAnswers, err = s.answerLooks(stopAnswers)
	}
	if err != nil {
		return errors.Join(err, s.listener.Close())
	}
	// The backend outlives ctx, until all requests have ended
	work, stopWork := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan error, 2)
	go func() { done <- s.transports.run(work) }()
	go func() { done <- srv.Serve(s.listener) }()
	s.await(ctx)
	s.up.Store(true)
	close(s.begun)
	log.Info("serving the page", "url", url)
	left := cap(done)
	select {
	case <-ctx.Done():
	case err = <-done:
		left--
	}
	s.up.Store(false)
	stopAnswers()
	err = errors.Join(err, s.stop(ctx, srv))
	stopWork()
	for range left { // the caller may close the bus only after both have ended
		err = errors.Join(err, ended(<-done))
	}
	return err
}

// await flushes the subscriptions to the bus before the bridge reports that it is ready.
func (s *Service) await(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if err := s.deps.Bus.Conn().FlushWithContext(ctx); err != nil {
		s.deps.Log.Debug("flushing the bridge's subscriptions failed", "error", err)
	}
}

// AwaitReady waits until the page is served and the bus has the bridge's subscriptions. Run
// must have been called. If the bridge ends first, AwaitReady returns an error.
func (s *Service) AwaitReady(ctx context.Context) error {
	select {
	case <-s.begun:
		return nil
	case <-s.ended:
		return errors.New("the UI bridge ended before it was ready")
	case <-ctx.Done():
		return fmt.Errorf("waiting for the UI bridge: %w", ctx.Err())
	}
}

// ended returns err, or nil if it comes from a shutdown.
func ended(err error) error {
	if errors.Is(err, http.ErrServerClosed) || errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// stop accepts no more requests, ends the streams, and waits for the rest.
func (s *Service) stop(ctx context.Context, srv *http.Server) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.opts.Drain)
	defer cancel()
	err := s.access.Shutdown(ctx)
	if err != nil {
		err = fmt.Errorf("requests were cut off after %s: %w", s.opts.Drain, err)
	}
	if shut := srv.Shutdown(ctx); shut != nil {
		err = errors.Join(err, srv.Close())
	}
	return err
}

// Close releases the port of a bridge that listens but does not run.
func (s *Service) Close() error {
	if s.listener == nil {
		return nil
	}
	return s.listener.Close()
}

// Addr returns the address that the bridge listens on, host:port; "" before Listen.
func (s *Service) Addr() string {
	if s.listener == nil {
		return ""
	}
	return s.listener.Addr().String()
}

// Moved reports whether the bridge listens on another port because its own was in use.
func (s *Service) Moved() bool { return s.moved }

// URL returns the URL by which browsers reach the bridge, without a path; "" before Listen.
func (s *Service) URL() string {
	if s.listener == nil {
		return ""
	}
	return s.cfg.url(s.listener.Addr())
}

// Made returns the owner's token if [New] generated it, to be shown once; else "".
func (s *Service) Made() string { return s.access.Made() }

// Ready returns nil if the bridge works, or else the reason why it does not.
func (s *Service) Ready() error {
	switch {
	case !s.up.Load():
		return errors.New("the page is not being served")
	case !s.deps.Bus.Connected():
		return errors.New("not connected to the bus")
	}
	if f := s.deps.Bus.StorageFault(); f != nil {
		return f
	}
	return nil
}

// Counters returns the service's figures, by name.
func (s *Service) Counters() map[string]int64 {
	out := s.access.Counters()
	for name, n := range maps.All(s.transports.counters()) {
		out["uibridge_"+strings.TrimPrefix(name, "uibridge_")] = n
	}
	return out
}
