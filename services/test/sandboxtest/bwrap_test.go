//go:build linux

package sandboxtest_test

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"skandha.dev/services/sandbox/bwrap"
	"skandha.dev/services/sandbox/driver"
	"skandha.dev/services/test/sandboxtest"
)

func init() { children["bwrap"] = childBwrap }

// TestBwrap runs the whole suite against bubblewrap.
func TestBwrap(t *testing.T) {
	needBwrap(t)
	dir := openDir(t)
	sandboxtest.Run(t, sandboxtest.Suite{
		New: func(t *testing.T) driver.Driver {
			d, err := bwrap.New(bwrap.Config{Dir: dir, Log: logTo(t)})
			if err != nil {
				t.Fatal(err)
			}
			return d
		},
		Skip:      bwrapCannot(),
		Leftovers: func(t *testing.T, name string) []string { return named(t, dir, name) },
		Child:     func(t *testing.T, name string) *exec.Cmd { return child(t, "bwrap", name, childDir+"="+dir) },
		Group:     os.Getenv("SANDBOXTEST_GROUP"),
	})
}

// named lists the files below a directory that carry the name.
func named(t *testing.T, dir, name string) (out []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.Contains(d.Name(), name) {
			out = append(out, path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it has just ended
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// bwrapCannot lists what bubblewrap cannot prevent here.
func bwrapCannot() map[string]string {
	if os.Geteuid() == 0 {
		return nil
	}
	return map[string]string{
		"quotas that the kernel keeps per user": "without root all sandboxes run as the service's own user, and share what the kernel counts by user (inotify instances, descriptors in flight, pages of pipes)",
	}
}

// openDir returns a directory that the sandboxes' users can read; t.TempDir is readable for
// its owner only.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sandboxtest-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // the directory is temporary
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func needBwrap(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("bwrap"); err != nil {
		missing := "NOT TESTED: bubblewrap is missing (Debian: bubblewrap, python3, python3-pip; `make setup` installs them)"
		if os.Getenv("SKANDHA_REQUIRE") == "all" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
}

func childBwrap() (driver.Driver, error) {
	return bwrap.New(bwrap.Config{Dir: os.Getenv(childDir), Log: slog.Default()})
}
