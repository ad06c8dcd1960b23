package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// slowest is how many packages the list of the slowest has.
const slowest = 15

// event is one of `go test -json` (go doc cmd/test2json).
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
	Elapsed float64 // seconds
}

// test names one test; an empty name is the package itself.
type test struct{ pkg, name string }

func (t test) String() string { return strings.TrimSuffix(t.pkg+" "+t.name, " ") }

// outcome is how a test has ended, over all its runs.
type outcome struct {
	last   string   // pass, fail or skip; empty: it never ended
	output []string // of the run that goes on, or of the last one
	failed []string // the output of each run that failed
}

type report struct {
	tests   map[test]*outcome
	seconds map[string]float64 // by package, over all runs
}

func newReport() *report { return &report{tests: map[test]*outcome{}, seconds: map[string]float64{}} }

// read takes the events, one per line.
func (r *report) read(in *bufio.Reader) error {
	for n := 1; ; n++ {
		line, err := in.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if bad := json.Unmarshal(line, &e); bad != nil {
				return fmt.Errorf("line %d is no event: %w", n, bad)
			}
			r.take(e)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (r *report) take(e event) {
	if e.Package == "" {
		return // of a build; the package fails too
	}
	t := test{e.Package, e.Test}
	o := r.tests[t]
	if o == nil {
		o = &outcome{}
		r.tests[t] = o
	}
	switch e.Action {
	case "run", "start":
		o.last, o.output = "", nil
	case "output":
		o.output = append(o.output, e.Output)
	case "fail":
		o.failed = append(o.failed, strings.Join(o.output, ""))
		o.last = e.Action
	case "pass", "skip":
		o.last = e.Action
	}
	if e.Test == "" {
		r.seconds[e.Package] += e.Elapsed
	}
}

// with returns the tests for which the condition holds, in order.
func (r *report) with(cond func(test, *outcome) bool) []test {
	var out []test
	for t, o := range r.tests {
		if cond(t, o) {
			out = append(out, t)
		}
	}
	slices.SortFunc(out, func(a, b test) int { return strings.Compare(a.String(), b.String()) })
	return out
}

func (r *report) ended(how string) []test {
	return r.with(func(t test, o *outcome) bool { return t.name != "" && o.last == how })
}

// failed returns the tests that failed in their last run or did not end. A package is
// among them only if none of its tests is: it did not build, or its TestMain failed.
func (r *report) failed() []test {
	tests := r.with(func(t test, o *outcome) bool { return t.name != "" && o.last != "pass" && o.last != "skip" })
	packages := r.with(func(t test, o *outcome) bool {
		within := func(u test) bool { return u.pkg == t.pkg }
		return t.name == "" && o.last != "pass" && o.last != "skip" && !slices.ContainsFunc(tests, within)
	})
	return append(tests, packages...)
}

// flaky returns the tests that failed and then passed. A test of which only subtests
// failed is not among them.
func (r *report) flaky() []test {
	all := r.with(func(t test, o *outcome) bool { return t.name != "" && o.last == "pass" && len(o.failed) > 0 })
	return slices.DeleteFunc(slices.Clone(all), func(t test) bool {
		part := func(u test) bool { return u.pkg == t.pkg && strings.HasPrefix(u.name, t.name+"/") }
		return slices.ContainsFunc(all, part) && indent(r.tests[t].failed[0]) == ""
	})
}

// print writes the report, and reports whether the run passed.
func (r *report) print(w io.Writer, maySkip func(pkg, test string) bool) bool {
	out := bufio.NewWriter(w)
	defer func() { _ = out.Flush() }() // nobody reads it
	r.printSlowest(out)
	ok := r.printSkipped(out, maySkip)
	r.printUntested(out)
	for _, t := range r.flaky() {
		o := r.tests[t]
		_, _ = fmt.Fprintf(out, "FLAKY %s: passed in run %d. It failed with:\n%s", t, len(o.failed)+1, indent(o.failed[0]))
	}
	failed := r.failed()
	for _, t := range failed {
		_, _ = fmt.Fprintf(out, "FAILED %s\n", t)
	}
	passed := len(r.ended("pass"))
	_, _ = fmt.Fprintf(out, "%d passed (%d flaky), %d failed, %d skipped\n",
		passed, len(r.flaky()), len(failed), len(r.ended("skip")))
	if passed == 0 {
		_, _ = fmt.Fprintln(out, "no test ran")
	}
	return ok && passed > 0 && len(failed) == 0
}

func (r *report) printSlowest(out io.Writer) {
	sum := 0.0
	for _, s := range r.seconds {
		sum += s
	}
	packages := slices.SortedFunc(maps.Keys(r.seconds),
		func(a, b string) int { return cmp.Compare(r.seconds[b], r.seconds[a]) })
	_, _ = fmt.Fprintf(out, "\nthe slowest of %d packages (%.0f s in all):\n", len(packages), sum)
	for _, p := range packages[:min(slowest, len(packages))] {
		_, _ = fmt.Fprintf(out, "%7.1f s  %s\n", r.seconds[p], p)
	}
}

func (r *report) printSkipped(out io.Writer, maySkip func(pkg, test string) bool) (ok bool) {
	ok = true
	for _, t := range r.ended("skip") {
		_, _ = fmt.Fprintf(out, "SKIPPED %s\n%s", t, indent(strings.Join(r.tests[t].output, "")))
		if !maySkip(t.pkg, t.name) {
			_, _ = fmt.Fprintln(out, "        and that is a failure: everything is required, and it is no listed exception")
			ok = false
		}
	}
	return ok
}

// untested begins what a test says about a part of it that does not apply.
const untested = "NOT TESTED: "

// printUntested lists what tests that passed have declared as not tested.
func (r *report) printUntested(out io.Writer) {
	for _, t := range r.ended("pass") {
		for _, line := range r.tests[t].output {
			if _, what, found := strings.Cut(line, untested); found {
				_, _ = fmt.Fprintf(out, "%s%s: %s\n", untested, t, strings.TrimSpace(what))
			}
		}
	}
}

// indent leaves out the lines that go test adds.
func indent(output string) string {
	var b strings.Builder
	for line := range strings.Lines(output) {
		if s := strings.TrimSpace(line); !strings.HasPrefix(s, "===") && !strings.HasPrefix(s, "---") {
			b.WriteString("        " + strings.TrimRight(line, "\n") + "\n")
		}
	}
	return b.String()
}

// keep writes the output of each flaky test's failures to a file in dir.
func (r *report) keep(dir string) error {
	for _, t := range r.flaky() {
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return err
		}
		name := strings.NewReplacer("/", "_", " ", ".").Replace(strings.TrimPrefix(t.String(), "skandha.dev/"))
		text := strings.Join(r.tests[t].failed, "\n=== run again\n")
		if err := os.WriteFile(filepath.Join(dir, name+".log"), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}
