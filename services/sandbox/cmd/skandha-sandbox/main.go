// Command skandha-sandbox runs the sandbox service as a separate process.
package main

import (
	"context"
	"errors"
	"time"

	"skandha.dev/services/internal/process"
	"skandha.dev/services/sandbox"
	"skandha.dev/services/sandbox/selection"
)

type service struct {
	process.Flags

	Sandbox selection.Flags `embed:""`
	Slots   int             `env:"SKANDHA_SLOTS" default:"64" help:"Maximum number of calls that run, or wait for a sandbox, at once."`
	Drain   time.Duration   `env:"SKANDHA_DRAIN" default:"30s" help:"Grace period for running calls on shutdown."`
}

func (s *service) config() sandbox.Config {
	return sandbox.Config{
		Slots: s.Slots, Warm: s.Sandbox.Warm, Max: s.Sandbox.Max, Idle: s.Sandbox.Idle, Limits: s.Sandbox.Limits(),
		Keep: s.Sandbox.KeepBytes(), KeepFiles: s.Sandbox.KeepFiles, KeepFor: s.Sandbox.KeepFor,
		DrainTimeout: s.Drain,
	}
}

// Check implements process.Service.
func (s *service) Check() error { return errors.Join(s.config().Validate(), s.Sandbox.Validate()) }

// Run implements process.Service.
func (s *service) Run(ctx context.Context, e *process.Env) (err error) {
	driver, packages, err := s.Sandbox.Make(string(e.Bus.Instance()), e.Log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, driver.Close()) }()
	deps := sandbox.Deps{Bus: e.Bus, Logger: e.Log, Driver: driver}
	if packages != nil {
		deps.Packages = packages
	}
	sb, err := sandbox.New(s.config(), deps)
	if err != nil {
		return err
	}
	e.Ready(sb.Ready)
	e.Metrics(sb.Counters)
	return sb.Run(ctx)
}

func main() {
	var s service
	process.Main("skandha-sandbox", "Runs the code of models in sandboxes, for Skandha's core, over NATS.", &s.Flags, &s)
}
