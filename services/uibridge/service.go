package uibridge

import (
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

	"skandha.dev/pkg/bus"
	"skandha.dev/services/internal/hosts"
	"skandha.dev/services/internal/httpbody"
	"skandha.dev/services/uibridge/access"
)

// DefaultDrain is how long requests may take at the end.
const DefaultDrain = 10 * time.Second

// maxSockets is how many connections there may be, idle ones included.
const maxSockets = 8192

// Options of a bridge.
type Options struct {
	Drain time.Duration // how long requests may take at the end; default 10 s
	// AnyPort takes another port where that of Config.Listen is taken: one of those that
	// follow, so that the next start finds the same, else a free one.
	AnyPort bool
}

// Deps are what a bridge stands on.
type Deps struct {
	Bus     *bus.Bus
	Log     *slog.Logger // default slog.Default
	DataDir string       // where the owner's token is kept; empty: it is configured
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
	moved    bool          // to another port
	up       atomic.Bool   // the page is served
	begun    chan struct{} // closed when it is, for the first time
	ended    chan struct{} // closed when Run has returned
}

// New makes a bridge, and reads its secrets; an error names the field.
func New(cfg Config, opts Options, deps Deps) (*Service, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if deps.Bus == nil {
		return nil, errors.New("configuring the UI bridge: a bus is needed")
	}
	if deps.Log == nil {
		deps.Log = slog.Default()
	}
	if opts.Drain == 0 {
		opts.Drain = DefaultDrain
	}
	s := &Service{cfg: cfg.withDefaults(), opts: opts, deps: deps, begun: make(chan struct{}), ended: make(chan struct{})}
	var err error
	if s.cert, err = cfg.certificate(); err != nil {
		return nil, err
	}
	if s.access, err = access.New(cfg.Config, access.Deps{Log: deps.Log, DataDir: deps.DataDir, Refuse: refuse}); err != nil {
		return nil, prefixed(err)
	}
	if s.transports, err = newTransports(s.access, deps); err != nil {
		return nil, err
	}
	return s, nil
}

// Listen takes the port. Run does, if it was not called.
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
		return fmt.Errorf("ui.listen: %w; choose another with --ui of skandha, --listen of skandha-uibridge or ui.listen of the configuration file", err)
	}
	s.listener = netutil.LimitListener(l, maxSockets)
	if s.cert != nil {
		s.listener = tls.NewListener(s.listener, &tls.Config{
			Certificates: []tls.Certificate{*s.cert}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
		})
	}
	return nil
}

// otherPorts are the addresses with the ports that follow, and any port at last.
func otherPorts(addr string) (out []string) {
	const following = 16
	host, text, _ := net.SplitHostPort(addr)
	port, _ := strconv.Atoi(text) // it was checked
	for p := port + 1; p <= min(port+following, 1<<16-1); p++ {
		out = append(out, net.JoinHostPort(host, strconv.Itoa(p)))
	}
	return append(out, net.JoinHostPort(host, "0"))
}

// Run serves until ctx ends, and then lets what was begun finish. It returns nil if
// nothing was cut off. It may be called once.
func (s *Service) Run(ctx context.Context) error {
	defer close(s.ended)
	if s.listener == nil {
		if err := s.Listen(ctx); err != nil {
			return err
		}
	}
	log := s.deps.Log
	srv := &http.Server{
		Handler: httpbody.Drain(s.handler()), ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 32 << 10,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	url := s.URL()
	if !hosts.ListensOnLoopback(s.listener.Addr().String()) && !strings.HasPrefix(url, "https://") {
		log.Warn("the page is reached from other machines without TLS; put a proxy with TLS before it and name it in ui.url, or set ui.tls_cert and ui.tls_key", "addr", s.Addr())
	}
	s.access.Watch(srv)
	stopAnswers, err := s.answer()
	if err != nil {
		return errors.Join(err, s.listener.Close())
	}
	work, stopWork := context.WithCancel(context.WithoutCancel(ctx)) // of the doors, which outlive ctx until all have left
	done := make(chan error, 2)
	go func() { done <- s.transports.run(work) }()
	go func() { done <- srv.Serve(s.listener) }()
	s.await(ctx)
	s.up.Store(true)
	close(s.begun)
	log.Info("the page is served", "url", url)
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
	for range left { // the bus is not given back before both have ended
		err = errors.Join(err, ended(<-done))
	}
	return err
}

// await lets the bus know what is answered here, before anybody is told that it is.
func (s *Service) await(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if err := s.deps.Bus.Conn().FlushWithContext(ctx); err != nil {
		s.deps.Log.Debug("the bus will know later what is answered here", "error", err)
	}
}

// AwaitReady waits until the page is served and the bus knows; Run must have been
// called. The error says that it has ended instead.
func (s *Service) AwaitReady(ctx context.Context) error {
	select {
	case <-s.begun:
		return nil
	case <-s.ended:
		return errors.New("the UI bridge has ended before it was ready")
	case <-ctx.Done():
		return fmt.Errorf("waiting for the UI bridge: %w", ctx.Err())
	}
}

// ended is why something ended, if that was no shutdown.
func ended(err error) error {
	if errors.Is(err, http.ErrServerClosed) || errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// stop lets nobody in any more, ends the streams, and waits for the rest.
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

// Close gives the port of a bridge free that listens and does not run.
func (s *Service) Close() error {
	if s.listener == nil {
		return nil
	}
	return s.listener.Close()
}

// Addr is where it listens, host:port; "" before Listen.
func (s *Service) Addr() string {
	if s.listener == nil {
		return ""
	}
	return s.listener.Addr().String()
}

// Moved reports whether it listens on another port because its own was taken.
func (s *Service) Moved() bool { return s.moved }

// URL is by what a browser reaches it, without a path; "" before Listen.
func (s *Service) URL() string {
	if s.listener == nil {
		return ""
	}
	return s.cfg.url(s.listener.Addr())
}

// Made is the owner's token if it was made by [New], to be shown once; else "".
func (s *Service) Made() string { return s.access.Made() }

// Ready says why the bridge is not of use now; nil if it is.
func (s *Service) Ready() error {
	switch {
	case !s.up.Load():
		return errors.New("the page is not served")
	case !s.deps.Bus.Connected():
		return errors.New("not connected to the bus")
	}
	if f := s.deps.Bus.StorageFault(); f != nil {
		return f
	}
	return nil
}

// Counters are the service's figures, by name.
func (s *Service) Counters() map[string]int64 {
	out := s.access.Counters()
	for name, n := range maps.All(s.transports.counters()) {
		out["uibridge_"+strings.TrimPrefix(name, "uibridge_")] = n
	}
	return out
}
