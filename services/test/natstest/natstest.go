// Package natstest gives tests a real NATS server: in the same process within
// milliseconds, or as a separate process that can be killed.
package natstest

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/natsserver"
)

// Option changes the server's configuration.
type Option func(*natsserver.Config)

// WithTCP makes the server listen on a free port of the loopback interface.
func WithTCP() Option { return func(c *natsserver.Config) { c.Addr = "127.0.0.1:-1" } }

// WithSync sets the sync mode; tests run relaxed by default.
func WithSync(s natsserver.Sync) Option { return func(c *natsserver.Config) { c.Sync = s } }

// WithConfig changes anything.
func WithConfig(f func(*natsserver.Config)) Option { return f }

// Start runs a server in this process, in a temporary directory of the test, until
// the test ends.
func Start(t testing.TB, opts ...Option) *natsserver.Server {
	t.Helper()
	c := natsserver.Config{StoreDir: t.TempDir(), Sync: natsserver.Relaxed, Logger: Logger(t)}
	for _, o := range opts {
		o(&c)
	}
	s, err := natsserver.Start(c)
	if err != nil {
		t.Fatalf("starting the NATS server: %v", err)
	}
	t.Cleanup(s.Shutdown)
	return s
}

// Connect connects to the server in this process and makes sure that the streams
// exist. The connection is closed when the test ends.
func Connect(t testing.TB, s *natsserver.Server) *journal.Journal {
	t.Helper()
	b := Dial(t, bus.Config{InProcess: s, Token: s.Token()})
	EnsureStreams(t, b)
	return b
}

// ConnectURL connects over TCP and makes sure that the streams exist.
func ConnectURL(t testing.TB, url string) *journal.Journal {
	t.Helper()
	b := Dial(t, bus.Config{URL: url})
	EnsureStreams(t, b)
	return b
}

// Dial connects with a configuration, whose name and logger have defaults, until
// the test ends.
func Dial(t testing.TB, c bus.Config) *journal.Journal {
	t.Helper()
	if c.Name == "" {
		c.Name = "test"
	}
	if c.Logger == nil {
		c.Logger = Logger(t)
	}
	b, err := journal.Connect(Context(t), c)
	if err != nil {
		t.Fatalf("connecting: %v", err)
	}
	t.Cleanup(b.Close)
	return b
}

// EnsureStreams makes sure that the streams exist, with the default limits.
func EnsureStreams(t testing.TB, b *journal.Journal) {
	t.Helper()
	if err := b.EnsureStreams(Context(t), journal.StreamsConfig{}); err != nil {
		t.Fatalf("making the streams: %v", err)
	}
}

// Patience is how long a test waits for a condition.
const Patience = 60 * time.Second

// Context ends when the test ends, or when [Patience] does.
func Context(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	t.Cleanup(cancel)
	return ctx
}

// Eventually waits until the condition holds and fails the test when it does not
// within [Patience].
func Eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(Patience)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v in vain: %s", Patience, what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// Closed waits until ch is closed, and fails if that does not happen.
func Closed(t testing.TB, what string, ch <-chan struct{}) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(Patience):
		t.Fatalf("waited %v in vain: %s", Patience, what)
	}
}

// Logger writes to the test's log as long as the test runs.
func Logger(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(newTestWriter(t), &slog.HandlerOptions{Level: slog.LevelInfo}))
}

// A System has a bus.
type System interface {
	Connect(ctx context.Context, name string) (*journal.Journal, error)
}

// Join connects to the bus of a system that runs in this process, until the test ends.
func Join(t testing.TB, s System, name string) *journal.Journal {
	t.Helper()
	b, err := s.Connect(Context(t), name)
	if err != nil {
		t.Fatalf("joining the system: %v", err)
	}
	t.Cleanup(b.Close)
	return b
}
