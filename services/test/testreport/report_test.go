package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

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

// reportOn reports on the tests of a module made of these files, as go test runs them.
func reportOn(t *testing.T, maySkip, retry bool, files map[string]string) (out string, ok bool) {
	t.Helper()
	test := command{
		args: []string{"go", "test", "-vet=off", "-json"}, dir: module(t, files),
		env: append(os.Environ(), "GOWORK=off", "GOFLAGS="),
	}.run(t.Context())
	var events bytes.Buffer
	if err := test(&events, "./..."); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	r := newReport(&b)
	if err := r.read(&events); err != nil {
		t.Fatal(err)
	}
	if retry {
		r.retry(test)
	}
	ok = r.close(func(_, _ string) bool { return maySkip })
	return b.String(), ok
}

const head = "package x\n\nimport \"testing\"\n\n"

func TestReport(t *testing.T) {
	for _, c := range []struct {
		about    string
		files    map[string]string
		maySkip  bool
		ok       bool
		has, not []string
	}{
		{
			"passing tests are a line per package",
			map[string]string{
				"a/x_test.go": head + "func TestA(t *testing.T) { t.Log(\"chatter\"); t.Run(\"part\", func(*testing.T) {}) }\n",
				"b/x.go":      "package x\n",
			},
			true, true,
			[]string{"ok  \texample.test/a\t", "?   \texample.test/b\t[no test files]", "2 passed, 0 failed, 0 skipped"},
			[]string{"chatter", "PASS", "RUN"},
		},
		{
			"a failure is shown whole, its neighbours are not",
			map[string]string{
				"x_test.go": head +
					"func TestA(t *testing.T) { t.Error(\"broke\") }\nfunc TestB(t *testing.T) { t.Log(\"chatter\") }\n",
			},
			false, false,
			[]string{"--- FAIL: TestA", "broke", "FAIL\texample.test", "1 passed, 1 failed, 0 skipped"},
			[]string{"chatter"},
		},
		{
			"a skip is listed with its reason",
			map[string]string{
				"x_test.go": head + "func TestA(t *testing.T) { t.Skip(\"no engine\") }\nfunc TestB(*testing.T) {}\n",
			},
			true, true,
			[]string{"SKIPPED example.test TestA", "no engine", "1 passed, 0 failed, 1 skipped"},
			nil,
		},
		{
			"a skip that may not be fails",
			map[string]string{
				"x_test.go": head + "func TestA(t *testing.T) { t.Skip(\"no engine\") }\nfunc TestB(*testing.T) {}\n",
			},
			false, false,
			[]string{"no engine", "that is a failure"},
			nil,
		},
		{
			"a package that does not build is a failure",
			map[string]string{"x_test.go": head + "func TestA(t *testing.T) { nowhere() }\n"},
			false, false,
			[]string{"undefined: nowhere", "0 passed, 1 failed, 0 skipped"},
			nil,
		},
		{
			"a test that ends the process is a failure, and shown",
			map[string]string{
				"x_test.go": "package x\n\nimport (\n\"os\"\n\"testing\"\n)\n\nfunc TestA(t *testing.T) { os.Stdout.WriteString(\"last words\\n\"); os.Exit(3) }\n",
			},
			false, false,
			[]string{"last words", "FAIL\texample.test", "0 passed, 1 failed, 0 skipped"},
			nil,
		},
		{
			"a panic is a failure, and shown",
			map[string]string{"x_test.go": head + "func TestA(t *testing.T) { panic(\"oh\") }\n"},
			false, false,
			[]string{"panic: oh", "0 passed, 1 failed, 0 skipped"},
			nil,
		},
		{
			"no test at all is a failure",
			map[string]string{"x.go": "package x\n"},
			false, false,
			[]string{"no test ran"},
			nil,
		},
	} {
		t.Run(c.about, func(t *testing.T) {
			t.Parallel()
			out, ok := reportOn(t, c.maySkip, false, c.files)
			if ok != c.ok {
				t.Errorf("well is %t, want %t", ok, c.ok)
			}
			for _, s := range c.has {
				if !strings.Contains(out, s) {
					t.Errorf("the report lacks %q", s)
				}
			}
			for _, s := range c.not {
				if strings.Contains(out, s) {
					t.Errorf("the report has %q", s)
				}
			}
			if t.Failed() {
				t.Log("\n" + out)
			}
		})
	}
}

func TestWhatIsNoEventIsPrinted(t *testing.T) {
	var b strings.Builder
	r := newReport(&b)
	if err := r.read(strings.NewReader("go: warning\n")); err != nil {
		t.Fatal(err)
	}
	if got := b.String(); got != "go: warning\n" {
		t.Errorf("got %q", got)
	}
}
