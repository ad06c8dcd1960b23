package bench

import (
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/services/core"
	"skandha.dev/services/core/shell"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/memory"
	"skandha.dev/services/internal/natsserver"
	"skandha.dev/services/internal/store"
	"skandha.dev/services/internal/store/sqlite"
	"skandha.dev/services/internal/trust"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// rig is a system with a zero-cost provider and tool, and raw counterparts.
type rig struct {
	dir   string
	srv   *natsserver.Server
	store store.Store
	core  *shell.Core
	stops []func()

	config core.Config
	index  memory.Store     // nil: agents remember nothing
	trust  *trust.Authority // nil: the bus has no rights
	traces bool             // turns have traces

	stopCore func()
}

func newRig(ctx context.Context, dir string, mode natsserver.Sync) (*rig, error) {
	r := &rig{dir: dir}
	return r, r.start(ctx, mode)
}

func (r *rig) start(ctx context.Context, mode natsserver.Sync) (err error) {
	cfg := natsserver.Config{StoreDir: filepath.Join(r.dir, "nats"), Sync: mode, Logger: quiet}
	if r.trust != nil {
		if cfg.Operator, err = r.trust.Server(); err != nil {
			return err
		}
	}
	if r.srv, err = natsserver.Start(cfg); err != nil {
		return err
	}
	r.stops = append(r.stops, r.srv.Shutdown)
	if err = r.startCore(ctx); err == nil {
		err = r.startExecutors(ctx)
	}
	if err == nil {
		err = awaitExecutors(ctx, r.core)
	}
	if err != nil {
		r.stop()
	}
	return err
}

func withRig(ctx context.Context, o Options, mode natsserver.Sync, f func(*rig) error) error {
	dir, err := os.MkdirTemp(o.Dir, "bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // scratch
	r, err := newRig(ctx, dir, mode)
	if err != nil {
		return err
	}
	defer r.stop()
	return f(r)
}

// connect connects as a service; with rights, a name that is none is an operator.
func (r *rig) connect(ctx context.Context, name string) (*journal.Journal, error) {
	cfg := bus.Config{InProcess: r.srv, Name: name, Logger: quiet}
	if r.trust != nil {
		if name == "runner" {
			name = "toolrunner"
		}
		k, err := r.trust.Key(name)
		if err != nil {
			k, err = r.trust.Key(trust.OperatorService)
		}
		if err == nil {
			cfg.Credentials, err = k.Credentials()
		}
		if err != nil {
			return nil, err
		}
	}
	return journal.Connect(ctx, cfg)
}

func (r *rig) startExecutors(ctx context.Context) error {
	for _, role := range []string{"provider", "runner"} {
		b, err := r.connect(ctx, role)
		if err != nil {
			return err
		}
		r.stops = append(r.stops, background(b, func(ctx context.Context) error { return Executor(ctx, b, role) }))
	}
	return nil
}

func (r *rig) startCore(ctx context.Context) error {
	b, err := r.connect(ctx, "core")
	if err != nil {
		return err
	}
	return r.runCore(ctx, b)
}

func (r *rig) runCore(ctx context.Context, b *journal.Journal) (err error) {
	if r.store, err = sqlite.Open(ctx, sqlite.Config{Path: filepath.Join(r.dir, "view.db"), Logger: quiet}); err != nil {
		return err
	}
	if r.core, err = core.New(r.config, core.Options{Drain: time.Second, Traces: r.traces},
		core.Deps{Bus: b, Store: r.store, Index: r.index, Log: quiet}); err != nil {
		return err
	}
	r.stopCore = sync.OnceFunc(background(b, r.core.Run))
	r.stops = append(r.stops, r.stopCore)
	return r.core.AwaitReady(ctx)
}

// background runs a service until stop is called, which also closes its connection.
func background(b *journal.Journal, run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := run(ctx); err != nil {
			slog.Error("bench", "error", err)
		}
	}()
	return func() { cancel(); <-done; b.Close() }
}

// stop ends the rig, the latest part first.
func (r *rig) stop() {
	for i := len(r.stops) - 1; i >= 0; i-- {
		r.stops[i]()
	}
	r.stops = nil
	if r.store != nil {
		_ = r.store.Close() // scratch
	}
}

func awaitExecutors(ctx context.Context, c *shell.Core) error {
	for {
		if _, ok := c.Directory().Lookup(toolName); ok && len(c.Directory().Providers()) > 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// together runs f n times at once and returns the first error.
func together(n int, f func(i int) error) error {
	errs := make(chan error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs <- f(i) })
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
