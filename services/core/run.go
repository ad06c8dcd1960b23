package core

import (
	"context"
	"log/slog"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/services/core/shell"
	"skandha.dev/services/internal/store"
)

// Options are what the process, not the configuration file, decides.
type Options struct {
	Streams bus.StreamsConfig
	Drain   time.Duration // how long open turns may go on at shutdown; default 10 s
	Version string
}

// Deps are what a core stands on.
type Deps struct {
	Bus   *bus.Bus
	Store store.Store
	Log   *slog.Logger
}

// New prepares a core service.
func New(cfg Config, o Options, d Deps) (*shell.Core, error) {
	agents, policy, err := cfg.Build()
	if err != nil {
		return nil, err
	}
	plugins, err := cfg.BuildPlugins()
	if err != nil {
		return nil, err
	}
	return shell.New(shell.Config{
		Agents: agents, Policy: policy, Plugins: plugins, Streams: o.Streams, Drain: o.Drain, Version: o.Version,
	}, d.Bus, d.Store, d.Log)
}

// Run serves until ctx ends.
func Run(ctx context.Context, cfg Config, o Options, d Deps) error {
	c, err := New(cfg, o, d)
	if err != nil {
		return err
	}
	return c.Run(ctx)
}
