// Package mosquittotest runs a private mosquitto for a test: a real MQTT broker, which can be
// killed and started again with what it has stored.
package mosquittotest

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"skandha.dev/services/internal/mqttclient"
	"skandha.dev/services/test/natstest"
)

// Need finds a program of mosquitto. Without it, it skips the test, or fails it if the
// environment says SKANDHA_REQUIRE=all.
func Need(tb testing.TB, name string) (program string) {
	tb.Helper()
	program, err := exec.LookPath(name)
	if err != nil {
		program, err = exec.LookPath("/usr/sbin/" + name) // where Debian has the broker
	}
	if err != nil {
		missing := "NOT TESTED: " + name + " is not installed"
		if os.Getenv("SKANDHA_REQUIRE") == "all" {
			tb.Fatal(missing)
		}
		tb.Skip(missing)
	}
	return program
}

// Broker is a mosquitto of the test.
type Broker struct {
	Port int

	tb      testing.TB
	program string
	config  string
	dir     string
	cmd     *exec.Cmd
	log     bytes.Buffer
}

// Start runs mosquitto on a free loopback port until the test ends. It stores each change at
// once. Directives are further lines of its configuration; without a line "listener" it takes
// anonymous clients.
func Start(tb testing.TB, directives ...string) *Broker {
	tb.Helper()
	b := &Broker{tb: tb, program: Need(tb, "mosquitto"), Port: natstest.FreePort(tb), dir: tb.TempDir()}
	lines := append([]string{
		"user root", "persistence true", "persistence_location " + b.dir + "/", "autosave_on_changes true", "autosave_interval 1",
		"max_queued_messages 0", "log_dest stderr", "log_type error", "log_type warning",
		fmt.Sprintf("listener %d 127.0.0.1", b.Port),
	}, directives...)
	if !strings.Contains(strings.Join(directives, "\n"), "allow_anonymous") {
		lines = append(lines, "allow_anonymous true")
	}
	b.config = filepath.Join(b.dir, "mosquitto.conf")
	if err := os.WriteFile(b.config, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		tb.Fatal(err)
	}
	b.Run()
	tb.Cleanup(b.Kill)
	return b
}

// Run starts the broker again after [Broker.Kill], with what it has stored.
func (b *Broker) Run() {
	b.tb.Helper()
	b.cmd = exec.Command(b.program, "-c", b.config) //nolint:noctx // ends by its process id, in cleanup
	b.cmd.Stderr = &b.log
	dieWithParent(b.cmd)
	if err := b.cmd.Start(); err != nil {
		b.tb.Fatalf("mosquittotest: %v", err)
	}
	natstest.Eventually(b.tb, "mosquitto listens", func() bool {
		var d net.Dialer
		conn, err := d.DialContext(b.tb.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", b.Port))
		if err != nil {
			return false
		}
		_ = conn.Close()
		return true
	})
}

// Kill kills the broker, as by kill -9.
func (b *Broker) Kill() {
	_ = b.cmd.Process.Kill() // fails only if it has ended by itself
	_ = b.cmd.Wait()
}

// Stores reports whether the broker's file contains a text, such as the payload of a message
// that it holds for a client.
func (b *Broker) Stores(text string) bool {
	file, err := os.ReadFile(filepath.Join(b.dir, "mosquitto.db"))
	return err == nil && bytes.Contains(file, []byte(text))
}

// Client returns how clients reach the broker.
func (b *Broker) Client() mqttclient.Broker {
	return mqttclient.Broker{URL: fmt.Sprintf("mqtt://127.0.0.1:%d", b.Port)}
}
