package core

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/services/core/shell"
	"skandha.dev/services/internal/store"
)

// Options are what the process, not the configuration file, decides.
type Options struct {
	Compare time.Duration // how often the view is compared with the log; default 30 s
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
	sc, err := cfg.shell()
	if err != nil {
		return nil, err
	}
	sc.Compare, sc.Drain, sc.Version = o.Compare, o.Drain, o.Version
	return shell.New(sc, d.Bus, d.Store, d.Log)
}

// Check reports everything that is wrong; each error begins with the path of the setting.
func (c Config) Check() error {
	_, err := c.shell()
	return err
}

func (c Config) shell() (shell.Config, error) {
	agents, policy, badAgents := c.Build()
	plugins, badPlugins := c.BuildPlugins()
	streams, badStreams := c.BuildStreams()
	backlog, badLimits := c.Limits.backlog()
	return shell.Config{
		Agents: agents, Policy: policy, Plugins: plugins, Streams: streams, OpenSessions: c.OpenSessions, Backlog: backlog,
	}, errors.Join(badAgents, badPlugins, badStreams, badLimits)
}

// Run serves until ctx ends.
func Run(ctx context.Context, cfg Config, o Options, d Deps) error {
	c, err := New(cfg, o, d)
	if err != nil {
		return err
	}
	return c.Run(ctx)
}
