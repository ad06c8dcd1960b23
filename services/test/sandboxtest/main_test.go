package sandboxtest_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"testing"

	"skandha.dev/services/sandbox/driver"
	"skandha.dev/services/test/enginetest"
	"skandha.dev/services/test/sandboxtest"
)

// The test binary is also a service that is killed with a sandbox; these environment
// variables select its driver.
const (
	childVariable = "SANDBOXTEST_CHILD"
	childDir      = "SANDBOXTEST_DIR"
	childOwner    = "SANDBOXTEST_OWNER"
	childImage    = "SANDBOXTEST_IMAGE"
	childName     = "SANDBOXTEST_NAME"
)

// children create the driver of a service that is killed.
var children = map[string]func() (driver.Driver, error){"docker": childDocker}

func TestMain(m *testing.M) {
	if kind := os.Getenv(childVariable); kind != "" {
		if err := orphan(kind); err != nil {
			slog.Error("the service to be killed", "error", err)
			os.Exit(1)
		}
		return
	}
	enginetest.Main(m)
}

func orphan(kind string) error {
	open, ok := children[kind]
	if !ok {
		return fmt.Errorf("unknown driver %q", kind)
	}
	d, err := open()
	if err != nil {
		return err
	}
	return sandboxtest.Orphan(context.Background(), d, os.Getenv(childName))
}

// child runs the test binary as a service.
func child(t *testing.T, kind, name string, env ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Env = append(append(os.Environ(), childVariable+"="+kind, childName+"="+name), env...)
	cmd.Stderr = t.Output()
	return cmd
}

func logTo(t *testing.T) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), nil))
}
