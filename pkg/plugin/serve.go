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

// ErrUnloaded says that the registry has let the plugin go, because an operator
// unloaded it. It was drained.
var ErrUnloaded = errors.New("the plugin was unloaded by the registry")

// Main serves until SIGTERM or SIGINT, or until an operator unloads the plugin.
// It logs to standard error as SKANDHA_LOG (debug, info, warn, error) and
// SKANDHA_LOG_FORMAT (text, json) say, and ends the process with status 1 when
// [Serve] fails. A second signal ends it at once.
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
		return nil // to be started again would undo what the operator did
	}
	return err
}

// Serve registers a plugin and answers for it until ctx ends, and then drains.
//
// It connects to the bus of the system that runs on SKANDHA_DATA, else to SKANDHA_NATS
// (default nats://127.0.0.1:4222), with SKANDHA_TOKEN or SKANDHA_CREDS, and
// SKANDHA_TLS_CA, unless an option says otherwise; completes and checks the manifest ([Handlers.Complete]); runs what
// [Load] added; subscribes; registers; and keeps the lease. A name that is taken,
// a dependency that is missing, a bus or core that is away: it waits, for ever, and
// says so once.
//
// When ctx ends it tells the registry, stops listeners, finishes and answers what
// it was asked, gives up the lease and runs what [Unload] added. The contexts of
// handlers do not end with ctx, but when [DrainTimeout] has passed; what heeds not
// even that is left behind.
//
// It returns nil if it ended in good order because ctx did, [ErrUnloaded] when the
// registry let it go, and else why it could not start, was refused
// ([bus.ErrInvalidArgument], [bus.ErrDenied]) or what it could not finish.
func Serve(ctx context.Context, m Manifest, h Handlers, opts ...Option) error {
	o := newOptions(opts)
	if m.Instance == "" {
		m.Instance = bus.NewInstance(string(m.Name))
	}
	m, p, err := h.complete(m)
	if err != nil {
		return fmt.Errorf("plugin %s: the manifest or its handlers: %w", m.Name, err)
	}
	s := &server{options: o, m: m, parts: p}
	s.log = o.log.With("plugin", string(m.Name))
	if err := s.serve(ctx); err != nil {
		return fmt.Errorf("plugin %s: %w", m.Name, err)
	}
	return nil
}

// server is one run of Serve. Its own goroutine alone touches what is not
// guarded.
type server struct {
	options
	m      Manifest
	parts  *parts
	caller *bus.Caller
	ears   *ears

	room       *room
	places     []endpoint
	responders []*bus.Responder // nil while not subscribed
	door       *door
	running    atomic.Int64 // requests being handled
	outbox     outbox

	lease  *Lease // nil while not registered
	state  LeaseState
	reason string
	pause  backoff
	quiet  bool // that the registry does not answer was said
}

func (s *server) serve(ctx context.Context) (err error) {
	if s.bus == nil {
		if s.bus, err = s.connectOwn(ctx); err != nil {
			return ended(ctx, err)
		}
		defer s.bus.Close()
	}
	if s.caller, err = s.bus.NewCaller(); err != nil {
		return err
	}
	defer func() { _ = s.caller.Close() }()
	resending, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	go s.resend(resending)
	s.room = &room{s.log, s.m.Name, s.caller}
	s.places = s.parts.endpoints(s.m, s.room)
	s.ears = &ears{b: s.bus, log: s.log, list: append(s.parts.listeners, s.parts.sensors...)}
	if err := s.load(ctx); err != nil {
		return errors.Join(ended(ctx, err), s.unload(ctx))
	}
	err = s.subscribe(ctx)
	if err == nil {
		err = s.keep(ctx)
	}
	return errors.Join(err, s.leave(ctx), s.unload(ctx))
}

// ended is the error of what did not come to its end because ctx did: none.
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

func (s *server) load(ctx context.Context) error {
	for _, f := range s.parts.load {
		if _, err := contain(s.room, "load", func() (struct{}, error) { return struct{}{}, f(ctx) }); err != nil {
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
		if _, err := contain(s.room, "unload", func() (struct{}, error) { return struct{}{}, f(ctx) }); err != nil {
			errs = append(errs, fmt.Errorf("unloading: %w", err))
		}
	}
	return errors.Join(errs...)
}

// subscribe takes requests for all that the plugin offers, and holds them until
// the registry has let it in.
func (s *server) subscribe(ctx context.Context) error {
	s.door = newDoor()
	for _, p := range s.places {
		if err := s.respond(p); err != nil {
			return errors.Join(err, s.unsubscribe(ctx))
		}
	}
	// The server is to know before anybody else does. Without a connection it is
	// told when there is one.
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	_ = s.bus.Conn().FlushWithContext(ctx)
	return nil
}

// respond answers requests to any replica and, if wanted, to this one.
func (s *server) respond(p endpoint) error {
	name, handler := string(s.m.Name), s.handle(s.door, p.answer)
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

func (s *server) handle(d *door, answer answerFunc) func(*bus.Request) {
	return func(q *bus.Request) {
		s.running.Add(1)
		defer s.running.Add(-1)
		err := d.pass(q.Context())
		var body []byte
		if err == nil {
			body, err = answer(q.Context(), q.Data, q.Yield)
		}
		s.answer(given{q: q, at: time.Now(), body: body, err: err})
	}
}

// unsubscribe takes no more requests, and returns when those that came are
// answered. When ctx ends first, their contexts end.
func (s *server) unsubscribe(ctx context.Context) error {
	ctx, hurry := context.WithCancel(ctx)
	defer hurry()
	var alone atomic.Bool
	stop := s.watch(func() {
		// Nobody can tell the server that we take no more, nor has anybody to be
		// told of anything.
		if !s.bus.Connected() && s.running.Load() == 0 {
			alone.Store(true)
			hurry()
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
	if alone.Load() {
		return nil
	}
	return errors.Join(errs...)
}

// watch calls look now and then until stop is called.
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

// settleWait is how long a plugin that is draining takes requests of those who have
// not heard of it yet.
const settleWait = 250 * time.Millisecond

// leave gives up the lease when what was asked is answered.
func (s *server) leave(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.drain)
	defer cancel()
	s.ears.close()
	beats := s.beatOn(ctx)
	if s.lease != nil {
		if state := s.unregister(ctx); state == Draining {
			s.report(Draining, "")
			pause(ctx, settleWait)
		}
	}
	err := errors.Join(s.ears.wait(ctx), s.unsubscribe(ctx))
	beats()
	if s.lease != nil {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), askWait)
		defer cancel()
		s.unregister(last)
		s.lease = nil
	}
	s.report(Gone, "")
	return err
}

// report says a change of state, once.
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

// pause waits, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
