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

	"skandha.dev/services/core"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/natsserver"
	"skandha.dev/services/internal/store/open"
	"skandha.dev/services/internal/trust"
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

// Role is the configuration of one process of the system.
type Role struct {
	Kind    Kind
	Name    string              // an id; the bus instance's name begins with it
	URL     string              // of the bus
	Keys    string              // the file of the bus's keys
	Token   string              // plugin: what it was invited with
	Addr    string              // NATS, Redis, bridge: where it listens
	Dir     string              // NATS, Redis: its data; tool runner: its workspace
	Relaxed bool                // NATS: appends are synced periodically
	Cluster *natsserver.Cluster // NATS: the cluster of the server
	Config  string              // core, bridge, listener: configuration file
	Store   string              // core: see open.Store
	Effects string              // runner, plugin: the file of effects
	Drain   time.Duration       // core, executors
	Slots   int                 // executors: of the default pool
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
		authority, err := trust.Read(r.Keys)
		if err != nil {
			return err
		}
		operator, err := authority.Server()
		if err != nil {
			return err
		}
		s, err := natsserver.Start(natsserver.Config{
			StoreDir: r.Dir, Addr: r.Addr, Name: r.Name, Cluster: r.Cluster, Sync: sync, Operator: operator, Logger: log,
		})
		if err != nil {
			return err
		}
		<-ctx.Done()
		s.Shutdown()
		return nil
	}
	how, err := r.join(log)
	if err != nil {
		return err
	}
	b, err := journal.Connect(ctx, how)
	if err != nil {
		return err
	}
	defer b.Close()
	switch r.Kind {
	case Core:
		return supervised(ctx, log, func() error { return r.core(ctx, b, log) })
	case Provider:
		return r.provider(ctx, b, log)
	case Runner:
		return r.runner(ctx, b, log)
	case Toolrunner:
		return supervised(ctx, log, func() error { return r.toolrunner(ctx, b, log) })
	case Plugin:
		return r.plugin(ctx, b, log)
	case Bridge:
		return supervised(ctx, log, func() error { return r.bridge(ctx, b, log) })
	case Listener:
		return supervised(ctx, log, func() error { return r.listener(ctx, b, log) })
	}
	return fmt.Errorf("no role is called %q", r.Kind)
}

func logLevel() slog.Level {
	if os.Getenv("SKANDHA_LOG") == "debug" {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

// settle is how old a commit is when it leaves the log: the tail must have read it.
const settle = 5 * time.Second

// core does what the main of the core does.
func (r Role) core(ctx context.Context, b *journal.Journal, log *slog.Logger) error {
	cfg, err := core.ReadConfig(r.Config)
	if err != nil {
		return err
	}
	st, err := open.Store(ctx, r.Store, log)
	if err != nil {
		return err
	}
	defer func() { _ = st.Close() }()
	c, err := core.New(cfg, core.Options{
		Drain: r.Drain, Version: "e2e", Keys: core.Keys{File: r.Keys, URL: r.URL}, Settle: settle,
	}, core.Deps{Bus: b, Store: st, Log: log})
	if err != nil {
		return err
	}
	return c.Run(ctx)
}
