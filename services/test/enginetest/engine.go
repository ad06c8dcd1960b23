package enginetest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"
)

// Engine is a Docker engine.
type Engine struct {
	// Env is the environment of its clients.
	Env []string
	// Host is the value of DOCKER_HOST; empty: the client's default.
	Host string
	// PID is the process id of the private dockerd, whose network has the published ports.
	// It is 0 if the engine is not private.
	PID int

	own *daemon
}

// Find returns the running engine, or starts one until the test ends.
func Find(t testing.TB) *Engine {
	t.Helper()
	if e := answering(t); e != nil {
		return e
	}
	return Start(t)
}

// Start starts an engine until the test ends, with additional arguments, even if another
// one is running.
func Start(t testing.TB, args ...string) *Engine {
	t.Helper()
	needOwn(t)
	e, err := start(t.Context(), args)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the engine's log ends:\n%s", e.own.tail())
		}
		if err := e.own.stop(); err != nil {
			t.Error(err)
		}
	})
	return e
}

var shared struct {
	sync.Mutex
	engine *Engine
}

// Main runs the tests, and stops the engine that they have shared. A TestMain only needs
// to call Main.
func Main(m *testing.M) {
	m.Run()
	shared.Lock()
	defer shared.Unlock()
	if e := shared.engine; e != nil && e.own != nil {
		if err := e.own.stop(); err != nil {
			panic(err) // there is no test left to fail
		}
	}
}

// Shared is like Find, but its engine stays until Main ends: one for all tests of
// the package.
func Shared(t testing.TB) *Engine {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.engine == nil {
		if e := answering(t); e != nil {
			shared.engine = e
			return e
		}
		needOwn(t)
		e, err := start(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		shared.engine = e
	}
	return shared.engine
}

// answering returns the running engine, or nil.
func answering(t testing.TB) *Engine {
	t.Helper()
	Need(t, "docker")
	e := &Engine{Env: os.Environ(), Host: os.Getenv("DOCKER_HOST")}
	if e.Command(t.Context(), "docker", "info").Run() != nil {
		return nil
	}
	return e
}

func needOwn(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		Missing(t, "no Docker engine is running, and only root can start one")
	}
	Need(t, "docker", "dockerd", "ip", "nsenter")
}

// Stop stops a private engine before its test ends.
func (e *Engine) Stop(t testing.TB) {
	t.Helper()
	if e.own == nil {
		t.Fatal("the engine is not private, so it must not be stopped")
	}
	if err := e.own.end(); err != nil {
		t.Error(err)
	}
}

// Command returns a command that can use the engine.
func (e *Engine) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = e.Env
	return cmd
}

// HostCommand returns a command that runs in the network that has the published ports.
func (e *Engine) HostCommand(ctx context.Context, name string, args ...string) *exec.Cmd {
	if e.PID == 0 {
		return e.Command(ctx, name, args...)
	}
	return e.Command(ctx, "nsenter", append([]string{"--net", "--target", strconv.Itoa(e.PID), name}, args...)...)
}

// Docker runs the client, which must succeed, and returns its output.
func (e *Engine) Docker(t testing.TB, args ...string) string {
	t.Helper()
	return Output(t, e.Command(t.Context(), "docker", args...))
}

// Need skips or fails the test unless the programs are installed; see [Missing].
func Need(t testing.TB, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			Missing(t, p+" is not installed")
		}
	}
}

// Missing skips a test that cannot run here, or fails it if SKANDHA_REQUIRE=all.
func Missing(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("SKANDHA_REQUIRE") == "all" {
		t.Fatal("NOT TESTED: " + what)
	}
	t.Skip("NOT TESTED: " + what)
}

var errEnded = errors.New("dockerd has ended")
