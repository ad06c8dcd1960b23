package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/audit"
	"skandha.dev/services/internal/coreapi"
)

// auditCmd shows, verifies and exports the audit log.
type auditCmd struct {
	List   auditListCmd   `cmd:"" default:"withargs" help:"List who did what, the latest entries last."`
	Verify auditVerifyCmd `cmd:"" help:"Recompute the chain of digests, and compare it with the log and with the published head. Exit codes: 0 intact, 1 not."`
	Export auditExportCmd `cmd:"" help:"Write all entries to a file, one JSON object a line, which can be verified without a system."`
}

// instant is a time: an absolute one, or how long ago.
type instant time.Time

// UnmarshalText implements [encoding.TextUnmarshaler].
func (i *instant) UnmarshalText(text []byte) error {
	for _, layout := range []string{time.RFC3339, time.DateTime, "2006-01-02T15:04", time.DateOnly} {
		if t, err := time.ParseInLocation(layout, string(text), time.Local); err == nil {
			*i = instant(t)
			return nil
		}
	}
	var ago lifetime
	if ago.UnmarshalText(text) != nil {
		return fmt.Errorf("%q: want a time such as 2026-05-01, 2026-05-01T07:00, or a duration such as 2h or 7d", text)
	}
	*i = instant(time.Now().Add(-time.Duration(ago)))
	return nil
}

type auditListCmd struct {
	Since   instant         `help:"Only entries since then: a date, a time, or how long ago, such as 2h or 7d." placeholder:"TIME"`
	Until   instant         `help:"Only entries before then." placeholder:"TIME"`
	By      string          `help:"Only what this person, plugin, listener, agent or sender did." placeholder:"NAME"`
	Verb    audit.Verb      `help:"Only entries with this verb, such as approved, denied or revoked." placeholder:"VERB"`
	Agent   subject.Agent   `short:"a" help:"Only of this agent." placeholder:"NAME"`
	Session subject.Session `short:"s" help:"Only of this session." placeholder:"NAME"`
	Limit   int             `short:"n" default:"100" help:"How many entries at most, the latest; 0: all."`
	Follow  bool            `short:"f" help:"Go on with what happens from now on."`
	JSON    bool            `help:"Print each entry as one line of JSON, as it was written."`
}

// Run implements the command.
func (l *auditListCmd) Run(ctx context.Context, g *globals) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	c, err := g.connectRunning(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	q := coreapi.AuditQuery{
		Since: time.Time(l.Since), Until: time.Time(l.Until), By: l.By, Verb: l.Verb, Agent: l.Agent, Session: l.Session,
	}
	lines, page, err := c.latestAudit(ctx, q, l.Limit)
	if err != nil {
		return err
	}
	out := auditPrinter{out: os.Stdout, json: l.JSON}
	if err := out.print(lines); err != nil {
		return err
	}
	if page.Damage != "" {
		fmt.Fprintln(os.Stderr, "! the audit log was damaged: "+clean(page.Damage))
	}
	if !l.Follow {
		if len(lines) == 0 && !l.JSON {
			fmt.Println("No entries.")
		}
		return nil
	}
	q.From = 1
	if page.Last != nil {
		q.From = page.Last.N + 1
	}
	for tick := time.NewTicker(time.Second); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if q.From, err = c.auditFrom(ctx, q, out.print); err != nil {
			return err
		}
	}
}

// askAudit asks for one page.
func (c *connection) askAudit(ctx context.Context, q coreapi.AuditQuery) (page coreapi.AuditPage, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	err = c.Administer(ctx, coreapi.VerbAudit, q, &page)
	return page, err
}

// latestAudit returns the latest entries that match, oldest first; all if limit is 0.
func (c *connection) latestAudit(ctx context.Context, q coreapi.AuditQuery, limit int) (lines []string, first coreapi.AuditPage, err error) {
	for {
		q.Limit = coreapi.MaxAudit
		if limit > 0 {
			q.Limit = min(limit-len(lines), q.Limit)
		}
		page, err := c.askAudit(ctx, q)
		if err != nil {
			return nil, first, err
		}
		if q.Before == 0 {
			first = page
		}
		lines = append(page.Lines, lines...)
		if q.Before = page.Next; page.Next == 0 || limit > 0 && len(lines) >= limit {
			return lines, first, nil
		}
	}
}

// auditFrom passes on all entries from q.From on, and returns the number after the last entry of the log.
func (c *connection) auditFrom(ctx context.Context, q coreapi.AuditQuery, f func([]string) error) (next uint64, err error) {
	for q.Limit = coreapi.MaxAudit; ; {
		page, err := c.askAudit(ctx, q)
		if err == nil {
			err = f(page.Lines)
		}
		if err != nil {
			return q.From, err
		}
		if page.Next == 0 {
			if page.Last == nil {
				return q.From, nil
			}
			for _, line := range page.Lines { // stored after core looked for the last one
				if e, err := audit.Parse([]byte(line)); err == nil && e.N > page.Last.N {
					page.Last.N = e.N
				}
			}
			return page.Last.N + 1, nil
		}
		q.From = page.Next
	}
}

// auditPrinter prints entries.
type auditPrinter struct {
	out    io.Writer
	json   bool
	headed bool
}

func (p *auditPrinter) print(lines []string) error {
	if len(lines) == 0 {
		return nil
	}
	if p.json {
		_, err := fmt.Fprintln(p.out, strings.Join(lines, "\n"))
		return err
	}
	w := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
	if !p.headed {
		_, _ = fmt.Fprintln(w, "N\tTIME\tBY\tVERB\tWHAT\tSESSION\tDETAIL")
		p.headed = true
	}
	for _, l := range lines {
		e, err := audit.Parse([]byte(l))
		if err != nil {
			_, _ = fmt.Fprintf(w, "%d\t\t\tcannot be read\t%s\t\t\n", e.N, line(err.Error(), 60))
			continue
		}
		session := ""
		if e.Session != "" {
			session = string(e.Agent) + "/" + string(e.Session)
		} else if e.Agent != "" {
			session = string(e.Agent)
		}
		_, _ = fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%s\n", e.N, e.Time.Local().Format(time.DateTime),
			line(string(e.By.Kind)+" "+e.By.String(), 40), e.Verb, line(cmp.Or(e.What, e.Call), 40), line(session, 40), line(e.Detail, 80))
	}
	return w.Flush()
}

type auditExportCmd struct {
	File string `arg:"" help:"A new file; - for standard output." placeholder:"FILE"`
	From uint64 `default:"1" help:"Number of the first entry, to continue an earlier export." placeholder:"N"`
}

// Run implements the command.
func (x *auditExportCmd) Run(ctx context.Context, g *globals) (err error) {
	c, err := g.connectRunning(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	out := os.Stdout
	if x.File != "-" {
		if out, err = os.OpenFile(x.File, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, out.Close()) }()
	}
	n := 0
	next, err := c.auditFrom(ctx, coreapi.AuditQuery{From: max(x.From, 1)}, func(lines []string) error {
		n += len(lines)
		return (&auditPrinter{out: out, json: true}).print(lines)
	})
	if err == nil && x.File != "-" {
		fmt.Printf("wrote %s; continue later with --from %s; verify with: skandha audit verify --file %s\n", entries(n),
			strconv.FormatUint(next, 10), shellQuote(x.File))
	}
	return err
}

// entries counts entries.
func entries(n int) string {
	if n == 1 {
		return "1 entry"
	}
	return grouped(n) + " entries"
}
