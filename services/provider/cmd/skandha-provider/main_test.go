package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/bus"
	contract "skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/executor"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/test/natstest"
)

// TestMain is the command itself when a test starts this binary as one.
func TestMain(m *testing.M) {
	if os.Getenv("SKANDHA_TEST_COMMAND") == "1" {
		main()
		return
	}
	os.Exit(m.Run())
}

func command(t *testing.T, args ...string) (*exec.Cmd, *strings.Builder) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), "SKANDHA_TEST_COMMAND=1", "OPENAI_API_KEY=", "OPENAI_BASE_URL=",
		"ANTHROPIC_API_KEY=", "GEMINI_API_KEY=", "GOOGLE_API_KEY=", "SKANDHA_PROVIDER=",
		"SKANDHA_HTTP=")
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	return cmd, &out
}

func TestProcessAnswersAndDrains(t *testing.T) {
	srv := natstest.Start(t, natstest.WithTCP())
	b := natstest.Connect(t, srv)
	announced := make(chan executor.Announcement, 100)
	if _, err := b.Conn().Subscribe(subject.AllAnnouncements, func(m *nats.Msg) {
		var a executor.Announcement
		if err := json.Unmarshal(m.Data, &a); err != nil {
			t.Error(err)
		}
		announced <- a
	}); err != nil {
		t.Fatal(err)
	}
	if err := b.Conn().Flush(); err != nil {
		t.Fatal(err)
	}
	addr := fmt.Sprintf("127.0.0.1:%d", natstest.FreePort(t))
	cmd, out := command(t, "--nats", srv.ClientURL(), "--token", srv.Token(), "--provider", "offline", "--slots", "3",
		"--drain", "100ms", "--http", addr)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })

	var a executor.Announcement
	select {
	case a = <-announced:
	case <-time.After(natstest.Patience):
		t.Fatalf("nothing is announced; the process says %s", out)
	}
	if a.Service != "provider" || len(a.Providers) != 1 || a.Providers[0].Name != "offline" || a.Pools[0].Slots != 3 {
		t.Errorf("announced is %+v", a)
	}
	if resp := ask(t, b, a.Instance, "hello"); !strings.Contains(resp.TextContent, "running **offline**") {
		t.Errorf("answer is %+v", resp)
	}

	natstest.Eventually(t, "the health check", func() bool {
		check, _ := command(t, "--health-check", "--http", addr)
		return check.Run() == nil
	})

	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v: %s", err, out)
	}
	if log := out.String(); !strings.Contains(log, "provider: offline rules: it is configured") ||
		strings.Contains(log, srv.Token()) && srv.Token() != "" {
		t.Errorf("the log is %s", log)
	}
}

func ask(t *testing.T, b *journal.Journal, to subject.Instance, text string) contract.Response {
	t.Helper()
	caller, err := b.NewCaller()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = caller.Close() })
	m, err := json.Marshal(contract.Message{Role: contract.RoleUser, Text: text})
	if err != nil {
		t.Fatal(err)
	}
	body, err := json.Marshal(executor.Request{
		Op: executor.OpRun, Agent: "a", Session: "s", Call: "t1-p1", Attempt: "n",
		StartBy: time.Now().Add(natstest.Patience), NotAfter: time.Now().Add(natstest.Patience),
		Model: &contract.Request{Messages: []json.RawMessage{m}},
	})
	if err != nil {
		t.Fatal(err)
	}
	final := make(chan executor.Answer, 1)
	cancel, err := caller.Send(context.Background(), subject.Executor(subject.Provider, to), string(to), nil, body,
		func(r bus.Reply) {
			var a executor.Answer
			if err := json.Unmarshal(r.Data, &a); err == nil && a.State.Final() {
				final <- a
			}
		})
	if err != nil {
		t.Fatal(err)
	}
	defer cancel()
	select {
	case a := <-final:
		if a.Response == nil {
			t.Fatalf("answer is %+v", a)
		}
		return *a.Response
	case <-time.After(natstest.Patience):
		t.Fatal("no answer")
		return contract.Response{}
	}
}

func TestWrongUseIsExplained(t *testing.T) {
	srv := natstest.Start(t, natstest.WithTCP())
	for want, args := range map[string][]string{
		`"openia" is unknown, want one of offline, openai, anthropic, gemini, local`: {"--provider", "openia"},
		"OPENAI_API_KEY is not set": {"--provider", "openai"},
		"slots is -1":               {"--slots=-1"},
		"http: listen tcp: address nonsense": {
			"--provider", "offline", "--http", "nonsense", "--drain", "1ms",
		},
		"health check": {"--health-check", "--http", "127.0.0.1:1"},
	} {
		cmd, out := command(t, append(args, "--nats", srv.ClientURL(), "--token", srv.Token())...)
		if err := cmd.Run(); err == nil || !strings.Contains(out.String(), want) {
			t.Errorf("%v: %v: %s", args, err, out)
		}
	}
}
