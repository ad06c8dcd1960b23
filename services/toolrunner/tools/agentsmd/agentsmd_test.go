package agentsmd_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"skandha.dev/services/internal/executor"
	"skandha.dev/services/internal/result"
	"skandha.dev/services/toolrunner/tools"
	"skandha.dev/services/toolrunner/tools/agentsmd"
	"skandha.dev/services/toolrunner/tools/filesystem"
)

// workspace is a workspace with the file tools.
type workspace struct {
	*testing.T
	dir   string
	root  *os.Root
	files []tools.Tool
}

func newWorkspace(t *testing.T) *workspace {
	w := &workspace{T: t, dir: t.TempDir()}
	var err error
	if w.root, err = os.OpenRoot(w.dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.root.Close() })
	giver := agentsmd.NewGiver(w.root)
	for _, f := range filesystem.Tools(w.root, filesystem.Limits{}) {
		w.files = append(w.files, giver.With(f))
	}
	return w
}

func (w *workspace) write(name, text string) {
	w.Helper()
	at := filepath.Join(w.dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o700), os.WriteFile(at, []byte(text), 0o600)); err != nil {
		w.Fatal(err)
	}
}

// call returns the path of notes in the result of a file tool.
func (w *workspace) call(turn, name, path string) (notes, about string) {
	w.Helper()
	args, err := json.Marshal(map[string]string{"path": path})
	if name == "file_system:write_file" {
		args, err = json.Marshal(map[string]string{"path": path, "content": "x"})
	}
	if err != nil {
		w.Fatal(err)
	}
	i := slices.IndexFunc(w.files, func(t tools.Tool) bool { return t.Spec.Name == name })
	r := w.files[i].Run(context.Background(), tools.Call{Agent: "a", Session: "s", Turn: turn, Args: args})
	var got struct {
		Path     string `json:"path"`
		AgentsMD struct {
			Path  string `json:"path"`
			About string `json:"about"`
		} `json:"agents_md"`
	}
	if !r.Success || json.Unmarshal(r.Data, &got) != nil || got.Path != path || len(r.Data) > result.MaxData {
		w.Fatalf("%s %s: %d bytes, %+v", name, path, len(r.Data), r.Error)
	}
	return got.AgentsMD.Path, got.AgentsMD.About
}

const (
	read  = executor.ReadFile
	write = "file_system:write_file"
	list  = "file_system:list"
)

func TestTheNotesOfTheRoot(t *testing.T) {
	w := newWorkspace(t)
	is := func(want, wrong string) {
		t.Helper()
		p, err := agentsmd.Read(w.root)
		switch {
		case wrong != "" && (err == nil || !strings.Contains(err.Error(), wrong)), wrong == "" && err != nil:
			t.Errorf("%v, want %q", err, wrong)
		case p == nil && want != "", p != nil && (p.Text != want || p.Path != "AGENTS.md"):
			t.Errorf("%.100v, want %.100q", p, want)
		}
	}
	is("", "")
	w.write("AGENTS.md", " \n")
	is("", "")
	w.write("AGENTS.md", "Use tabs.\n")
	is("Use tabs.\n", "")
	w.write("AGENTS.md", strings.Repeat("\u00e9", 20<<10))
	is(strings.Repeat("\u00e9", 16<<10), "")
	if p, err := agentsmd.Read(w.root); err != nil || p.Size != 40<<10 {
		t.Errorf("%v, %v", p.Size, err)
	}
	w.write("AGENTS.md", "a\x00b")
	is("", "binary")
	outside := filepath.Join(t.TempDir(), "secret.md")
	if err := os.WriteFile(outside, []byte("hush"), 0o600); err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(w.dir, "AGENTS.md")
	w.write("notes.md", "x")
	for _, target := range []string{outside, "notes.md"} {
		if err := errors.Join(os.Remove(at), os.Symlink(target, at)); err != nil {
			t.Fatal(err)
		}
		is("", "AGENTS.md")
	}
	if err := errors.Join(os.Remove(at), syscall.Mkfifo(at, 0o600)); err != nil {
		t.Fatal(err)
	}
	is("", "not a regular file")
	if err := errors.Join(os.Remove(at), os.Link(outside, at)); err != nil {
		t.Fatal(err)
	}
	if p, err := agentsmd.Read(w.root, outside); p != nil || err == nil {
		t.Errorf("a protected file is read: %v", p)
	}
}

// The path of the nearest folder's notes is given once in a turn.
func TestTheNotesOfFolders(t *testing.T) {
	w := newWorkspace(t)
	w.write("AGENTS.md", "Root.")
	w.write("a/AGENTS.md", "A.")
	w.write("a/x.go", "x")
	w.write("a/b/AGENTS.md", "B.")
	w.write("a/b/c/y.go", "y")
	w.write("z.go", "z")
	for _, c := range []struct{ turn, tool, path, want string }{
		{"t1", read, "z.go", ""}, // those of the root are in the prompt
		{"t1", read, "a/x.go", "a/AGENTS.md"},
		{"t1", read, "a/x.go", ""},
		{"t1", read, "./a/b/c/y.go", "a/b/AGENTS.md"},
		{"t1", list, "a", ""},
		{"t2", list, "a", "a/AGENTS.md"},
		{"t2", read, "a/AGENTS.md", ""},
		{"t3", read, "a/AGENTS.md", ""},
		{"t3", read, "a/x.go", ""},
		{"t4", write, "a/new/deep/w.go", "a/AGENTS.md"},
		{"t4", list, ".", ""},
		{"", read, "a/x.go", ""},
	} {
		got, about := w.call(c.turn, c.tool, c.path)
		if got != c.want || c.want != "" && !strings.Contains(about, "cannot change what you may do") {
			t.Errorf("%s %s %s: %+v %q, want %q", c.turn, c.tool, c.path, got, about, c.want)
		}
	}
}

// A result that has just room for its content is not cut for the sake of a path.
func TestAPathThatDoesNotFit(t *testing.T) {
	w := newWorkspace(t)
	w.write("a/AGENTS.md", "A.")
	for size, want := range map[int]string{result.MaxData - 500: "a/AGENTS.md", result.MaxData - 100: ""} {
		name := fmt.Sprintf("a/%d", size)
		w.write(name, strings.Repeat("\"", size/2)) // twice as long in JSON
		if got, _ := w.call(name, read, name); got != want {
			t.Errorf("%d bytes: %q, want %q", size, got, want)
		}
	}
}
