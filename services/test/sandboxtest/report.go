package sandboxtest

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"text/tabwriter"
)

// table has the result of every probe of one driver.
type table struct {
	driver string
	rows   []row
}

type row struct {
	group, probe string
	outcome
}

func (t *table) add(group, probe string, o outcome) {
	t.rows = append(t.rows, row{group, probe, o})
}

// String returns the table, followed by the skipped probes again.
func (t *table) String() string {
	var b strings.Builder
	count := map[verdict]int{}
	w := tabwriter.NewWriter(&b, 0, 4, 1, ' ', 0)
	fmt.Fprintf(w, "group\t| probe\t| verdict\t| seen\n")
	for _, r := range t.rows {
		count[r.verdict]++
		note := strings.Join(strings.Fields(r.note), " ")
		if runes := []rune(note); len(runes) > 160 {
			note = string(runes[:160]) + "…"
		}
		fmt.Fprintf(w, "%s\t| %s\t| %s\t| %s\n", r.group, r.probe, r.verdict, note)
	}
	_ = w.Flush() // a strings.Builder never fails
	fmt.Fprintf(&b, "%d probes: %d refused, %d bounded, %d harmless, %d skipped, %d holes\n",
		len(t.rows), count[wasRefused], count[wasBounded], count[wasHarmless], count[wasSkipped], count[isHole])
	for _, r := range t.rows {
		if r.verdict == wasSkipped {
			fmt.Fprintf(&b, "SKIPPED %s: %s\n", r.probe, r.note)
		}
	}
	return b.String()
}

// print logs the table and appends it to the file that SKANDHA_PROBE_REPORT names.
func (t *table) print(tb testing.TB) {
	text := fmt.Sprintf("probes against %s\n%s", t.driver, t)
	tb.Log("\n" + text)
	path := os.Getenv("SKANDHA_PROBE_REPORT")
	if path == "" {
		return
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		tb.Errorf("opening the probe report: %v", err)
		return
	}
	if _, err := fmt.Fprintln(f, text); err != nil {
		tb.Errorf("writing the probe report: %v", err)
	}
	if err := f.Close(); err != nil {
		tb.Errorf("writing the probe report: %v", err)
	}
}
