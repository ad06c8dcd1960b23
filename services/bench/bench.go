// Package bench measures Skandha against raw operations of the same machine, in
// the same run, on the same payload, interleaved. Its unit is the ratio: absolute
// times of a shared machine drift.
package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Row is one measurement.
type Row struct {
	ID     string  `json:"id"`
	What   string  `json:"what"`
	Ours   float64 `json:"ours"`
	Raw    float64 `json:"raw,omitempty"` // 0: the budget is absolute
	Unit   string  `json:"unit"`
	Ratio  float64 `json:"ratio,omitempty"`
	Budget string  `json:"budget"`
	OK     bool    `json:"ok"`
	// Skipped says that nothing was measured; What says why.
	Skipped bool `json:"skipped,omitempty"`
}

// ratio makes a row whose budget is ours ≤ most × raw.
func ratio(id, what string, ours, raw time.Duration, most float64) Row {
	r := Row{ID: id, What: what, Ours: ms(ours), Raw: ms(raw), Unit: "ms", Budget: fmt.Sprintf("≤ %.2f ×", most)}
	r.Ratio = float64(ours) / float64(raw)
	r.OK = r.Ratio <= most
	return r
}

// rate makes a row whose budget is ours ≥ least × raw, per second.
func rate(id, what string, ours, raw, least float64) Row {
	r := Row{
		ID: id, What: what, Ours: ours, Raw: raw, Unit: "/s", Budget: fmt.Sprintf("≥ %.2f ×", least), Ratio: ours / raw,
	}
	r.OK = r.Ratio >= least
	return r
}

// absolute makes a row whose budget is ours ≤ most.
func absolute(id, what string, ours, most float64, unit string) Row {
	return Row{ID: id, What: what, Ours: ours, Unit: unit, Budget: fmt.Sprintf("≤ %g %s", most, unit), OK: ours <= most}
}

func ms(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }

func median(d []time.Duration) time.Duration {
	s := slices.Clone(d)
	slices.Sort(s)
	return s[len(s)/2]
}

// interleave runs ours and raw in turn, n times each after a warm-up, and
// returns their medians.
func interleave(
	ctx context.Context, n int, ours, raw func(context.Context) error,
) (time.Duration, time.Duration, error) {
	var a, b []time.Duration
	warm := n/10 + 3
	for i := range n + warm {
		x, err := timed(ctx, ours)
		if err != nil {
			return 0, 0, fmt.Errorf("ours: %w", err)
		}
		y, err := timed(ctx, raw)
		if err != nil {
			return 0, 0, fmt.Errorf("raw: %w", err)
		}
		if i >= warm {
			a, b = append(a, x), append(b, y)
		}
	}
	return median(a), median(b), nil
}

func timed(ctx context.Context, f func(context.Context) error) (time.Duration, error) {
	begin := time.Now()
	err := f(ctx)
	return time.Since(begin), err
}

// Options of a run.
type Options struct {
	Quick    bool                       // a tenth of the iterations
	Only     []string                   // ids; empty: all
	Progress func(what string)          // called before each measurement
	Spawn    func(role string) []string // argv of a process of this program in a role; nil: no rows with processes
	Dir      string                     // scratch space
	Binary   string                     // of the command, for its size; empty: not measured
	Row      func(Row)                  // called with each row as it is measured
}

// quick is the divisor of the iterations of a quick run.
var quick = 10

func (o Options) n(full int) int {
	if o.Quick {
		return max(full/quick, 5)
	}
	return full
}

type measurement struct {
	id   string
	what string
	run  func(context.Context, Options) ([]Row, error)
}

// measurements lists what is measured, in order.
func measurements() []measurement {
	return []measurement{
		{"B1, B2", "hooks of five plugins", pluginHooks},
		{"B3", "a hook point without hooks", hooks},
		{"B4", "a turn, embedded", turnEmbedded},
		{"B5", "a turn over four processes", turnProcesses},
		{"B6", "turns per second, 64 sessions", throughput},
		{"B7", "restart of a core", restart},
		{"B8, B9", "Python in containers", containers},
		{"B10", "Python in bubblewrap", bubbles},
		{"B12", "idle memory, start and size", idle},
		{"B13", "the cost of a long session", growth},
		{"B14", "an event on its way to a browser", frames},
		{"B15", "the best of 500 tools", shortlists},
		{"B17", "sessions that wait, and sessions at work", waitingSessions},
		{"B18", "a turn with traces", withTraces},
		{"B19", "a turn with rights on the bus", withRights},
		{"B20", "the nearest of many memories", memories},
		{"B22", "a turn that remembers", remembering},
	}
}

// CheckRows reports rows that do not exist.
func CheckRows(only []string) error {
	var known []string
	for _, m := range measurements() {
		known = append(known, strings.Split(m.id, ", ")...)
	}
	var errs []error
	for _, id := range only {
		if !slices.Contains(known, id) {
			errs = append(errs, fmt.Errorf("unknown row %q; want some of %s", id, strings.Join(known, ", ")))
		}
	}
	return errors.Join(errs...)
}

// Run measures and returns the rows in order.
func Run(ctx context.Context, o Options) ([]Row, error) {
	var rows []Row
	for _, m := range measurements() {
		if len(o.Only) > 0 &&
			!slices.ContainsFunc(o.Only, func(id string) bool { return slices.Contains(strings.Split(m.id, ", "), id) }) {
			continue
		}
		if o.Progress != nil {
			o.Progress(m.id + ": " + m.what)
		}
		got, err := m.run(ctx, o)
		if err != nil {
			return rows, fmt.Errorf("%s: %w", m.id, err)
		}
		for _, r := range got {
			if o.Row != nil {
				o.Row(r)
			}
		}
		rows = append(rows, got...)
	}
	return rows, nil
}
