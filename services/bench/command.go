package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"skandha.dev/services/bench/peers"
)

// Command is the command line of skandha-bench.
type Command struct {
	JSON    bool     `help:"Print the rows as JSON."`
	Quick   bool     `help:"Run a tenth of the iterations, for a rough result."`
	Only    []string `placeholder:"ID" help:"Only these rows, e.g. --only B4,B6."`
	Skandha string   `type:"existingfile" placeholder:"FILE" help:"The skandha command that B12 starts. Default: the one in the directory of skandha-bench."`

	What string `arg:"" optional:"" help:"peers: measure the same turn in other engines instead (make peers)."` // or the role of a helper process
}

// Validate implements kong's interface.
func (c *Command) Validate() error { return CheckRows(c.Only) }

// Run measures, and prints each row as soon as it is measured; or it is one of the
// processes of a measurement.
func (c *Command) Run(ctx context.Context) error {
	switch c.What {
	case "", "peers":
	case peerRole:
		return servePeer(ctx)
	default:
		return Role(ctx, c.What)
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
	o := Options{
		Quick: c.Quick, Only: c.Only, Dir: dir, Binary: c.skandha(self),
		Spawn: func(role string) []string { return []string{self, role} },
	}
	if c.What == "peers" {
		return c.beside(ctx, o, filepath.Join(filepath.Dir(self), "skandha-peers"))
	}
	if !c.JSON {
		o.Progress = func(what string) { fmt.Fprintln(os.Stderr, "measuring "+what+" …") }
		fmt.Printf("%-4s %-52s %10s %10s %-8s %7s  %-10s\n", "ID", "WHAT", "OURS", "RAW", "UNIT", "RATIO", "BUDGET")
		o.Row = printRow
	}
	rows, err := Run(ctx, o)
	if c.JSON && err == nil {
		err = printJSON(rows)
	}
	return err
}

// beside measures other engines' turns, and prints all of them at the end.
func (c *Command) beside(ctx context.Context, o Options, program string) error {
	if _, err := os.Stat(program); err != nil {
		return fmt.Errorf("no %s: build it and measure with `make peers`", program)
	}
	o.Progress = func(what string) { fmt.Fprintln(os.Stderr, what+" …") }
	results, measured, err := Beside(ctx, o, program)
	switch {
	case err != nil:
		return err
	case c.JSON:
		return printJSON(results)
	default:
		return peers.Table(os.Stdout, results, measured)
	}
}

func printJSON(v any) error {
	e := json.NewEncoder(os.Stdout)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// skandha is the path of the command that is measured, "" if there is none.
func (c *Command) skandha(self string) string {
	if c.Skandha != "" {
		return c.Skandha
	}
	beside := filepath.Join(filepath.Dir(self), "skandha")
	if _, err := os.Stat(beside); err != nil {
		fmt.Fprintf(os.Stderr, "no %s: B12 is not measured (--skandha FILE)\n", beside)
		return ""
	}
	return beside
}

func printRow(r Row) {
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
