package plugin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/telemetry"
)

// ErrUnloaded is returned by [Serve] after an operator unloaded the plugin. The plugin
// was drained.
var ErrUnloaded = errors.New("the plugin was unloaded by the registry")

// Main calls [Serve] until the process receives SIGTERM or SIGINT, or until an operator
// unloads the plugin. A second signal ends the process immediately. Main logs to standard
// error, with the level of SKANDHA_LOG (debug, info, warn, error) and the format of
// SKANDHA_LOG_FORMAT (text, json). If Serve fails, it exits with status 1.
func Main(m Manifest, h Handlers, opts ...Option) {
	if err := run(m, h, opts); err != nil {
		fmt.Fprintln(os.Stderr, telemetry.Redact(err.Error()))
		os.Exit(1)
	}
}

func run(m Manifest, h Handlers, opts []Option) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	context.AfterFunc(ctx, stop) // the next signal kills
	defer stop()
	log, err := telemetry.NewLogger(os.Stderr, "", telemetry.LogConfig{
		Level: os.Getenv("SKANDHA_LOG"), Format: os.Getenv("SKANDHA_LOG_FORMAT"),
	})
	if err != nil {
		return err
	}
	err = Serve(ctx, m, h, append([]Option{WithLogger(log)}, opts...)...)
	if errors.Is(err, ErrUnloaded) {
		log.Info("ending", "error", err)
		return nil // a non-zero status could make a supervisor restart the plugin
	}
	return err
}

// Serve registers a plugin, handles its requests until ctx ends, and then drains.
//
// To start, Serve completes and checks the manifest ([Handlers.Complete]), connects to the
// bus, runs the functions of [Load], subscribes, registers, and then keeps the lease
// renewed. Unless an option says otherwise, it connects to the bus of the system that runs
// on SKANDHA_DATA, else to SKANDHA_NATS (default nats://127.0.0.1:4222), with SKANDHA_TOKEN
// or SKANDHA_CREDS, and SKANDHA_TLS_CA. If the plugin's name is taken, a dependency is
// missing, or the bus or core is unavailable, it logs that once and waits indefinitely.
//
// When ctx ends, Serve notifies the registry, stops the listeners, answers all requests
// that it has received, releases the lease and runs the functions of [Unload]. The contexts
// of handlers do not end with ctx, but after [DrainTimeout]. Serve does not wait for
// handlers that ignore that too.
//
// Serve returns nil if it has drained after ctx ended, and [ErrUnloaded] if an operator
// unloaded the plugin. Any other error is why the plugin could not start, why the registry
// rejected it ([bus.ErrInvalidArgument], [bus.ErrDenied]), or what did not finish.
func Serve(ctx context.Context, m Manifest, h Handlers, opts ...Option) error {
	o := newOptions(opts)
	if m.Instance == "" {
		m.Instance = bus.NewInstance(string(m.Name))
	}
	m, p, err := h.complete(m)
	if err != nil {
		return fmt.Errorf("plugin %s: invalid manifest or handlers: %w", m.Name, err)
	}
	s := &server{options: o, m: m, parts: p}
	s.log = o.log.With("plugin", string(m.Name))
	if err := s.serve(ctx); err != nil {
		return fmt.Errorf("plugin %s: %w", m.Name, err)
	}
	return nil
}

// server is one run of Serve. Only the goroutine of Serve accesses its unguarded fields.
type server struct {
	options
	m         Manifest
	parts     *parts
	caller    *bus.Caller
	listeners *listeners

	runtime    *runtime
	endpoints  []endpoint
	responders []*bus.Responder // nil while not subscribed
	gate       *gate
	running    atomic.Int64 // requests being handled
	outbox     outbox

	lease  *Lease // nil while not registered
	state  LeaseState
	reason string
	pause  backoff
	quiet  bool // a warning that the registry does not answer was logged

	unanswered bool // the process ends while the registry is asked for a lease
}

func (s *server) serve(ctx context.Context) (err error) {
	if s.bus == nil {
		if s.bus, err = s.connectOwn(ctx); err != nil {
			return ended(ctx, err)
		}
		defer s.bus.Close()
	}
	if err := s.named(); err != nil {
		return err
	}
	if s.caller, err = s.bus.NewCaller(); err != nil {
		return err
	}
	defer func() { _ = s.caller.Close() }()
	resending, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	go s.resend(resending)
	s.runtime = &runtime{s.log, s.m.Name, s.caller}
	s.endpoints = s.parts.endpoints(s.m, s.runtime)
	s.listeners = &listeners{b: s.bus, log: s.log, list: append(s.parts.listeners, s.parts.sensors...)}
	if err := s.load(ctx); err != nil {
		return errors.Join(ended(ctx, err), s.unload(ctx))
	}
	err = s.subscribe(ctx)
	if err == nil {
		err = s.keepLease(ctx)
	}
	return errors.Join(err, s.leave(ctx), s.unload(ctx))
}

// ended returns nil if ctx has ended, since that is why the operation failed, else err.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil //nolint:nilerr // that ctx ends is why Serve returns, not that it failed
	}
	return err
}

func (s *server) connectOwn(ctx context.Context) (*bus.Bus, error) {
	c := s.connect
	if c.Name == "" {
		c.Name = string(s.m.Name)
	}
	if c.Logger == nil {
		c.Logger = s.log
	}
	return bus.Connect(ctx, c)
}

// named returns an error if the credentials are for another name. The bus would not say so: what a party sends under
// another name reaches nobody.
func (s *server) named() error {
	id := s.bus.Identity()
	if !s.bus.Party() || id == subject.Identity(s.m.Name) {
		return nil
	}
	return bus.Errorf(bus.CodeDenied, "the credentials are for %q, and allow no other name; call the plugin that, or get others: "+
		"skandha plugins invite %s", id, s.m.Name)
}

func (s *server) load(ctx context.Context) error {
	for _, f := range s.parts.load {
		if _, err := contain(s.runtime, "load", func() (struct{}, error) { return struct{}{}, f(ctx) }); err != nil {
			return fmt.Errorf("loading: %w", err)
		}
	}
	return nil
}

func (s *server) unload(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.drain)
	defer cancel()
	var errs []error
	for i := len(s.parts.unload) - 1; i >= 0; i-- {
		f := s.parts.unload[i]
		if _, err := contain(s.runtime, "unload", func() (struct{}, error) { return struct{}{}, f(ctx) }); err != nil {
			errs = append(errs, fmt.Errorf("unloading: %w", err))
		}
	}
	return errors.Join(errs...)
}

// subscribe subscribes to the subjects of all handlers. Requests wait at the gate until the
// plugin is registered.
func (s *server) subscribe(ctx context.Context) error {
	s.gate = newGate()
	for _, p := range s.endpoints {
		if err := s.respond(p); err != nil {
			return errors.Join(err, s.unsubscribe(ctx))
		}
	}
	// The server must have the subscriptions before anybody learns of the plugin. Without
	// a connection, they are sent when there is one.
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	_ = s.bus.Conn().FlushWithContext(ctx)
	return nil
}

// respond subscribes to requests to any replica and, if p.own is set, to this one.
func (s *server) respond(p endpoint) error {
	name, handler := string(s.m.Name), s.handle(s.gate, p.answer)
	r, err := s.bus.Respond(p.subject, name, name, handler, bus.Concurrency(s.concurrency))
	if err != nil {
		return err
	}
	s.responders = append(s.responders, r)
	if !p.own {
		return nil
	}
	own, err := s.bus.Respond(subject.Replica(p.subject, s.m.Instance), "", name, handler, bus.Sharing(r))
	if err == nil {
		s.responders = append(s.responders, own)
	}
	return err
}

func (s *server) handle(g *gate, answer answerFunc) func(*bus.Request) {
	return func(q *bus.Request) {
		s.running.Add(1)
		defer s.running.Add(-1)
		err := g.pass(q.Context())
		var body []byte
		if err == nil {
			body, err = answer(q.Context(), q.Data, q.Yield)
		}
		s.answer(outgoing{q: q, at: time.Now(), body: body, err: err})
	}
}

// unsubscribe stops receiving requests, and returns when those already received are
// answered. If ctx ends first, their contexts end.
func (s *server) unsubscribe(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var offline atomic.Bool
	stop := s.watch(func() {
		// Without a connection, the server cannot be informed that we unsubscribe; and no
		// request is left to answer.
		if !s.bus.Connected() && s.running.Load() == 0 {
			offline.Store(true)
			cancel()
		}
	})
	var g sync.WaitGroup
	errs := make([]error, len(s.responders))
	for i, r := range s.responders {
		g.Go(func() { errs[i] = r.Drain(ctx) })
	}
	g.Wait()
	stop()
	s.responders = nil
	if offline.Load() {
		return nil
	}
	return errors.Join(errs...)
}

// watch calls look every lookEvery until stop is called.
func (s *server) watch(look func()) (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		t := time.NewTicker(lookEvery)
		defer t.Stop()
		for {
			select {
			case <-end:
				return
			case <-t.C:
				look()
			}
		}
	}()
	return func() {
		close(end)
		<-ended
	}
}

const lookEvery = 20 * time.Millisecond

// settleWait is how long a draining plugin still accepts requests, from callers that do not
// yet know that it drains.
const settleWait = 250 * time.Millisecond

// leave drains the plugin and then releases the lease.
func (s *server) leave(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.drain)
	defer cancel()
	s.listeners.close()
	stopBeats := s.keepAlive(ctx)
	leased := s.lease != nil || s.unanswered // in doubt, the lease must not stay until it expires
	if leased {
		if state := s.unregister(ctx); state == Draining {
			s.report(Draining, "")
			pause(ctx, settleWait)
		}
	}
	err := errors.Join(s.listeners.wait(ctx), s.unsubscribe(ctx))
	stopBeats()
	if leased {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), askWait)
		defer cancel()
		s.unregister(last)
		s.lease = nil
	}
	s.report(Gone, "")
	return err
}

// report logs a change of state and calls onState, once per change.
func (s *server) report(state LeaseState, reason string) {
	if state == s.state && reason == s.reason {
		return
	}
	s.state, s.reason = state, reason
	level := slog.LevelInfo
	if state == Suspended {
		level = slog.LevelWarn
	}
	args := []any{"state", string(state)}
	if reason != "" {
		args = append(args, "reason", reason)
	}
	s.log.Log(context.Background(), level, "plugin is "+string(state), args...)
	s.onState(state, reason)
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	<-ctx.Done()
}
