package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/term"

	"skandha.dev/pkg/event"
	"skandha.dev/services/internal/safetext"
)

// styles are a terminal's control sequences; empty if the output is not a terminal.
type styles struct{ dim, bold, red, green, yellow, blue, off string }

func stylesFor(w io.Writer) styles {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return styles{}
	}
	return styles{"\x1b[2m", "\x1b[1m", "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[34m", "\x1b[0m"}
}

// clean makes text from models, tools and hooks safe for a terminal: it removes escape
// sequences.
func clean(s string) string { return safetext.Clean(s) }

// line puts text on one line of at most n runes.
func line(s string, n int) string {
	s = strings.Join(strings.Fields(clean(s)), " ")
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}

// wrap breaks a line at spaces, after at most n runes if it can, and writes on after
// each break.
func wrap(s string, n int, on string) string {
	var b strings.Builder
	used := 0
	for i, word := range strings.Fields(s) {
		w := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case used+1+w > n:
			b.WriteString(on)
			used = 0
		default:
			b.WriteByte(' ')
			used++
		}
		b.WriteString(word)
		used += w
	}
	return b.String()
}

// summary describes an event in a few words.
func summary(e event.Event) string {
	s := line(string(e.Data), 120)
	say := func(format string, args ...any) { s = fmt.Sprintf(format, args...) }
	_ = event.Visitor{ // others, and what cannot be read, are shown as they are
		Perceived: func(p event.Perceived) { say("%s %q by %s", p.Disposition, line(p.Text, 60), p.Writer) },
		PlanRequested: func(p event.PlanRequested) {
			say("round %d, attempt %d, to %s, %d tools offered", p.Round, p.Attempts,
				strings.TrimPrefix(p.Use+" at "+string(p.Provider), " at "), len(p.Tools))
		},
		PlanConsidered: func(p event.PlanConsidered) {
			best := ""
			if len(p.Candidates) > 0 {
				best = ", best " + line(p.Candidates[0].Tool, 80)
			}
			if p.Selection != nil {
				best = ", chose " + line(strings.Join(p.Selection.Tools, ", "), 80)
			}
			say("%s: %d of %d tools offered%s", p.Mode, p.Offered, p.Of, best)
		},
		Recalled: func(p event.Recalled) {
			say("%d memories %s", len(p.Memories), line(p.Trouble, 100))
		},
		Summarized:    func(p event.Summarized) { say("%d turns, %s to %s", p.Turns, p.From, p.Until) },
		PlanCompleted: func(p event.PlanCompleted) { s = planSummary(p) },
		ActRequested: func(p event.ActRequested) {
			say("%s %s, attempt %d, to %s", line(p.Tool, 100), line(string(p.Args), 80), p.Attempts, p.Runner)
		},
		ActApproved:  func(p event.ActApproved) { say("%s by %s, %d more must", p.Call, p.Person, p.Left) },
		ActConfirmed: func(p event.ActConfirmed) { say("%s %s by %s %s", p.Call, p.Outcome, p.By, line(p.Reason, 60)) },
		ActCompleted: func(p event.ActCompleted) { say("%s %s", line(p.Tool, 100), resultSummary(p)) },
		Recorded: func(p event.Recorded) {
			say("%d calls, %d rounds, %d ms: %s", len(p.Actions), p.Rounds, p.DurationMS, line(p.Answer, 80))
		},
		TurnFailed: func(p event.TurnFailed) { say("%s: %s", p.Code, line(p.Reason, 120)) },
		UIState:    func(p event.UIState) { s = string(p.State) },
		UIReady:    func(event.UIReady) { s = "" },
	}.Visit(e)
	return s
}

func planSummary(p event.PlanCompleted) string {
	if p.Error != nil {
		return "failed: " + line(p.Error.Error(), 100)
	}
	if p.Purpose != "" {
		return "for a " + string(p.Purpose) + ": " + line(p.Response.TextContent, 80)
	}
	if len(p.Steps) == 0 {
		return "final: " + line(p.Response.TextContent, 80)
	}
	var names []string
	for _, s := range p.Steps {
		names = append(names, s.Tool)
	}
	return "calls " + line(strings.Join(names, ", "), 120)
}

func resultSummary(p event.ActCompleted) string {
	if p.Result.Success {
		return fmt.Sprintf("ok in %d ms: %s", p.DurationMS, line(string(p.Result.Data), 80))
	}
	if p.Result.Error == nil {
		return "failed"
	}
	return fmt.Sprintf("%s: %s", p.Result.Error.Code, line(p.Result.Error.Message, 100))
}

// printEvent writes one event as a readable line.
func printEvent(w io.Writer, s styles, e event.Event, session bool) {
	where := ""
	if session {
		where = fmt.Sprintf(" %s%s/%s%s", s.dim, e.Agent, e.Session, s.off)
	}
	colour := s.blue
	switch e.Type {
	case event.TypeTurnFailed, event.TypeSessionLocked:
		colour = s.red
	case event.TypeRecorded:
		colour = s.green
	case event.TypeToolCallRequest, event.TypeActApproved, event.TypeActConfirmed:
		colour = s.yellow
	}
	_, _ = fmt.Fprintf(w, "%s%s%s%s %s%-22s%s %s\n", s.dim, e.Time.Local().Format("15:04:05.000"), s.off, where,
		colour, e.Type.Phase()+"."+e.Type.Name(), s.off, clean(summary(e)))
}

// printJSON writes v as one line, or indented.
func printJSON(w io.Writer, v any, indent bool) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	if indent {
		enc.SetIndent("", "  ")
	}
	return enc.Encode(v)
}

func ago(t time.Time) string {
	d := time.Since(t)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s ago", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h ago", int(d.Hours()))
	}
	return t.Local().Format("2006-01-02")
}
