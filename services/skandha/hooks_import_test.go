package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"skandha.dev/services/test/foreigntest"
)

// A hook script of another agent guards this one while it runs, and names what it does not do.
func TestHookScriptsOfOtherAgents(t *testing.T) {
	w := newWorld(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "hooks.json"), []byte(`{"hooks":{"PreToolUse":[
		{"matcher":"Write","hooks":[{"type":"command","command":"grep -q secret && { echo no secrets >&2; exit 2; }; exit 0"}]},
		{"matcher":"mcp__math__.*","hooks":[{"type":"command","command":"/no/such/program"}]},
		{"matcher":"NotebookEdit","hooks":[{"type":"command","command":"true"}]}],
		"SessionStart":[{"hooks":[{"type":"command","command":"true"}]}]}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	dry, _, err := says(t, "hooks", "import", dir, "--dry-run")
	if err != nil || !strings.Contains(dry, "NotebookEdit matches no tool") || !strings.Contains(dry, "SessionStart[0]: ") {
		t.Errorf("%v\n%s", err, dry)
	}
	p := foreigntest.Spawn(t, dir, []string{asCommand + "=1"}, os.Args[0], "hooks", "import", dir, "--data", w.data)
	p.Await("hook-scripts is active")
	for order, want := range map[string]string{
		`call file_system:write_file {"path":"secret.txt","content":"x"}`: "no secrets",
		`call file_system:write_file {"path":"notes.txt","content":"x"}`:  `"path":"notes.txt"`,
		`call math:evaluate {"expression":"1+1"}`:                         "/no/such/program",
	} {
		if out, all, err := says(t, "ask", "--data", w.data, order); err != nil || !strings.Contains(out, want) {
			t.Errorf("%s: %v\n%s", order, err, all)
		}
	}
	p.Leave(syscall.SIGTERM)
}
