package system

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"skandha.dev/services/uibridge"
	"skandha.dev/services/uibridge/access"
)

// UI configures the page of a system.
type UI struct {
	Listen string // host:port; empty: the configuration's, else 127.0.0.1:7070 or, if that is taken, the next free port
}

// Flags returns the bridge's flags for a configuration file.
func (u UI) Flags(file string) uibridge.Flags {
	return uibridge.Flags{File: file, Listen: u.Listen, ListenName: "--ui or SKANDHA_UI"}
}

// ErrNoUI means that a system serves no page.
var ErrNoUI = errors.New("this system serves no page; start it with --ui 127.0.0.1:7070")

// uiConfig returns the bridge's configuration, and whether any port will do.
func (s *System) uiConfig() (cfg uibridge.Config, anyPort bool, err error) {
	cfg, err = s.cfg.UI.Flags(s.cfg.ConfigFile).Config()
	return cfg, cfg.Listen == "", err
}

func (s *System) startUI(ctx context.Context) error {
	if s.cfg.UI == nil {
		return nil
	}
	cfg, anyPort, err := s.uiConfig()
	if err != nil {
		return err
	}
	b, err := s.Connect(ctx, "uibridge")
	if err != nil {
		return err
	}
	ui, err := uibridge.New(cfg, uibridge.Options{AnyPort: anyPort, Drain: 2 * time.Second}, uibridge.Deps{
		Bus: b, Log: s.log.With("service", "uibridge"), DataDir: s.cfg.Data,
	})
	if err == nil {
		err = ui.Listen(ctx)
	}
	if err != nil {
		b.Close()
		return err
	}
	s.ui = ui
	s.background("uibridge", b, ui.Run)
	return ui.AwaitReady(ctx)
}

// UILink returns a one-time link to the system's page; the error is [ErrNoUI] if it has none.
func (s *System) UILink(ctx context.Context) (uibridge.Link, error) {
	if s.ui == nil {
		return uibridge.Link{}, ErrNoUI
	}
	l, err := s.ui.Link(ctx)
	if err != nil {
		return uibridge.Link{}, fmt.Errorf("creating a link to the page: %w", err)
	}
	return l, nil
}

// UIAddr returns the address of the page, host:port; "" if there is none.
func (s *System) UIAddr() string {
	if s.ui == nil {
		return ""
	}
	return s.ui.Addr()
}

// UIPortTaken reports whether the page is served on another port because its usual one is
// taken.
func (s *System) UIPortTaken() bool { return s.ui != nil && s.ui.Moved() }

// UITokenFile returns the file with the token of the page's owner.
func (s *System) UITokenFile() string { return filepath.Join(s.cfg.Data, access.TokenFile) }

// UIToken returns the token of the page's owner if it was created at this start: it is shown
// once.
func (s *System) UIToken() string {
	if s.ui == nil {
		return ""
	}
	return s.ui.Made()
}
