package mcp_test

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/toolrunner/mcp"
)

// python returns a server that is written with Python's standard library.
func python(t *testing.T, isolation mcp.Isolation) mcp.Server {
	t.Helper()
	if isolation != mcp.Host {
		needBwrap(t)
	}
	if _, err := exec.LookPath("/usr/bin/python3"); err != nil {
		missing(t, "python3 is not installed (Debian: apt install python3)")
	}
	dir, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	s := mcp.Server{Command: []string{"/usr/bin/python3", filepath.Join(dir, "server.py")}, Isolation: isolation}
	if isolation != mcp.Host {
		s.Read = []string{dir}
	}
	return s
}

func TestACommandIsAServer(t *testing.T) {
	r := newRig(t, map[string]mcp.Server{"py": python(t, mcp.Host)})
	if got := r.text("py:echo", `{"text":"hello"}`); got != "hello" {
		t.Errorf("it says %q", got)
	}
}

// Each call has one result, which is true, and the next call reaches a new process.
func TestAServerThatDiesIsStartedAgain(t *testing.T) {
	r := newRig(t, map[string]mcp.Server{"py": python(t, mcp.Host)})
	before := r.text("py:pid", `{}`)
	res, err := r.call(t.Context(), "py:die", `{}`)
	if err != nil || res.Success || res.Error.Code != tool.CodeOutcomeUnknown {
		t.Errorf("a call in which the server died: %+v, %v", res, err)
	}
	if after := r.text("py:pid", `{}`); after == before {
		t.Error("the process that died has answered")
	}
	pid, err := strconv.Atoi(r.text("py:pid", `{}`))
	if err != nil {
		t.Fatal(err)
	}
	progress := make(chan string, 9)
	ended := make(chan tool.Result, 1)
	go func() {
		res, _ := r.tool("py:wait").Call(t.Context(), r.with(`{}`, func(s string) { progress <- s }))
		ended <- res
	}()
	if said := <-progress; said != "half way" {
		t.Errorf("the progress is %q", said)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if res := <-ended; res.Success || res.Error.Code != tool.CodeOutcomeUnknown {
		t.Errorf("a call in which the server was killed: %+v", res)
	}
	if after := r.text("py:pid", `{}`); after == strconv.Itoa(pid) {
		t.Error("the process that was killed has answered")
	}
}

func TestACallThatIsCancelledIsCancelledAtTheServer(t *testing.T) {
	r := newRig(t, map[string]mcp.Server{"py": python(t, mcp.Host)})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	res, err := r.tool("py:wait").Call(ctx, r.with(`{}`, func(string) { cancel() }))
	if err != nil || res.Success || res.Error.Code != tool.CodeOutcomeUnknown {
		t.Errorf("the result is %+v, %v", res, err)
	}
	r.logged("cancelled by the client")
}

func TestACommandThatCannotStartIsReported(t *testing.T) {
	r := newRig(t, map[string]mcp.Server{
		"none": {Command: []string{"/nonexistent/server"}, Isolation: mcp.Host},
		"bad":  {Command: []string{"/bin/sh", "-c", "echo its reason >&2; exit 1"}, Isolation: mcp.Host},
	})
	r.logged("/nonexistent/server")
	r.logged("its last words: its reason")
}

// Who writes to a server that does not read hangs, but not the call.
func TestAServerThatDoesNotReadIsEnded(t *testing.T) {
	deaf := python(t, mcp.Host)
	deaf.Command = append(deaf.Command, "deaf")
	r := newRig(t, map[string]mcp.Server{"py": deaf})
	target := r.tool("py:echo")
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	res, err := target.Call(ctx, r.with(`{"text":"`+strings.Repeat("x", 200<<10)+`"}`, nil))
	if err != nil || res.Success || res.Error.Code != tool.CodeTimeout {
		t.Errorf("the result is %+v, %v", res, err)
	}
	r.logged("the connection has ended")
}

func needBwrap(t *testing.T) {
	t.Helper()
	if err := exec.Command("bwrap", "--unshare-all", "--ro-bind", "/", "/", "true").Run(); err != nil {
		missing(t, "bubblewrap does not work (Debian: apt install bubblewrap): "+err.Error())
	}
}

// missing skips the test, or fails it if the environment says SKANDHA_REQUIRE=all.
func missing(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("SKANDHA_REQUIRE") == "all" {
		t.Fatal("NOT TESTED: " + what)
	}
	t.Skip("NOT TESTED: " + what)
}

// A server in the sandbox sees the system's programs, the directories that are named, and its home.
func TestACommandInTheSandboxSeesNothingOfTheHost(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("SKANDHA_SECRET", "HUSH")
	closed, open := python(t, mcp.Sandbox), python(t, mcp.Sandbox)
	open.Network, open.Env = true, map[string]string{"KEY": "env:SKANDHA_SECRET"}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, map[string]mcp.Server{"closed": closed, "open": open})
	if got := r.text("closed:look", `{"path":"/home/mcp"}`); got != "" {
		t.Errorf("its new home has %q", got)
	}
	for path, want := range map[string]string{
		"/etc/ssl/private": "error: No such file or directory", "/etc/shadow": "error: No such file or directory",
		"/home": "mcp", "/root": "error: No such file or directory", "/tmp": "", here: "testdata",
		"write:/usr/x": "error: Read-only file system", "write:/x": "error: Read-only file system", "write:/home/mcp/kept": "written",
		"env:SKANDHA_SECRET": "", "env:HOME": "/home/mcp", "net:" + port: "error: Connection refused",
		"status:Seccomp": "2", "status:CapEff": "0000000000000000", "status:NoNewPrivs": "1",
	} {
		if got := r.text("closed:look", `{"path":"`+path+`"}`); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	if got := r.text("open:look", `{"path":"net:`+port+`"}`); got != "connected" {
		t.Errorf("with network: %q", got)
	}
	if got := r.text("open:look", `{"path":"env:KEY"}`); got != "HUSH" {
		t.Errorf("its variable is %q", got)
	}
	if _, err := r.call(t.Context(), "closed:die", `{}`); err != nil {
		t.Fatal(err)
	}
	if got := r.text("closed:look", `{"path":"/home/mcp"}`); got != "kept" {
		t.Errorf("after a restart its home has %q", got)
	}
}

func TestWithoutBubblewrapACommandIsNotStarted(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	r := newRig(t, map[string]mcp.Server{"py": {Command: []string{"/usr/bin/python3"}}})
	r.logged("install it (Debian: apt install bubblewrap), or let the command run as a program of this user with isolation: host")
}

// What a command has started ends with it, also if it does not react to the end of its input.
func TestNothingIsLeftBehind(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pids")
	stubborn := `trap "" TERM; sleep 1000 & echo $! $$ > ` + file + `; while :; do sleep 1000; done`
	group := newRig(t, map[string]mcp.Server{"s": {Command: []string{"/bin/sh", "-c", stubborn}, Isolation: mcp.Host}}).group
	var pids []string
	natstest.Eventually(t, "it runs", func() bool {
		b, err := os.ReadFile(file)
		pids = strings.Fields(string(b))
		return err == nil && len(pids) == 2
	})
	group.Close()
	for _, p := range pids {
		pid, err := strconv.Atoi(p)
		if err != nil {
			t.Fatal(err)
		}
		natstest.Eventually(t, "process "+p+" has ended", func() bool { return gone(pid) })
	}
}

func gone(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return true
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil || strings.Contains(string(stat), ") Z ")
}
