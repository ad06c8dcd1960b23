// Command testreport reads what `go test -json` writes and prints what a person
// wants of it: go's own closing line of each package, the whole output of what
// failed, and at the end every test that was not run, with its reason.
//
//	go test -json -race ./... | testreport go test -json -race
//
// The arguments are the command that runs tests. With them, a test that failed is
// run again, alone, up to twice. If it passes then, it is listed at the end as
// FLAKY, with the output of its failure, and does not fail the run. A package that
// a panic or a timeout ended early is run again where it stopped. These fail
// at once: a data race, a package that fails without a failed test, and more
// failures than flaky tests explain.
//
// It exits with 1 when something failed, when no test ran at all, and, if the
// environment says SKANDHA_REQUIRE=all, when a test was skipped that package
// archtest does not list.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"skandha.dev/services/test/archtest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ok := run(ctx)
	stop()
	if !ok {
		os.Exit(1)
	}
}

func run(ctx context.Context) bool {
	r := newReport(os.Stdout)
	if err := r.read(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
		return false
	}
	if len(os.Args) > 1 {
		r.retry(command{args: os.Args[1:]}.run(ctx))
	}
	maySkip := func(_, _ string) bool { return true }
	if os.Getenv("SKANDHA_REQUIRE") == "all" {
		maySkip = archtest.MaySkip
	}
	return r.close(maySkip)
}
