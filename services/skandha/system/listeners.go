package system

import (
	"context"
	"errors"
	"os"

	"skandha.dev/services/listener"
)

// startListeners runs the listeners of the configuration file, if it has any.
func (s *System) startListeners(ctx context.Context) error {
	if s.cfg.ConfigFile == "" {
		return nil
	}
	cfg, err := listener.ReadConfig(s.cfg.ConfigFile)
	if errors.Is(err, listener.ErrNoSection) {
		return nil
	}
	if err != nil {
		return err
	}
	if s.cfg.Stdin == nil && len(cfg.Stdin) > 0 {
		s.log.Warn("standard input is in use, so its listener is not started; use `skandha up` or skandha-listener for it")
		cfg.Stdin = nil
	}
	if cfg.Brokers, err = s.brokers(cfg.Brokers); err != nil {
		return err
	}
	b, err := s.Connect(ctx, "listener")
	if err != nil {
		return err
	}
	s.listeners, err = listener.New(cfg, listener.Options{StateDir: s.attempts()}, listener.Deps{
		Bus: b, Logger: s.log.With("service", "listener"), Stdin: s.cfg.Stdin, Stdout: os.Stdout,
	})
	if err != nil {
		b.Close()
		return err
	}
	s.background("listener", b, s.listeners.Run)
	return nil
}
