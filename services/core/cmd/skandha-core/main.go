// Command skandha-core runs the core as a separate process.
package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"skandha.dev/services/core"
	"skandha.dev/services/internal/buildinfo"
	memories "skandha.dev/services/internal/memory/open"
	"skandha.dev/services/internal/process"
	"skandha.dev/services/internal/store/open"
)

type service struct {
	process.Flags
	Store    string        `env:"SKANDHA_STORE" default:"skandha.db" placeholder:"URL" help:"Where the view is kept: redis://… (with ?master_name=NAME by Sentinel) or a SQLite file."`
	Memory   string        `env:"SKANDHA_MEMORY_STORE" placeholder:"URL" help:"Where the index of memories is kept: redis://…, chroma+http://…, plugin://NAME, or a SQLite file. Default: beside the view."`
	Config   string        `env:"SKANDHA_CONFIG" type:"existingfile" placeholder:"FILE" help:"Agents and policy (YAML)."`
	Replicas int           `name:"stream-replicas" env:"SKANDHA_STREAM_REPLICAS" placeholder:"N" help:"Copies of each stream on a cluster of NATS servers: 1, 3 or 5. Overrides streams.replicas of --config. Default: keep the existing number, else 1. Copies are never removed."`
	Keys     string        `name:"bus-keys" env:"SKANDHA_BUS_KEYS" type:"existingfile" placeholder:"FILE" help:"Keys of the bus, with which plugins and listeners are invited: skandha secrets writes them. Without them the bus has no rights."`
	Drain    time.Duration `env:"SKANDHA_DRAIN" default:"10s" help:"Grace period for open turns on shutdown; another core takes over the rest."`
}

func (s *service) flags() core.Flags { return core.Flags{File: s.Config, Replicas: s.Replicas} }

// Check implements process.Service.
func (s *service) Check() error { _, err := s.flags().Config(); return err }

// Run implements process.Service.
func (s *service) Run(ctx context.Context, e *process.Env) error {
	cfg, err := s.flags().Config()
	if err != nil {
		return err
	}
	view, err := open.Store(ctx, s.Store, e.Log)
	if err != nil {
		return fmt.Errorf("opening the view: %w", err)
	}
	index, err := memories.Beside(ctx, s.Memory, s.Store, e.Bus, e.Log)
	if err != nil {
		return errors.Join(err, view.Close())
	}
	keys := core.Keys{File: s.Keys, URL: s.NATS, CA: s.CA}
	c, err := core.New(cfg, core.Options{Drain: s.Drain, Version: buildinfo.String(), Schedules: true, Traces: e.Signals.On(), Keys: keys},
		core.Deps{Bus: e.Bus, Store: view, Index: index, Log: e.Log})
	if err != nil {
		return errors.Join(err, view.Close(), index.Close())
	}
	e.Metrics(c.Counters)
	e.Ready(c.Health)
	return errors.Join(c.Run(ctx), view.Close(), index.Close())
}

func main() {
	var s service
	process.Main("skandha-core", "Runs the loop: sense, plan, act, reflect. Cores share the sessions.", &s.Flags, &s)
}
