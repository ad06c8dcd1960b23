package redistest

import (
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"skandha.dev/services/test/natstest"
)

// Sentinel is a master with a replica, and a sentinel that watches them.
type Sentinel struct {
	URL        string // by which clients find the master
	Master     string // URL of the first master
	Replica    string // URL of the server that is promoted when the master is killed
	KillMaster func()
}

// StartSentinel runs the three until the test ends. The sentinel has the servers' password.
func StartSentinel(tb testing.TB) *Sentinel {
	tb.Helper()
	program, auth := Need(tb), "masterauth "+Password
	master, replica, port := natstest.FreePort(tb), natstest.FreePort(tb), natstest.FreePort(tb)
	kill, err := start(tb, program, master, []string{auth})
	if err == nil {
		_, err = start(tb, program, replica, []string{
			auth, fmt.Sprintf("replicaof 127.0.0.1 %d", master), "repl-diskless-sync-delay 0",
		})
	}
	if err == nil {
		err = startSentinel(tb, program, port, master)
	}
	if err != nil {
		tb.Fatalf("redistest: %v", err)
	}
	return &Sentinel{
		URL:    address(port) + "?" + url.Values{"master_name": {"main"}}.Encode(),
		Master: address(master), Replica: address(replica), KillMaster: kill,
	}
}

// startSentinel runs a sentinel that gives up a master after 300 ms. It keeps what it learns in its file.
func startSentinel(tb testing.TB, program string, port, master int) error {
	file := filepath.Join(tb.TempDir(), "sentinel.conf")
	config := "bind 127.0.0.1\nport " + strconv.Itoa(port) + "\nrequirepass " + Password + "\ndir " + filepath.Dir(file) + `
sentinel monitor main 127.0.0.1 ` + strconv.Itoa(master) + ` 1
sentinel auth-pass main ` + Password + `
sentinel down-after-milliseconds main 300
sentinel failover-timeout main 2000
`
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return err
	}
	_, err := run(tb, exec.Command(program, file, "--sentinel")) //nolint:noctx // ends by its process id, in cleanup
	return err
}
