package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/term"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/telemetry"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/buildinfo"
	"skandha.dev/services/internal/client"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/follow"
	"skandha.dev/services/internal/safetext"
	"skandha.dev/services/internal/turn"
	"skandha.dev/services/skandha/terminal"
)

// askCmd asks one question and waits for the end of its turn.
type askCmd struct {
	Text    []string      `arg:"" help:"Question, or a slash command such as /help; \"-\" reads standard input."`
	Agent   string        `short:"a" default:"main" help:"Agent to ask."`
	File    []string      `short:"f" type:"existingfile" placeholder:"FILE" help:"File that the model sees with the question, such as a photo; may be repeated."`
	Session string        `short:"s" placeholder:"NAME" help:"Session to continue. Default: a new one."`
	JSON    bool          `help:"Print every event of the turn as one line of JSON."`
	Yes     bool          `short:"y" help:"Approve every confirmation request. Without this flag and without a terminal, they are refused."`
	Timeout time.Duration `default:"5m" help:"Stop waiting after this time; the turn continues."`
}

// Run implements the command.
func (a *askCmd) Run(ctx context.Context, g *globals) error {
	text := strings.Join(a.Text, " ")
	if text == "-" {
		b, err := io.ReadAll(io.LimitReader(os.Stdin, event.MaxTextBytes+1))
		if err != nil {
			return err
		}
		text = string(b)
	}
	if strings.TrimSpace(text) == "" {
		fmt.Fprintf(os.Stderr, "skandha: the text is empty; for example: %s ask \"hello\"\n", buildinfo.Command())
		return exitUsage
	}
	ref, err := sessionRef(a.Agent, a.Session)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, a.Timeout)
	defer cancel()
	err = a.ask(ctx, g, ref, text)
	var code exit
	if err != nil && !errors.As(err, &code) && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		fmt.Fprintf(os.Stderr, "skandha: no answer within %s: %s\n", a.Timeout, telemetry.Redact(err.Error()))
		return exitTimeout
	}
	return err
}

// ask sends the text and shows its turn.
func (a *askCmd) ask(ctx context.Context, g *globals, ref subject.Ref, text string) error {
	c, err := g.connect(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	if c.own != nil {
		fmt.Fprintf(os.Stderr, "skandha: no running system; started one for this question on %s\n", shellQuote(g.Data))
	}
	st := c.status(ctx)
	if err := knows(st, ref.Agent); err != nil {
		return err
	}
	if err := overloaded(st, text); err != nil {
		return err
	}
	items, err := c.Follow(ctx, ref)
	if err != nil {
		return err
	}
	files, err := c.upload(ctx, ref, a.File)
	if err != nil {
		return err
	}
	began := time.Now()
	seq, err := c.submit(ctx, ref, text, "ask", files...)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, bus.ErrTimeout) {
		// The bus is given up earlier than after a.Timeout if it says that it cannot store.
		fmt.Fprintf(os.Stderr, "skandha: the bus did not acknowledge the input within %s: %v\n",
			time.Since(began).Round(time.Second), err)
		return exitTimeout
	}
	if err != nil {
		return err
	}
	w := &waiter{
		c: c, ref: ref, in: turn.Input{Sequence: seq}, json: a.JSON, yes: a.Yes, out: os.Stdout, err: os.Stderr,
		interactive: !a.JSON && isTerminal(os.Stdin), lines: newLineReader(os.Stdin),
	}
	err = w.wait(ctx, items)
	if errors.Is(err, context.DeadlineExceeded) {
		fmt.Fprintf(os.Stderr, "skandha: no answer within %s%s; the turn continues in session %s\n", a.Timeout,
			w.missing(c.fault(ctx)), ref.Session)
		return exitTimeout
	}
	if errors.Is(err, context.Canceled) {
		end, done := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer done()
		if err := c.Cancel(end, ref, seq, "interrupted at the terminal"); err == nil {
			fmt.Fprintln(os.Stderr, "skandha: cancelled")
		}
		return exit(130)
	}
	return err
}

// checkAgent returns an error if core does not have the agent.
func (c *connection) checkAgent(ctx context.Context, agent subject.Agent) error {
	return knows(c.status(ctx), agent)
}

// status returns what core says of itself; nil if none is running, and an input waits for one.
func (c *connection) status(ctx context.Context) *coreapi.Status {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var st coreapi.Status
	if err := c.Ask(ctx, coreapi.VerbStatus, nil, &st); err != nil {
		return nil
	}
	return &st
}

// knows returns an error if core does not have the agent: an input for it would leave a session without a
// conversation.
func knows(st *coreapi.Status, agent subject.Agent) error {
	if st != nil && !slices.Contains(st.Agents, agent) {
		return fmt.Errorf("unknown agent %s; the agents are %s", agent, join(st.Agents))
	}
	return nil
}

// overloaded returns an error if core accepts no inputs now because too many wait. A process that stays knows it
// from beacons, but this one is too young to have received any. Commands are never refused.
func overloaded(st *coreapi.Status, text string) error {
	if _, command := client.Typed(text); st == nil || command != nil {
		return nil
	}
	for _, f := range st.Faults {
		if f.What == coreapi.FaultOverload {
			return errors.New(clean(f.Message))
		}
	}
	return nil
}

func sessionRef(agent, session string) (subject.Ref, error) {
	if session == "" {
		session = "s-" + time.Now().Format("20060102-150405-") + fmt.Sprintf("%03d", os.Getpid()%1000)
	}
	return subject.ParseRef(agent, session)
}

func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// waiter shows one turn until its terminal event.
type waiter struct {
	c           *connection
	ref         subject.Ref
	in          turn.Input
	json, yes   bool
	interactive bool
	out, err    io.Writer
	lines       *lineReader   // what the user types
	later       []follow.Item // items that arrived while the user was asked
	refused     bool
	streamed    strings.Builder
	plan        string        // the latest plan that was requested
	early       []follow.Item // deltas that arrived before that request
	attempt     string
}

// missing returns what the turn still waits for, if that is known; a fault of the
// system takes precedence.
func (w *waiter) missing(fault string) string {
	switch {
	case fault != "":
		return ": " + clean(fault)
	case w.in.Turn == "":
		return ": no core has started on the input, or an earlier turn is still running (see skandha status)"
	case w.plan == "":
		return fmt.Sprintf(": no provider was available (see skandha status, and agents.%s.provider in the configuration)",
			w.ref.Agent)
	}
	return ""
}

// wait shows the turn, and asks the user what it asks, until it has ended.
func (w *waiter) wait(ctx context.Context, items <-chan follow.Item) error {
	arriving := turn.Items(ctx, items)
	next := func() (i follow.Item, err error) {
		if len(w.later) == 0 {
			return arriving()
		}
		i, w.later = w.later[0], w.later[1:]
		return i, nil
	}
	end, err := w.in.Follow(next, func(i follow.Item) error {
		q, err := w.show(i)
		if err != nil || q == nil {
			return err
		}
		return w.confirm(ctx, *q, items)
	})
	switch {
	case err != nil:
		return err
	case end.Failed != nil:
		return w.failed(*end.Failed)
	case w.refused:
		return exitRefused
	}
	return nil
}

// show shows an item, and returns the confirmation request of our turn that it is.
func (w *waiter) show(i follow.Item) (q *event.ToolCallRequest, err error) {
	switch {
	case i.Delta != nil:
		w.delta(i)
		return nil, nil
	case i.Output != nil:
		w.output(i.Output)
		return nil, nil
	}
	e := i.Event
	if w.json {
		line := struct {
			Commit uint64      `json:"commit"`
			Index  int         `json:"index"`
			Event  event.Event `json:"event"`
		}{i.Commit, i.Index, e}
		if err := printJSON(w.out, line, false); err != nil {
			return nil, err
		}
	}
	v := event.Visitor{UIMessage: func(m event.UIMessage) { w.message(e, m) }}
	if w.in.Owns(e) {
		v.PlanRequested, v.ActCompleted = w.planned, w.result
		v.ToolCallRequest = func(p event.ToolCallRequest) { q = &p }
		v.ActApproved, v.Audited = w.approved, w.audited
	}
	_ = v.Visit(e) // what cannot be read is not shown
	return q, nil
}

func (w *waiter) failed(p event.TurnFailed) error {
	if !w.json {
		_, _ = fmt.Fprintf(w.err, "skandha: the turn failed (%s): %s\n", p.Code, clean(p.Reason))
	}
	switch p.Code {
	case event.FailDenied, event.FailLocked, event.FailDropped:
		return exitRefused
	}
	return exitFailed
}

// planned shows the deltas that arrived before the event of their plan.
func (w *waiter) planned(p event.PlanRequested) {
	w.plan = p.Plan
	early := w.early
	w.early = nil
	for _, i := range early {
		w.delta(i)
	}
}

// delta prints text as it is generated, on a terminal. A new attempt starts the text
// over.
func (w *waiter) delta(i follow.Item) {
	if w.json || !w.interactive || !turn.Has(w.in.Turn, i.Delta.Plan) {
		return
	}
	if i.Delta.Plan != w.plan {
		w.early = append(w.early, i)
		return
	}
	if i.Delta.Attempt != w.attempt {
		if w.streamed.Len() > 0 {
			_, _ = fmt.Fprintln(w.out)
		}
		w.attempt = i.Delta.Attempt
		w.streamed.Reset()
	}
	w.streamed.WriteString(i.Delta.Text)
	_, _ = io.WriteString(w.out, clean(i.Delta.Text))
}

// output prints the output of a running tool of our turn, on a terminal.
func (w *waiter) output(o *tool.Output) {
	if w.json || !w.interactive || !turn.Has(w.in.Turn, o.Call) {
		return
	}
	s := stylesFor(w.err)
	for line := range strings.Lines(clean(o.Text)) {
		_, _ = fmt.Fprintf(w.err, "%s  │ %s%s\n", s.dim, strings.TrimSuffix(line, "\n"), s.off)
	}
}

func (w *waiter) message(e event.Event, m event.UIMessage) {
	switch {
	case w.json:
		return
	case w.in.Owns(e):
	case e.Turn == "" && m.Format == event.Text: // about the session, such as a policy that cannot decide
		_, _ = fmt.Fprintln(w.err, "! "+clean(m.Content))
		return
	default:
		return
	}
	w.early = nil // this is the whole text
	if streamed := w.streamed.String(); streamed != "" {
		w.streamed.Reset()
		if streamed == m.Content {
			_, _ = fmt.Fprintln(w.out)
			return
		}
		_, _ = fmt.Fprintln(w.out) // some deltas were lost: the whole text follows
	}
	_, _ = fmt.Fprintln(w.out, clean(m.Content))
}

// approved says that more people must approve a call.
func (w *waiter) approved(p event.ActApproved) { w.aside(terminal.FirstDecision(p)) }

// audited says why an answer does not count.
func (w *waiter) audited(p event.Audited) {
	if p.Action == event.ActionConfirmation {
		w.aside("the answer of " + line(cmp.Or(p.Person, string(p.Principal)), 100) + " does not count: " + line(p.Reason, 500))
	}
}

func (w *waiter) aside(text string) {
	if !w.json {
		s := stylesFor(w.err)
		_, _ = fmt.Fprintf(w.err, "%s· %s%s\n", s.dim, text, s.off)
	}
}

// result shows the result of a tool call.
func (w *waiter) result(p event.ActCompleted) {
	if p.Result.Error != nil && (p.Result.Error.Code == tool.CodeDenied || p.Result.Error.Code == tool.CodeExpired) {
		w.refused = true
	}
	if !w.json {
		s := stylesFor(w.err)
		_, _ = fmt.Fprintf(w.err, "%s· %s %s%s\n", s.dim, line(p.Tool, 100), resultSummary(p), s.off)
		artifacts, leftOut := terminal.Artifacts(p.Result.Data)
		for _, a := range artifacts {
			_, _ = fmt.Fprintf(w.err, "%s  %s, %s: %s artifacts get %s%s\n", s.dim, clean(a.Path), count(a.Bytes, "byte"),
				buildinfo.Command(), clean(a.Ref), s.off)
		}
		for _, why := range leftOut {
			_, _ = fmt.Fprintf(w.err, "%s  not kept: %s%s\n", s.dim, line(why, 500), s.off)
		}
	}
}

// confirm shows the user exactly what will run, and asks until the request is decided,
// here or elsewhere.
func (w *waiter) confirm(ctx context.Context, q event.ToolCallRequest, items <-chan follow.Item) error {
	if w.yes || !w.interactive {
		reason := ""
		if !w.yes {
			if q.SecurityWarning != nil && !w.json {
				_, _ = fmt.Fprintf(w.err, "! %s requires approval: %s\n", line(q.ToolName, 100),
					line(q.SecurityWarning.Message, 500))
			}
			reason = "no terminal to ask at; --yes approves"
		}
		return w.c.Confirm(ctx, w.ref, q, w.yes, reason)
	}
	if slices.ContainsFunc(w.later, func(i follow.Item) bool { return w.decided(i.Event, q.ConfirmationID) != "" }) {
		return nil // while the user was asked about another request
	}
	s := stylesFor(w.err)
	_, _ = fmt.Fprintf(w.err, "\n%s%sThe agent wants to call %s%s%s\n", s.yellow, s.bold,
		strings.ReplaceAll(safetext.Visible(q.ToolName), "\n", " "), terminal.OwnerText(q), s.off)
	if q.SecurityWarning != nil {
		_, _ = fmt.Fprintf(w.err, "  %s%s%s\n", s.yellow, clean(q.SecurityWarning.Message), s.off)
	}
	_, _ = fmt.Fprintf(w.err, "  with %s\n", safetext.Visible(indentJSON(q.Args)))
	if needs := terminal.NeedsText(q, nil); needs != "" {
		_, _ = fmt.Fprintf(w.err, "  %s\n", needs)
	}
	_, _ = fmt.Fprintf(w.err, "Approve? [y/N, until %s] ", q.ExpiresAt.Local().Format("15:04:05"))
	asked := time.Now()
	for {
		select {
		case <-ctx.Done():
			_, _ = fmt.Fprintln(w.err)
			return ctx.Err()
		case l := <-w.lines.next():
			switch {
			case l.err != nil && !errors.Is(l.err, io.EOF):
				return l.err
			case l.at.Before(asked): // typed before the request was shown
				w.lines.keep(l)
				continue
			}
			answer := strings.ToLower(strings.TrimSpace(l.text))
			return w.c.Confirm(ctx, w.ref, q, answer == "y" || answer == "yes", "")
		case i, ok := <-items:
			if !ok {
				return cmp.Or(ctx.Err(), io.ErrUnexpectedEOF)
			}
			w.later = append(w.later, i) // shown once the user has answered
			if how := w.decided(i.Event, q.ConfirmationID); how != "" {
				_, _ = fmt.Fprintf(w.err, "\n%s· %s%s\n", s.dim, how, s.off)
				return nil
			}
		}
	}
}

// decided describes how an event decides a call; it is empty if the event does not.
func (w *waiter) decided(e event.Event, call string) (how string) {
	if e.Type.Terminal() && w.in.Owns(e) {
		return "the turn has ended; no answer needed any more"
	}
	_ = event.Visitor{
		ActConfirmed: func(p event.ActConfirmed) {
			if p.Call == call {
				how = terminal.Decision(p, "")
			}
		},
		ActCompleted: func(p event.ActCompleted) {
			if p.Call == call {
				how = "no longer needs an answer"
			}
		},
	}.Visit(e)
	return how
}

// indentJSON indents JSON and changes nothing else in it.
func indentJSON(b json.RawMessage) string {
	var out bytes.Buffer
	if json.Indent(&out, b, "  ", "  ") != nil {
		return string(b)
	}
	return out.String()
}
