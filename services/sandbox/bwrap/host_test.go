//go:build linux

package bwrap

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"skandha.dev/services/sandbox/driver"
)

// Where sandboxes cannot be created, the error says what to do.
func TestUnavailable(t *testing.T) {
	newDriver(t, Config{}) // on this host they can
	kernel := func(name string) string {
		dir := openDir(t)
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("0\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	program := func(text string) string {
		file := filepath.Join(openDir(t), "program")
		if err := os.WriteFile(file, []byte("#!/bin/sh\n"+text), 0o755); err != nil { //nolint:gosec // it is run
			t.Fatal(err)
		}
		return file
	}
	for name, c := range map[string]struct {
		cfg  Config
		want string
	}{
		"no bubblewrap":     {Config{Bwrap: "bwrap-that-is-not-there"}, "apt install bubblewrap"},
		"an old bubblewrap": {Config{Bwrap: program("echo bubblewrap 0.4.1")}, "0.4.1 is too old"},
		"no unprivileged namespaces": {
			Config{Kernel: kernel("kernel/unprivileged_userns_clone")}, "kernel.unprivileged_userns_clone=1",
		},
		"no namespaces": {Config{Kernel: kernel("user/max_user_namespaces")}, "user.max_user_namespaces"},
		"no python":     {Config{Python: "/nowhere/python3"}, "/nowhere/python3"},
		"an old python": {
			Config{Python: program(`echo '{"Major":3,"Minor":8,"Version":"3.8.1"}'`)}, "3.8.1 is too old",
		},
		"no python at all": {Config{Python: program("echo hello")}, "not a Python interpreter"},
		"a bubblewrap that fails": {
			Config{Bwrap: program(`[ "$1" = --version ] && echo bubblewrap 0.9.0 || exit 1`)},
			"bubblewrap ended before it created the sandbox",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.cfg.Dir = openDir(t)
			d, err := New(c.cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			_, err = d.Report(t.Context())
			if !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if _, err := d.Start(t.Context(), driver.Spec{Name: "x", Args: []string{"-c", ""}}); !errors.Is(err,
				driver.ErrUnavailable) {
				t.Errorf("Start: %v", err)
			}
		})
	}
}

// Only a test start shows that AppArmor prevents sandboxes.
func TestAppArmorIsNamed(t *testing.T) {
	dir := openDir(t)
	if err := os.MkdirAll(filepath.Join(dir, "kernel"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "kernel/apparmor_restrict_unprivileged_userns"), []byte("1\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	d := &Driver{cfg: Config{Kernel: dir}}
	if hint := d.hint(); !strings.Contains(hint, "apparmor_restrict_unprivileged_userns=0") {
		t.Error(hint)
	}
}

// Missing features are looked for again.
func TestUnavailableIsNotForever(t *testing.T) {
	newDriver(t, Config{})
	dir := openDir(t)
	d, err := New(Config{Dir: dir, Bwrap: filepath.Join(dir, "bwrap")})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if _, err := d.Report(t.Context()); !errors.Is(err, driver.ErrUnavailable) {
		t.Fatalf("%v", err)
	}
	there, err := exec.LookPath("bwrap")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(there, filepath.Join(dir, "bwrap")); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Report(t.Context()); err != nil {
		t.Errorf("after it was installed: %v", err)
	}
}

// As root, unreadable files are detected before a sandbox is started.
func TestRootSaysWhatSandboxesCannotRead(t *testing.T) {
	if os.Geteuid() != 0 {
		missing(t, "sandboxes of other users take root")
	}
	d := newDriver(t, Config{Dir: filepath.Join(t.TempDir(), "private")})
	if err := os.Chmod(filepath.Dir(d.cfg.Dir), 0o700); err != nil {
		t.Fatal(err)
	}
	d.mu.Lock()
	d.host = nil
	d.mu.Unlock()
	r, err := d.Report(t.Context())
	if err != nil || !strings.Contains(strings.Join(r.Missing, "\n"), "package sets: ") {
		t.Errorf("%v, %v", r.Missing, err)
	}
	if err := d.Install(t.Context(), script("1")); err == nil || !strings.Contains(err.Error(), "chmod o+rX") {
		t.Errorf("%v", err)
	}
	begin(t, d, "go()", nil) // sandboxes without a set work
}

func TestConfig(t *testing.T) {
	dir := openDir(t)
	for name, c := range map[string]struct {
		cfg  Config
		want string
	}{
		"no dir":                    {Config{}, "dir is empty"},
		"untrusted":                 {Config{Dir: dir, ForUntrusted: true}, "share the host's kernel"},
		"users that are the host's": {Config{Dir: dir, FirstUID: 500}, "first_uid 500"},
		"users beyond the last":     {Config{Dir: dir, FirstUID: 1 << 31}, "first_uid"},
	} {
		if _, err := New(c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	d, err := New(Config{Dir: dir, ForUntrusted: true, AcceptWeaker: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if leases, err := os.ReadDir(filepath.Join(dir, "leases")); err != nil || len(leases) > 0 {
		t.Errorf("leases %v, %v", leases, err)
	}
}

func TestVersions(t *testing.T) {
	for version, want := range map[string]bool{
		"0.8.0": true, "0.10.0": true, "1.0": true, "0.7.9": false, "0": false, "": false, "6.1.0-13-amd64": true,
	} {
		if got := atLeast(version, 0, 8); got != want {
			t.Errorf("%q: %v", version, got)
		}
	}
}

func TestUsersAreGivenBack(t *testing.T) {
	u := newUIDs(70000, 3)
	a, b, c := u.take(), u.take(), u.take()
	if a == b || b == c || a == c || u.take() != 0 {
		t.Errorf("%d, %d, %d, and more", a, b, c)
	}
	u.give(b)
	if got := u.take(); got != b {
		t.Errorf("%d, want %d again", got, b)
	}
}
