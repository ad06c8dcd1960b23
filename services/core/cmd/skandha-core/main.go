// Command skandha-core runs the core as a separate process.
package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"skandha.dev/services/core"
	"skandha.dev/services/internal/buildinfo"
	"skandha.dev/services/internal/process"
	"skandha.dev/services/internal/store/open"
)

type service struct {
	process.Flags

	Store    string        `env:"SKANDHA_STORE" default:"skandha.db" placeholder:"URL" help:"Where the view is kept: redis://… or a SQLite file."`
	Config   string        `env:"SKANDHA_CONFIG" type:"existingfile" placeholder:"FILE" help:"Agents and policy (YAML)."`
	Replicas int           `name:"stream-replicas" env:"SKANDHA_STREAM_REPLICAS" placeholder:"N" help:"Copies of each stream on a cluster of NATS servers: 1, 3 or 5. Overrides streams.replicas of --config. Default: keep the existing number, else 1. Copies are never removed."`
	Drain    time.Duration `env:"SKANDHA_DRAIN" default:"10s" help:"Grace period for open turns on shutdown; another core takes over the rest."`
}

func (s *service) config() (core.Config, error) {
	return core.Flags{File: s.Config, Replicas: s.Replicas}.Config()
}

// Check implements process.Service.
func (s *service) Check() error {
	_, err := s.config()
	return err
}

// Run implements process.Service.
func (s *service) Run(ctx context.Context, e *process.Env) error {
	cfg, err := s.config()
	if err != nil {
		return err
	}
	view, err := open.Store(ctx, s.Store, e.Log)
	if err != nil {
		return fmt.Errorf("opening the view: %w", err)
	}
	c, err := core.New(cfg, core.Options{Drain: s.Drain, Version: buildinfo.String()},
		core.Deps{Bus: e.Bus, Store: view, Log: e.Log})
	if err != nil {
		return errors.Join(err, view.Close())
	}
	e.Metrics(c.Counters)
	e.Ready(c.Health)
	return errors.Join(c.Run(ctx), view.Close())
}

func main() {
	var s service
	process.Main("skandha-core", "Runs the loop: sense, plan, act, reflect. Any number of cores share the sessions.",
		&s.Flags, &s)
}
