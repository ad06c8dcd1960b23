package foreigntest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Need returns where the program is. Without it the test is skipped, or fails if
// the environment says SKANDHA_REQUIRE=all.
func Need(t testing.TB, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		missing := "NOT TESTED: " + program + " is not installed; `make setup` installs it on Debian"
		if os.Getenv("SKANDHA_REQUIRE") == "all" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	return path
}

// Copy copies a tree of files into a directory of the test's own, so that nothing
// a program leaves beside itself gets into the source tree.
func Copy(t testing.TB, from string) (to string) {
	t.Helper()
	to = t.TempDir()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	return to
}

// NodeModules puts the modules that dir/package-lock.json names into
// dir/node_modules, as `npm ci` does.
func NodeModules(t testing.TB, dir string) {
	t.Helper()
	kept := Modules(t, dir, "ci")
	modules := filepath.Join(dir, "node_modules")
	if err := os.RemoveAll(modules); err != nil { // left by somebody who tried the example by hand
		t.Fatal(err)
	}
	if err := os.CopyFS(modules, os.DirFS(kept)); err != nil {
		t.Fatal(err)
	}
}

// Modules returns a directory with the modules that dir/package-lock.json names. They are
// installed once and kept in the user's cache directory under the hash of both files; npm
// checks what it fetches against the lock. The command is "ci" or, for a lock that lacks
// optional packages of other platforms, "install".
func Modules(t testing.TB, dir, command string) (modules string) {
	t.Helper()
	npm := Need(t, "npm")
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.New()
	files := map[string][]byte{}
	for _, name := range []string{"package.json", "package-lock.json"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		files[name] = b
		_, _ = sum.Write(b) // never fails
	}
	kept := filepath.Join(cache, "skandha", "node-"+hex.EncodeToString(sum.Sum(nil))[:16])
	if _, err := os.Stat(kept); err != nil {
		if err := install(t, npm, command, files, kept); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(kept, "node_modules")
}

// install makes the directory kept, whole or not at all: other tests may do the
// same at the same time.
func install(t testing.TB, npm, command string, files map[string][]byte, kept string) error {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(kept), 0o755); err != nil { //nolint:gosec // a cache of public code
		return err
	}
	work, err := os.MkdirTemp(filepath.Dir(kept), "npm-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }() // gone if all went well
	for name, b := range files {
		if err := os.WriteFile(filepath.Join(work, name), b, 0o600); err != nil {
			return err
		}
	}
	cmd := exec.CommandContext(t.Context(), npm, command, "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
	cmd.Dir = work
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("npm %s: %w\n%s", command, err, out)
	}
	err = os.Rename(work, kept)
	if _, missing := os.Stat(kept); missing == nil { // ours, or somebody else's who was faster
		return nil
	}
	return err
}

// Files lists the regular files of a tree whose name ends so.
func Files(t testing.TB, dir, suffix string) (out []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && filepath.Ext(path) == suffix {
			out = append(out, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
