package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/buildinfo"
	"skandha.dev/services/internal/executor"
	"skandha.dev/services/internal/follow"
	"skandha.dev/services/internal/safetext"
	"skandha.dev/services/internal/turn"
	"skandha.dev/services/skandha/terminal"
)

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
	plan        string          // the latest plan that was requested
	early       []follow.Item   // deltas that arrived before that request
	agents      map[string]bool // the calls with which agents work together
	attempt     string
	pausedBy    subject.Writer // empty: the session is not paused, as far as was seen
	leaves      bool           // when the session is paused and nothing runs, with errHeld
}

// missing returns what the turn still waits for, if that is known; a fault of the
// system takes precedence.
func (w *waiter) missing(fault string) string {
	switch {
	case fault != "":
		return ": " + clean(fault)
	case w.pausedBy != "":
		return ": " + pausedText(w.ref, w.pausedBy)
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
	v := event.Visitor{UIMessage: func(m event.UIMessage) { w.message(e, m) }, SessionPaused: w.paused}
	held := false
	if w.leaves {
		v.UIState = func(s event.UIState) { held = s.State == event.StatePaused }
	}
	if w.in.Owns(e) {
		v.PlanRequested, v.ActCompleted = w.planned, w.result
		v.ToolCallRequest = func(p event.ToolCallRequest) { q = &p }
		v.ActApproved, v.Audited, v.ActRequested = w.approved, w.audited, w.ofAgents
	}
	_ = v.Visit(e) // what cannot be read is not shown
	if held {
		return nil, errHeld
	}
	return q, nil
}

// errHeld means that the input waits because the session is paused.
var errHeld = errors.New("the session is paused")

// paused says that the session was paused, and how it is resumed.
func (w *waiter) paused(p event.SessionPaused) {
	if !p.Paused {
		w.pausedBy = ""
		return
	}
	if w.pausedBy = p.By; !w.json && !w.leaves {
		_, _ = fmt.Fprintln(w.err, "! "+pausedText(w.ref, p.By))
	}
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

// ofAgents notes a call with which agents work together: what those do is shown without a terminal, too,
// because a person may have to decide there.
func (w *waiter) ofAgents(p event.ActRequested) {
	if executor.OfAgents(p.Tool) {
		if w.agents == nil {
			w.agents = map[string]bool{}
		}
		w.agents[p.Call] = true
	}
}

// output prints the output of a running tool of our turn, on a terminal.
func (w *waiter) output(o *tool.Output) {
	if w.json || !w.interactive && !w.agents[o.Call] || !turn.Has(w.in.Turn, o.Call) {
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
