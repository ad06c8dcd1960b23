package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/docker/go-units"
	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/executor"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/senses"
	"skandha.dev/services/skandha/system"
	"skandha.dev/services/uibridge"
)

// toolsCmd lists the tools.
type toolsCmd struct {
	JSON bool `help:"Print JSON."`
	All  bool `help:"Also list internal tools."`
}

// Run implements the command.
func (t *toolsCmd) Run(ctx context.Context, g *globals) error {
	var tools []coreapi.ToolInfo
	if err := ask(ctx, g, coreapi.VerbTools, nil, &tools); err != nil {
		return err
	}
	if t.JSON {
		return printJSON(os.Stdout, tools, true)
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "TOOL\tPLUGIN\tSUCCEEDED\tMEAN\tRISK\tRETRY\tDESCRIPTION")
	for _, i := range tools {
		if i.Internal && !t.All {
			continue
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", clean(i.Name), orElse(i.Plugin, "–"), succeeded(i),
			meanLatency(i),
			orElse(string(i.Risk), "low"), map[bool]string{true: "safe", false: "never"}[i.Idempotent], describe(i))
	}
	return w.Flush()
}

// succeeded returns the counted rate of successful calls: the rate in the API is an
// estimate for the model.
func succeeded(i coreapi.ToolInfo) string {
	if i.Used == 0 {
		return "–"
	}
	return fmt.Sprintf("%d/%d", i.Succeeded, i.Used)
}

func meanLatency(i coreapi.ToolInfo) string {
	if i.Used == 0 {
		return "–"
	}
	return fmt.Sprintf("%d ms", i.MeanLatencyMS)
}

func describe(i coreapi.ToolInfo) string {
	if !i.Live {
		return "(not offered now)"
	}
	if i.Used >= 10 && i.SuccessRate < 0.5 {
		return "(fails more often than not) " + line(i.Description, 60)
	}
	return line(i.Description, 80)
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// ask connects, asks core one question and disconnects.
func ask(ctx context.Context, g *globals, verb string, question, answer any) error {
	return askService(ctx, g, coreapi.ServiceName, verb, question, answer)
}

// administer is like ask, for requests of operators.
func administer(ctx context.Context, g *globals, verb string, question, answer any) error {
	return askService(ctx, g, coreapi.AdminName, verb, question, answer)
}

func askService(ctx context.Context, g *globals, service, verb string, question, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	c, err := g.connectRunning(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	return c.AskService(ctx, service, verb, question, answer)
}

// statusCmd shows the running cores and executors, and the page's address.
type statusCmd struct {
	JSON bool `help:"Print JSON."`
}

// Run implements the command.
func (s *statusCmd) Run(ctx context.Context, g *globals) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	c, err := g.connectRunning(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	var st struct {
		coreapi.Status
		Page     *uibridge.Status `json:"page,omitempty"`                  // from one of the bridges
		Awaiting []subject.Ref    `json:"awaiting_confirmation,omitempty"` // among the latest sessions
		// the listeners of all processes
		Listeners []senses.Listed `json:"listeners,omitempty"`
	}
	if err := c.Ask(ctx, coreapi.VerbStatus, nil, &st.Status); err != nil {
		return err
	}
	if st.Awaiting, err = c.awaiting(ctx); err != nil {
		c.Log.Debug("listing the sessions that wait for a confirmation", "error", err) // the view's state shows the reason
	}
	page, err := c.pageStatus(ctx)
	switch {
	case err == nil:
		st.Page = &page
	case !errors.Is(err, system.ErrNoUI):
		return err
	}
	if st.Listeners, err = senses.List(ctx, c.Journal); err != nil {
		c.Log.Debug("listing the listeners", "error", err) // the faults show the reason
	}
	if s.JSON {
		return printJSON(os.Stdout, st, true)
	}
	fmt.Printf("core %s, version %s, %s, agents %v\n", st.Instance, st.Version,
		count(st.Open+len(st.Awaiting), "open session"), st.Agents)
	if len(st.Awaiting) > 0 {
		fmt.Printf("%s for confirmation: %s\n", waits(len(st.Awaiting)), refs(st.Awaiting))
	}
	if st.Missing != "" {
		fmt.Printf("model calls wait: %s\n", st.Missing)
	}
	if n := st.Counters["waiting_sessions"]; n > 0 {
		fmt.Printf("%d sessions wait: this core has reached its limit open_sessions\n", n)
	}
	if n := st.Counters["limited_sessions"]; n > 0 {
		fmt.Printf("%d sessions wait: their agent has reached its limits.turns or limits.inputs_per_minute\n", n)
	}
	if most := st.Counters["log_max_bytes"]; most > 0 && st.Counters["log_bytes"] > most-most/4 {
		fmt.Printf("the log has %s of %s; in the last tenth inputs are refused: raise streams.max_bytes\n",
			units.BytesSize(float64(st.Counters["log_bytes"])), units.BytesSize(float64(most)))
	}
	fmt.Println("view: " + viewLine(st.View))
	if st.Page != nil {
		fmt.Printf("page %s, %s, %s watched; open it with: skandha ui\n", page.Page,
			count(page.Connections, "connection"), count(page.Sessions, "session"))
	}
	for _, f := range faultsOf(st.Status, c.Journal) {
		fmt.Printf("! %s%s\n", clean(f.Message), since(f.Since))
	}
	printTroubles(os.Stdout, st.Troubles)
	printGuides(os.Stdout, st.Guides)
	printProject(os.Stdout, st.Executors)
	if err := printListeners(os.Stdout, st.Listeners); err != nil {
		return err
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "EXECUTOR\tSERVICE\tHOST\tBUSY\tSLOTS\tOFFERS\tSINCE")
	for _, e := range st.Executors {
		busy, slots := 0, 0
		for _, p := range e.Pools {
			busy, slots = busy+p.Busy, slots+p.Slots
		}
		offers := string(e.Kind)
		if len(e.Providers) > 0 {
			var names []string
			for _, p := range e.Providers {
				names = append(names, strings.TrimSpace(p.Name+" "+p.Model))
			}
			offers = strings.Join(names, ", ")
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%s\t%s\n", e.Instance, e.Service, line(e.Host, 30), busy, slots,
			line(offers, 40), ago(e.Started))
	}
	return w.Flush()
}

// printListeners shows the listeners and how they are: whether a camera or microphone is switched on,
// whether it records, and whether the listener works.
func printListeners(out io.Writer, all []senses.Listed) error {
	if len(all) == 0 {
		return nil
	}
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "LISTENER\tKIND\tSWITCH\tLIGHT\tSTATE\tSINCE\tINSTANCE\tREASON")
	for _, l := range all {
		when := ""
		if !l.Since.IsZero() {
			when = ago(l.Since)
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", l.Listener, line(l.Kind, 20), switched(l),
			signs[l.Light]+l.Says, line(l.State, 20), when, l.Instance, line(l.Reason, 120))
	}
	_, _ = fmt.Fprintln(w)
	return w.Flush()
}

// printProject names the files with project notes that runners have announced.
func printProject(out io.Writer, executors []executor.Announcement) {
	for _, e := range executors {
		if p := e.Project; p != nil {
			_, _ = fmt.Fprintf(out, "project notes %s of %s on %s, %s bytes\n", clean(p.Path), e.Instance, line(e.Host, 30),
				grouped(int(p.Size)))
		}
	}
}

// awaitingLimit is how many of the latest sessions are checked.
const awaitingLimit = 200

// awaiting lists the sessions that wait for confirmation. Core does not keep them in
// memory.
func (c *connection) awaiting(ctx context.Context) (list []subject.Ref, err error) {
	var page coreapi.SessionsPage
	if err := c.Ask(ctx, coreapi.VerbSessions, coreapi.SessionsQuery{Limit: awaitingLimit}, &page); err != nil {
		return nil, err
	}
	for _, s := range page.Sessions {
		if s.State == string(event.StateConfirming) {
			list = append(list, s.Ref)
		}
	}
	return list, nil
}

func refs(list []subject.Ref) string {
	var names []string
	for _, r := range list {
		names = append(names, r.String())
	}
	return strings.Join(names, ", ")
}

func waits(n int) string {
	if n == 1 {
		return "1 session waits"
	}
	return grouped(n) + " sessions wait"
}

// viewLine describes how complete the lists and statistics are.
func viewLine(v coreapi.View) string {
	var text string
	switch v.State {
	case coreapi.ViewComplete:
		text = fmt.Sprintf("complete, %s", count(v.Sessions, "session"))
	case coreapi.ViewRefilling:
		text = fmt.Sprintf("refilling %s of %s", grouped(v.Done), count(v.Sessions, "session"))
	case coreapi.ViewUnavailable:
		text = "unavailable: " + line(v.Error, 200)
	default:
		text = "not compared with the log yet"
	}
	if v.Failed > 0 {
		text += fmt.Sprintf("; the log of %s cannot be folded; see core's log for their names",
			count(v.Failed, "session"))
	}
	return text
}

// grouped formats a number with commas between thousands.
func grouped(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// faultsOf returns the faults that a core reports, and the bus faults that this process
// has seen.
func faultsOf(st coreapi.Status, b *journal.Journal) []coreapi.Fault {
	known := slices.ContainsFunc(st.Faults, func(f coreapi.Fault) bool { return f.What == coreapi.FaultBus })
	if f := b.StorageFault(); f != nil && !known {
		return append(st.Faults, coreapi.Fault{What: coreapi.FaultBus, Message: f.Error(), Since: f.Since})
	}
	return st.Faults
}

func since(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return ", since " + t.Local().Format(time.DateTime)
}

// tailCmd shows live events.
type tailCmd struct {
	Agent   string `short:"a" placeholder:"NAME" help:"Only this agent."`
	Session string `short:"s" placeholder:"NAME" help:"Only this session."`
	JSON    bool   `help:"Print every event as one line of JSON."`
	Deltas  bool   `help:"Also show token deltas and the output of running tools."`
}

// Run implements the command.
func (t *tailCmd) Run(ctx context.Context, g *globals) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	c, err := g.connectRunning(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	agent, session := orElse(t.Agent, "*"), orElse(t.Session, "*")
	for flag, v := range map[string]string{"--agent": agent, "--session": session} {
		if v != "*" && !subject.Valid(v) {
			return fmt.Errorf("%s: %w: %q", flag, subject.ErrInvalidID, v)
		}
	}
	ref := subject.Ref{Agent: subject.Agent(agent), Session: subject.Session(session)}
	subjects := []string{ref.Live("*", "*"), ref.Commit()}
	if t.Deltas {
		subjects = append(subjects, ref.Stream())
	}
	msgs := make(chan *nats.Msg, 4096)
	for _, s := range subjects {
		if _, err := c.Journal.Conn().ChanSubscribe(s, msgs); err != nil {
			return err
		}
	}
	fmt.Fprintf(os.Stderr, "following %s — Ctrl-C leaves\n", c.about)
	st := stylesFor(os.Stdout)
	for {
		select {
		case <-ctx.Done():
			return nil
		case m := <-msgs:
			if err := t.show(st, m); err != nil {
				return err
			}
		}
	}
}

// show prints a live event, or what hooks did in a live commit.
func (t *tailCmd) show(st styles, m *nats.Msg) error {
	if owner, err := subject.ParseCommit(m.Subject); err == nil {
		c, err := event.DecodeCommit(owner, m.Data)
		if err != nil || len(c.Header.Hooks) == 0 {
			return nil //nolint:nilerr // sessions tail shows what is in the log
		}
		if t.JSON {
			return printJSON(os.Stdout, verdictsOf{owner, c.Header.Hooks}, false)
		}
		printVerdicts(os.Stdout, st, "", c.Header.Now, owner.String(), c.Header.Hooks)
		return nil
	}
	e, err := event.Decode(m.Data)
	if err != nil {
		return nil //nolint:nilerr // a token delta, or an unknown message
	}
	if t.JSON {
		return printJSON(os.Stdout, e, false)
	}
	printEvent(os.Stdout, st, e, true)
	return nil
}

func printMessage(w io.Writer, st styles, seq uint64, subj string, at time.Time, data []byte) {
	what := subj
	if c, err := subject.ParseCause(subj); err == nil {
		what = fmt.Sprintf("← %s by %s", c.Kind, c.Writer)
	}
	_, _ = fmt.Fprintf(w, "%s%8d %s%s %s%-22s%s %s\n", st.dim, seq, at.Local().Format("15:04:05.000"), st.off, st.bold,
		what, st.off, line(string(data), 100))
}

func marshalIndent(v any) string {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(b))
}
