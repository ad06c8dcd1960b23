// Command testreport reads what `go test -json` writes and prints what a person
// wants of it: go's own closing line of each package, the whole output of what
// failed, and at the end every test that did not run, with its reason.
//
// It exits with 1 when something failed, when no test ran at all, and, if the
// environment says SKANDHA_REQUIRE=all, when a test was skipped that package
// archtest does not list.
package main

import (
	"fmt"
	"os"

	"skandha.dev/services/internal/archtest"
)

func main() {
	r := newReport(os.Stdout)
	if err := r.read(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
		os.Exit(1)
	}
	maySkip := func(_, _ string) bool { return true }
	if os.Getenv("SKANDHA_REQUIRE") == "all" {
		maySkip = archtest.MaySkip
	}
	if !r.close(maySkip) {
		os.Exit(1)
	}
}
