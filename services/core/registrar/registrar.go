package registrar

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/registry"
)

// ServiceName is core's name on the bus: the queue group for the registry's
// subjects, and the responder's name in its answers.
const ServiceName = "core"

// The defaults of [Config].
const (
	DefaultLease  = 10 * time.Second
	DefaultDrain  = 10 * time.Minute
	DefaultKeep   = time.Hour
	DefaultMarker = 10 * time.Minute
)

// Kind is the kind of thing that a name denotes.
type Kind string

// The kinds of names that plugins can own.
const (
	KindPlugin   Kind = "plugin"   // the plugin itself: the responder of its answers
	KindTool     Kind = "tool"     // a tool
	KindProvider Kind = "provider" // a language model
	KindListener Kind = "listener" // a listener or a sensor: the writer of its causes
	KindGuide    Kind = "guide"    // a guide
)

// Config configures how plugins are admitted and how long they are kept. The zero value
// selects the defaults.
type Config struct {
	// Lease is how long a replica is kept without a heartbeat; default 10 s. Every
	// core should have the same value.
	Lease time.Duration
	// Owner returns the built-in service that owns a name, so that no plugin may take
	// it. Names that runners and providers announce for plugins do not count. Several
	// goroutines may call it at any time. Nil means that no name is taken.
	Owner func(kind Kind, name string) (owner string, taken bool)
	// Drain is how long a draining replica may take to finish its work before its
	// lease is ended; default 10 min.
	Drain time.Duration
	// Keep is how long a plugin without replicas is remembered; default 1 h. A plugin
	// that an operator has suspended is remembered forever.
	Keep time.Duration
	// Marker is how long the deletion of a lease stays in the bucket; default 10 min.
	Marker time.Duration
	// Refuse returns what of a manifest the plugin may not declare. Default: nothing.
	Refuse func(context.Context, plugin.Manifest) (plugin.Problems, error)
	// Operate calls do, which performs an operator's request, unless it refuses it. Default: it calls do.
	Operate func(q *bus.Request, ask PluginRequest, do func() error) error
	// Streams configures the bucket's storage, like that of core's other streams.
	Streams journal.StreamsConfig
}

func (c Config) withDefaults() Config {
	c.Lease = cmp.Or(c.Lease, DefaultLease)
	c.Drain = cmp.Or(c.Drain, DefaultDrain)
	c.Keep = cmp.Or(c.Keep, DefaultKeep)
	c.Marker = cmp.Or(c.Marker, DefaultMarker)
	if c.Refuse == nil {
		c.Refuse = func(context.Context, plugin.Manifest) (plugin.Problems, error) { return nil, nil }
	}
	if c.Operate == nil {
		c.Operate = func(_ *bus.Request, _ PluginRequest, do func() error) error { return do() }
	}
	if c.Owner == nil {
		c.Owner = func(Kind, string) (string, bool) { return "", false }
	}
	return c
}

// Validate reports every invalid field; each error names its field.
func (c Config) Validate() error {
	var errs []error
	for name, d := range map[string]time.Duration{"lease": c.Lease, "drain": c.Drain, "keep": c.Keep, "marker": c.Marker} {
		if d < 0 {
			errs = append(errs, fmt.Errorf("registry.%s is %v, want 0 (default) or more", name, d))
		}
	}
	if c.Lease > 0 && c.Lease < 100*time.Millisecond {
		errs = append(errs, fmt.Errorf("registry.lease is %v, want at least 100ms", c.Lease))
	}
	return errors.Join(errs...)
}

// Registrar is one core's part of the registry. Its methods may be called concurrently.
type Registrar struct {
	cfg      Config
	bus      *journal.Journal
	bucket   *journal.Bucket
	view     *registry.View
	log      *slog.Logger
	deciding chan struct{} // capacity 1: held by the goroutine that decides on a manifest

	ctx  context.Context //nolint:containedctx // of the sweeper, which outlives Serve
	end  context.CancelFunc
	idle sync.WaitGroup

	mu         sync.Mutex
	responders []*bus.Responder
}

// New prepares a registrar. The view must use the same bus; the caller remains responsible
// for closing it.
func New(cfg Config, b *journal.Journal, view *registry.View, log *slog.Logger) (*Registrar, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	r := &Registrar{
		cfg: cfg.withDefaults(), bus: b, bucket: b.Bucket(journal.BucketPlugins), view: view, log: log,
		deciding: make(chan struct{}, 1),
	}
	r.ctx, r.end = context.WithCancel(context.Background())
	return r, nil
}

// Serve creates the bucket if it does not exist, and starts to answer plugins and
// operators and to end leases. The context bounds only the start; the registrar serves
// until Stop.
func (r *Registrar) Serve(ctx context.Context) error {
	if err := r.bus.EnsurePlugins(ctx, r.cfg.Streams); err != nil {
		return fmt.Errorf("serving the registry: %w", err)
	}
	for _, s := range []struct {
		subject, queue, self string
		answer               func(*bus.Request) (any, error)
	}{
		{subject.Registry(subject.Register, "*"), ServiceName, ServiceName, r.serveRegister},
		// Every core receives every heartbeat. In a queue group, a core that hangs
		// would get its share, perhaps all heartbeats of a lease.
		{subject.Registry(subject.Heartbeat, "*"), "", ServiceName, r.serveHeartbeat},
		{subject.Registry(subject.Unregister, "*"), ServiceName, ServiceName, r.serveUnregister},
		{subject.Service(ServiceName, coreapi.VerbPlugins), ServiceName, ServiceName, r.servePlugins},
		{subject.Service(coreapi.AdminName, coreapi.VerbPlugin), coreapi.AdminName, coreapi.AdminName, r.servePlugin},
	} {
		one, err := r.bus.Respond(s.subject, s.queue, s.self, func(q *bus.Request) { coreapi.Answer(q, s.answer) })
		if err != nil {
			r.Stop()
			return fmt.Errorf("serving the registry: %w", err)
		}
		r.mu.Lock()
		r.responders = append(r.responders, one)
		r.mu.Unlock()
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	if err := r.bus.Conn().FlushWithContext(ctx); err != nil { // from here on, requests are received
		r.Stop()
		return fmt.Errorf("serving the registry: %w", err)
	}
	r.idle.Go(r.sweepLoop)
	return nil
}

// Stop accepts no more requests, answers those that it has, and ends no more leases. It
// may be called more than once.
func (r *Registrar) Stop() {
	r.mu.Lock()
	list := r.responders
	r.responders = nil
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	var g sync.WaitGroup
	for _, one := range list {
		g.Go(func() {
			if err := one.Drain(ctx); err != nil {
				r.log.Debug("draining the registry", "error", err)
			}
		})
	}
	g.Wait()
	r.end()
	r.idle.Wait()
}
