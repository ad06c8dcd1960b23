package listener

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/mail"
	"skandha.dev/services/listener/capture"
	"skandha.dev/services/listener/chat"
	"skandha.dev/services/listener/contract"
	"skandha.dev/services/listener/cron"
	"skandha.dev/services/listener/email"
	"skandha.dev/services/listener/emitter"
	"skandha.dev/services/listener/feed"
	"skandha.dev/services/listener/web"
	"skandha.dev/services/listener/webhook"
	"skandha.dev/services/listener/websocket"
)

// defaultDrain is the default grace period for accepted inputs on shutdown.
const defaultDrain = 10 * time.Second

// Listener turns messages from outside into inputs; see package contract.
type Listener = contract.Listener

// Options of a process.
type Options struct {
	Drain time.Duration // grace period for accepted inputs on shutdown; default 10 s
	// StateDir is where listeners record, on this machine, how far what they send got, so that a
	// probe can prove that it was not sent. Empty: nowhere.
	StateDir string
}

// Deps are the service's dependencies.
type Deps struct {
	Bus    *journal.Journal
	Logger *slog.Logger // default slog.Default
	Stdin  io.Reader    // for a listener of standard input; nil: none
	Stdout io.Writer    // for its acks
	// Extra listeners run beside the configured ones.
	Extra []Listener
	// Served is called with the address of the HTTP server once it listens; may be nil.
	Served func(addr string)
}

// Service runs the listeners of a process.
type Service struct {
	cfg       Config
	opts      Options
	deps      Deps
	listeners []contract.Listener
	kinds     map[subject.Writer]string // of the configured listeners
	mux       *http.ServeMux
	served    bool           // at least one listener is served over HTTP
	accounts  *mail.Accounts // of the e-mail listeners; nil without any

	stats struct {
		emitter    emitter.Stats
		webhook    webhook.Stats
		websocket  websocket.Stats
		cron       cron.Stats
		mqtt       feed.Stats
		sensor     feed.Stats
		camera     capture.Stats
		microphone capture.Stats
		chat       chat.Stats
		email      email.Stats
	}
}

// New creates the listeners and reads their secrets; an error names the field.
func New(cfg Config, opts Options, deps Deps) (*Service, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if deps.Bus == nil {
		return nil, errors.New("configuring the listeners: Bus is required")
	}
	deps.Logger = cmp.Or(deps.Logger, slog.Default())
	opts.Drain = cmp.Or(opts.Drain, defaultDrain)
	s := &Service{cfg: cfg, opts: opts, deps: deps, kinds: map[subject.Writer]string{}, mux: http.NewServeMux()}
	if err := s.make(); err != nil {
		return nil, err
	}
	for _, l := range deps.Extra {
		if slices.ContainsFunc(s.listeners, func(o contract.Listener) bool { return o.Name() == l.Name() }) {
			return nil, fmt.Errorf("duplicate listener %s", l.Name())
		}
		s.listeners = append(s.listeners, l)
	}
	return s, nil
}

// make creates the configured listeners.
func (s *Service) make() error {
	for _, c := range s.cfg.all() {
		l, err := c.open(s)
		if err != nil {
			return prefixed(c.path(), err)
		}
		s.listeners = append(s.listeners, l)
		s.kinds[l.Name()] = c.kind
		if h, ok := l.(interface {
			http.Handler
			Path() string
		}); ok {
			s.mux.Handle(h.Path(), h)
			s.served = true
		}
	}
	return nil
}

// Run starts the listeners, and stops them when ctx ends, when HTTP cannot be served
// any more, or when all have ended by themselves.
func (s *Service) Run(ctx context.Context) error {
	var server *web.Server
	failed := make(<-chan error)
	if s.served {
		var err error
		if server, err = web.Start(ctx, s.cfg.HTTP, s.mux, s.deps.Logger); err != nil {
			return fmt.Errorf("listeners.http.%w", err)
		}
		failed = server.Failed()
		if s.deps.Served != nil {
			s.deps.Served(server.Addr())
		}
	}
	if len(s.listeners) == 0 {
		s.deps.Logger.Warn("no listener is configured: no inputs are accepted")
	}
	began, err := s.start(ctx)
	if err == nil {
		defer s.report(ctx)()
		deliver, quit := context.WithCancel(ctx)
		gatewayFailed, delivered := s.offerGateways(deliver)
		err = s.wait(ctx, failed, gatewayFailed)
		quit()
		<-delivered // while the gateways still run
	}
	return errors.Join(err, s.stop(ctx, began, server))
}

// start starts the listeners and returns those that it has started.
func (s *Service) start(ctx context.Context) ([]contract.Listener, error) {
	for i, l := range s.listeners {
		e := emitter.New(s.deps.Bus.Bus, l.Name(), &s.stats.emitter, s.deps.Logger)
		if err := l.OnStart(ctx, e); err != nil {
			return s.listeners[:i], fmt.Errorf("starting listener %s: %w", l.Name(), err)
		}
		s.deps.Logger.Info("listening", "listener", string(l.Name()), "kind", fmt.Sprintf("%T", l))
	}
	return s.listeners, nil
}

// wait blocks until it is time to stop; the error is the reason if that is a failure.
func (s *Service) wait(ctx context.Context, failed, gatewayFailed <-chan error) error {
	ends := make(chan error, len(s.listeners))
	finite := 0
	for _, l := range s.listeners {
		f, ok := l.(contract.Finite)
		if !ok {
			continue
		}
		finite++
		go func() {
			select {
			case <-f.Done():
				ends <- f.Err()
			case <-ctx.Done():
			}
		}()
	}
	var errs []error
	for left := finite; ; {
		select {
		case <-ctx.Done():
			return errors.Join(errs...)
		case err := <-failed:
			return errors.Join(append(errs, err)...)
		case err := <-gatewayFailed:
			return errors.Join(append(errs, err)...)
		case err := <-ends:
			left--
			if err != nil {
				s.deps.Logger.Error("listener ended", "error", err)
				errs = append(errs, err)
			}
			if left == 0 && finite == len(s.listeners) {
				return errors.Join(errs...)
			}
		}
	}
}

// stop stops the listeners concurrently, and then the server.
func (s *Service) stop(ctx context.Context, began []contract.Listener, server *web.Server) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.opts.Drain)
	defer cancel()
	errs := make(chan error, len(began))
	for _, l := range began {
		go func() { errs <- l.OnStop(ctx) }()
	}
	var all []error
	for range began {
		all = append(all, <-errs)
	}
	if server != nil {
		all = append(all, server.Stop(ctx))
	}
	return errors.Join(all...)
}

// Ready returns why inputs are not accepted now; nil if they are.
func (s *Service) Ready() error {
	if !s.deps.Bus.Connected() {
		return errors.New("not connected to the bus")
	}
	if f := s.deps.Bus.StorageFault(); f != nil {
		return f
	}
	for _, l := range s.listeners {
		if r, ok := l.(interface{ Ready() error }); ok {
			if err := r.Ready(); err != nil {
				return err
			}
		}
	}
	return nil
}

// Counters returns the service's counts by metric name.
func (s *Service) Counters() map[string]int64 {
	out := map[string]int64{
		"listener_webhook_rejected":   s.stats.webhook.Rejected.Load(),
		"listener_webhook_failed":     s.stats.webhook.Failed.Load(),
		"listener_websocket_open":     s.stats.websocket.Open.Load(),
		"listener_websocket_rejected": s.stats.websocket.Rejected.Load(),
		"listener_websocket_dropped":  s.stats.websocket.Dropped.Load(),
		"listener_cron_occurred":      s.stats.cron.Occurred.Load(), "listener_cron_missed": s.stats.cron.Missed.Load(),
		"listener_email_stored": s.stats.email.Stored.Load(), "listener_email_ignored": s.stats.email.Ignored.Load(),
		"listener_email_invalid": s.stats.email.Invalid.Load(), "listener_email_connections": s.stats.email.Dials.Load(),
	}
	maps.Copy(out, s.stats.emitter.Counters())
	for _, r := range s.Reports() {
		out["listener_state_"+r.State]++
	}
	maps.Copy(out, s.stats.chat.Counters("listener_chat"))
	maps.Copy(out, s.stats.mqtt.Counters("listener_mqtt"))
	maps.Copy(out, s.stats.sensor.Counters("listener_sensor"))
	maps.Copy(out, s.stats.camera.Counters("listener_camera"))
	maps.Copy(out, s.stats.microphone.Counters("listener_microphone"))
	return out
}
