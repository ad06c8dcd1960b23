package history_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/guide"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/history"
)

var (
	ref   = subject.Ref{Agent: "main", Session: "s"}
	began = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
)

// log is a session's log in memory: the commits by their sequences.
type log []bus.StoredMsg

func (l log) LastCommit(context.Context, subject.Ref) (bus.StoredMsg, error) {
	if len(l) == 0 {
		return bus.StoredMsg{}, bus.ErrNotFound
	}
	return l[len(l)-1], nil
}

func (l log) Message(_ context.Context, seq uint64) (bus.StoredMsg, error) {
	for _, m := range l {
		if m.Seq == seq {
			return m, nil
		}
	}
	return bus.StoredMsg{}, bus.ErrNotFound
}

// add appends a commit, a second after the one before it. Its trigger is the input that it
// takes up, or the answer of the model.
func (l *log) add(t *testing.T, hooks []hook.Verdict, events ...event.Event) {
	t.Helper()
	c := event.Commit{Ref: ref, Events: events, Header: event.Header{
		CommitID: "c", Now: began.Add(time.Duration(len(*l)) * time.Second), Hooks: hooks, Digest: "d",
	}}
	for i, e := range events {
		events[i].Time = c.Header.Now
		if err := (event.Visitor{
			Perceived: func(p event.Perceived) {
				if p.Disposition != event.FromQueue {
					c.Header.Trigger.Sequence = p.Sequence
				}
			},
			PlanCompleted: func(p event.PlanCompleted) { c.Header.Trigger.Call = p.Plan },
		}).Visit(e); err != nil {
			t.Fatal(err)
		}
	}
	seq := uint64(10 + len(*l))
	if len(*l) > 0 {
		c.Header.Prev = seq - 1
	}
	b, err := c.Encode()
	if err != nil {
		t.Fatal(err)
	}
	*l = append(*l, bus.StoredMsg{Subject: ref.Commit(), Seq: seq, Data: b})
}

func of(turn string, p event.Payload) event.Event {
	e := event.New(ref, "e", "test", p)
	e.Turn = turn
	return e
}

func at(p hook.Point, verb hook.Verb, step string) hook.Verdict {
	return hook.Verdict{Plugin: "kit", Point: p, Verb: verb, Step: step, LatencyUS: 1500, Reason: "why " + string(p)}
}

// aSession has a turn with everything in it, and one that waited for it and failed.
func aSession(t *testing.T) log {
	t.Helper()
	var l log
	args := json.RawMessage(`{"path": "a"}`)
	call := func(id string) event.Step { return event.Step{Call: id, Tool: "files:write", Args: args} }
	l.add(t, []hook.Verdict{at(hook.BeforeSense, "continue", ""), at(hook.BeforePlan, "advise", "")},
		of("t5", event.Perceived{
			Sequence: 5, Writer: "ui-web", Source: "web", Text: "write `it`", Annotations: []string{"one", "two"},
			Disposition: event.Started,
		}),
		of("t5", event.PlanConsidered{
			Plan: "t5-p1", Mode: guide.Native, Method: event.MethodLexical, Offered: 3, Of: 90, Reasoning: "they fit",
			Candidates: []event.Candidate{{Tool: "a:b", Score: 0.5}},
		}), of("t5", event.PlanRequested{Plan: "t5-p1", Round: 1, Attempts: 1, Provider: "gemini-1"}))
	l.add(t, nil, of("", event.Perceived{Sequence: 6, Writer: "cron", Text: "later", Disposition: event.Queued}))
	l.add(t, nil, of("t5", event.PlanRequested{
		Plan: "t5-p1", Round: 1, Attempts: 2, Provider: "gemini-2", Use: "gemini",
		Failed: "unavailable: openai is down",
	}))
	l.add(t, []hook.Verdict{
		at(hook.AfterPlan, "continue", ""), at(hook.BeforeAct, "confirm", "t5-p1-c0"), at(hook.BeforeAct, "deny", "t5-p1-c1"),
	},
		of("t5", event.PlanCompleted{
			Plan: "t5-p1", Provider: "gemini-2", Steps: []event.Step{call("t5-p1-c0"), call("t5-p1-c1")}, DurationMS: 1234,
			Response: &provider.Response{Usage: provider.Usage{InputTokens: 7, OutputTokens: 8}},
		}),
		of("t5", event.Audited{
			Call: "t5-p1-c0", Action: event.ActionCall, Effect: event.EffectConfirm, Resource: "files:write", Rule: "before_act",
			Reason: "it writes",
		}),
		of("t5", event.ToolCallRequest{
			ToolName: "files:write", Args: args, ConfirmationID: "t5-p1-c0",
			SecurityWarning: &hook.Warning{Level: hook.LevelWarn, Message: "look"},
		}),
		of("t5", event.Audited{Call: "t5-p1-c1", Effect: event.EffectAllow}),
		of("t5", event.ActCompleted{Call: "t5-p1-c1", Tool: "files:write", Result: tool.Result{
			Error: &tool.Error{Code: tool.CodeDenied, Message: "no", Details: []string{"not now"}},
		}}))
	l.add(t, nil,
		of("t5", event.ActConfirmed{
			Call: "t5-p1-c0", Outcome: event.Approved, By: "ui-web", Source: "web", Reason: "fine",
			Always: &event.Grant{Tool: "files:write"},
		}),
		of("t5", event.ActRequested{Call: "t5-p1-c0", Tool: "files:write", Args: args, Attempts: 2, Runner: "runner-1"}))
	l.add(t, []hook.Verdict{
		at(hook.AfterAct, "continue", "t5-p1-c0"), at(hook.BeforePlan, "continue", ""),
	},
		of("t5", event.ActCompleted{
			Call: "t5-p1-c0", Tool: "files:write", Runner: "runner-1", DurationMS: 61_000,
			Result: tool.Result{Success: true, Data: json.RawMessage(`{"ok": true}`)},
		}),
		of("t5", event.SessionLocked{Reason: "too many failures"}),
		of("t5", event.PlanRequested{Plan: "t5-p2", Round: 2, Attempts: 1}))
	l.add(t, []hook.Verdict{
		at(hook.AfterPlan, "continue", ""), at(hook.AfterReflect, "continue", ""), at(hook.BeforePlan, "continue", ""),
	},
		of("t5", event.PlanCompleted{
			Plan: "t5-p2", Provider: "gemini-2", Response: &provider.Response{TextContent: "done"}, DurationMS: 5,
		}),
		of("t5", event.Recorded{
			Sequence: 5, Answer: "done", Rounds: 2, Actions: []event.Action{{Call: "t5-p1-c0"}}, DurationMS: 6000,
			Usage: provider.Usage{InputTokens: 7, OutputTokens: 8, CostMicroUSD: 12_345},
		}),
		of("t6", event.Perceived{Sequence: 6, Writer: "cron", Disposition: event.FromQueue}),
		of("t6", event.PlanRequested{Plan: "t6-p1", Round: 1, Attempts: 1}))
	failed := at(hook.OnError, "continue", "")
	failed.Error = "it crashed"
	l.add(t, []hook.Verdict{failed},
		of("t6", event.PlanCompleted{
			Plan: "t6-p1", Error: &provider.Error{Code: "unavailable", Message: "gone"}, DurationMS: 20,
		}),
		of("t6", event.UIState{State: event.StateWaiting}),
		of("t6", event.TurnFailed{Sequence: 6, Code: event.FailProvider, Reason: "no answer", DurationMS: 30}))
	return l
}

// The text is what /replay shows.
func TestAnAccountOfTurns(t *testing.T) {
	turns, err := history.Last(t.Context(), aSession(t), ref, 3)
	if err != nil || len(turns) != 2 || turns[1].Perceived.Text != "later" || turns[0].Recorded == nil ||
		turns[1].Failed == nil {
		t.Fatalf("%+v, %v", turns, err)
	}
	want, err := os.ReadFile("testdata/account.md")
	if got := history.Account(turns); err != nil || got != string(want) {
		t.Errorf("%v\n got %s\nwant %s", err, got, want)
	}
}

// A commit that ends one turn and begins another has verdicts of both.
func TestTheVerdictsOfAnInputThatInterrupts(t *testing.T) {
	var l log
	l.add(t, nil, of("t5", event.Perceived{Sequence: 5, Text: "one", Disposition: event.Started}))
	l.add(t, []hook.Verdict{
		at(hook.BeforeSense, "continue", ""), at(hook.OnError, "continue", ""), at(hook.BeforePlan, "continue", ""),
	},
		of("t5", event.TurnFailed{Sequence: 5, Code: event.FailInterrupted}),
		of("t6", event.Perceived{Sequence: 6, Text: "two", Disposition: event.Started}),
		of("t6", event.PlanRequested{Plan: "t6-p1", Round: 1, Attempts: 1}))
	for id, want := range map[string][]hook.Point{"t5": {hook.OnError}, "t6": {hook.BeforeSense, hook.BeforePlan}} {
		turn, err := history.Find(t.Context(), l, ref, id)
		if err != nil {
			t.Fatal(err)
		}
		var got []hook.Point
		for _, v := range turn.Commits[len(turn.Commits)-1].Hooks {
			got = append(got, v.Point)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s has the verdicts %v, want %v", id, got, want)
		}
	}
}

func TestATurnIsFoundAsFarAsItIsInTheLog(t *testing.T) {
	l := aSession(t)
	if turn, err := history.Find(t.Context(), l, ref, "t5"); err != nil || turn.Turn != "t5" || turn.Partial {
		t.Errorf("%+v, %v", turn, err)
	}
	if turn, err := history.Find(t.Context(), l[3:], ref, "t5"); err != nil || !turn.Partial || turn.Recorded == nil {
		t.Errorf("without its beginning: %+v, %v", turn, err)
	}
	if _, err := history.Find(t.Context(), l, ref, "t7"); !errors.Is(err, history.ErrNoTurn) {
		t.Errorf("a turn that is not there: %v", err)
	}
	if _, err := history.Last(t.Context(), log{}, ref, 1); !errors.Is(err, history.ErrNoTurn) {
		t.Errorf("an empty log: %v", err)
	}
}

// A verdict about a call that failed is with the call, also when the turn fails with it.
func TestAnErrorOfACallIsWithTheCall(t *testing.T) {
	var l log
	l.add(t, nil, of("t5", event.Perceived{Sequence: 5, Text: "x", Disposition: event.Started}))
	l.add(t, []hook.Verdict{at(hook.OnError, "continue", "t5-p1-c0")},
		of("t5", event.ActCompleted{Call: "t5-p1-c0", Tool: "a:b", Result: tool.Result{
			Error: &tool.Error{Code: tool.CodeFailed, Message: "broken"},
		}}),
		of("t5", event.TurnFailed{Sequence: 5, Code: event.FailCancelled}))
	turns, err := history.Last(t.Context(), l, ref, 1)
	if err != nil || len(turns) != 1 {
		t.Fatal(turns, err)
	}
	lines := strings.Split(history.Account(turns), "\n")
	verdict := slices.IndexFunc(lines, func(l string) bool { return strings.Contains(l, "on_error") })
	end := slices.IndexFunc(lines, func(l string) bool {
		return strings.HasPrefix(l, "- ") && strings.Contains(l, string(event.FailCancelled))
	})
	if verdict < 0 || end < verdict {
		t.Errorf("the account is\n%s", strings.Join(lines, "\n"))
	}
}
