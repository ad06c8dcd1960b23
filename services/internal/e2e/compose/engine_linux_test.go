package compose

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// engine is a Docker engine.
type engine struct {
	env     []string // for clients
	pid     int      // of our own dockerd, whose network the published ports are in; 0: the host's
	compose []string
}

// findEngine uses the engine that answers, or starts one for the time of the test.
func findEngine(t *testing.T) *engine {
	t.Helper()
	need(t, "docker")
	e := &engine{env: os.Environ()}
	if e.command(t.Context(), "docker", "info").Run() != nil {
		if os.Geteuid() != 0 {
			missing(t, "no Docker engine answers, and only root can start one")
		}
		need(t, "dockerd", "ip", "nsenter")
		e.start(t)
	}
	switch {
	case e.command(t.Context(), "docker", "compose", "version").Run() == nil:
		e.compose = []string{"docker", "compose"}
	default:
		need(t, "docker-compose")
		e.compose = []string{"docker-compose"}
	}
	return e
}

// need wants programs.
func need(t *testing.T, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			missing(t, p+" is not installed")
		}
	}
}

// missing ends a test that cannot run here.
func missing(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("SKANDHA_REQUIRE") == "all" {
		t.Fatal("NOT TESTED: " + what)
	}
	t.Skip("NOT TESTED: " + what)
}

// start runs dockerd until the test ends. The kernel stops it when this process
// dies, and takes its network with it.
func (e *engine) start(t *testing.T) {
	t.Helper()
	dir, err := os.MkdirTemp("", "skandha-engine-") // short: the paths of sockets are
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("removing the engine's directory: %v", err)
		}
	})
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	socket := "unix://" + filepath.Join(dir, "sock")
	cmd := exec.Command("sh", "-c", `ip link set lo up && exec dockerd "$@"`, "sh",
		"--host", socket, "--data-root", filepath.Join(dir, "data"), "--exec-root", filepath.Join(dir, "exec"),
		"--pidfile", filepath.Join(dir, "pid"), "--shutdown-timeout", "5")
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGTERM}
	started, ended := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread() // the signal comes when the thread ends, not the process
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // its log tells why
			close(ended)
		}
	}()
	if err := <-started; err != nil {
		t.Fatalf("starting dockerd: %v", err)
	}
	e.pid = cmd.Process.Pid
	e.env = append(e.env, "DOCKER_HOST="+socket, "DOCKER_CONFIG="+filepath.Join(dir, "config"))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the engine's log ends:\n%s", tail(log.Name()))
		}
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(30 * time.Second):
			_ = cmd.Process.Kill()
			<-ended
			t.Error("dockerd did not end within 30 s of SIGTERM")
		}
		e.unmount(t, dir)
	})
	await(t, time.Minute, func(ctx context.Context) error {
		select {
		case <-ended:
			t.Fatalf("dockerd has ended:\n%s", tail(log.Name()))
		default:
		}
		return e.command(ctx, "docker", "info").Run()
	})
}

// unmount detaches what an engine that was killed has left mounted.
func (e *engine) unmount(t *testing.T, dir string) {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Errorf("reading the mounts: %v", err)
	}
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 1 && strings.HasPrefix(f[1], dir+"/") {
			if err := syscall.Unmount(f[1], syscall.MNT_DETACH); err != nil {
				t.Errorf("unmounting %s: %v", f[1], err)
			}
		}
	}
}

func (e *engine) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = e.env
	return cmd
}

// host is a command that runs where the published ports are.
func (e *engine) host(ctx context.Context, name string, args ...string) *exec.Cmd {
	if e.pid == 0 {
		return e.command(ctx, name, args...)
	}
	return e.command(ctx, "nsenter", append([]string{"--net", "--target", strconv.Itoa(e.pid), name}, args...)...)
}

// docker runs the client and returns what it prints.
func (e *engine) docker(t *testing.T, args ...string) string {
	t.Helper()
	return output(t, e.command(t.Context(), "docker", args...))
}

// output runs a command that has to succeed.
func output(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", strings.Join(cmd.Args, " "), err, out, stderr.String())
	}
	return strings.TrimSpace(string(out))
}

// await polls until the condition holds.
func await(t *testing.T, patience time.Duration, condition func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	poll := time.NewTicker(100 * time.Millisecond)
	defer poll.Stop()
	for {
		err := condition(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("not within %v: %v", patience, err)
		case <-poll.C:
		}
	}
}

// tail is the end of a file.
func tail(name string) string {
	b, err := os.ReadFile(name)
	if err != nil {
		return fmt.Sprintf("(%v)", err)
	}
	return string(b[max(0, len(b)-4096):])
}
