package e2etest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"skandha.dev/services/test/natstest"
)

// Binary is a main, built and run as an operator runs it.
type Binary struct {
	Name, Path, HTTP string
	Args, Env        []string

	t   testing.TB
	log string
	cmd *exec.Cmd
}

// Build compiles a main of the services, such as "core/cmd/skandha-core", into a directory.
func Build(t testing.TB, dir, pkg string) (path string) {
	t.Helper()
	path = filepath.Join(dir, filepath.Base(pkg))
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", path, "skandha.dev/services/"+pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v\n%s", pkg, err, out)
	}
	return path
}

// NewBinary prepares a process of a main that was built. It is killed when the test ends.
func NewBinary(t testing.TB, name, path string, args ...string) *Binary {
	b := &Binary{
		t: t, Name: name, Path: path, Args: args, HTTP: fmt.Sprintf("127.0.0.1:%d", natstest.FreePort(t)),
		log: filepath.Join(filepath.Dir(path), name+".log"),
	}
	t.Cleanup(func() {
		_ = b.End(syscall.SIGKILL) // how it ended was looked at before
		if t.Failed() {
			out, _ := os.ReadFile(b.log)
			t.Logf("--- %s\n%s", name, out[max(0, len(out)-8<<10):])
			if keep := os.Getenv("SKANDHA_E2E_KEEP"); keep != "" {
				_ = os.WriteFile(filepath.Join(keep, name+".log"), out, 0o600)
			}
		}
	})
	return b
}

// Start starts the process.
func (b *Binary) Start() {
	b.t.Helper()
	out, err := os.OpenFile(b.log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = out.Close() }()
	b.cmd = exec.Command(b.Path, append(b.Args, "--http", b.HTTP)...) //nolint:noctx // ends by End
	b.cmd.Env = append(os.Environ(), b.Env...)
	b.cmd.Stdout, b.cmd.Stderr = out, out
	dieWithParent(b.cmd)
	if err := b.cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
}

// End sends the process a signal and waits until it has ended.
func (b *Binary) End(how syscall.Signal) error {
	if b.cmd == nil {
		return nil
	}
	_ = b.cmd.Process.Signal(how)
	err := b.cmd.Wait()
	b.cmd = nil
	return err
}

// Stop ends the process by SIGTERM. It is an error of the test if that takes longer than
// [Patience], or if the process fails.
func (b *Binary) Stop() {
	b.t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- b.End(syscall.SIGTERM) }()
	select {
	case err := <-ended:
		if err != nil {
			b.t.Errorf("%s: SIGTERM: %v", b.Name, err)
		}
	case <-time.After(Patience):
		b.t.Errorf("%s did not end by SIGTERM", b.Name)
	}
}

// Ready runs the binary's own health check, as a container's engine does.
func (b *Binary) Ready() error {
	return exec.CommandContext(b.t.Context(), b.Path, "--health-check", "--http", b.HTTP).Run()
}

// Get reads a path of the process's HTTP server.
func (b *Binary) Get(path string) string {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), Patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+b.HTTP+path, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return string(body)
}
