package history

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/text"
	"skandha.dev/services/internal/turn"
)

// Bounds of an account, in bytes.
const (
	maxAccount = 24 << 10
	maxQuote   = 240
)

// Account describes turns in Markdown: what was perceived, each round of the model,
// hooks' verdicts, calls with their arguments, who approved them, and their
// results, each with the time since the turn began. Text of others
// is shortened and quoted as code, on one line.
func Account(turns []Turn) string {
	var b strings.Builder
	for i, t := range turns {
		if b.Len() > maxAccount {
			fmt.Fprintf(&b, "\n… %d more turns do not fit; ask for them by their ids\n", len(turns)-i)
			break
		}
		if i > 0 {
			b.WriteByte('\n')
		}
		t.account(&b)
	}
	return b.String()
}

func (t *Turn) account(b *strings.Builder) {
	fmt.Fprintf(b, "**Turn %s** — %s\n\n", t.Turn, t.headline())
	w := &writer{b: b, turn: t, asked: map[string]time.Time{}, calls: map[string]event.ActRequested{}}
	lines := w.lines()
	if t.Partial {
		b.WriteString("- its beginning is too far back\n")
	}
	for i, c := range t.Commits {
		if b.Len() > maxAccount {
			fmt.Fprintf(b, "- … %d more decisions do not fit\n", len(t.Commits)-i)
			break
		}
		w.at = c.At
		verdicts := slices.Clone(c.Hooks)
		for _, e := range c.Events {
			about, points := causesOf(e)
			verdicts = slices.DeleteFunc(verdicts, func(v Verdict) bool {
				before := v.About == about && slices.Contains(points, v.Point)
				if before {
					w.verdict(v.Verdict)
				}
				return before
			})
			_ = lines.Visit(e) // what cannot be read has no line
		}
		for _, v := range verdicts {
			w.verdict(v.Verdict)
		}
	}
}

// causesOf returns what an event is about, and the points whose verdicts about it the event
// follows from.
func causesOf(e event.Event) (about turn.Part, points []hook.Point) {
	of := func(part turn.Part, at ...hook.Point) { about, points = part, at }
	_ = event.Visitor{ // what cannot be read follows from nothing
		Perceived:       func(p event.Perceived) { of(turn.Sense(p.Sequence), hook.BeforeSense, hook.AfterSense) },
		PlanConsidered:  func(p event.PlanConsidered) { of(turn.Work(p.Plan), hook.BeforePlan) },
		PlanRequested:   func(p event.PlanRequested) { of(turn.Work(p.Plan), hook.BeforePlan) },
		PlanCompleted:   func(p event.PlanCompleted) { of(turn.Work(p.Plan), hook.AfterPlan) },
		Audited:         func(p event.Audited) { of(turn.Work(p.Call), hook.BeforeAct) },
		ToolCallRequest: func(p event.ToolCallRequest) { of(turn.Work(p.ConfirmationID), hook.BeforeAct) },
		ActRequested:    func(p event.ActRequested) { of(turn.Work(p.Call), hook.BeforeAct) },
		ActCompleted:    func(p event.ActCompleted) { of(turn.Work(p.Call), hook.BeforeAct, hook.AfterAct, hook.OnError) },
		Recorded:        func(p event.Recorded) { of(turn.Ending(p.Sequence), hook.BeforeReflect, hook.AfterReflect) },
		TurnFailed:      func(p event.TurnFailed) { of(turn.Ending(p.Sequence), hook.OnError) },
	}.Visit(e)
	return about, points
}

func (t *Turn) headline() string {
	began := t.Began.UTC().Format("2006-01-02 15:04:05") + " UTC"
	switch {
	case t.Recorded != nil:
		u := t.Recorded.Usage
		s := fmt.Sprintf("%s, answered after %s, %s, %s, %d tokens in, %d out", began, span(t.Recorded.DurationMS),
			count(t.Recorded.Rounds, "round"), count(len(t.Recorded.Actions), "tool call"), u.InputTokens, u.OutputTokens)
		if u.CostMicroUSD > 0 {
			s += fmt.Sprintf(", %.4f USD", float64(u.CostMicroUSD)/1e6)
		}
		return s
	case t.Failed != nil:
		return fmt.Sprintf("%s, failed after %s: %s", began, span(t.Failed.DurationMS), t.Failed.Code)
	}
	return began + ", it goes on"
}

type writer struct {
	b     *strings.Builder
	turn  *Turn
	at    time.Time
	asked map[string]time.Time
	calls map[string]event.ActRequested
}

func (w *writer) line(format string, args ...any) {
	fmt.Fprintf(w.b, "- `+%s` ", since(w.turn.Began, w.at))
	fmt.Fprintf(w.b, format, args...)
	w.b.WriteByte('\n')
}

// lines writes what each event is worth.
func (w *writer) lines() event.Visitor {
	return event.Visitor{
		Perceived:       func(event.Perceived) { w.perceived() },
		Recalled:        w.recalled,
		PlanConsidered:  w.considered,
		PlanRequested:   w.planRequested,
		Summarized:      func(p event.Summarized) { w.line("a summary replaced %d turns, %s to %s", p.Turns, p.From, p.Until) },
		PlanCompleted:   w.planCompleted,
		Audited:         w.audited,
		ToolCallRequest: w.toolCallRequest,
		ActApproved:     w.approved,
		ActConfirmed:    w.confirmed,
		ActRequested:    func(p event.ActRequested) { w.calls[p.Call] = p },
		ActCompleted:    w.completed,
		SessionLocked:   func(p event.SessionLocked) { w.line("the session was locked: %s", quote(p.Reason)) },
		Recorded:        func(p event.Recorded) { w.line("answered: %s", quote(p.Answer)) },
		TurnFailed:      func(p event.TurnFailed) { w.line("failed, %s: %s", p.Code, quote(p.Reason)) },
	}
}

func (w *writer) perceived() {
	in := w.turn.Perceived
	where := ""
	if in.Source != "" {
		where = " in " + quote(in.Source)
	}
	w.line("%s said%s: %s", in.Writer, where, quote(in.Text))
	if len(in.Annotations) > 0 {
		w.line("hooks added: %s", quote(strings.Join(in.Annotations, "; ")))
	}
}

func (w *writer) recalled(p event.Recalled) {
	var found []string
	for _, m := range p.Memories {
		found = append(found, fmt.Sprintf("%s %s (%s, %s)", m.Kind, quote(m.ID), m.Source.Origin, m.Match))
	}
	if p.Trouble != "" {
		found = append(found, "not everything was searched: "+quote(p.Trouble))
	}
	if len(found) > 0 {
		w.line("remembered: %s", strings.Join(found, "; "))
	}
}

// considered names the best candidates, and what was chosen.
func (w *writer) considered(p event.PlanConsidered) {
	var best []string
	for _, c := range p.Candidates[:min(len(p.Candidates), 3)] {
		best = append(best, fmt.Sprintf("%s %.2f", quote(c.Tool), c.Score))
	}
	what := fmt.Sprintf("%d of %d tools offered", p.Offered, p.Of)
	if s := p.Selection; s != nil {
		what = fmt.Sprintf("chose %s by %s, confidence %.2f", quote(strings.Join(s.Tools, ", ")), s.By, s.Confidence)
	}
	w.line("considered (%s, %s) %s: %s; %s", p.Mode, cmp.Or(p.Method, "no match"), strings.Join(best, ", "), what,
		quote(p.Reasoning))
}

func (w *writer) planRequested(p event.PlanRequested) {
	switch {
	case p.Project == nil:
	case p.Project.Path == "":
		w.line("the workspace has no project notes any more")
	default:
		w.line("project notes: %s, %d bytes", quote(p.Project.Path), p.Project.Size)
	}
	if p.Attempts > 1 {
		failed := ""
		if p.Failed != "" {
			failed = "the previous attempt failed, " + quote(p.Failed) + "; "
		}
		w.line("round %d, attempt %d: %sasking %s", p.Round, p.Attempts, failed, asked(p))
	}
}

// asked names the provider of an attempt, and its process.
func asked(p event.PlanRequested) string {
	if p.Use == "" {
		return "the model at " + string(p.Provider)
	}
	return p.Use + " at " + string(p.Provider)
}

func (w *writer) planCompleted(p event.PlanCompleted) {
	round := p.Plan[strings.LastIndex(p.Plan, "p")+1:]
	switch {
	case p.Error != nil:
		w.line("round %s: the model failed after %s: %s", round, span(p.DurationMS), quote(p.Error.Error()))
	case p.Response != nil:
		var tools []string
		for _, s := range p.Steps {
			tools = append(tools, quote(s.Tool))
		}
		what := "it answered"
		if p.Purpose != "" {
			what = "it answered core's question, for a " + string(p.Purpose)
		}
		if len(tools) > 0 {
			what = "it called " + strings.Join(tools, ", ")
		}
		u := p.Response.Usage
		w.line("round %s at %s: %s after %s, %d tokens in, %d out", round, p.Provider, what, span(p.DurationMS),
			u.InputTokens, u.OutputTokens)
	}
}

func (w *writer) audited(p event.Audited) {
	if p.Effect == event.EffectAllow && p.Grant == nil {
		return // a plain allow is not worth a line
	}
	by := ""
	if p.Rule != "" {
		by = " by " + quote(p.Rule)
	}
	w.line("policy: %s for %s%s: %s", p.Effect, quote(p.Resource), by, quote(p.Reason))
}

func (w *writer) toolCallRequest(p event.ToolCallRequest) {
	w.asked[p.ConfirmationID] = w.at
	why := ""
	if p.SecurityWarning != nil {
		why = fmt.Sprintf(" — %s: %s", p.SecurityWarning.Level, quote(p.SecurityWarning.Message))
	}
	w.line("a person was asked about %s with %s%s", quote(p.ToolName), quote(string(p.Args)), why)
}

func (w *writer) approved(p event.ActApproved) {
	w.line("approved by %s, and %d more must approve", quote(p.Person), p.Left)
}

func (w *writer) confirmed(p event.ActConfirmed) {
	who := "by " + cmp.Or(p.Person, string(p.By))
	if len(p.Others) > 0 {
		who += " after " + strings.Join(p.Others, ", ")
	}
	if p.Outcome == event.Expired {
		who = "as nobody answered"
	}
	if p.Source != "" {
		who += " in " + quote(p.Source)
	}
	if at, ok := w.asked[p.Call]; ok {
		who += " after " + span(w.at.Sub(at).Milliseconds())
	}
	if p.Always != nil {
		who += ", always for this session"
	}
	if p.Reason != "" {
		who += ": " + quote(p.Reason)
	}
	w.line("%s %s", p.Outcome, who)
}

func (w *writer) completed(p event.ActCompleted) {
	with := ""
	if q, ok := w.calls[p.Call]; ok {
		with = " with " + quote(string(q.Args))
		if q.Attempts > 1 {
			with += fmt.Sprintf(", attempt %d", q.Attempts)
		}
	}
	where := ""
	if p.Runner != "" {
		where = fmt.Sprintf(" on %s in %s", p.Runner, span(p.DurationMS))
	}
	w.line("%s%s%s: %s", quote(p.Tool), with, where, result(p.Result))
}

func result(r tool.Result) string {
	switch {
	case r.Success:
		return "ok, " + quote(string(r.Data))
	case r.Error == nil:
		return "failed"
	}
	return fmt.Sprintf("%s, %s", r.Error.Code,
		quote(strings.Join(slices.Concat([]string{r.Error.Message}, r.Error.Details), "; ")))
}

func (w *writer) verdict(v hook.Verdict) {
	at := ""
	if v.Step != "" {
		at = " for " + quote(v.Step)
	}
	why := ""
	switch {
	case v.Error != "":
		why = ", it failed: " + quote(v.Error)
	case v.Reason != "":
		why = ": " + quote(v.Reason)
	}
	w.line("hook %s of %s%s: %s in %s%s", v.Point, v.Plugin, at, v.Verb, time.Duration(v.LatencyUS)*time.Microsecond, why)
}

// quote formats text of others as code on one line.
func quote(s string) string {
	var b bytes.Buffer
	if json.Compact(&b, []byte(s)) == nil {
		s = b.String()
	}
	s = text.Cut(strings.Join(strings.Fields(s), " "), maxQuote)
	if s == "" {
		return "nothing"
	}
	return "`" + strings.ReplaceAll(s, "`", "'") + "`"
}

// span formats a duration for people.
func span(ms int64) string {
	switch d := time.Duration(ms) * time.Millisecond; {
	case d < time.Second:
		return fmt.Sprintf("%d ms", ms)
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	default:
		return d.Round(time.Second).String()
	}
}

func since(began, at time.Time) string {
	if began.IsZero() || at.Before(began) {
		return "0.000s"
	}
	return fmt.Sprintf("%.3fs", at.Sub(began).Seconds())
}

func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
