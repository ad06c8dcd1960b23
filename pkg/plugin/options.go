package plugin

import (
	"cmp"
	"log/slog"
	"os"
	"time"

	"skandha.dev/pkg/bus"
)

// Option changes how [Serve] works.
type Option func(*options)

type options struct {
	bus         *bus.Bus
	connect     bus.Config
	log         *slog.Logger
	onState     func(LeaseState, string)
	concurrency int
	drain       time.Duration
}

// DefaultDrainTimeout is how long [Serve] waits for running handlers after its context has
// ended.
const DefaultDrainTimeout = 30 * time.Second

// WithBus makes Serve use an existing connection, which it does not close.
func WithBus(b *bus.Bus) Option { return func(o *options) { o.bus = b } }

// WithConfig sets how to connect to the bus, instead of the environment. An empty Name
// becomes the plugin's.
func WithConfig(c bus.Config) Option { return func(o *options) { o.connect = c } }

// WithLogger sets the logger of Serve; default [slog.Default].
func WithLogger(l *slog.Logger) Option { return func(o *options) { o.log = l } }

// OnState sets a function that is called at every change of state, with its reason. The
// state is [Waiting] before the plugin is registered, and while it registers again. All
// calls are made by the goroutine that renews the lease, so f must not block.
func OnState(f func(state LeaseState, reason string)) Option {
	return func(o *options) { o.onState = f }
}

// Concurrency sets how many requests each hook, each tool and each other capability
// handles at a time; default [bus.DefaultConcurrency]. Further requests wait, at most
// until their deadline.
func Concurrency(n int) Option { return func(o *options) { o.concurrency = n } }

// DrainTimeout sets how long Serve waits for running handlers after its context has ended;
// default [DefaultDrainTimeout].
func DrainTimeout(d time.Duration) Option { return func(o *options) { o.drain = d } }

func newOptions(list []Option) options {
	o := options{
		connect: envConfig(os.Getenv), log: slog.Default(), onState: func(LeaseState, string) {},
		concurrency: bus.DefaultConcurrency, drain: DefaultDrainTimeout,
	}
	for _, set := range list {
		set(&o)
	}
	return o
}

// envConfig reads how to connect to the bus, from the variables that all of Skandha's
// processes use.
func envConfig(env func(string) string) bus.Config {
	return bus.Config{
		URL:       cmp.Or(env("SKANDHA_NATS"), "nats://127.0.0.1:4222"),
		Data:      env("SKANDHA_DATA"),
		Token:     env("SKANDHA_TOKEN"),
		CredsFile: env("SKANDHA_CREDS"),
		TLS:       bus.TLS{CA: env("SKANDHA_TLS_CA")},
	}
}
