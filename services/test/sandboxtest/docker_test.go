package sandboxtest_test

import (
	"errors"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"skandha.dev/services/sandbox/docker"
	"skandha.dev/services/sandbox/driver"
	"skandha.dev/services/test/enginetest"
	"skandha.dev/services/test/sandboxtest"
)

// TestDocker runs the whole suite against containers.
func TestDocker(t *testing.T) {
	e := enginetest.Shared(t)
	image, owner := enginetest.SandboxImage(t, e), sandboxtest.NewName("o")
	s := sandboxtest.Suite{
		New: func(t *testing.T) driver.Driver {
			d, err := docker.New(docker.Config{
				Host: e.Host, Image: image, Owner: owner, Instance: t.Name(), Runtime: docker.Runc, Network: "host",
				Log: logTo(t),
			})
			if err != nil {
				t.Fatal(err)
			}
			return d
		},
		Leftovers: func(t *testing.T, name string) []string {
			return strings.Fields(e.Docker(t, "ps", "--all", "--quiet", "--filter", "label=dev.skandha.sandbox.name="+name))
		},
		Child: func(t *testing.T, name string) *exec.Cmd {
			return child(t, "docker", name, "DOCKER_HOST="+e.Host, childOwner+"="+owner, childImage+"="+image)
		},
		Group: os.Getenv("SANDBOXTEST_GROUP"),
	}
	if e.PID != 0 {
		s.Listen = func(t *testing.T, address string) net.Listener { return e.Listen(t, address) }
	}
	s.Skip, s.SkipNow = dockerCannot(t, s.New(t)), func(t *testing.T, reason string) { t.Skip(reason) }
	sandboxtest.Run(t, s)
}

// dockerCannot lists what this engine cannot prevent.
func dockerCannot(t *testing.T, d driver.Driver) map[string]string {
	t.Helper()
	r, err := d.Report(t.Context())
	if err = errors.Join(err, d.Close()); err != nil {
		t.Fatal(err)
	}
	const limit = "socket buffers"
	for _, m := range r.Missing {
		if reason, ok := strings.CutPrefix(m, limit+": "); ok {
			return map[string]string{limit: reason}
		}
	}
	return nil
}

func childDocker() (driver.Driver, error) {
	return docker.New(docker.Config{
		Image: os.Getenv(childImage), Owner: os.Getenv(childOwner), Instance: "child", Runtime: docker.Runc,
		Network: "host", Log: slog.Default(),
	})
}
