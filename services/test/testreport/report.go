package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// line is one event of `go test -json` (go doc cmd/test2json).
type line struct {
	Action     string
	Package    string
	Test       string
	Output     string
	ImportPath string // of a build event
}

// test names one test; an empty name is the package itself.
type test struct{ pkg, name string }

type report struct {
	out     io.Writer
	output  map[test][]string // of running, failed and skipped tests
	running map[test]bool
	passed  []test
	failed  []test
	skipped []test
	broken  []string          // packages that failed without a failed test: build, panic, timeout
	cut     map[string][]test // tests that did not end, by package
	flaky   []flake
}

func newReport(out io.Writer) *report {
	return &report{out: out, output: map[test][]string{}, running: map[test]bool{}, cut: map[string][]test{}}
}

// read takes the events and prints each package when it is done. What is no event
// is printed as it is.
func (r *report) read(in io.Reader) error {
	lines := bufio.NewReader(in)
	for {
		raw, err := lines.ReadString('\n')
		if raw != "" {
			var l line
			if json.Unmarshal([]byte(raw), &l) != nil || l.Action == "" {
				r.print(raw)
			} else {
				r.take(l)
			}
		}
		switch err {
		case nil:
		case io.EOF:
			return nil
		default:
			return fmt.Errorf("reading the events: %w", err)
		}
	}
}

func (r *report) print(s string) { _, _ = io.WriteString(r.out, s) }

func (r *report) take(l line) {
	t := test{l.Package, l.Test}
	switch l.Action {
	case "build-output":
		r.print(l.Output)
	case "run":
		r.running[t] = true
	case "output":
		r.output[t] = append(r.output[t], l.Output)
	case "pass", "fail", "skip":
		r.end(t, l.Action)
	}
}

func (r *report) end(t test, action string) {
	delete(r.running, t)
	if t.name == "" {
		r.endPackage(t, action)
		return
	}
	switch action {
	case "pass":
		r.passed = append(r.passed, t)
		delete(r.output, t)
	case "fail":
		r.failed = append(r.failed, t)
	case "skip":
		r.skipped = append(r.skipped, t)
	}
}

// endPackage prints what failed in the package and go's closing line of it.
func (r *report) endPackage(pkg test, action string) {
	if action == "fail" {
		failed := slices.ContainsFunc(r.failed, func(t test) bool { return t.pkg == pkg.pkg })
		unended := r.unended(pkg.pkg)
		if !failed {
			r.broken = append(r.broken, pkg.pkg)
		}
		// The test binary itself says FAIL when it has run every test.
		if (failed || len(unended) > 0) && !slices.Contains(r.output[pkg], "FAIL\n") {
			r.cut[pkg.pkg] = unended
		}
		r.printFailed(pkg.pkg, unended)
	}
	for _, out := range r.output[pkg] {
		if action == "fail" || closing(out) {
			r.print(out)
		}
	}
	delete(r.output, pkg)
}

// unended returns the package's tests that are still running when the package has
// ended.
func (r *report) unended(pkg string) []test {
	var unended []test
	for t := range r.running {
		if t.pkg == pkg {
			unended = append(unended, t)
			delete(r.running, t)
		}
	}
	slices.SortFunc(unended, func(a, b test) int { return strings.Compare(a.name, b.name) })
	return unended
}

// printFailed prints the output of the package's tests that failed or did not end.
func (r *report) printFailed(pkg string, unended []test) {
	for _, t := range slices.Concat(r.failed, unended) {
		if t.pkg == pkg {
			r.print(strings.Join(r.output[t], ""))
		}
	}
}

// closing knows go's closing line of a package that is well.
func closing(out string) bool {
	return strings.HasPrefix(out, "ok  \t") || strings.HasPrefix(out, "?   \t")
}

// close prints the flaky tests, the skipped tests and the sums, and reports whether
// the run passed.
func (r *report) close(maySkip func(pkg, test string) bool) bool {
	ok := true
	for _, t := range r.skipped {
		r.print(fmt.Sprintf("SKIPPED %s %s\n", t.pkg, t.name))
		for _, out := range r.output[t] {
			if s := strings.TrimSpace(out); !strings.HasPrefix(s, "===") && !strings.HasPrefix(s, "---") {
				r.print("        " + s + "\n")
			}
		}
		if !maySkip(t.pkg, t.name) {
			r.print("        and that is a failure: everything is required, and it is no listed exception\n")
			ok = false
		}
	}
	r.printFlaky()
	failed := len(r.failed) + len(r.broken)
	r.print(fmt.Sprintf("%d passed, %d failed, %d skipped\n", len(r.passed), failed, len(r.skipped)))
	if len(r.passed)+failed == 0 {
		r.print("no test ran\n")
		ok = false
	}
	return ok && failed == 0
}
