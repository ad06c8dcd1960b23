package hookscript

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skandha.dev/services/test/natstest"
)

// ran returns how often a script has run that writes a line each time.
func (r runner) ran(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(r.script.Dir, "runs"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(b), "\n")
}

// wraps is a script that puts something before whatever it is asked about.
const wraps = `echo >> runs; sed 's/.*"command":"\([^"]*\)".*/{"hookSpecificOutput":{"updatedInput":{"command":"safe \1"}%s}}/'`

// The call that runs is the one that the script has made, and it is made once.
func TestAShapedCallIsJudgedAsItRuns(t *testing.T) {
	r := script(t, PreToolUse, fmt.Sprintf(wraps, ""))
	c := call("shell:execute", `{"command":"ls"}`)
	does, args, said := r.asked(t, c)
	if does != "replace" || string(args) != `{"command":"safe ls"}` || r.ran(t) != 1 {
		t.Errorf("%s %s %s, ran %d times", does, args, said, r.ran(t))
	}
	shaped := call("shell:execute", string(args))
	// After an approval, the script is asked again about what it was asked about.
	if reply, err := r.judge(natstest.Context(t), shaped); verb(t, reply, err) != "pass" || r.ran(t) != 2 {
		t.Errorf("judged again: %+v, %v, ran %d times", reply, err, r.ran(t))
	}
	for what, args := range map[string]string{
		"a plugin has changed it since":        `{"command":"safe rm"}`,
		"the plugin that shapes was not asked": `{"command":"ls"}`,
		"a plugin has added a field":           `{"command":"safe ls","sudo":true}`,
		"a large number is not its neighbour":  `{"command":"safe ls","n":9007199254740993}`,
	} {
		reply, err := r.judge(natstest.Context(t), call("shell:execute", args))
		if verb(t, reply, err) != "deny" || !strings.Contains(fmt.Sprintf("%+v", reply), "want other arguments than those that would run") {
			t.Errorf("%s: %+v, %v", what, reply, err)
		}
	}
	other := call("math:evaluate", `{"command":"safe ls"}`) // the same id: a name counts, too
	if reply, err := r.judge(natstest.Context(t), other); verb(t, reply, err) != "deny" {
		t.Errorf("another tool: %+v, %v", reply, err)
	}
}

// What has changed since is noticed: the script denies, or would make another call.
func TestAJudgementDoesNotLast(t *testing.T) {
	for _, later := range []string{"echo no >&2; exit 2", `sed 's/.*/{"hookSpecificOutput":{"updatedInput":{"command":"other"}}}/'`} {
		r := script(t, PreToolUse, "if test -e later; then "+later+"; else "+fmt.Sprintf(wraps, "")+"; fi")
		_, args, _ := r.asked(t, call("shell:execute", `{"command":"ls"}`))
		if err := os.WriteFile(filepath.Join(r.script.Dir, "later"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if reply, err := r.judge(natstest.Context(t), call("shell:execute", string(args))); verb(t, reply, err) != "deny" {
			t.Errorf("%s: %+v, %v", later, reply, err)
		}
	}
}

// A script that rewrites and asks has both: the person is asked about the call that runs.
func TestARewrittenCallIsAskedAbout(t *testing.T) {
	r := script(t, PreToolUse, fmt.Sprintf(wraps, `,"permissionDecision":"ask","permissionDecisionReason":"sure?"`))
	does, args, said := r.asked(t, call("shell:execute", `{"command":"ls"}`))
	if does != "confirm" || string(args) != `{"command":"safe ls"}` || !strings.Contains(said, "confirm") || r.ran(t) != 1 {
		t.Errorf("%s %s %s, ran %d times", does, args, said, r.ran(t))
	}
}

func TestNumbersAreComparedAsWritten(t *testing.T) {
	if same(json.RawMessage(`{"n":9007199254740993}`), json.RawMessage(`{"n":9007199254740992}`)) {
		t.Error("two numbers are one")
	}
}

// What a failure says ends where there is nothing more to say.
func TestReasonsEndCleanly(t *testing.T) {
	r := script(t, PreToolUse, "exit 3")
	if _, _, said := r.asked(t, call("shell:execute", `{}`)); !strings.Contains(said, "the hook exit 3 failed: exit status 3 ") {
		t.Errorf("it says %q", said)
	}
}
