package e2etest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/services/core"
	"skandha.dev/services/internal/natsserver"
	"skandha.dev/services/internal/store/open"
)

// Kind is what a process plays.
type Kind string

// The kinds of process.
const (
	NATS     Kind = "nats"
	Core     Kind = "core"
	Provider Kind = "provider"
	Runner   Kind = "runner"
)

// Role is what one process of the system is told.
type Role struct {
	Kind    Kind
	Name    string        // an id; the bus instance's name begins with it
	URL     string        // of the bus
	Addr    string        // NATS: where it listens
	Dir     string        // NATS: its streams
	Relaxed bool          // NATS: what is stored is synced now and then
	Config  string        // core: configuration file
	Store   string        // core: see open.Store
	Effects string        // runner: the file of effects
	Drain   time.Duration // core, executors
	Slots   int           // executors: of the default pool
}

const envRole = "SKANDHA_E2E_ROLE"

// init makes a test binary that imports this package play a role when [Proc]
// runs it again.
func init() {
	text := os.Getenv(envRole)
	if text == "" || !testing.Testing() {
		return
	}
	var r Role
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if err := r.play(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// play runs until SIGTERM, or at most as long as the parent.
func (r Role) play() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(3)
	}()
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: logLevel()}))
	if r.Kind == NATS {
		sync := natsserver.Always
		if r.Relaxed {
			sync = natsserver.Relaxed
		}
		s, err := natsserver.Start(natsserver.Config{StoreDir: r.Dir, Addr: r.Addr, Sync: sync, Logger: log})
		if err != nil {
			return err
		}
		<-ctx.Done()
		s.Shutdown()
		return nil
	}
	b, err := bus.Connect(ctx, bus.Config{URL: r.URL, Name: r.Name, Logger: log})
	if err != nil {
		return err
	}
	defer b.Close()
	switch r.Kind {
	case Core:
		return r.core(ctx, b, log)
	case Provider:
		return r.provider(ctx, b, log)
	case Runner:
		return r.runner(ctx, b, log)
	}
	return fmt.Errorf("no role is called %q", r.Kind)
}

func logLevel() slog.Level {
	if os.Getenv("SKANDHA_LOG") == "debug" {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

// core does what the main of the core does.
func (r Role) core(ctx context.Context, b *bus.Bus, log *slog.Logger) error {
	cfg, err := core.ReadConfig(r.Config)
	if err != nil {
		return err
	}
	st, err := open.Store(ctx, r.Store, log)
	if err != nil {
		return err
	}
	defer func() { _ = st.Close() }()
	for {
		err := core.Run(ctx, cfg, core.Options{Drain: r.Drain, Version: "e2e"}, core.Deps{Bus: b, Store: st, Log: log})
		if err == nil || ctx.Err() != nil {
			return nil
		}
		// The bus may go away while the core starts; whoever runs it starts it again.
		log.Warn("core did not start; trying again", "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
}
