// Command testreport reads the events of a run of tests, as gotestsum writes them with
// --jsonfile, and says what gotestsum does not:
//
//	testreport [--keep DIR] EVENTS
//
// It lists the slowest packages; each test that was skipped, with the reason; what tests that
// passed log as "NOT TESTED: …"; and each test that failed and passed when it was run again,
// as FLAKY, with the output of the failure. That output is also kept in DIR, one file per test.
//
// It exits with 1 when a test or package failed to the end, when no test ran at all, and,
// if the environment says SKANDHA_REQUIRE=all, when a test was skipped that package
// archtest does not list.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"os"

	"skandha.dev/services/test/archtest"
)

func main() {
	keep := flag.String("keep", "", "directory for the output of flaky tests; default: not kept")
	flag.Parse()
	ok, err := run(flag.Arg(0), *keep)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

func run(events, keep string) (bool, error) {
	f, err := os.Open(events) //nolint:gosec // an argument
	if err != nil {
		return false, err
	}
	defer func() { _ = f.Close() }() // only read
	r := newReport()
	if err := r.read(bufio.NewReader(f)); err != nil {
		return false, err
	}
	maySkip := func(_, _ string) bool { return true }
	if os.Getenv("SKANDHA_REQUIRE") == "all" {
		maySkip = archtest.MaySkip
	}
	ok := r.print(os.Stdout, maySkip)
	if keep != "" {
		err = r.keep(keep)
	}
	return ok, err
}
