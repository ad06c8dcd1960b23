package timeline

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/turn"
)

// A session is written down as its commits, and a timeline is read as lines of text.

var (
	here  = subject.Ref{Agent: "main", Session: "s"}
	start = time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
)

// at returns the time so many milliseconds after the start.
func at(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }

// commit is decided at ms, and stored a millisecond later.
func commit(seq uint64, ms int, t event.Trigger, hooks []hook.Verdict, of string, payloads ...event.Payload) turn.Stored {
	c := event.Commit{
		Ref:    here,
		Header: event.Header{CommitID: fmt.Sprintf("c%d", seq), Trigger: t, Cursor: t.Sequence, Now: at(ms), Hooks: hooks},
	}
	for i, p := range payloads {
		e := event.New(here, fmt.Sprintf("c%d.%d", seq, i+1), event.Source, p)
		e.Turn, e.Time = of, at(ms)
		switch p := p.(type) {
		case event.Perceived:
			if e.Turn = ""; p.Disposition == event.Started || p.Disposition == event.FromQueue {
				e.Turn = fmt.Sprintf("t%d", p.Sequence)
			}
		case event.PlanRequested:
			e.Turn, _, _ = strings.Cut(p.Plan, "-")
		}
		c.Events = append(c.Events, e)
	}
	return turn.Stored{Commit: c, Sequence: seq, At: at(ms + 1)}
}

func said(seq uint64) event.Trigger {
	return event.Trigger{Kind: event.ByCause, Sequence: seq, Cause: subject.Input, Writer: "ui-ada"}
}

func because(seq uint64, kind subject.CauseKind, w subject.Writer) event.Trigger {
	return event.Trigger{Kind: event.ByCause, Sequence: seq, Cause: kind, Writer: w}
}

// marks is that a core is about to decide.
func marks(seq uint64, core subject.Instance) event.Trigger {
	return event.Trigger{Kind: event.ByBegin, Sequence: seq, Core: core}
}

func reply(call string) event.Trigger {
	return event.Trigger{Kind: event.ByReply, Call: call, Attempt: "x"}
}

func verdict(p hook.Point, plugin subject.Plugin, step string, v hook.Verb, us int64) hook.Verdict {
	return hook.Verdict{Point: p, Plugin: plugin, Step: step, Verb: v, LatencyUS: us}
}

func heard(seq uint64, d event.Disposition) event.Perceived {
	p := event.Perceived{Sequence: seq, Writer: "ui-ada", Source: "web", Disposition: d}
	if d != event.FromQueue {
		p.Text = "do it"
	}
	return p
}

func asks(turn string, round, attempt int) event.PlanRequested {
	return event.PlanRequested{
		Plan: fmt.Sprintf("%s-p%d", turn, round), Round: round, Attempt: fmt.Sprintf("n%d", attempt), Attempts: attempt,
		Provider: "provider-1", Tools: []string{"clock:now", "http:request"},
	}
}

func answers(turn string, round int, text string, steps ...event.Step) event.PlanCompleted {
	return event.PlanCompleted{
		Plan: fmt.Sprintf("%s-p%d", turn, round), Attempt: "n1", Provider: "provider-1", Steps: steps, DurationMS: 90,
		Response: &provider.Response{
			IsFinal: len(steps) == 0, TextContent: text, Model: "m", Usage: provider.Usage{InputTokens: 10, OutputTokens: 5},
		},
	}
}

func wants(call, name string, after ...string) event.Step {
	return event.Step{Call: call, CallID: call, Tool: name, Args: json.RawMessage(`{"a":1}`), DependsOn: after}
}

func gives(call, name string, attempt int) event.ActRequested {
	return event.ActRequested{
		Call: call, Tool: name, Args: json.RawMessage(`{"a":1}`), Hash: "h", Attempt: "x", Attempts: attempt,
		Runner: subject.Instance(fmt.Sprintf("runner-%d", attempt)),
	}
}

func done(call, name string) event.ActCompleted {
	return event.ActCompleted{
		Call: call, Tool: name, Hash: "h", Attempt: "x", Runner: "runner-1", DurationMS: 7, Result: tool.OK("fine"),
	}
}

func failed(call, name string, code tool.Code) event.ActCompleted {
	return event.ActCompleted{Call: call, Tool: name, Hash: "h", Result: tool.Failure(code, "it did not go")}
}

func ended(seq uint64) event.Recorded {
	return event.Recorded{
		Sequence: seq, Input: "do it", Answer: "done", Rounds: 1, Usage: provider.Usage{InputTokens: 10, OutputTokens: 5},
		DurationMS: 100,
	}
}

func broken(seq uint64, code event.FailCode) event.TurnFailed {
	return event.TurnFailed{Sequence: seq, Code: code, Reason: "because"}
}

// draw formats a timeline, one span a line: indented under its parent, with its start, its
// duration (in milliseconds) and its status.
func draw(t Timeline) string {
	depth := map[string]int{}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s %d ms\n", t.Turn, t.Outcome, t.DurationMS)
	for _, s := range t.Spans {
		if s.Parent != "" {
			depth[s.ID] = depth[s.Parent] + 1
		}
		fmt.Fprintf(&b, "%s%s/%s %q %g+%g %s\n", strings.Repeat("  ", depth[s.ID]), s.Lane, s.Kind, s.Name,
			float64(s.StartUS)/1000, float64(s.DurationUS)/1000, s.Status)
	}
	return b.String()
}

func unindent(s string) string {
	return strings.ReplaceAll(strings.TrimPrefix(s, "\n"), "\t", "")
}
