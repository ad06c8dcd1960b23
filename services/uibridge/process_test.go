package uibridge_test

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"skandha.dev/services/test/natstest"
	"skandha.dev/services/uibridge/access"
)

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// letsIn reports whether a page that may not be served yet accepts the token.
func letsIn(t *testing.T, page, token string) bool {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, page+"/v1/auth/me", nil)
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Authorization", "Bearer "+token)
	res, err := http.DefaultClient.Do(q)
	if err != nil {
		return false
	}
	defer res.Body.Close()
	return res.StatusCode == http.StatusOK
}

// The service's command, as make build builds it and an operator runs it.
func TestTheCommand(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "skandha-uibridge")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", path,
		"skandha.dev/services/uibridge/cmd/skandha-uibridge")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building: %v\n%s", err, out)
	}
	p := natstest.StartProcess(t, "", 0)
	natstest.ConnectURL(t, p.URL())
	page, health := fmt.Sprintf("127.0.0.1:%d", natstest.FreePort(t)), fmt.Sprintf("127.0.0.1:%d", natstest.FreePort(t))
	run := func(args ...string) (*exec.Cmd, *bytes.Buffer) {
		var out bytes.Buffer
		cmd := exec.CommandContext(t.Context(), path, append([]string{"--nats", p.URL()}, args...)...)
		cmd.Env = append(os.Environ(), "SKANDHA_UI_TOKEN=", "SKANDHA_UI_DATA=") // there may be a bridge of somebody's own
		cmd.Stdout, cmd.Stderr = &out, &out
		return cmd, &out
	}
	t.Run("makes a token, says where, and ends cleanly", func(t *testing.T) {
		for i := range 2 {
			cmd, out := run("--listen", page, "--http", health, "--data", dir)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			var token []byte
			natstest.Eventually(t, "the page lets its owner in", func() bool {
				var err error
				token, err = os.ReadFile(filepath.Join(dir, access.TokenFile))
				return err == nil && letsIn(t, "http://"+page, strings.TrimSpace(string(token)))
			})
			natstest.Eventually(t, "it is ready", func() bool {
				return exec.CommandContext(t.Context(), path, "--health-check", "--http", health).Run() == nil
			})
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("it ended with %v\n%s", err, out)
			}
			if strings.Contains(out.String(), strings.TrimSpace(string(token))) {
				t.Errorf("the log holds the token:\n%s", out)
			}
			if said := strings.Contains(out.String(), access.TokenFile); said != (i == 0) {
				t.Errorf("at start %d it says where its token is: %t\n%s", i+1, said, out)
			}
		}
	})
	t.Run("refuses what is wrong", func(t *testing.T) {
		config := filepath.Join(dir, "config.yaml")
		writeFile(t, config, "ui: {listen: nonsense}\n")
		for want, args := range map[string][]string{
			"ui.listen": {"--config", config}, "SKANDHA_UI_TOKEN": {"--listen", page},
			"--url or SKANDHA_UI_URL": {"--url", "agent"},
		} {
			cmd, out := run(args...)
			if err := cmd.Run(); err == nil || !strings.Contains(out.String(), want) {
				t.Errorf("%v: %v\n%s", args, err, out)
			}
		}
	})
}
