package listener_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"skandha.dev/services/test/listenertest"
	"skandha.dev/services/test/natstest"
)

// command builds the service's command, as make build does.
func command(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "skandha-listener")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", path,
		"skandha.dev/services/listener/cmd/skandha-listener")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building: %v\n%s", err, out)
	}
	return path
}

func TestTheCommand(t *testing.T) {
	path := command(t)
	p := natstest.StartProcess(t, "", 0)
	b := natstest.ConnectURL(t, p.URL())
	t.Run("takes lines and ends with them", func(t *testing.T) {
		var out, log bytes.Buffer
		cmd := exec.CommandContext(t.Context(), path, "--nats", p.URL(), "--stdin", "lines", "--session", "piped", "--json",
			"--acks")
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(`{"text": "one", "id": "1"}`+"\n"+
			`{"text": "two", "id": "2"}`), &out, &log
		if err := cmd.Run(); err != nil {
			t.Fatalf("%v\n%s", err, log.String())
		}
		if in := listenertest.Log(t, b, ref("piped")); len(in) != 2 || in[0].ID != "1" || in[1].Text != "two" ||
			in[0].Writer != "lines" {
			t.Errorf("the log holds %+v", in)
		}
		if got := out.String(); strings.Count(got, "\n") != 2 || !strings.Contains(got, `{"line":2,"id":"2","sequence":2}`) {
			t.Errorf("the acks are %s", got)
		}
	})
	t.Run("fails if a line was wrong", func(t *testing.T) {
		cmd := exec.CommandContext(t.Context(), path, "--nats", p.URL(), "--stdin", "lines", "--json")
		cmd.Stdin = strings.NewReader("nonsense\n")
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), "1 of 1 lines were refused") {
			t.Errorf("%v\n%s", err, out)
		}
	})
	t.Run("refuses a configuration that is wrong", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "config.yaml")
		if err := os.WriteFile(file, []byte("listeners:\n  webhok: {}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(t.Context(), path, "--config", file).CombinedOutput()
		if err == nil || !strings.Contains(string(out), ":2: listeners.webhok: unknown key, did you mean webhook?") {
			t.Errorf("%v\n%s", err, out)
		}
	})
	t.Run("is ready, and ends cleanly on SIGTERM", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "config.yaml")
		health, hooks := fmt.Sprintf("127.0.0.1:%d", natstest.FreePort(t)), fmt.Sprintf("127.0.0.1:%d", natstest.FreePort(t))
		config := fmt.Sprintf("listeners:\n  http: {listen: %q}\n  webhook: {calls: {session: called, insecure: true}}\n"+
			"  cron: {clock: {session: s}}\n", hooks)
		if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		cmd := exec.CommandContext(t.Context(), path, "--nats", p.URL(), "--config", file, "--http", health)
		cmd.Stderr, cmd.Stdout = &log, io.Discard
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		natstest.Eventually(t, "it is ready", func() bool {
			return exec.CommandContext(t.Context(), path, "--health-check", "--http", health).Run() == nil
		})
		if code, body := post(t, "http://"+hooks+"/hooks/calls", `{"text": "x"}`); code != 202 {
			t.Errorf("answered %d %s", code, body)
		}
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("it ended with %v\n%s", err, log.String())
		}
		if in := listenertest.Log(t, b, ref("called")); len(in) != 1 {
			t.Errorf("the log holds %+v", in)
		}
	})
}
