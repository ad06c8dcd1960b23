package docker

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"skandha.dev/services/sandbox/driver"
	"skandha.dev/services/test/enginetest"
)

// A driver that cannot create sandboxes reports what to do.
func TestUnavailable(t *testing.T) {
	for _, c := range []struct {
		about  string
		change func(*Config)
		says   string
	}{
		{"no engine", func(c *Config) { c.Host = "unix:///nowhere/docker.sock" }, "systemctl start docker"},
		{"no image", func(c *Config) { c.Image = "skandha/nowhere:latest" }, "make sandbox-image"},
		{
			"an image with another digest", func(c *Config) { c.Image += "@sha256:" + strings.Repeat("0", 64) },
			"make sandbox-image",
		},
		{"a runtime that is not offered", func(c *Config) { c.Runtime = "nonesuch" }, "daemon.json"},
	} {
		t.Run(c.about, func(t *testing.T) {
			r := newRig(t, c.change)
			_, err := r.Report(t.Context())
			if !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("Report says %v, want ErrUnavailable and %q", err, c.says)
			}
			if _, err := r.Start(t.Context(), driver.Spec{Name: "a"}); !errors.Is(err, driver.ErrUnavailable) {
				t.Errorf("Start says %v, want ErrUnavailable", err)
			}
			if left := r.left(t); len(left) > 0 {
				t.Errorf("there are %v", left)
			}
		})
	}
}

// Podman answers so, with the whole profile, which nobody needs to read.
func TestEngineThatTakesNoProfileIsUnavailable(t *testing.T) {
	d, err := New(Config{Host: "unix:///nowhere/podman.sock"})
	if err != nil {
		t.Fatal(err)
	}
	err = d.explain(errors.New(`container create: opening seccomp profile failed: open {"defaultAction": file name too long`))
	if !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "bwrap") ||
		strings.Contains(err.Error(), "defaultAction") {
		t.Errorf("it is explained as %v", err)
	}
}

func TestImageWithoutPythonIsUnavailable(t *testing.T) {
	r := newRig(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "Dockerfile"), []byte("FROM scratch\nLABEL a=b\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.engine.Docker(t, "build", "--quiet", "--tag", "skandha-test/empty:"+strings.TrimPrefix(r.cfg.Owner, "test-"), dir)
	t.Cleanup(func() {
		_ = r.engine.Command(context.Background(), "docker", "rmi",
			"skandha-test/empty:"+strings.TrimPrefix(r.cfg.Owner, "test-")).Run()
	})
	empty := newRig(t, func(c *Config) { c.Image = "skandha-test/empty:" + strings.TrimPrefix(r.cfg.Owner, "test-") })
	if _, err := empty.Report(t.Context()); err == nil || !strings.Contains(err.Error(), "python3") {
		t.Errorf("Report says %v, want that python3 is missing", err)
	}
	if left := empty.left(t); len(left) > 0 {
		t.Errorf("there are %v", left)
	}
}

// A user without the engine's permission learns about the group. Another user's
// process asks.
func TestNoPermissionForTheSocket(t *testing.T) {
	if os.Geteuid() != 0 {
		enginetest.Missing(t, "only root can be somebody else")
	}
	e := enginetest.Shared(t)
	if e.PID == 0 {
		enginetest.Missing(t, "the engine is not ours, so its socket's mode is not known")
	}
	out := startChild(t, e, "ask", func(c *childConfig) { c.user = 65534 })
	line, err := out.lines.ReadString('\n')
	if err != nil || !strings.Contains(line, "usermod -aG docker") {
		t.Errorf("it says %q, %v, want the group", line, err)
	}
}

func TestBadSpecsAreRefused(t *testing.T) {
	r := newRig(t)
	for field, spec := range map[string]driver.Spec{
		"name":          {Name: "../a"},
		"limits.memory": {Name: "a", Limits: driver.Limits{Memory: 1}},
		"package set":   {Name: "a", Set: "../../etc"},
	} {
		if _, err := r.Start(t.Context(), spec); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v, want an error that names the field", field, err)
		}
	}
	if _, err := r.Start(t.Context(), driver.Spec{Name: "a", Set: strings.Repeat("a", 64)}); !errors.Is(err,
		driver.ErrNoSet) {
		t.Errorf("a set that is not there: %v, want %v", err, driver.ErrNoSet)
	}
	if _, err := New(Config{Owner: "A b"}); err == nil {
		t.Error("a bad owner is taken")
	}
}

// A context that ends during a start leaves nothing that the reaper would not find.
func TestCancelledStartLeavesNothing(t *testing.T) {
	r := newRig(t)
	if _, err := r.Report(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, after := range []time.Duration{0, 5 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond} {
		ctx, cancel := context.WithTimeout(t.Context(), after)
		if b, err := r.Start(ctx, driver.Spec{Name: "a", Args: []string{"-c", deaf}, Limits: small}); err == nil {
			if err := b.Destroy(t.Context()); err != nil {
				t.Error(err)
			}
		}
		cancel()
	}
	enginetest.Await(t, patience, func(ctx context.Context) error {
		if _, err := r.Reap(ctx); err != nil {
			return err
		}
		if n := len(r.left(t)); n != 1 {
			return errors.New("more is there than the lease")
		}
		return nil
	})
}

func TestSandboxThatEnds(t *testing.T) {
	r := newRig(t)
	t.Run("by itself", func(t *testing.T) {
		b := r.start(t, "print('bye'); raise SystemExit(3)", small, "")
		text, err := io.ReadAll(b)
		if err != nil || string(text) != "bye\n" {
			t.Errorf("its output is %q, %v", text, err)
		}
		if err := b.Err(); err == nil || !strings.Contains(err.Error(), "exit status 3") {
			t.Errorf("after the end of its output, Err is %v, want its exit status", err)
		}
	})
	t.Run("because it has used up its memory", func(t *testing.T) {
		b := r.start(t, "input(); x = bytearray(200 << 20)", small, "")
		// Of what happens while a container starts, the engine may not tell.
		if _, err := io.WriteString(b, "\n"); err != nil {
			t.Fatal(err)
		}
		if err := awaitEnd(t, b); !errors.Is(err, driver.ErrMemory) {
			t.Errorf("it ended because %v, want %v", err, driver.ErrMemory)
		}
	})
	t.Run("because somebody else kills it", func(t *testing.T) {
		b := r.start(t, deaf, small, "")
		r.engine.Docker(t, "kill", b.Sandbox.(*sandbox).id)
		if err := awaitEnd(t, b); err == nil || !strings.Contains(err.Error(), "killed") {
			t.Errorf("it ended because %v, want that it was killed", err)
		}
		if _, err := b.Write([]byte("x")); err == nil {
			_, err = io.Copy(io.Discard, b)
			if err != nil {
				t.Logf("reading from it: %v", err)
			}
		}
	})
	t.Run("because somebody else removes it", func(t *testing.T) {
		b := r.start(t, deaf, small, "")
		r.engine.Docker(t, "rm", "--force", b.Sandbox.(*sandbox).id)
		if err := awaitEnd(t, b); err == nil {
			t.Error("it has ended without a reason")
		}
		if err := b.Destroy(t.Context()); err != nil {
			t.Errorf("destroying it: %v", err)
		}
	})
	t.Run("and the driver goes on", func(t *testing.T) {
		b := r.start(t, runner, small, "")
		if out, _ := b.do(t, "print(1)"); out != "1" {
			t.Errorf("a sandbox says %q", out)
		}
	})
	enginetest.Await(t, patience, func(context.Context) error {
		if n := len(r.left(t)); n > 2 {
			return errors.New("a sandbox that has ended is still there")
		}
		return nil
	})
}

// A blocked reader or writer is woken by Destroy.
func TestDestroyWakesThePipe(t *testing.T) {
	r := newRig(t)
	b := r.start(t, "import time; time.sleep(1e6)", small, "")
	read, write := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := b.Read(make([]byte, 1))
		read <- err
	}()
	go func() {
		_, err := b.Write(make([]byte, 64<<20)) // more than anything buffers
		write <- err
	}()
	if err := b.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]chan error{"Read": read, "Write": write} {
		if err := <-c; err == nil {
			t.Errorf("%s has no error", what)
		}
	}
}

// Unread output blocks the sandbox, not the service or the engine.
func TestUnreadOutputHoldsTheSandbox(t *testing.T) {
	r := newRig(t)
	b := r.start(t, "import sys\nwhile True: sys.stdout.buffer.write(b'x' * 65536)", small, "")
	other := r.start(t, runner, small, "")
	if out, _ := other.do(t, "print(1)"); out != "1" {
		t.Errorf("the neighbour says %q", out)
	}
	if n, err := io.CopyN(io.Discard, b, 64<<20); err != nil {
		t.Errorf("after %d bytes: %v", n, err)
	}
	if err := b.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
}

// With the engine, its sandboxes end; a new engine gets a new lease.
func TestEngineThatStops(t *testing.T) {
	e := enginetest.Start(t)
	r := rigOn(t, e)
	b := r.start(t, runner, small, "")
	idle := r.start(t, runner, small, "")
	if _, ok := b.do(t, "print(1)"); !ok {
		t.Fatal("the sandbox does not answer")
	}
	e.Stop(t)
	for _, b := range []driver.Sandbox{b, idle} {
		if err := awaitEnd(t, b); err == nil {
			t.Error("a sandbox has ended without a reason")
		}
	}
	_, err := r.Start(t.Context(), driver.Spec{Name: "b", Limits: small})
	if !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "systemctl start docker") {
		t.Errorf("Start says %v, want ErrUnavailable and what to do", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := b.Destroy(ctx); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("Destroy says %v, want ErrUnavailable", err)
	}
	if _, err := r.Reap(ctx); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("Reap says %v, want ErrUnavailable", err)
	}
}

// Without its lease any service may reap a driver's sandboxes, so the driver gives them up
// and reconnects.
func TestLeaseThatIsRemoved(t *testing.T) {
	r := newRig(t)
	b := r.start(t, runner, small, "")
	r.engine.Docker(t, "rm", "--force", b.Sandbox.(*sandbox).l.lease.id)
	if err := awaitEnd(t, b); !errors.Is(err, errLost) {
		t.Errorf("the sandbox ended because %v, want %v", err, errLost)
	}
	next := r.start(t, runner, small, "")
	if out, _ := next.do(t, "print(1)"); out != "1" {
		t.Errorf("a sandbox of the next lease says %q", out)
	}
	if _, err := r.Reap(t.Context()); err != nil {
		t.Error(err)
	}
	if out, _ := next.do(t, "print(1)"); out != "1" {
		t.Errorf("after Reap it says %q", out)
	}
}
