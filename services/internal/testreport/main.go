// Command testreport reads what `go test -json` writes and prints what a person
// wants of it: go's own closing line of each package, the whole output of what
// failed, and at the end every test that did not run, with its reason.
//
// It exits with 1 when something failed, when no test ran at all, and, if the
// environment says SKANDHA_REQUIRE=all, when a test was skipped.
package main

import (
	"fmt"
	"os"
)

func main() {
	r := newReport(os.Stdout)
	if err := r.read(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
		os.Exit(1)
	}
	if !r.close(os.Getenv("SKANDHA_REQUIRE") == "all") {
		os.Exit(1)
	}
}
