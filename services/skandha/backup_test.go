package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func exitCode(err error) int {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	return 0
}

// A person backs a running system up, and goes on with it in another directory.
func TestABackupOfARunningSystemIsRestoredElsewhere(t *testing.T) {
	data, dir := t.TempDir(), t.TempDir()
	_, stop := upOn(t, data, "--ui", "off")
	ask := func(data, text string) string {
		t.Helper()
		out, all, err := says(t, "ask", "--data", data, "--yes", "--session", "one", text)
		if err != nil {
			t.Fatalf("%v\n%s", err, all)
		}
		return out
	}
	ask(data, "write swordfish to hello.txt")
	file := filepath.Join(dir, "a.backup")
	if _, out, err := says(t, "backup", "--data", data, file); err != nil || !strings.Contains(out, "1 file") {
		t.Fatalf("%v\n%s", err, out)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("others can read the archive: %v, %v", info, err)
	}
	if _, out, err := says(t, "backup", "--data", data, file); err == nil || !strings.Contains(out, "a.backup exists") {
		t.Errorf("an archive is overwritten: %v\n%s", err, out)
	}
	if _, out, err := says(t, "restore", "--data", data, file); exitCode(err) != 3 || !strings.Contains(out, "a core runs on this bus") {
		t.Errorf("restoring while the system runs: %v\n%s", err, out)
	}
	rebuilt, _, err := says(t, "sessions", "rebuild", "--data", data, "one")
	if err != nil {
		t.Fatal(err)
	}
	stop()

	if _, out, err := says(t, "restore", "--data", data, file); exitCode(err) != 3 || !strings.Contains(out, "--replace") {
		t.Errorf("restoring over a system: %v\n%s", err, out)
	}
	elsewhere := filepath.Join(t.TempDir(), "data")
	if _, out, err := says(t, "restore", "--data", elsewhere, dir); err == nil || !strings.Contains(out, "name the archive") {
		t.Errorf("restoring from a directory without archives: %v\n%s", err, out)
	}
	if err := os.Rename(file, filepath.Join(dir, "skandha-20261126-224500.backup")); err != nil {
		t.Fatal(err)
	}
	if _, out, err := says(t, "restore", "--data", elsewhere, dir); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	upOn(t, elsewhere, "--ui", "off")
	if again, out, err := says(t, "sessions", "rebuild", "--data", elsewhere, "one"); err != nil ||
		field(again, "digest") != field(rebuilt, "digest") || !strings.Contains(again, "identical") {
		t.Errorf("the session is rebuilt as\n%s, want\n%s (%v)", out, rebuilt, err)
	}
	if answer := ask(elsewhere, "what is in hello.txt?"); !strings.Contains(answer, "swordfish") {
		t.Errorf("hello.txt is %q", answer)
	}
}

func TestABackupHasItsNameOnlyWhenItIsComplete(t *testing.T) {
	dir := t.TempDir()
	at := time.Date(2026, 11, 26, 22, 45, 0, 0, time.UTC)
	a, err := createArchive(dir, at)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "skandha-20261126-224500.backup")
	if _, err := os.Stat(name); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it has its name before it is complete: %v", err)
	}
	a.discard()
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("an interrupted backup leaves %v, %v", left, err)
	}
	if a, err = createArchive(dir, at); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte("somebody else's"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := a.finish(); !errors.Is(err, os.ErrExist) {
		t.Errorf("it replaces a file that was made meanwhile: %v", err)
	}
	a.discard()
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	if a, err = createArchive(dir, at); err != nil {
		t.Fatal(err)
	}
	if err := a.finish(); err != nil {
		t.Fatal(err)
	}
	a.discard()
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 || left[0].Name() != filepath.Base(name) {
		t.Errorf("a complete backup leaves %v, %v", left, err)
	}
}

func TestArchivesThatRestoreRefuses(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	file := filepath.Join(t.TempDir(), "x.backup")
	if err := os.WriteFile(file, []byte(strings.Repeat("no archive ", 200)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, out, err := says(t, "restore", "--data", data, file); exitCode(err) != 1 ||
		!strings.Contains(out, "not an archive of skandha backup") || !strings.Contains(out, "nothing was written") {
		t.Errorf("%v\n%s", err, out)
	}
	if _, err := os.Stat(data); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a refused restore makes the data directory: %v", err)
	}
	if _, out, err := says(t, "backup", "--data", data, file+"2"); err == nil || !strings.Contains(out, "no system runs") {
		t.Errorf("a backup of nothing: %v\n%s", err, out)
	}
	if _, out, err := says(t, "backup", "--data", data, "--dir", "x", file+"2"); err == nil || !strings.Contains(out, "want NAME=PATH") {
		t.Errorf("a directory without a path: %v\n%s", err, out)
	}
}

func TestCertificatesByCommand(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tls")
	if out, all, err := says(t, "tls", "init", dir); err != nil || !strings.Contains(out, "localhost, nats, 127.0.0.1, ::1") {
		t.Fatalf("%v\n%s", err, all)
	}
	if _, out, err := says(t, "tls", "init", dir); err == nil || !strings.Contains(out, "nothing was written") {
		t.Errorf("it overwrites: %v\n%s", err, out)
	}
	if _, out, err := says(t, "tls", "renew", dir, "--host", "bus.example.org", "--days", "10"); err != nil ||
		!strings.Contains(out, "bus.example.org") {
		t.Errorf("%v\n%s", err, out)
	}
	if _, out, err := says(t, "tls", "show", dir); exitCode(err) != 1 || !strings.Contains(out, "expires soon") {
		t.Errorf("%v\n%s", err, out)
	}
}
