package terminal

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/tool"
)

func TestWhatHappens(t *testing.T) {
	play(t, []scenario{
		{"deltas: late ones are nothing, a new attempt begins again, a loss is seen", func(r *rig) {
			r.begin()
			r.delta(provider.Delta{Plan: "t4-p1", Attempt: "a", Text: "of another turn"})
			r.delta(provider.Delta{Plan: "t5-p1", Attempt: "a", Text: "first"})
			r.later(fastTick)
			r.sees("first")
			r.seesNot("another")
			r.delta(provider.Delta{Plan: "t5-p1", Attempt: "b", Text: "sec"})
			r.delta(provider.Delta{Plan: "t5-p1", Attempt: "a", N: 1, Text: "late"})
			r.delta(provider.Delta{Plan: "t5-p1", Attempt: "b", N: 2, Text: "end"})
			r.later(fastTick)
			r.sees("sec … end")
			r.seesNot("first")
			r.seesNot("late")
			r.event("t5", event.PlanCompleted{Plan: "t5-p1", Attempt: "b"})
			r.event("t5", event.UIMessage{Content: "**second** end", Format: event.Markdown})
			r.delta(provider.Delta{Plan: "t5-p1", Attempt: "b", N: 3, Text: "too late"})
			r.later(fastTick)
			r.seesNot("sec")
			r.seesNot("too late")
			r.reads("second end")
		}},
		{"reasoning is shown until there is text", func(r *rig) {
			r.begin()
			r.delta(provider.Delta{Plan: "t5-p1", Attempt: "a", Reasoning: "let me see"})
			r.later(fastTick)
			r.sees("let me see")
			r.delta(provider.Delta{Plan: "t5-p1", Attempt: "a", N: 1, Text: "so:"})
			r.later(fastTick)
			r.sees("so:")
			r.seesNot("let me see")
		}},
		{"a call shows what it prints last, and how it ended", func(r *rig) {
			r.begin()
			r.event("t5", event.ActRequested{Call: "c1", Attempt: "a", Tool: "sh", Args: json.RawMessage(`{"cmd":"ls"}`)})
			r.send(items{{Output: &tool.Output{Call: "c1", Attempt: "old", Text: "other\n"}}})
			for i := range 9 {
				r.send(items{{Output: &tool.Output{Call: "c1", Attempt: "a", N: i, Text: fmt.Sprintf("line%d \x1b[2J\npart", i)}}})
			}
			r.later(3 * time.Second)
			r.sees(`sh {"cmd":"ls"} · 3 s`, "│ partline8 �[2J", "│ part")
			r.seesNot("line1")
			r.seesNot("other")
			r.event("t5",
				event.ActCompleted{
					Call: "c1", Tool: "sh", DurationMS: 3100, Result: tool.Failure(tool.CodeTimeout, "too \x1bslow"),
				})
			r.seesNot("sh {")
			r.reads(`✗ sh {"cmd":"ls"} · 3.1 s`, "↳ timeout: too �slow")
		}},
		{"inputs that wait are shown, and printed when their turn begins", func(r *rig) {
			r.begin()
			r.event("", event.Perceived{Sequence: 6, Writer: "ui-ann", Source: "web", Text: "me too", Disposition: event.Queued})
			r.sees("waits by ui-ann › me too")
			r.event("t5", event.Recorded{Sequence: 5})
			r.event("t6", event.Perceived{Sequence: 6, Writer: "ui-ann", Disposition: event.FromQueue})
			r.seesNot("waits")
			r.reads("ui-ann in web › me too")
		}},
		{"an input that never had its turn says why", func(r *rig) {
			r.typed("hello")
			r.keys("enter")
			r.asked(`say id1 "hello" terminal`)
			r.event("",
				event.TurnFailed{Sequence: 9, InputID: "id1", Code: event.FailQueueFull, Reason: "256 inputs are already waiting"})
			r.reads("› hello", "Failed (queue_full): 256 inputs are already waiting")
			r.seesNot("sending")
		}},
		{"the end of a turn closes everything of it", func(r *rig) {
			r.begin()
			r.request("c1")
			r.event("t5", event.ActRequested{Call: "c2", Tool: "sh", Args: json.RawMessage(`{}`)})
			r.event("t5", event.TurnFailed{Sequence: 5, Code: event.FailDeadline, Reason: "over"})
			r.reads("Failed (deadline): over")
			r.seesNot("wants to run")
			r.seesNot("sh")
		}},
		{"the bus is away and comes back", func(r *rig) {
			r.away = true
			r.later(slowTick)
			r.reads("The bus is unreachable.")
			r.sees("the bus is unreachable")
			r.away = false
			r.later(slowTick)
			r.reads("The bus is back.")
		}},
		{"a locked session says how it is opened", func(r *rig) {
			r.event("", event.SessionLocked{Reason: "8 of 10 failed"})
			r.event("", event.UIState{State: event.StateLocked})
			r.sees("locked · /reset opens")
			r.reads("The session is locked: 8 of 10 failed. /reset opens it again.")
		}},
		{"a session locked for a time says how long", func(r *rig) {
			until := r.now.Add(30 * time.Second)
			at := until.Local().Format(time.TimeOnly)
			r.event("", event.SessionLocked{Reason: "8 of 10 failed", Until: until})
			r.event("", event.UIState{State: event.StateLocked})
			r.sees("locked until " + at + " · /reset opens")
			r.reads("The session is locked: 8 of 10 failed. It accepts inputs again from "+at, "/reset opens it at once.")
			r.later(31 * time.Second)
			r.sees("no longer locked · the next input is accepted")
		}},
		{"what this process logs is shown, and harmless", func(r *rig) {
			r.send(logged("level=WARN \x1b]0;x\x07"))
			r.reads("level=WARN �]0;x�")
		}},
		{"an unknown command", func(r *rig) {
			r.typed("/halp")
			r.keys("enter")
			r.asked(`run id1 halp []`)
			r.event("",
				event.TurnFailed{
					Sequence: 8, InputID: "id1", Code: event.FailUnknownCommand, Reason: "unknown command /halp; did you mean /help?",
				})
			r.reads("› /halp", "Unknown command /halp; did you mean /help?")
			r.seesNot("sending")
		}},
		{"what a program has printed is shown as lines, and what a tool has answered in a few words", func(r *rig) {
			r.begin()
			r.call("sh", `{"cmd":"a \u003c b"}`, `{"exit_code":0,"stdout":"one\n\ttwo \u001b[2J\n","stderr":"oops"}`)
			r.reads(`✓ sh {"cmd":"a < b"}`, "  ↳ one\n        two �[2J\n    oops")
			r.event("t5", event.ActCompleted{Call: "c7", Tool: "py", Result: tool.Result{
				Error: &tool.Error{Code: tool.CodeFailed, Message: "ZeroDivisionError: division by zero (exit 1)"},
				Data:  json.RawMessage(`{"exit_code":1,"stdout":"so far\n","stderr":"Traceback"}`),
			}})
			r.reads("✗ py", "  ↳ tool_failed: ZeroDivisionError: division by zero (exit 1)\n  ↳ so far\n    Traceback")
			r.call("text", `{}`, `"`+strings.Repeat(`line\n`, 9)+`"`)
			r.reads("  ↳ line\n    line", "… 3 more lines")
			r.call("data", `{}`, `{"n":1,"stdout":""}`)
			r.reads(`  ↳ {"n":1,"stdout":""}`)
		}},
	})
}

func TestAFailedTurnIsSentAgain(t *testing.T) {
	fails := func(r *rig, id string) {
		r.event("t7",
			event.Perceived{Sequence: 7, InputID: id, Writer: "me", Text: "/etc is full", Disposition: event.Started})
		r.event("t7", event.TurnFailed{Sequence: 7, InputID: id, Code: event.FailProvider, Reason: "it is on fire"})
	}
	play(t, []scenario{
		{"by /retry, and by Ctrl-R, as it was said", func(r *rig) {
			r.typed(" /etc is full")
			r.keys("enter")
			r.asked(`say id1 "/etc is full" terminal`)
			fails(r, "id1")
			r.reads("it is on fire (/retry or Ctrl-R sends it again)")
			r.typed("/retry")
			r.keys("enter")
			r.asked(`say id2 "/etc is full" terminal`)
			r.keys("ctrl+r")
			r.idle() // it is on its way
			fails(r, "id2")
			r.typed("draft")
			r.keys("ctrl+r")
			r.asked(`say id3 "/etc is full" terminal`)
			r.sees("› draft")
			r.event("t7", event.Recorded{Sequence: 7, InputID: "id3"})
			r.keys("ctrl+r")
			r.idle()
			r.reads("Nothing to retry")
		}},
		{"not one of somebody else, and no command", func(r *rig) {
			r.event("t5", event.Perceived{Sequence: 5, InputID: "x", Writer: "you", Text: "hers", Disposition: event.Started})
			r.event("t5", event.TurnFailed{Sequence: 5, InputID: "x", Code: event.FailProvider, Reason: "it is on fire"})
			r.typed("/nonsense")
			r.keys("enter")
			r.asked(`run id1 nonsense []`)
			r.event("", event.TurnFailed{Sequence: 6, InputID: "id1", Code: event.FailUnknownCommand, Reason: "no command"})
			r.keys("ctrl+r")
			r.idle()
		}},
	})
	r := newRig(t, func(c *Config) { c.Past = []Past{{Writer: "me", Text: "mine", Answer: "why", Failed: true}} })
	r.keys("ctrl+r")
	r.asked(`say id1 "mine" terminal`)
}
