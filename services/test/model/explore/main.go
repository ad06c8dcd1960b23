// Command explore explores the turn protocol in one world or in a suite of worlds. It
// exits with status 1 if an outcome is not as expected.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"skandha.dev/services/test/model"
)

func main() {
	flags := flag.NewFlagSet("explore", flag.ExitOnError)
	flags.Usage = func() { usage(flags) }
	one := model.Register(flags)
	all := flags.Bool("all", false, "explore the full suite")
	bugs := flags.Bool("bugs", false, "explore all mutations: each must be found")
	_ = flags.Parse(os.Args[1:]) // exits on errors

	var ok bool
	switch {
	case *all:
		ok = suite(os.Stdout, model.Full())
	case *bugs:
		ok = suite(os.Stdout, model.Broken())
	default:
		cfg, err := one.Config()
		if err == nil && flags.NArg() > 0 {
			err = fmt.Errorf("%w: unexpected %q", model.ErrUsage, flags.Arg(0))
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "explore:", err)
			os.Exit(2)
		}
		r := explore(os.Stdout, cfg, "")
		ok = r.Outcome == model.OK || r.Outcome == model.Capped
	}
	if !ok {
		os.Exit(1)
	}
}

// suite explores the runs one after the other and reports whether all outcomes are as
// expected.
func suite(w io.Writer, runs []model.Run) bool {
	failed := 0
	for _, run := range runs {
		cfg, err := model.Parse(run.Line)
		if err != nil {
			panic(err) // a suite's lines are constants
		}
		if r := explore(w, cfg, run.Line); r.Outcome != run.Want || r.Reason != run.Reason {
			failed++
			fmt.Fprintf(w, "NOT AS EXPECTED: want %s %s\n", run.Want, run.Reason)
		}
	}
	fmt.Fprintf(w, "%d runs, %d not as expected\n", len(runs), failed)
	return failed == 0
}

// explore prints its findings and, if line is empty, the trace.
func explore(w io.Writer, cfg model.Config, line string) model.Report {
	begun := time.Now()
	r := model.New(cfg).Explore()
	fmt.Fprintf(w, "%-9s states=%d edges=%d goal=%d overflow=%d %.1fs %s", r.Outcome, r.States, r.Edges, r.Goals,
		r.Overflow,
		time.Since(begun).Seconds(), cfg.Scenario)
	if cfg.Mutation != model.Sound {
		fmt.Fprintf(w, " bug=%s", cfg.Mutation)
	}
	if line != "" {
		fmt.Fprintf(w, " [%s]", line)
	}
	if r.Reason != "" {
		fmt.Fprintf(w, ": %s", r.Reason)
	}
	fmt.Fprintln(w)
	if line != "" || r.Last == "" {
		return r
	}
	for i, step := range r.Trace {
		fmt.Fprintf(w, "%4d  %s\n", i+1, step)
	}
	fmt.Fprintln(w, r.Last)
	return r
}

func usage(flags *flag.FlagSet) {
	w := flags.Output()
	fmt.Fprint(w, "usage: explore -s scenario [-bug mutation] [budgets]\n       explore -all | -bugs\n\n")
	flags.PrintDefaults()
	fmt.Fprint(w, "\nscenarios, with their budgets (crash rc pt dup unack):\n")
	for _, s := range model.Scenarios() {
		fmt.Fprintf(w, "  %-12s %d %d %d %d %d  %s\n", s.Scenario, s.Crashes, s.RunnerCrashes, s.Partitions,
			s.Duplicates, s.ForgottenAcks, s.Doc)
	}
	fmt.Fprint(w, "\nmutations, with the rules they break:\n")
	for _, m := range model.Mutations[1:] {
		fmt.Fprintf(w, "  %-16s %2s  %s\n", m.Name, m.Rule, m.Doc)
	}
}
