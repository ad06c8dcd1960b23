package system_test

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skandha.dev/pkg/bus"
	"skandha.dev/services/internal/rights"
	"skandha.dev/services/skandha/system"
	"skandha.dev/services/test/natstest"
)

func startOn(t *testing.T, dir string) *system.System {
	t.Helper()
	s, err := system.Start(natstest.Context(t),
		system.Config{Data: dir, Provider: "offline", Sync: "relaxed", Log: natstest.Logger(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

func TestTheBusKeepsItsPortAndThoseWhoJoined(t *testing.T) {
	dir := t.TempDir()
	s := startOn(t, dir)
	first, err := s.Invite(natstest.Context(t), rights.Local("attached"))
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(first)
	if err != nil {
		t.Fatal(err)
	}
	b := natstest.Dial(t, bus.Config{URL: first, Data: dir, Name: "attached"}) // as a plugin connects
	before := s.Join()
	s.Stop()
	if _, err := os.Stat(filepath.Join(dir, bus.RunFile)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file that says where the system runs: %v", err)
	}
	s = startOn(t, dir)
	again, err := url.Parse(s.Join())
	if err != nil || again.Host != u.Host {
		t.Errorf("after a restart the bus is at %s, want %s (%v)", again.Host, u.Host, err)
	}
	natstest.Dial(t, bus.Config{URL: before, Name: "attached"}) // a terminal that was open before
	natstest.Eventually(t, "the connection is back", b.Connected)
	s.Stop()

	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", u.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	s = startOn(t, dir)
	moved, err := url.Parse(s.Join())
	if err != nil {
		t.Fatal(err)
	}
	if moved.Host == u.Host {
		t.Error("its port is taken: want another port")
	}
	natstest.Eventually(t, "the connection is made to the other port", b.Connected)
	for _, name := range []string{"bus.json", "keys.json"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
}

func TestALockedDirectorySaysWhichProcessHasIt(t *testing.T) {
	dir := t.TempDir()
	startOn(t, dir)
	_, err := system.Start(natstest.Context(t),
		system.Config{Data: dir, Provider: "offline", Sync: "relaxed", Log: natstest.Logger(t)})
	if !errors.Is(err, system.ErrLocked) || !strings.Contains(err.Error(), fmt.Sprint(os.Getpid())) ||
		!strings.Contains(err.Error(), "skandha chat --data "+dir) {
		t.Errorf("%v, want the process and how to join", err)
	}
}

func TestLookingForASystemCreatesNothing(t *testing.T) {
	dir := t.TempDir()
	if _, err := system.Running(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v, want that none runs", err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
		t.Errorf("%v %v", files, err)
	}
}
