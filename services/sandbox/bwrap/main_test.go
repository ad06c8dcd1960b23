//go:build linux

package bwrap

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"skandha.dev/services/sandbox/driver"
)

// The test binary runs itself again, as a service to be killed or as another user.
const roleEnv = "BWRAP_TEST_ROLE"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		if err := roles[role](); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const patience = time.Minute

// missing skips a test, or fails it, because the host lacks something.
func missing(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("SKANDHA_REQUIRE") == "all" {
		t.Fatal(why)
	}
	t.Skip("NOT TESTED: " + why)
}

// newDriver returns a working driver.
func newDriver(t *testing.T, cfg Config) *Driver {
	t.Helper()
	if _, err := exec.LookPath("bwrap"); err != nil {
		missing(t, "bubblewrap is not installed (Debian: bubblewrap; `make setup` installs it)")
	}
	if cfg.Dir == "" {
		cfg.Dir = openDir(t)
	}
	d, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	if _, err := d.Report(t.Context()); errors.Is(err, driver.ErrUnavailable) {
		missing(t, err.Error())
	} else if err != nil {
		t.Fatal(err)
	}
	return d
}

// openDir returns a directory that all users can traverse; t.TempDir is private.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "bwrap-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// small limits are reached soon.
func small() driver.Limits {
	return driver.Limits{
		Memory: 128 << 20, CPUs: 1, PIDs: 20, OpenFiles: 64, Workspace: 4 << 20, WorkspaceFiles: 100, Tmp: 2 << 20,
	}
}

// begin starts a sandbox that runs a Python program. The program waits for the test
// where it calls go().
func begin(t *testing.T, d *Driver, code string, change func(*driver.Spec)) driver.Sandbox {
	t.Helper()
	spec := driver.Spec{Name: newName(), Limits: small(), Args: []string{"-I", "-S", "-c", prelude + code}}
	if change != nil {
		change(&spec)
	}
	b, err := d.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { destroy(t, b) })
	return b
}

const prelude = `
import os, sys, json, errno, time
def say(v): print(json.dumps(v), flush=True)
def go(): say("go"); return sys.stdin.readline()
def fails(f, *a):
    try: f(*a)
    except (OSError, MemoryError, RuntimeError) as e: return errno.errorcode.get(getattr(e, "errno", 0), type(e).__name__)
    return ""
`

var names int

func newName() string {
	names++
	return fmt.Sprintf("test-%d-%d", os.Getpid(), names)
}

func destroy(t *testing.T, b driver.Sandbox) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := b.Destroy(ctx); err != nil {
		t.Errorf("destroying %s: %v", b.Name(), err)
	}
}

// hear decodes the next line that the program prints.
func hear(t *testing.T, b driver.Sandbox, v any) {
	t.Helper()
	line, err := readLine(b)
	if err != nil {
		t.Fatalf("the sandbox says nothing: %v (%v)", err, ended(b))
	}
	if err := json.Unmarshal(line, v); err != nil {
		t.Fatalf("the sandbox says %q: %v", line, err)
	}
}

func readLine(b driver.Sandbox) (line []byte, err error) {
	one := make([]byte, 1)
	for {
		if _, err := io.ReadFull(b, one); err != nil {
			return line, err
		}
		if one[0] == '\n' {
			return line, nil
		}
		line = append(line, one[0])
	}
}

// proceed resumes a program that waits in go().
func proceed(t *testing.T, b driver.Sandbox) {
	t.Helper()
	var word string
	if hear(t, b, &word); word != "go" {
		t.Fatalf("the sandbox says %q", word)
	}
	if _, err := b.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
}

// ended waits for the end of a sandbox that ends by itself.
func ended(b driver.Sandbox) error {
	select {
	case <-b.Done():
		return b.Err()
	case <-time.After(patience):
		return errors.New("it has not ended")
	}
}

// eventually waits until wrong returns nothing.
func eventually(t *testing.T, wrong func() string) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); ; <-tick.C {
		why := wrong()
		if why == "" {
			return
		}
		if time.Now().After(end) {
			t.Fatal(why)
		}
	}
}

// traces returns what the host has of a sandbox: processes with its name, cgroups.
func traces(name string) (out []string) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			line, _ := os.ReadFile("/proc/" + e.Name() + "/cmdline")
			if first, _, _ := strings.Cut(string(line), "\x00"); strings.HasSuffix(first, name) {
				out = append(out, fmt.Sprintf("process %d %q", pid, line))
			}
		}
	}
	return append(out, cgroupsOf(name)...)
}

func cgroupsOf(name string) (out []string) {
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, e os.DirEntry, err error) error {
		if err == nil && e.IsDir() && strings.HasSuffix(path, name) {
			out = append(out, "cgroup "+path)
		}
		return nil
	})
	return out
}

// inNamespace lists the host's processes in a PID namespace.
func inNamespace(ns string) (pids []int) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if link, err := os.Readlink("/proc/" + e.Name() + "/ns/pid"); err == nil && link == ns {
			pids = append(pids, pid)
		}
	}
	return pids
}

// status returns a field of a process's status, as the host sees it.
func status(t *testing.T, pid int, field string) []string {
	t.Helper()
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if rest, ok := strings.CutPrefix(lines.Text(), field+":"); ok {
			return strings.Fields(rest)
		}
	}
	t.Fatalf("no %s in the status of %d", field, pid)
	return nil
}
