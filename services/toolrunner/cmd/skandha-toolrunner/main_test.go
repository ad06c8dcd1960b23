package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/executor"
	"skandha.dev/services/internal/process"
	"skandha.dev/services/test/effects"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/toolrunner"
)

// TestMain makes the test binary the command itself when a test runs it again.
func TestMain(m *testing.M) {
	switch os.Getenv("SKANDHA_TEST_AS_MAIN") {
	case "":
		os.Exit(m.Run())
	case "effects":
		var s withEffects
		process.Main("skandha-toolrunner", "For tests.", &s.Flags, &s)
	default:
		main()
	}
	os.Exit(0)
}

// withEffects is the command with tools that leave traces.
type withEffects struct{ service }

func (s *withEffects) Run(ctx context.Context, e *process.Env) error {
	extra, err := effects.In(s.Workspace)
	if err != nil {
		return err
	}
	c, err := s.config()
	if err != nil {
		return err
	}
	return toolrunner.Run(ctx, c, toolrunner.Deps{Bus: e.Bus, Logger: e.Log, Extra: extra})
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
		"--nats", "--token", "--creds", "--workspace", "--slots", "--http-allow", "--[no-]plugins",
		"SKANDHA_PLUGINS", "--log", "SKANDHA_NATS", "SIGTERM",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the help does not name %s", want)
		}
	}
}

func TestAWrongSettingIsSaidAtOnce(t *testing.T) {
	cmd, out := command(t, "--http-allow=*", "--nats=nats://127.0.0.1:1")
	if err := cmd.Run(); err == nil || !strings.Contains(out.String(), "http_allow") {
		t.Fatalf("%v: %s", err, out)
	}
}

// TestSIGTERMLetsTheRunningCallFinish starts the command as a separate process.
func TestSIGTERMLetsTheRunningCallFinish(t *testing.T) {
	server := natstest.Start(t, natstest.WithTCP())
	b := natstest.Connect(t, server)
	heard := make(chan executor.Announcement, 1000)
	if _, err := b.Conn().Subscribe(subject.AllAnnouncements, func(m *nats.Msg) {
		var a executor.Announcement
		if err := json.Unmarshal(m.Data, &a); err != nil {
			t.Errorf("an announcement cannot be read: %v", err)
		}
		heard <- a
	}); err != nil {
		t.Fatal(err)
	}
	if err := b.Conn().Flush(); err != nil {
		t.Fatal(err)
	}
	workspace := filepath.Join(t.TempDir(), "w")
	cmd, out := command(t, "--nats="+server.ClientURL(), "--workspace="+workspace, "--slots=2")
	cmd.Env = append(cmd.Env, "SKANDHA_TEST_AS_MAIN=effects")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	runner := <-heard
	if runner.Pools[0].Slots != 2 {
		t.Errorf("got %+v", runner.Pools)
	}
	caller, err := b.NewCaller()
	if err != nil {
		t.Fatal(err)
	}
	answers := make(chan executor.Answer, 100)
	send := func(r executor.Request) {
		body, _ := json.Marshal(r)
		_, err := caller.Send(natstest.Context(t), subject.Executor(subject.Runner, runner.Instance), string(runner.Instance),
			nil, body, func(m bus.Reply) {
				var a executor.Answer
				_ = json.Unmarshal(m.Data, &a)
				answers <- a
			})
		if err != nil {
			t.Fatal(err)
		}
	}
	r := executor.Request{
		Op: executor.OpRun, Agent: "a", Session: "s", Call: "c", Attempt: "n",
		StartBy: time.Now().Add(executor.StartWithin), NotAfter: time.Now().Add(time.Minute),
		Tool: &executor.ToolCall{Name: "test:count", Args: json.RawMessage(`{"key":"k","sleep_ms":300}`), Turn: "t"},
	}
	send(r)
	natstest.Eventually(t, "the call runs", func() bool {
		b, err := os.ReadFile(filepath.Join(workspace, "effects.log"))
		return err == nil && len(b) > 0
	})
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	a := <-answers
	for !a.State.Final() {
		a = <-answers
	}
	if a.State != executor.Finished || !a.Result.Success {
		t.Fatalf("got %+v", a)
	}
	r.Op = executor.OpRelease
	send(r)
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	draining, gone := false, false
	for late := time.After(natstest.Patience); !gone; {
		select {
		case a := <-heard:
			draining, gone = draining || a.Draining, a.Gone
		case <-late:
			t.Fatal("it did not announce that it goes")
		}
	}
	if !draining {
		t.Error("it did not announce that it drains")
	}
	if got, err := os.ReadFile(filepath.Join(workspace, "effects.log")); err != nil || string(got) != "k c n\n" {
		t.Fatalf("the effects are %q, %v", got, err)
	}
}
