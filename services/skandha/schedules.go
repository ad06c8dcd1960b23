package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/coreapi"
)

// schedulesCmd shows and deletes what agents have scheduled.
type schedulesCmd struct {
	List   schedulesListCmd   `cmd:"" default:"withargs" help:"List what agents have scheduled, with the next occurrence."`
	Show   schedulesShowCmd   `cmd:"" help:"Show all of a schedule, with its text and next occurrences."`
	Delete schedulesDeleteCmd `cmd:"" help:"Delete a schedule. It does not occur again."`
}

type schedulesListCmd struct {
	Agent   subject.Agent   `help:"Only of this agent."`
	Session subject.Session `help:"Only of this session."`
	Limit   int             `short:"n" default:"100" help:"Maximum number of schedules, up to 1000."`
	JSON    bool            `help:"Print JSON."`
}

// Run implements the command.
func (l *schedulesListCmd) Run(ctx context.Context, g *globals) error {
	var p coreapi.SchedulesPage
	q := coreapi.SchedulesQuery{Agent: l.Agent, Session: l.Session, Limit: l.Limit}
	if err := administer(ctx, g, coreapi.VerbSchedules, q, &p); err != nil {
		return err
	}
	switch {
	case l.JSON:
		return printJSON(os.Stdout, p, true)
	case len(p.Schedules) == 0:
		fmt.Println("Nothing is scheduled.")
		return nil
	}
	return printSchedules(os.Stdout, p)
}

func printSchedules(out io.Writer, p coreapi.SchedulesPage) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "AGENT\tSESSION\tNAME\tWHEN\tNEXT\tTEXT OR PROBLEM")
	for _, s := range p.Schedules {
		next := "-"
		if len(s.Next) > 0 {
			next = moment(s.Next[0])
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", s.Agent, s.Session, s.Name, line(when(s), 40), next,
			line(cmp.Or(s.Problem, s.Text), 60))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if p.More {
		_, _ = fmt.Fprintln(out, "There are more; raise --limit.")
	}
	return nil
}

// moment formats a time with the offset of its zone.
func moment(t time.Time) string { return t.Format("2006-01-02 15:04:05 -07:00") }

// when says when a schedule occurs, in a few words.
func when(s coreapi.Schedule) string {
	var out string
	switch {
	case s.Webhook:
		out = "when called"
	case s.Watch != nil:
		out = looks(*s.Watch) + ", read every " + s.Every
	case s.At != "":
		out = "once"
	case s.Every != "":
		out = "every " + s.Every
	case s.Cron != "":
		out = s.Cron + " " + s.Zone
	default:
		out = "idle for " + s.WhenIdle
	}
	if s.Count > 0 {
		out += fmt.Sprintf(", %d of %d left", s.Count-s.Occurred, s.Count)
	}
	return clean(out)
}

// looks says when a watch occurs.
func looks(w coreapi.Watch) string {
	var limits []string
	if w.Above != nil {
		limits = append(limits, fmt.Sprint("above ", *w.Above))
	}
	if w.Below != nil {
		limits = append(limits, fmt.Sprint("below ", *w.Below))
	}
	return cmp.Or(strings.Join(limits, " or "), "when it changes")
}

// oneSchedule is the arguments of commands about one schedule.
type oneSchedule struct {
	Agent   subject.Agent   `arg:"" help:"Whose schedule it is."`
	Session subject.Session `arg:"" help:"The session that it wakes."`
	Name    string          `arg:"" help:"Of the schedule, as the list shows it."`
}

func (o oneSchedule) query(action string) coreapi.SchedulesQuery {
	return coreapi.SchedulesQuery{Action: action, Agent: o.Agent, Session: o.Session, Name: o.Name, Caller: writer()}
}

type schedulesShowCmd struct {
	oneSchedule
	JSON bool `help:"Print JSON."`
}

// Run implements the command.
func (c *schedulesShowCmd) Run(ctx context.Context, g *globals) error {
	var p coreapi.SchedulesPage
	if err := administer(ctx, g, coreapi.VerbSchedules, c.query(""), &p); err != nil {
		return err
	}
	if len(p.Schedules) == 0 {
		return fmt.Errorf("session %s/%s has no schedule %q; it may be over", c.Agent, c.Session, c.Name)
	}
	if c.JSON {
		return printJSON(os.Stdout, p.Schedules[0], true)
	}
	showSchedule(os.Stdout, p.Schedules[0])
	return nil
}

func showSchedule(out io.Writer, s coreapi.Schedule) {
	row := func(name, value string) {
		if value != "" {
			_, _ = fmt.Fprintf(out, "%-9s %s\n", name, clean(value))
		}
	}
	row("schedule", s.Name+" of session "+s.Ref.String())
	row("when", when(s))
	for _, t := range s.Next {
		row("next", moment(t))
	}
	if s.Watch != nil {
		row("page", strings.TrimSpace(s.Watch.URL+" "+s.Watch.Field))
	}
	if s.Webhook {
		row("address", "POST "+s.Path+" at the address of the page, with JSON")
		row("header", "Authorization: Bearer "+s.Key)
		row("or", "the key as GitHub's secret (X-Hub-Signature-256)")
	}
	row("jitter", s.Jitter)
	row("until", s.Until)
	if s.Occurred > 0 {
		row("occurred", fmt.Sprintf("%d times, last %s", s.Occurred, moment(s.Last.Local())))
	}
	row("created", moment(s.Created.Local())+", in turn "+s.Turn)
	row("problem", s.Problem)
	_, _ = fmt.Fprintf(out, "\n%s\n", clean(s.Text))
}

type schedulesDeleteCmd struct{ oneSchedule }

// Run implements the command.
func (c *schedulesDeleteCmd) Run(ctx context.Context, g *globals) error {
	if err := administer(ctx, g, coreapi.VerbSchedules, c.query(coreapi.ScheduleDelete), &coreapi.SchedulesPage{}); err != nil {
		return err
	}
	fmt.Println("It was deleted and will not occur again.")
	return nil
}
