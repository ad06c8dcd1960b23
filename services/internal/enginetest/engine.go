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
	// Host is what DOCKER_HOST is there; empty: the client's default.
	Host string
	// PID is that of our own dockerd, whose network the published ports are in; 0:
	// the engine is somebody else's, and so is its network.
	PID int

	own *daemon
}

// Find uses the engine that answers, or starts one for the time of the test.
func Find(t testing.TB) *Engine {
	t.Helper()
	if e := answering(t); e != nil {
		return e
	}
	return Start(t)
}

// Start starts an engine for the time of the test, with these arguments beside its
// own, even if another one answers.
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

// Main runs the tests, and stops the engine that they have shared. It is all that
// a TestMain has to call.
func Main(m *testing.M) {
	m.Run()
	shared.Lock()
	defer shared.Unlock()
	if e := shared.engine; e != nil && e.own != nil {
		if err := e.own.stop(); err != nil {
			panic(err) // no test is left that could fail
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

// answering is the engine that answers, or nil.
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
		Missing(t, "no Docker engine answers, and only root can start one")
	}
	Need(t, "docker", "dockerd", "ip", "nsenter")
}

// Stop stops an engine of our own before its test ends, and leaves it stopped.
func (e *Engine) Stop(t testing.TB) {
	t.Helper()
	if e.own == nil {
		t.Fatal("the engine is not ours to stop")
	}
	if err := e.own.end(); err != nil {
		t.Error(err)
	}
}

// Command is one that may speak to the engine.
func (e *Engine) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = e.Env
	return cmd
}

// HostCommand is a command that runs where the published ports are.
func (e *Engine) HostCommand(ctx context.Context, name string, args ...string) *exec.Cmd {
	if e.PID == 0 {
		return e.Command(ctx, name, args...)
	}
	return e.Command(ctx, "nsenter", append([]string{"--net", "--target", strconv.Itoa(e.PID), name}, args...)...)
}

// Docker runs the client, which has to succeed, and returns what it prints.
func (e *Engine) Docker(t testing.TB, args ...string) string {
	t.Helper()
	return Output(t, e.Command(t.Context(), "docker", args...))
}

// Need wants programs.
func Need(t testing.TB, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			Missing(t, p+" is not installed")
		}
	}
}

// Missing ends a test that cannot run here.
func Missing(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("SKANDHA_REQUIRE") == "all" {
		t.Fatal("NOT TESTED: " + what)
	}
	t.Skip("NOT TESTED: " + what)
}

var errEnded = errors.New("dockerd has ended")
