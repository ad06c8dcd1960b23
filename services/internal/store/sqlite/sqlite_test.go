package sqlite_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"skandha.dev/services/internal/store"
	"skandha.dev/services/internal/store/sqlite"
	"skandha.dev/services/test/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store { return open(t, newPath(t), nil) })
}

func TestReopen(t *testing.T) {
	storetest.RunReopen(t, func(t *testing.T) func() store.Store {
		path := newPath(t)
		return func() store.Store { return open(t, path, nil) }
	})
}

func BenchmarkStore(b *testing.B) {
	storetest.Bench(b, func(b *testing.B) store.Store { return open(b, newPath(b), nil) })
}

func newPath(tb testing.TB) string { return filepath.Join(tb.TempDir(), "made", "view.db") }

func open(tb testing.TB, path string, log *bytes.Buffer) *sqlite.Store {
	tb.Helper()
	cfg := sqlite.Config{Path: path}
	if log != nil {
		cfg.Logger = slog.New(slog.NewTextHandler(log, nil))
	}
	s, err := sqlite.Open(tb.Context(), cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

var key = store.Key{Agent: "a", Session: "s"}

func save(t *testing.T, s *sqlite.Store, rev uint64) {
	t.Helper()
	if err := s.SaveSnapshot(t.Context(), key, store.Snapshot{Rev: rev, Data: make([]byte, 20_000)}); err != nil {
		t.Fatal(err)
	}
}

func rev(t *testing.T, s *sqlite.Store) uint64 {
	t.Helper()
	snap, err := s.LoadSnapshot(t.Context(), key)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		t.Fatal(err)
	}
	return snap.Rev
}

func aside(t *testing.T, path string) []string {
	t.Helper()
	found, err := filepath.Glob(path + ".aside-*Z")
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestFilesAreForThisUserAlone(t *testing.T) {
	path := newPath(t)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	s := open(t, path, nil)
	save(t, s, 1)
	for _, suffix := range []string{"", "-wal", "-shm"} {
		info, err := os.Stat(path + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if perm := info.Mode().Perm(); perm != 0o600 {
			t.Errorf("%s has mode %o", suffix, perm)
		}
	}
}

func TestOddPaths(t *testing.T) {
	for _, name := range []string{"a b.db", "a?b=c&d.db", "a#b.db", "a%20b.db", "ä视.db", "a;b'c.db"} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), name)
			save(t, open(t, path, nil), 1)
			if _, err := os.Stat(path); err != nil {
				t.Error(err)
			}
		})
	}
}

// An unusable file is moved aside, whatever is wrong with it.
func TestDamagedFileIsMovedAside(t *testing.T) {
	for name, damage := range map[string]func(t *testing.T, path string, good []byte) []byte{
		"garbage":       func(*testing.T, string, []byte) []byte { return []byte("this is not a database") },
		"cut":           func(_ *testing.T, _ string, good []byte) []byte { return good[:len(good)/2-1] },
		"cut in header": func(_ *testing.T, _ string, good []byte) []byte { return good[:50] },
		"first page": func(_ *testing.T, _ string, good []byte) []byte {
			return append(bytes.Clone(good[:100]), bytes.Repeat([]byte{0xa5}, len(good)-100)...)
		},
		"newer schema": func(t *testing.T, path string, _ []byte) []byte {
			execute(t, path, "PRAGMA user_version = 1000")
			return nil
		},
		"table gone": func(t *testing.T, path string, _ []byte) []byte {
			execute(t, path, "DROP TABLE tool")
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := newPath(t)
			s := open(t, path, nil)
			save(t, s, 7)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			good, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if bad := damage(t, path, good); bad != nil {
				if err := os.WriteFile(path, bad, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			bad, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			s = open(t, path, &log)
			if got := rev(t, s); got != 0 {
				t.Errorf("the fresh store knows revision %d", got)
			}
			save(t, s, 3)
			moved := aside(t, path)
			if len(moved) != 1 || !strings.Contains(log.String(), moved[0]) || !strings.Contains(log.String(), "level=ERROR") {
				t.Fatalf("moved to %q, logged %q", moved, log.String())
			}
			if kept, err := os.ReadFile(moved[0]); err != nil || !bytes.Equal(kept, bad) {
				t.Errorf("the damaged file was not kept as it was: %v", err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if got := rev(t, open(t, path, nil)); got != 3 {
				t.Errorf("opened again, the fresh file has revision %d", got)
			}
		})
	}
}

// A call that finds damage later is repeated on a new file.
func TestDamageMetLater(t *testing.T) {
	path := newPath(t)
	s := open(t, path, nil)
	save(t, s, 7)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const page = 4096
	for i := page; i < len(good); i++ { // all but the schema
		good[i] = 0xa5
	}
	if err := os.WriteFile(path, good, 0o600); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	s = open(t, path, &log)
	done := make(chan error)
	for range 8 {
		go func() {
			done <- s.SaveSnapshot(context.Background(), key, store.Snapshot{Rev: 3})
		}()
	}
	for range 8 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if got := rev(t, s); got != 3 {
		t.Errorf("revision %d after the restart", got)
	}
	if moved := aside(t, path); len(moved) != 1 || strings.Count(log.String(), "level=ERROR") != 1 {
		t.Errorf("moved to %q, logged %q", moved, log.String())
	}
}

func TestForeignDatabaseIsLeftAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "accounts.db")
	execute(t, path, "CREATE TABLE account (owner TEXT)")
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = sqlite.Open(t.Context(), sqlite.Config{Path: path})
	if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "another program") {
		t.Errorf("error is %v", err)
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
		t.Errorf("it was changed: %v", err)
	}
}

func TestDirectoryIsNoDatabase(t *testing.T) {
	if _, err := sqlite.Open(t.Context(), sqlite.Config{Path: t.TempDir()}); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("error is %v", err)
	}
	if _, err := sqlite.Open(t.Context(), sqlite.Config{}); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("error is %v", err)
	}
}

func TestUnreadableFileIsMovedAside(t *testing.T) {
	if os.Getuid() == 0 {
		asNobody(t)
		return
	}
	path := filepath.Join(t.TempDir(), "view.db")
	if err := os.WriteFile(path, []byte("secret"), 0o000); err != nil {
		t.Fatal(err)
	}
	save(t, open(t, path, nil), 1)
	if moved := aside(t, path); len(moved) != 1 {
		t.Errorf("moved to %q", moved)
	}
}

// asNobody runs the test that calls it in a process without privileges: every
// file is readable to root.
func asNobody(t *testing.T) {
	t.Helper()
	const nobody = 65534
	dir, err := os.MkdirTemp("/tmp", "sqlite-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	binary, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "sqlite.test")
	if err := errors.Join(os.WriteFile(program, binary, 0o755), os.Chown(dir, nobody, nobody)); err != nil { //nolint:gosec // others execute it
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Dir, cmd.Env = dir, []string{"TMPDIR=" + dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Fatalf("as nobody: %v\n%s", err, out)
	}
}

func TestFileBehindLinkIsUsed(t *testing.T) {
	dir := t.TempDir()
	target, link := filepath.Join(dir, "target.db"), filepath.Join(dir, "link.db")
	if err := os.WriteFile(target, []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	save(t, open(t, link, nil), 1)
	if len(aside(t, target)) != 1 || len(aside(t, link)) != 0 {
		t.Error("the file was not moved aside in its own directory")
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link was replaced: %v", err)
	}
}

// A process that dies leaves a write-ahead log, and the next one reads it.
func TestUncleanEnd(t *testing.T) {
	path := newPath(t)
	s := open(t, path, nil)
	save(t, s, 7)
	copied := filepath.Join(t.TempDir(), "copy.db")
	for _, suffix := range []string{"", "-wal"} {
		data, err := os.ReadFile(path + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(copied+suffix, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := rev(t, open(t, copied, nil)); got != 7 {
		t.Errorf("revision %d survived, want 7", got)
	}
}

func execute(t *testing.T, path, statement string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}
