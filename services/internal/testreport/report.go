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
	output  map[test][]string // of what has not ended yet, and of what failed or was skipped
	running map[test]bool
	failed  []test
	skipped []test
	passed  int
	broken  int // packages that failed without a failing test: build, panic, timeout
}

func newReport(out io.Writer) *report {
	return &report{out: out, output: map[test][]string{}, running: map[test]bool{}}
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
		r.passed++
		delete(r.output, t)
	case "fail":
		r.failed = append(r.failed, t)
	case "skip":
		r.skipped = append(r.skipped, t)
	}
}

// endPackage prints what failed in the package and go's closing line of it.
func (r *report) endPackage(pkg test, action string) {
	failed := false
	for _, t := range r.failed {
		failed = failed || t.pkg == pkg.pkg
	}
	if action == "fail" {
		if !failed {
			r.broken++
		}
		r.printFailed(pkg.pkg)
	}
	for _, out := range r.output[pkg] {
		if action == "fail" || closing(out) {
			r.print(out)
		}
	}
	delete(r.output, pkg)
}

// printFailed prints the output of the package's tests that failed or did not end.
func (r *report) printFailed(pkg string) {
	unended := make([]test, 0, len(r.running))
	for t := range r.running {
		if t.pkg == pkg {
			unended = append(unended, t)
			delete(r.running, t)
		}
	}
	slices.SortFunc(unended, func(a, b test) int { return strings.Compare(a.name, b.name) })
	for _, t := range append(slices.Clone(r.failed), unended...) {
		if t.pkg == pkg {
			r.print(strings.Join(r.output[t], ""))
			delete(r.output, t)
		}
	}
}

// closing knows go's closing line of a package that is well.
func closing(out string) bool {
	return strings.HasPrefix(out, "ok  \t") || strings.HasPrefix(out, "?   \t")
}

// close prints the sums and reports whether all is well.
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
	failed := len(r.failed) + r.broken
	r.print(fmt.Sprintf("%d passed, %d failed, %d skipped\n", r.passed, failed, len(r.skipped)))
	if r.passed+failed == 0 {
		r.print("no test ran\n")
		ok = false
	}
	return ok && failed == 0
}
