package system

import (
	"context"
	"errors"
	"time"

	"skandha.dev/services/sandbox"
	"skandha.dev/services/sandbox/selection"
)

// Sandbox configures the sandboxes of a system. Flags.Warm defaults to 1.
type Sandbox struct{ selection.Flags }

// sandboxAfter is how long the system runs before it creates its first sandbox, so that a
// user with a single question does not wait for it.
const sandboxAfter = 250 * time.Millisecond

func (s *System) startSandbox(ctx context.Context) error {
	if s.cfg.Sandbox == nil {
		return nil
	}
	flags := s.cfg.Sandbox.Flags
	cfg := sandbox.Config{
		Slots: s.cfg.Slots, Warm: flags.Warm, Max: flags.Max, Idle: flags.Idle, Limits: flags.Limits(),
		Keep: flags.KeepBytes(), KeepFiles: flags.KeepFiles, KeepFor: flags.KeepFor,
		FillAfter: sandboxAfter, DrainTimeout: time.Second,
	}
	if cfg.Warm == 0 {
		cfg.Warm = 1
	}
	if err := errors.Join(cfg.Validate(), flags.Validate()); err != nil {
		return err
	}
	b, err := s.Connect(ctx, "sandbox")
	if err != nil {
		return err
	}
	log := s.log.With("service", "sandbox")
	driver, packages, err := flags.Make(string(b.Instance()), log)
	if err != nil {
		b.Close()
		return err
	}
	deps := sandbox.Deps{Bus: b, Logger: log, Driver: driver}
	if packages != nil {
		deps.Packages = packages
	}
	if s.sandbox, err = sandbox.New(cfg, deps); err != nil {
		b.Close()
		return errors.Join(err, driver.Close())
	}
	s.executors = append(s.executors, b.Instance())
	s.background("sandbox", b, func(ctx context.Context) error {
		return errors.Join(s.sandbox.Run(ctx), driver.Close())
	})
	return nil
}
