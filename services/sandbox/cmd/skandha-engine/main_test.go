package main

import (
	"bytes"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

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

func TestAWrongSettingIsSaidAtOnce(t *testing.T) {
	for flag, want := range map[string]string{
		"--host=tcp://127.0.0.1:2375": "unix:///var/run/docker.sock", "--owner=A b": "owner", "--image=../x": "image",
		"--memory=1": "limits.memory", "--containers=1": "containers",
		"--socket=/nowhere/s": "socket", "--nats=x": "unknown flag",
		"--index=ftp://x": "index",
	} {
		cmd, out := command(t, flag)
		if err := cmd.Run(); err == nil || !strings.Contains(out.String(), want) {
			t.Errorf("%s: %v: %s", flag, err, out)
		}
	}
}

// The command serves until SIGTERM, and says by --health-check whether its engine answers.
func TestItServesAndDrains(t *testing.T) {
	dir, err := os.MkdirTemp("", "skandha-engine-main-") // short: the paths of sockets are
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	engine, socket := filepath.Join(dir, "e"), filepath.Join(dir, "s")
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", engine)
	if err != nil {
		t.Fatal(err)
	}
	s := &httptest.Server{Listener: l, Config: &http.Server{ //nolint:gosec // a test's
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Api-Version", "1.41") }),
	}}
	s.Start()
	defer s.Close()
	args := []string{"--socket=" + socket, "--host=unix://" + engine}
	healthy := func() bool {
		cmd, _ := command(t, append(args, "--health-check")...)
		return cmd.Run() == nil
	}
	if healthy() {
		t.Error("it is healthy before it runs")
	}
	cmd, out := command(t, args...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, "it is healthy", healthy)
	s.CloseClientConnections()
	s.Close()
	if healthy() {
		t.Error("it is healthy without an engine")
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if _, err := os.Stat(socket); err == nil {
		t.Error("the socket is left")
	}
}
