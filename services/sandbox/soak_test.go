package sandbox_test

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"skandha.dev/services/sandbox"
	"skandha.dev/services/sandbox/bwrap"
	"skandha.dev/services/sandbox/docker"
	"skandha.dev/services/sandbox/driver"
	"skandha.dev/services/test/enginetest"
	"skandha.dev/services/test/natstest"
)

// soakFor returns how long the sessions work: SKANDHA_SOAK sets it, such as 2m.
func soakFor(t *testing.T, usual time.Duration) time.Duration {
	if text := os.Getenv("SKANDHA_SOAK"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil {
			t.Fatalf("SKANDHA_SOAK: %v", err)
		}
		return d
	}
	if testing.Short() || os.Getenv("SKANDHA_REQUIRE") != "all" {
		return 3 * time.Second
	}
	return usual
}

// Eight sessions write, read and are reset concurrently; each sees only its own files, and
// nothing is left of any in the end.
func TestSessionsSideBySideDoNotSeeEachOtherAndLeaveNothing(t *testing.T) {
	t.Run("bwrap", func(t *testing.T) { sideBySide(t, bubbles(t), 20*time.Second) })
	t.Run("docker", func(t *testing.T) {
		e := enginetest.Find(t)
		image, owner := enginetest.SandboxImage(t, e), "soak-"+strings.ToLower(rand.Text()[:8])
		d, err := docker.New(docker.Config{Host: e.Host, Image: image, Owner: owner, Log: natstest.Logger(t)})
		if err != nil {
			t.Fatal(err)
		}
		sideBySide(t, d, 20*time.Second)
		if left := e.Docker(t, "ps", "--all", "--quiet", "--filter", "label=dev.skandha.sandbox.owner="+owner); left != "" {
			t.Errorf("containers are left: %s", left)
		}
	})
}

// bubbles returns a driver that uses bubblewrap.
func bubbles(t *testing.T) *bwrap.Driver {
	t.Helper()
	// sandboxes of root run under separate users, who cannot read the test's directory
	dir, err := os.MkdirTemp("/var/tmp", "skandha-sandbox-")
	if err == nil {
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	d, err := bwrap.New(bwrap.Config{Dir: dir, Log: natstest.Logger(t)})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// works skips the test where the driver cannot work.
func works(t *testing.T, d driver.Driver) {
	t.Helper()
	if _, err := d.Report(natstest.Context(t)); err != nil {
		if os.Getenv("SKANDHA_REQUIRE") == "all" {
			t.Fatal(err)
		}
		t.Skipf("NOT TESTED: %v", err)
	}
}

func sideBySide(t *testing.T, d driver.Driver, usual time.Duration) {
	t.Helper()
	closing := sync.OnceFunc(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	defer closing()
	works(t, d)
	children := processes(t)
	c := startWith(t, sandbox.Config{Warm: 2, Max: 16}, d)
	stats := func() sandbox.Status { return c.service.Status(t.Context()) }
	c.session("first").python("1")
	natstest.Eventually(t, "the pool is full", func() bool { return stats().Pool.Warm == 2 })
	goroutines, files := runtime.NumGoroutine(), openFiles(t)
	until := time.Now().Add(soakFor(t, usual))
	var all sync.WaitGroup
	var total [8]int
	for i := range total {
		all.Go(func() {
			s := c.session(fmt.Sprintf("s%d", i))
			for time.Now().Before(until) {
				total[i] += soak(t, s, fmt.Sprintf("%d-%d", i, total[i]))
			}
		})
	}
	all.Wait()
	t.Logf("calls per session: %v; sandboxes: %+v", total, stats().Pool)
	if n := stats().Sessions; n != 9 {
		t.Errorf("%d sessions have a sandbox, want 9", n)
	}
	for i := range total { // they end
		s := c.session(fmt.Sprintf("s%d", i))
		s.turn = 1 << 40
		s.reset()
		s.call("shell:execute", args{"command": "true", "lifecycle": "call"})
	}
	natstest.Eventually(t, "the first session's sandbox is left, and the warm ones", func() bool {
		p := stats().Pool
		return p.Used == 1 && p.Warm == 2 && p.Starting+p.Ending == 0
	})
	natstest.Eventually(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= goroutines+8 })
	natstest.Eventually(t, "no file is left open", func() bool { return openFiles(t) <= files+8 })
	c.instance.stop()
	closing()
	natstest.Eventually(t, "no process is left", func() bool { return processes(t) <= children })
}

// processes counts this process's children.
func processes(t *testing.T) (n int) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range stats {
		b, err := os.ReadFile(name)
		if err != nil {
			continue // it has just ended
		}
		if f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:])); len(f) > 1 &&
			f[1] == strconv.Itoa(os.Getpid()) {
			n++
		}
	}
	return n
}

// soak makes some calls in a session and returns how many.
func soak(t *testing.T, s *session, secret string) int {
	got := s.python(fmt.Sprintf("import os\n"+
		"before = sorted(os.listdir('/workspace')) + [n for n in os.listdir('/tmp') if n[0] != '.']\n"+
		"open('mine','w').write(%q)\nopen('/tmp/mine','w').write(%[1]q)\nbefore", secret))
	if string(got.Result) != `["out"]` || got.Notice != "" {
		t.Errorf("a new sandbox has %s, %s", got.Result, got.Notice)
	}
	if f := s.fs("read", args{"path": "mine"}); f.Content != secret {
		t.Errorf("it reads %q, want %q", f.Content, secret)
	}
	got = s.decode(s.call("shell:execute", args{"command": "cat mine; cat /tmp/mine; ls | wc -l"}))
	if got.Stdout != secret+secret+"2\n" {
		t.Errorf("it sees %q, want %q", got.Stdout, secret)
	}
	got = s.python("open('mine').read()")
	if !strings.Contains(string(got.Result), `"`+secret+`"`) {
		t.Errorf("it reads %s, want %q", got.Result, secret)
	}
	s.reset()
	return 4
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatalf("open files cannot be counted: %v", err)
	}
	return len(entries)
}
