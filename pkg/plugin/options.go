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

// DefaultDrainTimeout is how long [Serve] waits, when its context has ended, for
// what still runs.
const DefaultDrainTimeout = 30 * time.Second

// WithBus serves on a connection that stands, and leaves it open.
func WithBus(b *bus.Bus) Option { return func(o *options) { o.bus = b } }

// WithConfig says how to reach the bus, instead of the environment. An empty Name
// becomes the plugin's.
func WithConfig(c bus.Config) Option { return func(o *options) { o.connect = c } }

// WithLogger is where Serve logs; default [slog.Default].
func WithLogger(l *slog.Logger) Option { return func(o *options) { o.log = l } }

// OnState is told of every change of state, with its reason. Before the plugin is
// registered, and when it has to register again, the state is [Waiting]. It is
// called by one goroutine, which renews the lease and so must not be held up.
func OnState(f func(state LeaseState, reason string)) Option {
	return func(o *options) { o.onState = f }
}

// Concurrency is how many requests each hook, each tool and each other capability
// handles at a time; default [bus.DefaultConcurrency]. Further ones wait until
// their deadline.
func Concurrency(n int) Option { return func(o *options) { o.concurrency = n } }

// DrainTimeout is how long Serve waits, when its context has ended, for what still
// runs; default [DefaultDrainTimeout].
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

// envConfig reads how to reach the bus, from the variables that all of Skandha's
// processes read.
func envConfig(env func(string) string) bus.Config {
	return bus.Config{
		URL:       cmp.Or(env("SKANDHA_NATS"), "nats://127.0.0.1:4222"),
		Data:      env("SKANDHA_DATA"),
		Token:     env("SKANDHA_TOKEN"),
		CredsFile: env("SKANDHA_CREDS"),
		TLS:       bus.TLS{CA: env("SKANDHA_TLS_CA")},
	}
}
