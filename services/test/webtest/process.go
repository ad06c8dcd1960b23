package webtest

import (
	"context"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"skandha.dev/services/skandha/system"
	"skandha.dev/services/uibridge"
)

// build makes the bridge's own binary.
func (r *Rig) build() {
	r.t.Helper()
	r.binary = filepath.Join(r.dir, "skandha-uibridge")
	cmd := exec.CommandContext(r.t.Context(), "go", "build", "-o", r.binary,
		"skandha.dev/services/uibridge/cmd/skandha-uibridge")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		r.t.Fatalf("building the bridge: %v\n%s", err, out)
	}
}

// spawn runs the binary against the system's bus.
func (r *Rig) spawn(addr string) {
	r.t.Helper()
	at, err := url.Parse(r.System.Join())
	if err != nil {
		r.t.Fatal(err)
	}
	at.User = nil
	key, err := system.ServiceKey(filepath.Join(r.dir, "data"), "uibridge")
	if err != nil {
		r.t.Fatal(err)
	}
	args := []string{"--nats", at.String(), "--key", key, "--listen", addr, "--data", r.dir, "--log", "warn"}
	if r.config != "" {
		args = append(args, "--config", r.config)
	}
	out, err := os.OpenFile(filepath.Join(r.dir, "bridge.log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = out.Close() }()
	cmd := exec.CommandContext(context.Background(), r.binary, args...) // it ends when it is killed
	cmd.Env = append(os.Environ(), uibridge.TokenVar+"="+r.Token)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		r.t.Fatalf("starting the bridge: %v", err)
	}
	r.stop = func() {
		_ = cmd.Process.Signal(syscall.SIGKILL) // it may have ended by itself, which the log says
		_ = cmd.Wait()
		if r.t.Failed() {
			log, _ := os.ReadFile(out.Name())
			r.t.Logf("--- the bridge\n%s", log)
		}
	}
	r.await()
}
