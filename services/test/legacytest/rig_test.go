package legacytest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"skandha.dev/services/provider/adapter"
	"skandha.dev/services/test/foreigntest"
	"skandha.dev/services/test/geminitest"
)

// name is the plugin's name, and its provider's.
const name = "gemini-legacy"

// program is the plugin's program.
var program string

func TestMain(m *testing.M) {
	status, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(status)
}

// run builds the plugin for all tests. This module must not import the plugin's.
func run(m *testing.M) (status int, err error) {
	dir, err := os.MkdirTemp("", "legacytest-")
	if err != nil {
		return 1, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	program = filepath.Join(dir, "plugin")
	cmd := exec.Command("go", "build", "-buildvcs=false", "-o", program, "./cmd/skandha-provider-gemini-legacy")
	cmd.Dir = "../../provider-gemini-legacy"
	if out, err := cmd.CombinedOutput(); err != nil {
		return 1, fmt.Errorf("building the plugin: %w\n%s", err, out)
	}
	return m.Run(), nil
}

// rig is a system whose agent uses the plugin's provider, and the API that the plugin asks.
type rig struct {
	*foreigntest.System
	api    *geminitest.Server
	env    []string
	plugin *foreigntest.Process
	model  adapter.Adapter
}

func start(t *testing.T) *rig {
	t.Helper()
	r := &rig{
		System: foreigntest.StartWithConfig(t, "agents: {main: {provider: "+name+"}}\n"),
		api:    geminitest.New(t),
	}
	r.env = []string{
		"GEMINI_API_KEY=" + geminitest.Key, "GEMINI_MODEL=" + geminitest.Model, "GOOGLE_GEMINI_BASE_URL=" + r.api.URL,
		"SKANDHA_NATS=" + r.JoinAs(name), "SKANDHA_LOG=debug",
	}
	r.spawn(t)
	r.model = r.Adapter(name)
	return r
}

// spawn starts the plugin, and waits until it is active.
func (r *rig) spawn(t *testing.T) {
	t.Helper()
	r.plugin = foreigntest.Spawn(t, t.TempDir(), r.env, program)
	r.plugin.Await("plugin is active")
}
