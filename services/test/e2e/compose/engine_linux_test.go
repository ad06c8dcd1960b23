package compose

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"skandha.dev/services/test/enginetest"
)

// engine is a Docker engine, and the compose that goes with it.
type engine struct {
	*enginetest.Engine
	compose []string
	tree    string // with the compose file and the scripts
}

// findEngine uses the engine that answers, or starts one for the time of the test.
func findEngine(t *testing.T) *engine {
	t.Helper()
	e := enginetest.Find(t)
	return &engine{Engine: e, compose: versions(t, e.Env)[0], tree: root}
}

// socket is the path of the engine's socket.
func (e *engine) socket() string {
	if path, ok := strings.CutPrefix(e.Host, "unix://"); ok {
		return path
	}
	return "/var/run/docker.sock"
}

// script is one of the tree, which is called with the compose command.
func (e *engine) script(ctx context.Context, name string) *exec.Cmd {
	return e.Command(ctx, filepath.Join(e.tree, name), e.compose...)
}
