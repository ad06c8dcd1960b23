package main

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"skandha.dev/services/test/foreigntest"
	"skandha.dev/services/test/natstest"
)

// newGuarded starts a system that requires the plugin of hook scripts.
func newGuarded(t *testing.T, lease string) *world {
	t.Helper()
	w := &world{t: t, data: t.TempDir(), conf: filepath.Join(t.TempDir(), "config.yaml")}
	if err := os.WriteFile(w.conf, []byte("plugins: {lease: "+lease+"}\nhooks: {before_act: {required: [hook-scripts]}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.start("")
	return w
}

// A hook script of another agent guards this one while it runs, and names what it does not do.
func TestHookScriptsOfOtherAgents(t *testing.T) {
	w := newGuarded(t, "15s")
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
	if _, all, err := says(t, "hooks", "import", dir, "--name", "other", "--data", w.data); err == nil ||
		!strings.Contains(all, "does not require other") {
		t.Errorf("hooks that nobody requires are served: %v\n%s", err, all)
	}
	p := foreigntest.Spawn(t, dir, []string{asCommand + "=1"}, os.Args[0], "hooks", "import", dir, "--data", w.data)
	p.Await("hook-scripts is active")
	for order, want := range map[string]string{
		`call file_system:write_file {"path":"secret.txt","content":"x"}`: "no secrets",
		`call file_system:write_file {"path":"notes.txt","content":"x"}`:  `"path":"notes.txt"`,
		`call math:evaluate {"expression":"1+1"}`:                         "/no/such/program",
	} {
		if out, all, _ := says(t, "ask", "--data", w.data, order); !strings.Contains(out, want) { // a refusal is an exit code
			t.Errorf("%s:\n%s", order, all)
		}
	}
	p.Leave(syscall.SIGTERM)
}

// A call that is being judged when the plugin is killed does not pass.
func TestAHookScriptThatIsKilledDenies(t *testing.T) {
	w := newGuarded(t, "4s")
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "hooks.json"), []byte(`{"hooks":{"PreToolUse":[
		{"hooks":[{"type":"command","command":"touch began; sleep 60","timeout":1}]}]}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	p := foreigntest.Spawn(t, dir, []string{asCommand + "=1"}, os.Args[0], "hooks", "import", dir, "--data", w.data)
	p.Await("hook-scripts is active")
	asked := foreigntest.Spawn(t, dir, []string{asCommand + "=1"}, os.Args[0], "ask", "--data", w.data,
		`calls 2 file_system:write_file {"path":"a.txt","content":"x"}`)
	natstest.Eventually(t, "the command runs", func() bool {
		_, err := os.Stat(filepath.Join(dir, "began"))
		return err == nil
	})
	p.Kill()
	_ = asked.Ended() // a refusal is an exit code
	if got := strings.Count(asked.Errs(), "denied"); got != 2 {
		t.Errorf("%d of 2 calls are denied:\n%s%s", got, asked.Out(), asked.Errs())
	}
	if files, err := filepath.Glob(filepath.Join(w.data, "workspace", "*")); err != nil || len(files) > 0 {
		t.Errorf("the workspace has %v, %v", files, err)
	}
}

// A script that the system requires changes the arguments, once for each call, and the call runs so. Once the
// plugin is dead, no call passes.
func TestARequiredHookScriptRewrites(t *testing.T) {
	w := newGuarded(t, "2s")
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "rewrite.sh"), []byte(`tee -a runs | sed 's/.*"file_path":"\([^"]*\)".*/`+
		`{"hookSpecificOutput":{"hookEventName":"PreToolUse","updatedInput":{"file_path":"safe-\1","content":"x"}}}/'`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "hooks.json"), []byte(`{"hooks":{"PreToolUse":[
		{"matcher":"Write","hooks":[{"type":"command","command":"sh rewrite.sh; echo >> runs; `+
		`(setsid sh -c 'echo $$ >left; exec sleep 600' >/dev/null 2>&1 &); until test -s left; do :; done"}]}]}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	p := foreigntest.Spawn(t, dir, []string{asCommand + "=1"}, os.Args[0], "hooks", "import", dir, "--data", w.data)
	p.Await("hook-scripts is active")
	const order = `call file_system:write_file {"path":"notes.txt","content":"x"}`
	if out, all, _ := says(t, "ask", "--data", w.data, order); !strings.Contains(out, `"path":"safe-notes.txt"`) {
		t.Errorf("it says\n%s", all)
	}
	runs, err := os.ReadFile(filepath.Join(dir, "runs"))
	if n := strings.Count(string(runs), "tool_use_id"); n != 1 {
		t.Errorf("the script ran %d times, %v:\n%s", n, err, runs)
	}
	if left, err := os.ReadFile(filepath.Join(dir, "left")); err != nil || runtime.GOOS == "linux" && !hasEnded(t, string(left)) {
		t.Errorf("what the script has started in a session apart is left: process %s, %v", left, err)
	}
	p.Kill()
	if out, all, _ := says(t, "ask", "--data", w.data, order); !strings.Contains(out+all, "denied") {
		t.Errorf("without the plugin it says\n%s", all)
	}
	files, err := filepath.Glob(filepath.Join(w.data, "workspace", "*"))
	if err != nil || len(files) != 1 || filepath.Base(files[0]) != "safe-notes.txt" {
		t.Errorf("the workspace has %v, %v", files, err)
	}
}

func hasEnded(t *testing.T, pid string) bool {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimSpace(pid))
	if err != nil {
		t.Fatal(err)
	}
	return errors.Is(syscall.Kill(n, 0), syscall.ESRCH)
}

// Hooks that cannot be served are named, and keep the others from being served only by default.
func TestABadMatcherIsNamed(t *testing.T) {
	w := newGuarded(t, "15s")
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "hooks.json"), []byte(`{"hooks":{"PreToolUse":[
		{"matcher":"Write(","hooks":[{"type":"command","command":"true"}]},
		{"hooks":[{"type":"command","command":"true"}]}]}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	const want = `PreToolUse[0]: matcher "Write("`
	if _, all, err := says(t, "hooks", "import", dir, "--data", w.data); err == nil || !strings.Contains(all, "nothing is served") ||
		!strings.Contains(all, want) {
		t.Errorf("%v\n%s", err, all)
	}
	p := foreigntest.Spawn(t, dir, []string{asCommand + "=1"}, os.Args[0], "hooks", "import", dir, "--data", w.data, "--optional")
	p.Await("hook-scripts is active")
	if out := p.Out(); !strings.Contains(out, want) {
		t.Errorf("it prints\n%s", out)
	}
	p.Leave(syscall.SIGTERM)
}
