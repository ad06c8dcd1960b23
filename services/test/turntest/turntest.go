// Package turntest provides a whole Skandha system with a scripted model, for tests of
// transports whose protocol is a request with one answer.
package turntest

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"skandha.dev/services/provider"
	"skandha.dev/services/skandha/system"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/test/scripted"
	"skandha.dev/services/uibridge/backend"
	"skandha.dev/services/uibridge/inspect"
)

// Asked is the tool that needs approval.
const Asked = "time:now"

const config = `agents:
  main: {}
  other: {}
policy:
  - {tool: "` + Asked + `", effect: confirm, reason: the test wants to be asked}
`

// System is a running system.
type System struct {
	sys *system.System
	log *slog.Logger
}

// New starts a system that ends with the test. Its model follows
// package scripted; its agents are main and other.
func New(t testing.TB) *System {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	s, err := system.Start(natstest.Context(t), system.Config{
		Data: filepath.Join(dir, "data"), ConfigFile: filepath.Join(dir, "config.yaml"), Sync: "relaxed",
		Models: []provider.Adapter{scripted.New()}, Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return &System{s, log}
}

// Bridge returns the backend of another bridge, which ends with the test.
func (s *System) Bridge(t testing.TB) *backend.Backend {
	t.Helper()
	bus, err := s.sys.Connect(natstest.Context(t), "uibridge")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(bus.Close)
	b, err := backend.New(backend.Config{}, backend.Deps{Bus: bus, Log: s.log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	b.Add(inspect.Methods(inspect.Deps{Client: b.Client(), Log: s.log})...)
	return b
}

// Start starts a system with one bridge, and returns its backend.
func Start(t testing.TB) *backend.Backend {
	t.Helper()
	return New(t).Bridge(t)
}
