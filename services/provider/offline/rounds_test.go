package offline_test

import (
	"slices"
	"strings"
	"testing"

	contract "skandha.dev/pkg/provider"
)

// Python's files are in the sandbox, the person's in the workspace.
func TestAFileIsLookedForInTheSandboxToo(t *testing.T) {
	a := model(t, nil)
	talk := []contract.Message{user("what is in primes.txt?")}
	gone := contract.Message{Text: `{"error":{"code":"tool_failed","message":"primes.txt does not exist"}}`, Failed: true}
	first := ask(t, a, everything, talk...)
	if got := say(first.ToolCalls); got != `file_system:read_file {"path":"primes.txt"}` {
		t.Fatalf("first round: %s", got)
	}
	talk = append(talk, answered(first, gone)...)
	if resp := ask(t, a, tools("file_system:read_file"), talk...); !strings.Contains(resp.TextContent, "does not exist") {
		t.Errorf("without a sandbox: %+v", resp)
	}
	second := ask(t, a, append(tools("sandbox_fs:read"), everything...), talk...)
	if got := say(second.ToolCalls); got != `sandbox_fs:read {"path":"primes.txt"}` {
		t.Fatalf("second round: %s", got)
	}
	found := append(slices.Clone(talk), answered(second, contract.Message{Text: `{"content":"2 3 5"}`})...)
	if last := ask(t, a, everything, found...); strings.Contains(last.TextContent, "does not exist") ||
		!strings.Contains(last.TextContent, "2 3 5") {
		t.Errorf("answer: %q", last.TextContent)
	}
	missing := append(slices.Clone(talk), answered(second, gone)...)
	if last := ask(t, a, everything, missing...); strings.Count(last.TextContent, "does not exist") != 1 {
		t.Errorf("answer: %q", last.TextContent)
	}
}

func TestFailureEndsTheRounds(t *testing.T) {
	a := model(t, nil)
	q := user("compute the first 20 primes with Python and save them to primes.txt")
	first := ask(t, a, everything, q)
	failed := contract.Message{Text: `{"error":{"code":"timeout","message":"took too long"}}`, Failed: true}
	resp := ask(t, a, everything, append([]contract.Message{q}, answered(first, failed)...)...)
	if !resp.IsFinal || !strings.Contains(resp.TextContent, "took too long") {
		t.Errorf("after a failure: %+v", resp)
	}
}
