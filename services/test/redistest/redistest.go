// Package redistest starts a private Redis for a test.
package redistest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

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
		if _, err = start(tb, program, port, directives); err == nil {
			return address(port)
		}
	}
	tb.Fatalf("redistest: %v", err)
	return ""
}

// Later returns the URL of a server that is not running yet, and a function that starts
// it, also after it was killed.
func Later(tb testing.TB) (url string, run func() (kill func())) {
	tb.Helper()
	program, port := Need(tb), natstest.FreePort(tb)
	return address(port), func() func() {
		tb.Helper()
		kill, err := start(tb, program, port, nil)
		if err != nil {
			tb.Fatalf("redistest: %v", err)
		}
		return kill
	}
}

// StartCluster runs a cluster of one node that serves all slots, and returns its URL.
func StartCluster(tb testing.TB) (url string) {
	tb.Helper()
	port := natstest.FreePort(tb)
	if _, err := start(tb, Need(tb), port, []string{
		"cluster-enabled yes", fmt.Sprintf("cluster-port %d", natstest.FreePort(tb)),
	}); err != nil {
		tb.Fatalf("redistest: %v", err)
	}
	var d net.Dialer
	conn, err := d.DialContext(tb.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		tb.Fatalf("redistest: %v", err)
	}
	defer func() { _ = conn.Close() }() // nothing is left to read
	if err := conn.SetDeadline(time.Now().Add(natstest.Patience)); err != nil {
		tb.Fatalf("redistest: %v", err)
	}
	// Until it is ready, the node answers the last command again and again.
	lines := bufio.NewScanner(conn)
	fmt.Fprintf(conn, "AUTH %s\r\nCLUSTER ADDSLOTSRANGE 0 16383\r\nCLUSTER INFO\r\n", Password)
	for lines.Scan() {
		switch lines.Text() {
		case "cluster_state:ok":
			return address(port) + "?cluster=true"
		case "cluster_state:fail":
			fmt.Fprint(conn, "CLUSTER INFO\r\n")
		}
	}
	tb.Fatalf("redistest: the cluster does not start: %v", lines.Err())
	return ""
}

func address(port int) string { return fmt.Sprintf("redis://:%s@127.0.0.1:%d/0", Password, port) }

// start tries one port, which another process may take first.
func start(tb testing.TB, program string, port int, directives []string) (kill func(), err error) {
	config := append([]string{
		"bind 127.0.0.1", fmt.Sprintf("port %d", port), "requirepass " + Password,
		fmt.Sprintf("dir %q", tb.TempDir()), `save ""`, "appendonly no", "daemonize no",
	}, directives...)
	cmd := exec.Command(program, "-") //nolint:noctx // ends by its process id, in cleanup
	cmd.Stdin = strings.NewReader(strings.Join(config, "\n") + "\n")
	return run(tb, cmd)
}

// run runs a server until the test ends or it is killed.
func run(tb testing.TB, cmd *exec.Cmd) (kill func(), err error) {
	dieWithParent(cmd)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	stop := func() {
		_ = cmd.Process.Kill() // fails only if it has ended by itself
		_ = cmd.Wait()
	}
	if err := ready(out); err != nil {
		stop()
		return nil, err
	}
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		_, _ = io.Copy(io.Discard, out) // a full pipe would stop the server
	}()
	kill = sync.OnceFunc(func() {
		stop()
		<-drained
	})
	tb.Cleanup(kill)
	return kill, nil
}

// ready reads the server's log until it reports that it is ready.
func ready(log io.Reader) error {
	var last string
	for lines := bufio.NewScanner(log); lines.Scan(); {
		if strings.Contains(lines.Text(), "eady to accept connections") || strings.Contains(lines.Text(), "Sentinel ID is") {
			return nil
		}
		last = lines.Text()
	}
	return errors.New("redis-server ended: " + last)
}
