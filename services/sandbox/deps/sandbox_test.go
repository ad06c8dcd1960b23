package deps

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"skandha.dev/services/sandbox/driver"
)

// python is the path of the tests' interpreter with pip. Without it, or without bubblewrap
// for the tests' sandboxes, the test is skipped, and fails if SKANDHA_REQUIRE=all.
func python(t testing.TB) string {
	t.Helper()
	const python = "/usr/bin/python3"
	for _, need := range [][]string{{"bwrap", "--version"}, {python, "-I", "-m", "pip", "--version"}} {
		if out, err := exec.CommandContext(t.Context(), need[0], need[1:]...).CombinedOutput(); err != nil {
			missing := "NOT TESTED: " + strings.Join(need, " ") + ": " + err.Error() + ": " + string(out) +
				"(Debian: bubblewrap, python3, python3-pip; `make setup` installs them)"
			if os.Getenv("SKANDHA_REQUIRE") == "all" {
				t.Fatal(missing)
			}
			t.Skip(missing)
		}
	}
	return python
}

// sandboxes is a driver for package sets only, for tests: real pip in a real sandbox, on
// the host's network, where the set's directory is at its place.
type sandboxes struct {
	t      testing.TB
	dir    string
	python string

	mu       sync.Mutex
	installs int
	inUse    map[string]bool
	used     map[string]time.Time
	outside  string   // a directory on the host that is writable in the sandbox, too
	masked   []string // directories that are empty in the sandbox
}

func newSandboxes(t testing.TB) *sandboxes {
	t.Helper()
	b := emptySandboxes(t)
	b.python = python(t)
	return b
}

func emptySandboxes(t testing.TB) *sandboxes {
	return &sandboxes{t: t, dir: t.TempDir(), inUse: map[string]bool{}, used: map[string]time.Time{}}
}

// command runs the interpreter in a sandbox with the directory at Packages.
func (b *sandboxes) command(ctx context.Context, packages, flag string, args ...string) *exec.Cmd {
	sandbox := []string{
		"--unshare-all", "--die-with-parent", "--new-session", "--clearenv", "--setenv", "LANG", "C.UTF-8",
		"--setenv", "PIP_INDEX_URL", "http://127.0.0.1:1/", // which must not count
		"--tmpfs", "/", "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib",
		"--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", flag, packages,
		driver.Packages,
	}
	if flag == "--bind" {
		sandbox = append(sandbox, "--share-net")
	}
	for _, dir := range b.masked {
		sandbox = append(sandbox, "--tmpfs", dir)
	}
	if b.outside != "" {
		sandbox = append(sandbox, "--bind", b.outside, "/outside")
	}
	return exec.CommandContext(ctx, "bwrap", append(append(sandbox, b.python), args...)...)
}

func (b *sandboxes) Install(ctx context.Context, in driver.Install) error {
	b.mu.Lock()
	b.installs++
	b.mu.Unlock()
	if _, err := os.Stat(filepath.Join(b.dir, in.ID)); err == nil {
		return nil
	}
	half, err := os.MkdirTemp(b.dir, "half-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(half) }() // renamed by then, if it is whole
	if err := os.Chmod(half, 0o755); err != nil {
		return err
	}
	cmd := b.command(ctx, half, "--bind", in.Args...)
	r, w := io.Pipe()
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		return err
	}
	var output []string
	read := make(chan struct{})
	go func() {
		defer close(read)
		for s := bufio.NewScanner(r); s.Scan(); {
			output = append(output, s.Text())
			in.Output(s.Text())
		}
	}()
	err = cmd.Wait()
	_ = w.Close()
	<-read
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &exit):
		return &driver.InstallError{Output: output}
	case err != nil:
		return err
	}
	return os.Rename(half, filepath.Join(b.dir, in.ID))
}

func (b *sandboxes) Sets(context.Context) ([]driver.Set, error) {
	entries, err := os.ReadDir(b.dir)
	var out []driver.Set
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "half-") {
			b.mu.Lock()
			out = append(out, driver.Set{ID: e.Name(), Bytes: 1 << 20, Used: b.used[e.Name()]})
			b.mu.Unlock()
		}
	}
	return out, err
}

func (b *sandboxes) RemoveSet(_ context.Context, id string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.inUse[id] {
		return driver.ErrInUse
	}
	if _, err := os.Stat(filepath.Join(b.dir, id)); err != nil {
		return driver.ErrNoSet
	}
	return os.RemoveAll(filepath.Join(b.dir, id))
}

func (b *sandboxes) Report(context.Context) (driver.Report, error) {
	return driver.Report{Driver: "test", Platform: "python3"}, nil
}

func (b *sandboxes) Start(context.Context, driver.Spec) (driver.Sandbox, error) {
	return nil, errors.ErrUnsupported
}

func (b *sandboxes) Reap(context.Context) (int, error) { return 0, nil }
func (b *sandboxes) Close() error                      { return nil }

// run gives code to an interpreter in a sandbox without network that sees the set.
func (b *sandboxes) run(id, code string) string {
	b.t.Helper()
	code = "import sys; sys.path.append('" + driver.Packages + "')\n" + code
	out, err := b.command(b.t.Context(), filepath.Join(b.dir, id), "--ro-bind", "-I", "-c", code).CombinedOutput()
	if err != nil {
		b.t.Fatalf("%s: %v\n%s", code, err, out)
	}
	return strings.TrimSpace(string(out))
}

// files lists the set, or what is left in the driver's directory if id is empty.
func (b *sandboxes) files(id string) (out []string) {
	b.t.Helper()
	root := filepath.Join(b.dir, id)
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err == nil && path != root {
			rel, _ := filepath.Rel(root, path)
			out = append(out, rel)
		}
		return err
	})
	if err != nil {
		b.t.Fatal(err)
	}
	slices.Sort(out)
	return out
}

func (b *sandboxes) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.installs
}
