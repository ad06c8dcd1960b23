package filesystem

import (
	"os"
	"strings"
	"testing"

	"skandha.dev/services/toolrunner/tools"
)

// What instructs the agents of every session is not written by one of them, unless the operator
// says so.
func TestInstructionsAreNotWritten(t *testing.T) {
	refused := "because it instructs the agents of every session"
	paths := map[string]string{
		"AGENTS.md": refused, "a/b/AGENTS.md": refused, "a/agents.MD": refused, "./x/../AGENTS.md": refused,
		"skills/pdf/SKILL.md": refused, "skills": refused, "Skills/x": refused, "skills/../skills/a": refused,
		"AGENTS.md.txt": "", "my/skills/a": "", "skills2/a": "", "AGENTS.mdx": "",
	}
	for _, i := range []Instructions{"", InstructionsRead, InstructionsWrite, InstructionsOff} {
		root, err := os.OpenRoot(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = root.Close() })
		for _, tl := range Tools(root, Limits{KeepFree: -1, Instructions: i}) {
			if name := strings.TrimPrefix(tl.Spec.Name, "file_system:"); name == "read_file" || name == "list" {
				continue
			}
			for p, want := range paths {
				got := ""
				r := tl.Run(t.Context(), tools.Call{Args: []byte(`{"path":"` + p + `","content":"x"}`)})
				if r.Error != nil && strings.Contains(r.Error.Message, refused) {
					got = refused
				}
				if i == InstructionsWrite || i == InstructionsOff {
					want = ""
				}
				if got != want {
					t.Errorf("%s %s with %q: %v", tl.Spec.Name, p, i, r.Error)
				}
			}
		}
	}
	err := (Limits{Instructions: "maybe"}).Validate()
	if err == nil || !strings.Contains(err.Error(), "want read, write or off") {
		t.Error(err)
	}
}

// An agent neither reads nor changes the notes of another one by way of the files that hold them.
func TestNotesAreNotFiles(t *testing.T) {
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	for _, tl := range Tools(root, Limits{KeepFree: -1, Instructions: InstructionsOff}) {
		for p, want := range map[string]bool{
			"notes/other.jsonl": true, "Notes/OTHER.JSONL": true, "x/../notes/other.jsonl": true,
			"notes/todo.md": false, "my/notes/other.jsonl": false, "notes/deep/other.jsonl": false,
		} {
			r := tl.Run(t.Context(), tools.Call{Args: []byte(`{"path":"` + p + `","content":"x"}`)})
			if got := r.Error != nil && strings.Contains(r.Error.Message, "notes of an agent"); got != want {
				t.Errorf("%s %s: %v", tl.Spec.Name, p, r.Error)
			}
		}
	}
}
