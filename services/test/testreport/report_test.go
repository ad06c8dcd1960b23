package main

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const head = "package x\n\nimport \"testing\"\n\n"

// flaky fails in its first run alone.
const flaky = "package x\n\nimport (\n\"os\"\n\"testing\"\n)\n\n" +
	"func TestA(t *testing.T) { t.Run(\"part\", func(t *testing.T) {\n" +
	"if os.Mkdir(\"ran\", 0o700) == nil { t.Error(\"broke once\") } }) }\nfunc TestB(*testing.T) {}\n"

// module writes a module made of these files.
func module(t *testing.T, files map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	files["go.mod"] = "module example.test\n\ngo 1.26\n"
	for name, text := range files {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// events runs tests of the module and returns go's events.
func events(t *testing.T, dir string, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"test", "-vet=off", "-json", "-count=1"}, args...)...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	out, err := cmd.Output()
	if ended := new(exec.ExitError); err != nil && !errors.As(err, &ended) {
		t.Fatal(err)
	}
	return out
}

func TestReport(t *testing.T) {
	for _, c := range []struct {
		about    string
		file     string
		again    []string // the arguments of a second run, as gotestsum runs failed tests again
		maySkip  bool
		ok       bool
		has, not []string
	}{
		{
			"passing tests are counted", head +
				"func TestA(t *testing.T) { t.Log(\"chatter\"); t.Run(\"part\", func(*testing.T) {}) }\n",
			nil, true, true,
			[]string{"the slowest of 2 packages", " s  example.test\n", "2 passed (0 flaky), 0 failed, 0 skipped"},
			[]string{"chatter"},
		},
		{
			"what a passing test does not test is listed", head +
				"func TestA(t *testing.T) { t.Run(\"part\", func(t *testing.T) { t.Log(\"NOT TESTED: the sea\") }) }\n",
			nil, true, true,
			[]string{"NOT TESTED: example.test TestA/part: the sea\n", "2 passed (0 flaky), 0 failed, 0 skipped"},
			nil,
		},
		{
			"a failure fails", head + "func TestA(t *testing.T) { t.Error(\"broke\") }\nfunc TestB(t *testing.T) {}\n",
			nil, true, false,
			[]string{"FAILED example.test TestA\n", "1 passed (0 flaky), 1 failed"},
			nil,
		},
		{
			"a failure that stays fails", head +
				"func TestA(t *testing.T) { t.Error(\"broke\") }\nfunc TestB(t *testing.T) {}\n",
			[]string{"-run=^TestA$"},
			true, false,
			[]string{"FAILED example.test TestA\n", "1 passed (0 flaky), 1 failed"},
			[]string{"FLAKY"},
		},
		{
			"what passes when it is run again is flaky", flaky,
			[]string{"-run=^TestA$/^part$"},
			true, true,
			[]string{
				"FLAKY example.test TestA/part: passed in run 2", "broke once", "3 passed (1 flaky), 0 failed",
			},
			[]string{"FLAKY example.test TestA:"},
		},
		{
			"a skip is listed with its reason",
			head + "func TestA(t *testing.T) { t.Skip(\"no engine\") }\nfunc TestB(*testing.T) {}\n", nil, true, true,
			[]string{"SKIPPED example.test TestA", "no engine", "1 passed (0 flaky), 0 failed, 1 skipped"},
			nil,
		},
		{
			"a skip that may not be fails",
			head + "func TestA(t *testing.T) { t.Skip(\"no engine\") }\nfunc TestB(*testing.T) {}\n", nil, false, false,
			[]string{"no engine", "that is a failure"},
			nil,
		},
		{
			"a package that does not build is a failure", head + "func TestA(t *testing.T) { nowhere() }\n", nil, true, false,
			[]string{"FAILED example.test\n", "0 passed"},
			nil,
		},
		{
			"a test that ends the process is a failure",
			"package x\n\nimport (\n\"os\"\n\"testing\"\n)\n\nfunc TestA(t *testing.T) {}\n" +
				"func TestB(t *testing.T) { os.Exit(3) }\n", nil,
			true, false,
			[]string{"FAILED example.test TestB\n", "1 passed (0 flaky), 1 failed"},
			nil,
		},
		{
			"a panic is a failure", head + "func TestA(t *testing.T) { panic(\"oh\") }\n", nil, true, false,
			[]string{"FAILED example.test TestA", "0 passed (0 flaky), 1 failed"},
			nil,
		},
		{
			"a TestMain that fails is a failure",
			"package x\n\nimport (\n\"os\"\n\"testing\"\n)\n\nfunc TestMain(m *testing.M) { m.Run(); os.Exit(1) }\n" +
				"func TestA(*testing.T) {}\n",
			nil, true, false,
			[]string{"FAILED example.test\n", "1 passed (0 flaky), 1 failed"},
			nil,
		},
		{"no test at all is a failure", "package x\n", nil, true, false, []string{"no test ran"}, nil},
	} {
		t.Run(c.about, func(t *testing.T) {
			t.Parallel()
			dir := module(t, map[string]string{"x_test.go": c.file, "empty/y.go": "package y\n"})
			all := events(t, dir, "./...")
			if c.again != nil {
				all = append(all, events(t, dir, append(c.again, ".")...)...)
			}
			r := newReport()
			if err := r.read(bufio.NewReader(bytes.NewReader(all))); err != nil {
				t.Fatal(err)
			}
			var b strings.Builder
			if ok := r.print(&b, func(_, _ string) bool { return c.maySkip }); ok != c.ok {
				t.Errorf("passed is %t, want %t", ok, c.ok)
			}
			for _, s := range c.has {
				if !strings.Contains(b.String(), s) {
					t.Errorf("the report lacks %q", s)
				}
			}
			for _, s := range c.not {
				if strings.Contains(b.String(), s) {
					t.Errorf("the report has %q", s)
				}
			}
			if t.Failed() {
				t.Log("\n" + b.String())
			}
		})
	}
}

func TestTheOutputOfAFlakyTestIsKept(t *testing.T) {
	dir := module(t, map[string]string{"x_test.go": flaky})
	file := filepath.Join(dir, "events")
	if err := os.WriteFile(file, append(events(t, dir, "."), events(t, dir, ".")...), 0o600); err != nil {
		t.Fatal(err)
	}
	keep := filepath.Join(dir, "flaky")
	if ok, err := run(file, keep); err != nil || !ok {
		t.Errorf("passed is %t (%v)", ok, err)
	}
	kept, err := os.ReadFile(filepath.Join(keep, "example.test.TestA_part.log")) //nolint:gosec // of this test
	if err != nil || !strings.Contains(string(kept), "broke once") {
		t.Errorf("kept is %q (%v)", kept, err)
	}
}

func TestEventsThatAreNoneAreAnError(t *testing.T) {
	for name, text := range map[string]string{"text": "go: warning\n", "half an event": `{"Action":"pass"`} {
		if err := newReport().read(bufio.NewReader(strings.NewReader(text))); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := run(filepath.Join(t.TempDir(), "missing"), ""); err == nil {
		t.Error("a file that is missing: no error")
	}
}
