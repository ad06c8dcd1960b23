package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

// once is a function of the fixtures: true when it is called for the first time with a
// name, over all runs.
const once = `package x

import (
	"os"
	"testing"
)

func once(name string) bool {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return false
	}
	f.Close()
	return true
}

var _ testing.TB
`

func TestRetry(t *testing.T) {
	for _, c := range []struct {
		about    string
		test     string // its file
		ok       bool
		has, not []string
	}{
		{
			"a test that passes alone is flaky",
			"func TestA(t *testing.T) { if once(`a`) { t.Error(\"broke\") } }\nfunc TestB(*testing.T) {}\n",
			true,
			[]string{
				"run again, alone (1 of 2): example.test TestA\n", "FLAKY example.test TestA: ", "attempt 1", "        ", "broke",
				"1 FLAKY", "\n2 passed, 0 failed, 0 skipped\n",
			},
			[]string{"(2 of 2)"},
		},
		{
			"it has two attempts",
			"func TestA(t *testing.T) { if once(`a`) || once(`b`) { t.Error(\"broke\") } }\n",
			true,
			[]string{"(2 of 2)", "attempt 2", "\n1 passed, 0 failed, 0 skipped\n"},
			nil,
		},
		{
			"a test that fails each time has failed",
			"func TestA(t *testing.T) { if once(`a`) || once(`b`) || once(`c`) { t.Error(\"broke\") } }\nfunc TestB(*testing.T) {}\n",
			false,
			[]string{"(2 of 2)", "\n1 passed, 1 failed, 0 skipped\n"},
			[]string{"FLAKY"},
		},
		{
			"the part that failed is run alone",
			"func TestA(t *testing.T) { t.Run(\"x y\", func(t *testing.T) { if once(`a`) { t.Error(\"broke\") } }); t.Run(\"z\", func(t *testing.T) { if !once(`z`) { t.Error(\"z again\") } }) }\n",
			true,
			[]string{"FLAKY example.test TestA/x_y: ", "\n3 passed, 0 failed, 0 skipped\n"},
			[]string{"z again"},
		},
		{
			"a test that failed by itself is run whole",
			"func TestA(t *testing.T) { a := once(`a`); t.Run(\"x\", func(t *testing.T) { if a { t.Error(\"part\") } }); t.Run(\"y\", func(*testing.T) {}); if a { t.Error(\"whole\") } }\n",
			true,
			[]string{"FLAKY example.test TestA: ", "\n3 passed, 0 failed, 0 skipped\n"},
			nil,
		},
		{
			"one of two fails each time",
			"func TestA(t *testing.T) { t.Run(\"x\", func(t *testing.T) { if once(`a`) { t.Error(\"broke\") } }); t.Run(\"y\", func(t *testing.T) { t.Error(\"always\") }) }\n",
			false,
			[]string{"FLAKY example.test TestA/x: ", "\n1 passed, 2 failed, 0 skipped\n"},
			nil,
		},
		{
			"a part that is not there any more has not passed",
			"func TestA(t *testing.T) { if once(`a`) { t.Run(\"x\", func(t *testing.T) { t.Error(\"broke\") }) } }\n",
			false,
			[]string{"(2 of 2)", "\n0 passed, 2 failed, 0 skipped\n"},
			nil,
		},
		{
			"after a panic the rest is run too",
			"func TestA(t *testing.T) { if once(`a`) { panic(\"oh\") } }\nfunc TestB(t *testing.T) { t.Error(\"found\") }\nfunc TestC(t *testing.T) { t.Skip(\"no engine\") }\n",
			false,
			[]string{
				"FLAKY example.test TestA: ", "run the rest of what ended early: example.test\n", "found", "no engine",
				"\n1 passed, 1 failed, 1 skipped\n",
			},
			nil,
		},
		{
			"a process that ended in a test passes when all of it passes",
			"func TestA(*testing.T) {}\nfunc TestB(t *testing.T) { if once(`a`) { os.Exit(3) } }\nfunc TestC(*testing.T) {}\n",
			true,
			[]string{"FLAKY example.test TestB: ", "\n3 passed, 0 failed, 0 skipped\n"},
			nil,
		},
		{
			"a data race is no accident",
			"func TestA(t *testing.T) { if once(`a`) { t.Error(\"WARNING: DATA RACE\") } }\n",
			false,
			[]string{"\n0 passed, 1 failed, 0 skipped\n"},
			[]string{"run again"},
		},
		{
			"a package that fails without a failed test stays failed",
			"func TestMain(m *testing.M) { m.Run(); if once(`a`) { os.Exit(1) } }\nfunc TestA(t *testing.T) {}\n",
			false,
			[]string{"\n1 passed, 1 failed, 0 skipped\n"},
			[]string{"run again"},
		},
		{
			"a package that does not build stays failed",
			"func TestA(t *testing.T) { nowhere() }\n",
			false,
			[]string{"\n0 passed, 1 failed, 0 skipped\n"},
			[]string{"run again"},
		},
	} {
		t.Run(c.about, func(t *testing.T) {
			t.Parallel()
			pkg := "package x\n\nimport (\n\"os\"\n\"testing\"\n)\n\nvar _ = os.Exit\n\n"
			out, ok := reportOn(t, true, true, map[string]string{"once_test.go": once, "x_test.go": pkg + c.test})
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

// fail returns the events of a failed test.
func fail(name string) string {
	return fmt.Sprintf(`{"Action":"run","Package":"p","Test":%q}`+"\n"+`{"Action":"fail","Package":"p","Test":%[1]q}`+"\n",
		name)
}

const end = `{"Action":"output","Package":"p","Output":"FAIL\n"}` + "\n" + `{"Action":"fail","Package":"p"}` + "\n"

func TestManyFailuresAreNotRetried(t *testing.T) {
	var events, out strings.Builder
	for i := range maxUnits + 1 {
		events.WriteString(fail(fmt.Sprint("Test", i)))
	}
	r := newReport(&out)
	if err := r.read(strings.NewReader(events.String() + end)); err != nil {
		t.Fatal(err)
	}
	r.retry(func(io.Writer, string, ...string) error { t.Error("a test was run again"); return nil })
	if r.close(func(_, _ string) bool { return true }) {
		t.Error("it is well")
	}
}

func TestWhatCannotBeRunAgainStaysFailed(t *testing.T) {
	var out strings.Builder
	r := newReport(&out)
	if err := r.read(strings.NewReader(fail("TestA") + end)); err != nil {
		t.Fatal(err)
	}
	r.retry(func(io.Writer, string, ...string) error { return errors.New("no go here") })
	if r.close(func(_, _ string) bool { return true }) || !strings.Contains(out.String(), "no go here") {
		t.Errorf("it is well, or does not say why:\n%s", out.String())
	}
}

func TestPatternNamesOneTest(t *testing.T) {
	if got, want := (test{"p", "TestA/a.b/c"}).pattern(), `^TestA$/^a\.b$/^c$`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
