package scaffold_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/skandha/scaffold"
	"skandha.dev/services/test/foreigntest"
)

// name has all that a plugin's name may have.
const name = "My_new-Plugin1"

// skeleton is a skeleton in a directory of the test's own, and what its README
// says: how it is tested and how it is started.
type skeleton struct {
	lang   string
	dir    string
	test   []string
	start  []string
	denies bool // it has a hook that denies
}

func skeletons(t *testing.T, lang string) skeleton {
	t.Helper()
	s := skeleton{lang: lang, dir: filepath.Join(t.TempDir(), "new", "plugin"), denies: lang != "shell"}
	files, err := scaffold.Write(s.dir, lang, name)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil || len(b) == 0 || strings.Contains(string(b), "<<") && filepath.Ext(f) != ".sh" ||
			strings.Contains(string(b), "<no value>") {
			t.Errorf("%s holds %d bytes, or a part of a template: %v", f, len(b), err)
		}
	}
	switch lang {
	case "go":
		s.inWorkspace(t)
		s.test = []string{"go", "test", "./..."}
		s.start = []string{s.build(t)}
	case "python":
		python := foreigntest.Need(t, "python3")
		s.test, s.start = []string{python, "-m", "unittest"}, []string{python, "plugin.py"}
	case "node":
		node := foreigntest.Need(t, "node")
		foreigntest.NodeModules(t, s.dir)
		s.test, s.start = []string{foreigntest.Need(t, "npm"), "test"}, []string{node, "index.mjs"}
	case "shell":
		foreigntest.Need(t, "bash")
		s.test, s.start = []string{"./test.sh"}, []string{"./plugin.sh"}
	}
	return s
}

// inWorkspace does what the README of the Go skeleton asks for.
func (s skeleton) inWorkspace(t *testing.T) {
	t.Helper()
	pkg, err := filepath.Abs("../../../pkg")
	if err != nil {
		t.Fatal(err)
	}
	s.run(t, "go", "work", "init", ".", pkg)
}

// build gives a program instead of go run, which keeps signals to itself.
func (s skeleton) build(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "plugin")
	s.run(t, "go", "build", "-buildvcs=false", "-o", program, ".")
	return program
}

func (s skeleton) run(t *testing.T, program string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "GOWORK=", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
}

// A skeleton passes its own test, works, and leaves nothing.
func TestSkeletonsWork(t *testing.T) {
	for _, lang := range scaffold.Languages() {
		t.Run(lang, func(t *testing.T) {
			k := skeletons(t, lang)
			k.run(t, k.test[0], k.test[1:]...)
			s := foreigntest.Start(t)
			p := s.Run(name, k.dir, k.start[0], k.start[1:]...)
			s.AwaitTool(name+":greet", true)
			end := s.Say("s", `call `+name+`:greet {"name": "Ada"}`)
			if len(end.Calls) != 1 || !end.Calls[0].Success || !strings.Contains(end.Answer, "Hello, Ada!") {
				t.Errorf("the tool: %+v", end)
			}
			if end := s.Say("s", `call `+name+`:greet {"name": ""}`); len(end.Calls) != 1 ||
				end.Calls[0].Code != tool.CodeInvalidArgs {
				t.Errorf("the tool with wrong arguments: %+v", end)
			}
			if k.denies {
				if end := s.Say("s", `call `+name+`:greet {"name": "nobody"}`); len(end.Calls) != 1 ||
					end.Calls[0].Code != tool.CodeDenied {
					t.Errorf("the hook: %+v", end)
				}
			}
			s.Restart()
			s.AwaitListens("tool." + name + "." + strings.ReplaceAll(name, "-", "-_") + "--greet")
			s.AwaitPlugin(name, plugin.Active)
			p.Leave(syscall.SIGTERM)
			s.LeftNothing(name)
			s.AwaitTool(name+":greet", false)
		})
	}
}

// The lock that Node's skeleton takes from the examples fits its own package.json.
func TestTheSkeletonOfNodeNamesItselfInItsLock(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "p")
	if _, err := scaffold.Write(dir, "node", name); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "package-lock.json"))
	if err != nil || strings.Count(string(b), `"name": "skandha-plugin-my_new-plugin1"`) != 2 {
		t.Errorf("%s, %v", b, err)
	}
}

func TestWriteSaysWhatItWrote(t *testing.T) {
	for _, lang := range scaffold.Languages() {
		dir := filepath.Join(t.TempDir(), "p")
		files, err := scaffold.Write(dir, lang, "p")
		if err != nil {
			t.Fatal(err)
		}
		var there []string
		err = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				there = append(there, path)
			}
			return err
		})
		if err != nil || !slices.Equal(there, files) || !slices.Contains(files, filepath.Join(dir, "README.md")) {
			t.Errorf("%s: it says %q, there are %q, %v", lang, files, there, err)
		}
	}
}

func TestWriteRefuses(t *testing.T) {
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "precious"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(full, "precious")
	for about, c := range map[string]struct {
		dir, lang, name string
		want            error
		says            string
	}{
		"a directory with something in it": {full, "go", "p", scaffold.ErrDirectory, "precious"},
		"a file":                           {file, "go", "p", nil, "precious"},
		"an unknown language":              {t.TempDir(), "cobol", "p", scaffold.ErrLanguage, "go, python, node, shell"},
		"no name":                          {t.TempDir(), "go", "", scaffold.ErrName, "1 to 64"},
		"a name with a dot":                {t.TempDir(), "go", "a.b", scaffold.ErrName, "1 to 64"},
		"a name that is a path":            {t.TempDir(), "go", "../p", scaffold.ErrName, "1 to 64"},
		"a name too long for its tool":     {t.TempDir(), "go", strings.Repeat("p", 60), scaffold.ErrName, "shorter"},
	} {
		files, err := scaffold.Write(c.dir, c.lang, c.name)
		if err == nil || c.want != nil && !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) || files != nil {
			t.Errorf("%s: %q, %v", about, files, err)
		}
		if left, err := os.ReadDir(c.dir); err == nil && c.dir != full && len(left) > 0 {
			t.Errorf("%s: %q is left", about, left)
		}
	}
}
