package filesystem

import (
	"math"
	"os"
	"strings"
	"testing"

	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/toolrunner/tools"
)

func TestASessionKeepsToItsQuota(t *testing.T) {
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	call := func(all []tools.Tool, session subject.Session, name, args string) tool.Result {
		for _, tl := range all {
			if tl.Spec.Name == "file_system:"+name {
				return tl.Run(t.Context(), tools.Call{Agent: "main", Session: session, Args: []byte(args)})
			}
		}
		t.Fatalf("no tool %s", name)
		return tool.Result{}
	}
	all := Tools(root, Limits{SessionBytes: 10, SessionFiles: 2, KeepFree: -1})
	for _, step := range []struct {
		session    subject.Session
		name, args string
		want       string
	}{
		{"a", "write_file", `{"path":"one","content":"12345"}`, ""},
		{"a", "write_file", `{"path":"one","content":"other"}`, "other content"}, // refused, and given back
		{"a", "append_file", `{"path":"two","content":"123"}`, ""},
		{"a", "append_file", `{"path":"two","content":"456"}`, "--files-session-bytes (SKANDHA_FILES_SESSION_BYTES) is 10"},
		{"a", "write_file", `{"path":"three","content":""}`, "--files-session-files (SKANDHA_FILES_SESSION_FILES) is 2"},
		{"a", "append_file", `{"path":"two","content":"45"}`, ""},
		{"a", "read_file", `{"path":"two"}`, ""},
		{"b", "write_file", `{"path":"four","content":"1234567890"}`, ""},
		// directories count
		{"c", "write_file", `{"path":"d/e/f","content":""}`, "--files-session-files (SKANDHA_FILES_SESSION_FILES) is 2"},
		// one is left
		{"d", "write_file", `{"path":"d/` + strings.Repeat("x", 300) + `","content":""}`, "name too long"},
		{"d", "write_file", `{"path":"d/a","content":""}`, ""},
		{"d", "write_file", `{"path":"d/b","content":""}`, "--files-session-files (SKANDHA_FILES_SESSION_FILES) is 2"},
	} {
		r := call(all, step.session, step.name, step.args)
		if step.want == "" && !r.Success || step.want != "" && (r.Success || !strings.Contains(r.Error.Message, step.want)) {
			t.Errorf("%s %s: %+v, want %q", step.name, step.args, r, step.want)
		}
	}
	full := Tools(root, Limits{KeepFree: math.MaxInt64})
	if r := call(full, "c", "write_file", `{"path":"five","content":"x"}`); r.Success ||
		!strings.Contains(r.Error.Message, "SKANDHA_FILES_KEEP_FREE") {
		t.Errorf("on a disk without enough space: %+v", r)
	}
	if _, err := root.Stat("five"); err == nil {
		t.Error("it was written all the same")
	}
	if err := (Limits{SessionFiles: -2}).Validate(); err == nil ||
		!strings.Contains(err.Error(), "--files-session-files is -2") {
		t.Errorf("%v", err)
	}
}
