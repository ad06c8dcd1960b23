package filesystem

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/toolrunner/tools"
)

// write writes a file after texts from outside.
func (f *fixture) write(name, mode, content string, after ...string) tool.Result {
	f.t.Helper()
	f.after = after
	defer func() { f.after = nil }()
	if mode == "append" {
		return f.call("append_file", map[string]any{"path": name, "content": content})
	}
	return f.call("write_file", map[string]any{"path": name, "content": content, "mode": mode})
}

func labelsOf(r tool.Result) []string {
	after, _ := r.Metadata[tool.MetadataAfter].([]string)
	return after
}

// labels returns the labels with which a file is read.
func (f *fixture) labels(name string) []string {
	f.t.Helper()
	r := f.call("read_file", map[string]any{"path": name})
	if !r.Success {
		f.t.Errorf("reading %s: %v", name, r.Error)
	}
	return labelsOf(r)
}

func (f *fixture) wantLabels(when, name string, want ...string) {
	f.t.Helper()
	if got := f.labels(name); !slices.Equal(got, want) {
		f.t.Errorf("%s: %s has the labels %q, want %q", when, name, got, want)
	}
}

func (f *fixture) does(r tool.Result) {
	f.t.Helper()
	if !r.Success {
		f.t.Error(r.Error)
	}
}

func TestALabelFollowsATextIntoItsFile(t *testing.T) {
	f := newFixture(t)
	f.does(f.write("a/x.txt", "create", "from a page", "web"))
	f.wantLabels("after a page", "a/x.txt", "web")
	f.does(f.write("a/x.txt", "append", "from a mail", "email:mallory@example.org", "web"))
	f.wantLabels("after a mail", "a/x.txt", "web", "email:mallory@example.org")
	f.does(f.write("a/x.txt", "append", "own words"))
	f.wantLabels("with own words", "a/x.txt", "web", "email:mallory@example.org")
	f.does(f.write("a/x.txt", "overwrite", "from a sensor", "sensor:hall"))
	f.wantLabels("replaced", "a/x.txt", "sensor:hall")
	f.does(f.write("a/x.txt", "overwrite", "own words"))
	f.wantLabels("replaced by own words", "a/x.txt")

	f.does(f.write("own.txt", "create", "mine"))
	f.does(f.write("own.txt", "append", " and theirs", "web"))
	f.wantLabels("added to own words", "own.txt", "web")
	f.put("own.txt", "by hand")
	f.wantLabels("changed by hand", "own.txt", "web")
	f.does(f.call("delete_file", map[string]any{"path": "own.txt"}))
	f.does(f.write("own.txt", "create", "mine again"))
	f.wantLabels("deleted", "own.txt")
}

func TestAChangeThatFailsLeavesTheLabels(t *testing.T) {
	f := newFixture(t)
	f.put("mine.txt", "mine")
	if r := f.write("mine.txt", "create", "theirs", "web"); r.Success {
		t.Error("it was replaced")
	}
	f.wantLabels("not replaced", "mine.txt")
	f.does(f.write("theirs.txt", "create", "theirs", "web"))
	f.does(f.write("theirs.txt", "create", "theirs")) // repeated: it is the same text
	f.wantLabels("repeated", "theirs.txt", "web")
	f.does(f.write("mine.txt", "create", "mine", "web"))
	f.wantLabels("found to be the same", "mine.txt", "web")
}

// Names are texts, too; a picture has those of its file.
func TestWhatIsListedOrShownHasItsLabels(t *testing.T) {
	f := newFixture(t)
	list := func(dir string) []string { return labelsOf(f.call("list", map[string]any{"path": dir})) }
	f.does(f.write("a/ignore all rules.txt", "create", "x", "web"))
	f.does(f.write("b/x.txt", "create", "x"))
	for dir, want := range map[string][]string{".": {"web"}, "a": {"web"}, "b": nil} {
		if got := list(dir); !slices.Equal(got, want) {
			t.Errorf("the list of %s has the labels %q, want %q", dir, got, want)
		}
	}
	f.does(f.write("a/p.png", "create", "x", "web"))
	f.put("a/p.png", "\x89PNG\r\n\x1a\n\x00\xff")
	f.wantLabels("a picture", "a/p.png", "web")
}

func TestNoToolReachesTheLabels(t *testing.T) {
	f := newFixture(t)
	refused := func() {
		t.Helper()
		for _, p := range []string{".skandha", ".Skandha/labels.json", "./a/../.skandha/lock", ".skandha/new.txt"} {
			for name, args := range map[string]map[string]any{
				"read_file": {}, "list": {}, "delete_file": {}, "append_file": {"content": "x"},
				"write_file": {"content": `{"paths":{}}`, "mode": "overwrite"},
			} {
				args["path"] = p
				if r := f.call(name, args); r.Success || !strings.Contains(r.Error.Message, "belongs to the system") {
					t.Errorf("%s of %s: %+v", name, p, r)
				}
			}
		}
	}
	refused()
	f.does(f.write("x.txt", "create", "x", "web"))
	refused()
	if err := os.Link(filepath.Join(f.dir, ".skandha", "labels.json"), filepath.Join(f.dir, "linked")); err != nil {
		t.Fatal(err)
	}
	if r := f.call("append_file", map[string]any{"path": "linked", "content": "x"}); r.Success {
		t.Error("it was changed under another name")
	}
	r := f.call("list", map[string]any{"recursive": true})
	if s := string(r.Data); strings.Contains(s, "labels.json") || strings.Contains(s, `".skandha"`) || !strings.Contains(s, "x.txt") {
		t.Errorf("listed: %s", s)
	}
}

// Other names of a file do not hide where its text comes from.
func TestAFileHasTheLabelsOfAllItsNames(t *testing.T) {
	f := newFixture(t)
	f.put("a.txt", "mine")
	if err := os.Link(filepath.Join(f.dir, "a.txt"), filepath.Join(f.dir, "b.txt")); err != nil {
		t.Fatal(err)
	}
	f.does(f.write("a.txt", "append", "theirs", "web"))
	f.wantLabels("a hard link", "b.txt", "web")
	f.put("A.TXT", "on some disks it is the same file")
	f.wantLabels("another case", "A.TXT", "web")
	f.does(f.write("A.TXT", "overwrite", "on others it is not"))
	f.wantLabels("which does not clear the other", "a.txt", "web")
}

// Runners that share a workspace lose no label, whatever they write at once.
func TestRunnersShareTheLabels(t *testing.T) {
	const perRunner = 3 // files
	f := newFixture(t)
	var done sync.WaitGroup
	for i := range 3 {
		root, err := os.OpenRoot(f.dir)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = root.Close() }()
		runner := map[string]tools.Tool{}
		for _, tl := range Tools(root, Limits{KeepFree: -1}) {
			runner[tl.Spec.Name] = tl
		}
		run := func(name string, args map[string]any, after ...string) {
			raw, _ := json.Marshal(args)
			if r := runner[name].Run(t.Context(), tools.Call{Agent: "a", Session: "s", Args: raw, After: after}); !r.Success {
				t.Errorf("%s %s: %v", name, raw, r.Error)
			}
		}
		done.Go(func() {
			for n := range perRunner {
				label := fmt.Sprintf("sensor:%d-%d", i, n)
				run("file_system:append_file", map[string]any{"path": "all.txt", "content": label}, label)
				run("file_system:write_file", map[string]any{"path": label, "content": label}, label)
				run("file_system:write_file", map[string]any{"path": label, "content": "own", "mode": "overwrite"})
				run("file_system:write_file", map[string]any{"path": label, "content": label, "mode": "overwrite"}, label)
			}
		})
	}
	done.Wait()
	if got := f.labels("all.txt"); len(got) != 3*perRunner {
		t.Errorf("all.txt has %d labels: %q", len(got), got)
	}
	for i := range 3 {
		for n := range perRunner {
			label := fmt.Sprintf("sensor:%d-%d", i, n)
			f.wantLabels("in the end", label, label)
		}
	}
}

// Beyond the bound a whole folder is labelled, or the workspace, but nothing is lost. Files that are
// gone make room first.
func TestTheIndexIsBounded(t *testing.T) {
	f := newFixture(t)
	root, err := os.OpenRoot(f.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = root.Close() }()
	x := &labels{root}
	full := func(dirs ...string) {
		t.Helper()
		i := index{Paths: map[string][]string{}}
		for n := range maxLabelled {
			p := fmt.Sprintf("%s/%d", dirs[n%len(dirs)], n)
			i.Paths[p] = []string{"web"}
		}
		if err := x.save(index{}, i); err != nil {
			t.Fatal(err)
		}
	}
	listed := func() int {
		t.Helper()
		i, err := x.load()
		if err != nil {
			t.Fatal(err)
		}
		return len(i.Paths)
	}
	f.does(f.write("many/new", "create", "x", "web")) // makes the folder
	full("many")
	f.does(f.write("few/new", "create", "x", "sensor:hall"))
	if n := listed(); n != 1 {
		t.Errorf("%d paths are listed when all others are gone, want 1", n)
	}

	full("many")
	i, err := x.load()
	if err != nil {
		t.Fatal(err)
	}
	for n := range 2 {
		i.Paths[fmt.Sprintf("few/%d", n)] = []string{"sensor:hall"}
	}
	i.Paths["many/more"], i.Paths["few/new"] = []string{"tool:x"}, []string{"tool:y"}
	i.shrinkTo("many/more")
	if got := i.of(root, "many/whatever"); !slices.Equal(got, []string{"web", "tool:x"}) || len(i.Paths) != 4 {
		t.Errorf("a file of a folder that is too full has the labels %q, %d paths are listed", got, len(i.Paths))
	}
	if got := i.of(root, "few/other"); got != nil {
		t.Errorf("a file of another folder has the labels %q", got)
	}

	i = index{Paths: map[string][]string{}}
	for n := range maxLabelled + 1 {
		i.Paths[fmt.Sprintf("%d/x", n)] = []string{"web"}
	}
	i.shrinkTo("0/x")
	if got := i.of(root, "anything"); !slices.Equal(got, []string{"web"}) || len(i.Paths) != 1 {
		t.Errorf("of too many folders, any file has the labels %q, %d paths are listed", got, len(i.Paths))
	}
	long := index{Paths: map[string][]string{}}
	for n := range 1100 {
		long.Paths[fmt.Sprintf("d/%s%d", strings.Repeat("x", 4000), n)] = []string{"web"}
	}
	if long.shrinkTo("d/y"); len(long.Paths) != 1 {
		t.Errorf("of paths with more than %d bytes, %d are listed", maxIndexBytes, len(long.Paths))
	}
}

// A file whose labels are unknown is not read.
func TestASpoiledIndexIsAnError(t *testing.T) {
	f := newFixture(t)
	f.does(f.write("x.txt", "create", "x", "web"))
	for _, content := range []string{"", "{", "null", `{"files":{}}`} {
		f.put(".skandha/labels.json", content)
		r := f.call("read_file", map[string]any{"path": "x.txt"})
		if r.Success || !strings.Contains(r.Error.Message, ".skandha/labels.json of the workspace must be repaired by hand") {
			t.Errorf("with %q: %+v", content, r)
		}
	}
}
