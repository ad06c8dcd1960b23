package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
)

const (
	attempts = 2
	// maxUnits is how many failures may be retried: more are no coincidence.
	maxUnits = 20
	// retryTimeout ends a test that hangs again before it costs the whole run's time.
	retryTimeout = "5m"
)

// flake is a test that failed and passed when it was run again.
type flake struct {
	test
	attempt int
	output  string // of the failure
}

// runner runs tests of a package, chosen by flags of go test, and writes the events.
type runner func(w io.Writer, pkg string, flags ...string) error

// command is a `go test -json` without packages.
type command struct {
	args []string
	dir  string
	env  []string // nil: that of this process
}

func (c command) run(ctx context.Context) runner {
	return func(w io.Writer, pkg string, flags ...string) error {
		args := slices.Concat(c.args[1:], []string{"-count=1", "-timeout=" + retryTimeout}, flags, []string{pkg})
		cmd := exec.CommandContext(ctx, c.args[0], args...)
		cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = c.dir, c.env, w, os.Stderr
		err := cmd.Run()
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return nil // the events say what failed
		}
		return err
	}
}

// retry runs failed tests again, alone. A test that then passes is flaky; the others
// stay failed.
func (r *report) retry(again runner) {
	units := r.units()
	if len(units) > maxUnits {
		r.print(fmt.Sprintf("%d failures: too many for flaky tests, none is run again\n", len(units)))
		return
	}
	var still []test
	for _, t := range units {
		if f, ok := r.retryTest(again, t); ok {
			r.flaky = append(r.flaky, f)
		} else {
			still = append(still, t)
		}
	}
	r.settle(still)
	for _, pkg := range slices.Sorted(maps.Keys(r.cut)) {
		if !slices.ContainsFunc(still, func(t test) bool { return t.pkg == pkg }) {
			r.retryRest(again, pkg)
		}
	}
}

// units are the failed tests to run again, the innermost ones. In a package that
// ended early they are whole top-level tests, and those that did not end.
func (r *report) units() []test {
	var units []test
	add := func(t test) {
		if !slices.Contains(units, t) {
			units = append(units, t)
		}
	}
	for _, t := range r.failed {
		if _, cut := r.cut[t.pkg]; cut {
			add(t.top())
		} else if r.innermost(t) {
			add(t)
		}
	}
	for _, unended := range r.cut {
		for _, t := range unended {
			add(t.top())
		}
	}
	// A parent that is run again covers its subtests.
	return slices.DeleteFunc(slices.Clone(units), func(t test) bool {
		return slices.ContainsFunc(units, t.under)
	})
}

// innermost reports whether the test itself failed, and not only its subtests.
func (r *report) innermost(t test) bool {
	parts := slices.ContainsFunc(r.failed, func(f test) bool { return f.under(t) })
	return !parts || slices.ContainsFunc(r.output[t], said.MatchString)
}

// said matches a line that a test logs, which may be the cause of its failure.
var said = regexp.MustCompile(`^\s+\S+\.go:\d+: `)

func (t test) top() test {
	name, _, _ := strings.Cut(t.name, "/")
	return test{t.pkg, name}
}

// under reports whether the test is a subtest of the other.
func (t test) under(of test) bool {
	return t.pkg == of.pkg && strings.HasPrefix(t.name, of.name+"/")
}

// pattern is the -run argument that selects only this test.
func (t test) pattern() string {
	parts := strings.Split(t.name, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	return strings.Join(parts, "/")
}

// retryTest runs one test again until it passes.
func (r *report) retryTest(again runner, t test) (flake, bool) {
	var output strings.Builder
	for _, of := range slices.Concat(r.failed, r.cut[t.pkg]) {
		if of == t || of.under(t) {
			output.WriteString(strings.Join(r.output[of], ""))
		}
	}
	if strings.Contains(output.String(), "WARNING: DATA RACE") {
		return flake{}, false // one failure is proof enough
	}
	for attempt := 1; attempt <= attempts; attempt++ {
		r.print(fmt.Sprintf("=== run again, alone (%d of %d): %s %s\n", attempt, attempts, t.pkg, t.name))
		if got := r.collect(again, t.pkg, "-run="+t.pattern()); got.well() && slices.Contains(got.passed, t) {
			return flake{t, attempt, output.String()}, true
		}
	}
	return flake{}, false
}

// retryRest runs the tests that did not run in a package that ended early.
func (r *report) retryRest(again runner, pkg string) {
	var done []string
	for _, t := range slices.Concat(r.passed, r.skipped) {
		if t.pkg == pkg && t == t.top() {
			done = append(done, regexp.QuoteMeta(t.name))
		}
	}
	r.print(fmt.Sprintf("=== run the rest of what ended early: %s\n", pkg))
	got := r.collect(again, pkg, "-skip=^("+strings.Join(done, "|")+")$")
	r.passed = append(r.passed, got.passed...)
	r.failed = append(r.failed, got.failed...)
	r.skipped = append(r.skipped, got.skipped...)
	r.broken = append(r.broken, got.broken...)
	for _, t := range got.skipped {
		r.output[t] = got.output[t]
	}
}

// collect runs tests again and reads their results.
func (r *report) collect(again runner, pkg string, flags ...string) *report {
	var events bytes.Buffer
	got := newReport(r.out)
	err := again(&events, pkg, flags...)
	if err == nil {
		err = got.read(&events)
	}
	if err != nil {
		r.print(fmt.Sprintf("running again: %v\n", err))
		got.broken = append(got.broken, pkg)
	}
	return got
}

// well reports whether all tests passed.
func (r *report) well() bool { return len(r.failed)+len(r.broken) == 0 }

// settle counts again: a test that failed again has failed, with its parents and
// subtests; the others have passed.
func (r *report) settle(still []test) {
	failed := r.failed
	r.failed = nil
	for _, t := range failed {
		if slices.ContainsFunc(still, func(s test) bool { return s == t || s.under(t) || t.under(s) }) {
			r.failed = append(r.failed, t)
		} else {
			r.passed = append(r.passed, t)
		}
	}
	for _, f := range r.flaky {
		if !slices.Contains(r.passed, f.test) {
			r.passed = append(r.passed, f.test) // it did not end before
		}
		r.broken = slices.DeleteFunc(r.broken, func(pkg string) bool {
			return pkg == f.pkg && !slices.ContainsFunc(still, func(s test) bool { return s.pkg == pkg })
		})
	}
}

// printFlaky lists the tests that passed only when they were run again.
func (r *report) printFlaky() {
	for _, f := range r.flaky {
		r.print(fmt.Sprintf("FLAKY %s %s: it failed, and passed when run alone (attempt %d). It failed with:\n",
			f.pkg, f.name, f.attempt))
		for out := range strings.Lines(f.output) {
			r.print("        " + strings.TrimRight(out, "\n") + "\n")
		}
	}
	if len(r.flaky) > 0 {
		r.print(fmt.Sprintf("%d FLAKY: fix them, the next run may fail\n", len(r.flaky)))
	}
}
