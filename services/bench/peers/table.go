package peers

import (
	"fmt"
	"io"
	"runtime"
	"time"
)

// Table prints the results as a table in Markdown, the first engine's as what the others are compared with, and
// says what is missing.
func Table(w io.Writer, results []Result, o Options) error {
	p := printer{w: w}
	p.print("%d processors; %d rounds; a turn alone: %d × %d; together: %d sessions, %d turns\n\n", runtime.NumCPU(),
		o.Rounds, o.Rounds, o.Alone, o.Sessions, o.Rounds*o.Sessions*o.Each)
	p.print("| engine | durable by | median | p95 | turns/s | processor time a turn | turns/s per core | idle |\n")
	p.print("|---|---|---|---|---|---|---|---|\n")
	for _, r := range results {
		if r.Missing == "" {
			p.print("| %s %s | %s | %s | %s | %.0f | %s | %.0f | %.1f %% |\n", r.Name, r.Version, r.Durable,
				millis(r.Median), millis(r.P95), r.Rate, millis(r.Turn), r.PerCore(), 100*r.Idle)
		}
	}
	p.print("\n")
	for _, r := range results[1:] {
		if r.Missing != "" {
			p.print("%s is missing: %s\n", r.Name, r.Missing)
			continue
		}
		p.print("%s\n", compare(results[0], r))
	}
	return p.err
}

// compare says in what ours is ahead of another.
func compare(ours, other Result) string {
	return fmt.Sprintf("%s beside %s: median %.2f × (%s), turns/s per core %.2f × (%s), turns/s %.2f × (%s)",
		ours.Name, other.Name,
		float64(ours.Median)/float64(other.Median), ahead(ours.Median < other.Median),
		ours.PerCore()/other.PerCore(), ahead(ours.PerCore() > other.PerCore()),
		ours.Rate/other.Rate, ahead(ours.Rate > other.Rate))
}

func ahead(yes bool) string {
	if yes {
		return "ahead"
	}
	return "BEHIND"
}

func millis(d time.Duration) string {
	return fmt.Sprintf("%.2f ms", float64(d)/float64(time.Millisecond))
}

// printer keeps the first error.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) print(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, args...)
	}
}
