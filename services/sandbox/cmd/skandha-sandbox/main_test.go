package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/executor"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/sandbox/driver"
	"skandha.dev/services/test/natstest"
)

// TestMain makes the test binary the command itself when a test runs it again.
func TestMain(m *testing.M) {
	if os.Getenv("SKANDHA_TEST_AS_MAIN") != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func command(t *testing.T, args ...string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(natstest.Context(t), exe, args...)
	cmd.Env = append(os.Environ(), "SKANDHA_TEST_AS_MAIN=1")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	return cmd, &out
}

func TestHelpNamesEveryFlag(t *testing.T) {
	cmd, out := command(t, "--help")
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, want := range []string{
		"--nats", "SKANDHA_SANDBOX_DRIVER", "SKANDHA_SANDBOX_IMAGE", "SKANDHA_SANDBOX_RUNTIME", "SKANDHA_SANDBOX_OWNER",
		"SKANDHA_SANDBOX_WARM", "SKANDHA_SANDBOX_MAX",
		"SKANDHA_SANDBOX_IDLE", "SKANDHA_SANDBOX_MEMORY", "SKANDHA_SANDBOX_CPUS", "SKANDHA_SANDBOX_PIDS",
		"SKANDHA_SANDBOX_INDEX",
		"SKANDHA_SANDBOX_UNTRUSTED", "SKANDHA_SANDBOX_DIR", "SIGTERM",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the help does not name %s", want)
		}
	}
}

func TestAWrongSettingIsSaidAtOnce(t *testing.T) {
	for flag, want := range map[string]string{
		"--warm=99": "warm", "--memory=1": "limits.memory", "--index=ftp://x": "index", "--driver=podman": "driver",
	} {
		cmd, out := command(t, flag, "--nats=nats://127.0.0.1:1")
		if err := cmd.Run(); err == nil || !strings.Contains(out.String(), want) {
			t.Errorf("%s: %v: %s", flag, err, out)
		}
	}
}

// runner is the command as a separate process, and how core calls it.
type runner struct {
	t      *testing.T
	cmd    *exec.Cmd
	out    *bytes.Buffer
	bus    *journal.Journal
	caller *bus.Caller
	executor.Announcement
}

func start(t *testing.T, args ...string) *runner {
	t.Helper()
	server := natstest.Start(t, natstest.WithTCP())
	r := &runner{t: t, bus: natstest.Connect(t, server)}
	heard := make(chan executor.Announcement, 1000)
	if _, err := r.bus.Conn().Subscribe(subject.AllAnnouncements, func(m *nats.Msg) {
		var a executor.Announcement
		if err := json.Unmarshal(m.Data, &a); err != nil {
			t.Errorf("an announcement cannot be read: %v", err)
		}
		heard <- a
	}); err != nil {
		t.Fatal(err)
	}
	if err := r.bus.Conn().Flush(); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "d")
	r.cmd, r.out = command(t,
		append(args, "--nats="+server.ClientURL(), "--dir="+dir, "--driver=bwrap", "--slots=2", "--drain=100ms")...)
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r.Announcement = <-heard
	var err error
	if r.caller, err = r.bus.NewCaller(); err != nil {
		t.Fatal(err)
	}
	return r
}

// python runs code in a session and returns the answer.
func (r *runner) python(code string) executor.Answer {
	r.t.Helper()
	args, err := json.Marshal(map[string]any{"code": code})
	if err != nil {
		r.t.Fatal(err)
	}
	body, err := json.Marshal(executor.Request{
		Op: executor.OpRun, Agent: "a", Session: "s", Call: "c", Attempt: "n", StartBy: time.Now().Add(executor.StartWithin),
		NotAfter: time.Now().Add(time.Minute),
		Tool:     &executor.ToolCall{Name: "python:execute", Args: args, Turn: "t1", Lease: "l"},
	})
	if err != nil {
		r.t.Fatal(err)
	}
	answers := make(chan executor.Answer, 100)
	if _, err := r.caller.Send(natstest.Context(r.t), subject.Executor(subject.Runner, r.Instance), string(r.Instance),
		nil, body, func(m bus.Reply) {
			var a executor.Answer
			_ = json.Unmarshal(m.Data, &a) // no state, then, and no final one
			answers <- a
		}); err != nil {
		r.t.Fatal(err)
	}
	a := <-answers
	for !a.State.Final() {
		a = <-answers
	}
	if a.State != executor.Finished {
		r.t.Fatalf("got %+v", a)
	}
	return a
}

// TestACallFindsWhatTheHostOffers: the code runs, or the answer says what to install.
func TestACallFindsWhatTheHostOffers(t *testing.T) {
	r := start(t, "--warm=-1")
	if r.Service != "sandbox" || r.Pools[0] != (executor.Pool{Name: "sandbox", Slots: 2}) {
		t.Errorf("got %+v", r.Announcement)
	}
	a := r.python("6*7")
	switch {
	case a.Result.Success && !strings.Contains(string(a.Result.Data), `"result":42`):
		t.Errorf("got %s", a.Result.Data)
	case !a.Result.Success && !strings.Contains(a.Result.Error.Message, driver.ErrUnavailable.Error()+": "):
		t.Errorf("got %+v", a.Result.Error)
	}
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Wait(); err != nil {
		t.Fatalf("%v: %s", err, r.out)
	}
}

// TestKill9LeavesNothingForLongerThanTheReaper kills the service while a session has a
// sandbox and another is warm.
func TestKill9LeavesNothingForLongerThanTheReaper(t *testing.T) {
	r := start(t, "--warm=1")
	a := r.python("import subprocess\nsubprocess.Popen(['sleep', '1000'])\n1")
	if !a.Result.Success && strings.Contains(a.Result.Error.Message, driver.ErrUnavailable.Error()) {
		if os.Getenv("SKANDHA_REQUIRE") == "all" {
			t.Fatal(a.Result.Error)
		}
		t.Skipf("SKIPPED: %v", a.Result.Error)
	}
	var sandboxes []descendant
	natstest.Eventually(t, "two sandboxes run", func() bool {
		sandboxes = below(t, r.cmd.Process.Pid)
		return len(sandboxes) >= 2
	})
	if err := r.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = r.cmd.Wait() // it was killed
	natstest.Eventually(t, "their processes are gone",
		func() bool { return !slices.ContainsFunc(sandboxes, descendant.lives) })
}

// descendant is a process of the service; pids are reused, start times are not.
type descendant struct {
	pid     int
	started string
}

func (p descendant) lives() bool {
	_, started, ok := stat(p.pid)
	return ok && started == p.started
}

// below returns the descendants of this process.
func below(t *testing.T, root int) (out []descendant) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	from := map[int]bool{root: true}
	for again := true; again; {
		again = false
		for _, e := range entries {
			pid, err := strconv.Atoi(e.Name())
			if err != nil || from[pid] {
				continue
			}
			if parent, started, ok := stat(pid); ok && from[parent] {
				from[pid], again = true, true
				out = append(out, descendant{pid, started})
			}
		}
	}
	return out
}

// stat reads a process's parent and start time; zombies do not count.
func stat(pid int) (parent int, started string, ok bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, "", false
	}
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(f) < 20 || f[0] == "Z" {
		return 0, "", false
	}
	parent, err = strconv.Atoi(f[1])
	return parent, f[19], err == nil
}
