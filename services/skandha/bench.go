package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"skandha.dev/services/skandha/bench"
)

// benchCmd measures this machine.
type benchCmd struct {
	JSON  bool     `help:"Print the rows as JSON."`
	Quick bool     `help:"Run a tenth of the iterations, for a rough result."`
	Only  []string `placeholder:"ID" help:"Only these rows, e.g. --only B4,B6."`

	Role string `arg:"" optional:"" hidden:"" help:"Run as a helper process of a measurement."`
}

// Validate implements kong's interface.
func (b *benchCmd) Validate() error { return bench.CheckRows(b.Only) }

// Run implements the command.
func (b *benchCmd) Run(ctx context.Context) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	if b.Role != "" {
		return bench.Role(ctx, b.Role)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "skandha-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // scratch
	o := bench.Options{
		Quick: b.Quick, Only: b.Only, Dir: dir, Binary: self,
		Spawn: func(role string) []string { return []string{self, "bench", role} },
	}
	if !b.JSON {
		o.Progress = func(what string) { fmt.Fprintln(os.Stderr, "measuring "+what+" …") }
		fmt.Printf("%-4s %-52s %10s %10s %-8s %7s  %-10s\n", "ID", "WHAT", "OURS", "RAW", "UNIT", "RATIO", "BUDGET")
		o.Row = printRow
	}
	rows, err := bench.Run(ctx, o)
	if b.JSON && err == nil {
		err = printJSON(os.Stdout, rows, true)
	}
	return err
}

func printRow(r bench.Row) {
	if r.Skipped {
		fmt.Printf("%-4s %s\n", r.ID, r.What)
		return
	}
	raw, ratio := "–", "–"
	if r.Raw > 0 {
		raw, ratio = fmt.Sprintf("%.3f", r.Raw), fmt.Sprintf("%.2f", r.Ratio)
	}
	verdict := "ok"
	if !r.OK {
		verdict = "MISSED"
	}
	fmt.Printf("%-4s %-52s %10.3f %10s %-8s %7s  %-10s %s\n", r.ID, r.What, r.Ours, raw, r.Unit, ratio, r.Budget, verdict)
}
