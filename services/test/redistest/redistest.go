// Package redistest starts a private Redis for a test.
package redistest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"skandha.dev/services/test/natstest"
)

// Password is the servers' password, so that tests include authentication.
const Password = "redistest-secret"

const attempts = 5

// Need finds the program redis-server. Without it, it skips the test, or fails it if the
// environment says SKANDHA_REQUIRE=all.
func Need(tb testing.TB) (program string) {
	tb.Helper()
	program, err := exec.LookPath("redis-server")
	if err != nil {
		const missing = "NOT TESTED: redis-server is not installed"
		if os.Getenv("SKANDHA_REQUIRE") == "all" {
			tb.Fatal(missing)
		}
		tb.Skip(missing)
	}
	return program
}

// Start runs redis-server on a free loopback port, with nothing persisted, until
// the test ends, and returns its redis:// URL. Directives are further lines of its
// configuration. Without the program see [Need].
func Start(tb testing.TB, directives ...string) (url string) {
	tb.Helper()
	program := Need(tb)
	var err error
	for range attempts {
		port := natstest.FreePort(tb)
		if err = start(tb, program, port, directives); err == nil {
			return address(port)
		}
	}
	tb.Fatalf("redistest: %v", err)
	return ""
}

// Later returns the URL of a server that is not running yet, and a function that starts
// it.
func Later(tb testing.TB) (url string, run func()) {
	tb.Helper()
	program, port := Need(tb), natstest.FreePort(tb)
	return address(port), func() {
		tb.Helper()
		if err := start(tb, program, port, nil); err != nil {
			tb.Fatalf("redistest: %v", err)
		}
	}
}

func address(port int) string { return fmt.Sprintf("redis://:%s@127.0.0.1:%d/0", Password, port) }

// start tries one port, which another process may take first.
func start(tb testing.TB, program string, port int, directives []string) error {
	config := append([]string{
		"bind 127.0.0.1", fmt.Sprintf("port %d", port), "requirepass " + Password,
		fmt.Sprintf("dir %q", tb.TempDir()), `save ""`, "appendonly no", "daemonize no",
	}, directives...)
	cmd := exec.Command(program, "-") //nolint:noctx // ends by its process id, in cleanup
	cmd.Stdin = strings.NewReader(strings.Join(config, "\n") + "\n")
	dieWithParent(cmd)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	stop := func() {
		_ = cmd.Process.Kill() // fails only if it has ended by itself
		_ = cmd.Wait()
	}
	if err := ready(out); err != nil {
		stop()
		return err
	}
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		_, _ = io.Copy(io.Discard, out) // a full pipe would stop the server
	}()
	tb.Cleanup(func() {
		stop()
		<-drained
	})
	return nil
}

// ready reads the server's log until it reports that it is ready.
func ready(log io.Reader) error {
	var last string
	for lines := bufio.NewScanner(log); lines.Scan(); {
		if strings.Contains(lines.Text(), "eady to accept connections") {
			return nil
		}
		last = lines.Text()
	}
	return errors.New("redis-server ended: " + last)
}
