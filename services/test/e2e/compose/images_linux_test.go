package compose

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"skandha.dev/services/test/enginetest"
)

// images builds the images of docker-compose.yml as make compose-up does where no registry
// can be reached, under the prefix, also those of the examples, of an image with Python. It
// returns the path of the skandha command.
func (e *engine) images(t *testing.T, prefix, tag, python string) (skandha string) {
	t.Helper()
	enginetest.Need(t, "make", "redis-server", "redis-cli", "busybox")
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience) // the test's own is over
		defer cancel()
		made := strings.Fields(enginetest.Output(t, e.Command(ctx, "docker", "images", "--quiet", prefix+"/*")))
		slices.Sort(made) // some have two tags
		made = slices.Compact(made)
		if len(made) > 0 {
			enginetest.Output(t, e.Command(ctx, "docker", append([]string{"rmi", "--force"}, made...)...))
		}
	})
	cmd := e.script(t.Context(), "deploy/docker/images.sh")
	cmd.Env = append(cmd.Env, "SKANDHA_REGISTRY=no", "SKANDHA_IMAGES="+prefix, "SKANDHA_VERSION="+tag,
		"COMPOSE_PROFILES=examples", "SKANDHA_PYTHON_IMAGE=", "SKANDHA_SANDBOX_IMAGE="+python)
	enginetest.Output(t, cmd)

	skandha = filepath.Join(t.TempDir(), "skandha")
	container := e.Docker(t, "create", prefix+"/cli:"+tag)
	e.Docker(t, "cp", container+":/service", skandha)
	e.Docker(t, "rm", container)
	return skandha
}
