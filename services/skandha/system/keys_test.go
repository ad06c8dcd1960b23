package system_test

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skandha.dev/services/skandha/system"
	"skandha.dev/services/test/natstest"
)

// startErr starts a system that is expected to fail, and returns why.
func startErr(t *testing.T, cfg system.Config) string {
	t.Helper()
	cfg.Provider, cfg.Sync, cfg.Log = "offline", "relaxed", natstest.Logger(t)
	s, err := system.Start(natstest.Context(t), cfg)
	if err == nil {
		s.Stop()
		t.Fatal("it starts")
	}
	return err.Error()
}

// A log without its keys is not replaced by an empty one.
func TestALogWithoutItsKeysIsNoNewSystem(t *testing.T) {
	dir := t.TempDir()
	keys, log := filepath.Join(dir, "keys.json"), filepath.Join(dir, "nats")
	startOn(t, dir).Stop()
	mine, err := os.ReadFile(keys)
	if err != nil {
		t.Fatal(err)
	}
	other := t.TempDir()
	startOn(t, other).Stop()
	theirs, err := os.ReadFile(filepath.Join(other, "keys.json"))
	if err != nil {
		t.Fatal(err)
	}

	for _, c := range []struct {
		name string
		with []byte // in the file; nil: there is none
		cfg  system.Config
		want string
	}{
		{"no keys", nil, system.Config{}, "keys.json is missing"},
		{"no keys and no rights", nil, system.Config{Open: true}, "keys.json is missing"},
		{"the keys of another system", theirs, system.Config{}, "belongs to other keys than those in " + keys},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := os.Remove(keys); err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
			if c.with != nil {
				if err := os.WriteFile(keys, c.with, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			c.cfg.Data = dir
			why := startErr(t, c.cfg)
			if !strings.Contains(why, c.want) || !strings.Contains(why, "put the file back from a copy, or move "+log+" away") {
				t.Errorf("the error is %q", why)
			}
			if _, err := os.Stat(keys); (err == nil) != (c.with != nil) {
				t.Errorf("the file with keys afterwards: %v", err)
			}
			if o, err := system.StartOffline(natstest.Context(t), dir, natstest.Logger(t)); err == nil {
				o.Stop()
				t.Error("its bus starts without a system")
			}
		})
	}

	if err := os.WriteFile(keys, mine, 0o600); err != nil {
		t.Fatal(err)
	}
	startOn(t, dir).Stop() // with the keys from a copy
	if err := os.Remove(keys); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(log, filepath.Join(t.TempDir(), "nats")); err != nil {
		t.Fatal(err)
	}
	startOn(t, dir).Stop() // anew
}

// A directory from before the bus had rights gets them.
func TestADirectoryWithoutRightsGetsKeys(t *testing.T) {
	dir := t.TempDir()
	s, err := system.Start(natstest.Context(t), system.Config{
		Data: dir, Provider: "offline", Sync: "relaxed", Open: true, Log: natstest.Logger(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Stop()
	startOn(t, dir).Stop()
	startOn(t, dir)
}

func TestDamagedKeysSayWhatToDo(t *testing.T) {
	for name, body := range map[string]string{
		"empty": "", "cut": `{"operator": "SO`, "without keys": "{}", "null": "null",
		"no seed": `{"operator": "x", "system": "y", "account": "z"}`,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			keys := filepath.Join(dir, "keys.json")
			if err := os.WriteFile(keys, []byte(body), 0o600); err != nil {
				t.Fatal(err)
			}
			why := startErr(t, system.Config{Data: dir})
			if !strings.Contains(why, keys+" is damaged: ") || !strings.Contains(why, "put it back from a copy") {
				t.Errorf("the error is %q", why)
			}
			if is, err := os.ReadFile(keys); err != nil || string(is) != body {
				t.Errorf("the file is now %q, %v", is, err)
			}
		})
	}
}

func TestKeysThatOthersCouldRead(t *testing.T) {
	for _, c := range []struct {
		name             string
		dir, file, after os.FileMode
		warns            int
	}{
		{"all may write", 0o755, 0o666, 0o600, 1},
		{"all may read", 0o711, 0o644, 0o600, 1},
		{"the group may read", 0o750, 0o640, 0o600, 1},
		{"nobody else may enter", 0o700, 0o644, 0o644, 0},
		{"the group may enter, and not read", 0o710, 0o604, 0o604, 0},
		{"the owner's alone", 0o755, 0o600, 0o600, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			keys := filepath.Join(dir, "keys.json")
			startOn(t, dir).Stop()
			if err := os.Chmod(keys, c.file); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(dir, c.dir); err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			s, err := system.Start(natstest.Context(t), system.Config{
				Data: dir, Provider: "offline", Sync: "relaxed", Log: slog.New(slog.NewTextHandler(&out, nil)),
			})
			if err != nil {
				t.Fatal(err)
			}
			s.Stop()
			info, err := os.Stat(keys)
			if err != nil {
				t.Fatal(err)
			}
			if is := info.Mode().Perm(); is != c.after {
				t.Errorf("the file is %v, want %v", is, c.after)
			}
			if n := strings.Count(out.String(), "could read the keys of the bus"); n != c.warns {
				t.Errorf("%d warnings, want %d:\n%s", n, c.warns, out.String())
			}
		})
	}
}
