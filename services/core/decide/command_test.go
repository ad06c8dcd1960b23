package decide_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/commands"
	"skandha.dev/services/core/decide"
)

func TestCommands(t *testing.T) {
	t.Run("are answered beside the running turn", func(t *testing.T) {
		for _, name := range []string{"help", "/help", "tools", "plugins", "provider", "metrics", "replay", "quit"} {
			w := newWorld(t)
			in := w.say("x")
			c := w.cause(subject.Command, "web", fmt.Sprintf(`{"name":%q}`, name))
			w.process(c, nil)
			w.ends(c.Sequence, "recorded")
			r := events[event.Recorded](w)[0]
			if r.Command != strings.TrimPrefix(name, "/") || r.Answer == "" || w.state.Driver != in.Sequence {
				t.Fatalf("%s: %+v, driver %d", name, r, w.state.Driver)
			}
			for _, e := range w.last().Events {
				if e.Turn != "" {
					t.Fatalf("%s belongs to turn %s", e.Type, e.Turn)
				}
			}
			w.final("done")
			w.ends(in.Sequence, "recorded")
		}
	})
	for _, c := range []struct{ name, body, want string }{
		{"unknown", `{"name":"sudo"}`, "unknown_command"},
		{"garbage", `{`, "malformed"},
		{"an unknown argument", `{"name":"help","args":["me"]}`, "malformed"},
		{"turns that are no number and no id", `{"name":"replay","args":["yesterday"]}`, "malformed"},
		{"too many turns", `{"name":"replay","args":["11"]}`, "malformed"},
		{"no turn at all", `{"name":"replay","args":["0"]}`, "malformed"},
		{"two arguments", `{"name":"replay","args":["1","2"]}`, "malformed"},
		{"an id too long", `{"name":"help","id":"` + strings.Repeat("i", 129) + `"}`, "malformed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			x := w.cause(subject.Command, "web", c.body)
			w.process(x, nil)
			w.ends(x.Sequence, c.want)
		})
	}
	t.Run("a repeated one is a duplicate", func(t *testing.T) {
		w := newWorld(t)
		one, two := w.cause(subject.Command, "web", `{"name":"help","id":"1"}`), w.cause(subject.Command, "web",
			`{"name":"reset","id":"1"}`)
		w.process(one, nil)
		w.process(two, nil)
		w.ends(one.Sequence, "recorded")
		w.ends(two.Sequence, "duplicate_of")
	})
	t.Run("a repeated envelope is a duplicate", func(t *testing.T) {
		w := newWorld(t)
		first := w.say("one")
		body := `{"specversion":"1.0","id":"e1","source":"ui","type":"skandha.sense.command.v1","data":{"name":"cancel"}}`
		w.process(w.cause(subject.Command, "web", body), nil)
		w.ends(first.Sequence, "cancelled")
		second := w.say("two")
		again := w.cause(subject.Command, "web", body)
		w.process(again, nil)
		w.ends(again.Sequence, "duplicate_of")
		w.ends(second.Sequence, "")
	})
	t.Run("/reset ends everything, forgets and unlocks", func(t *testing.T) {
		w := newWorld(t)
		lock(w)
		c := w.cause(subject.Command, "web", `{"name":"/reset"}`)
		w.process(c, nil)
		w.ends(c.Sequence, "recorded")
		one, two := w.say("one"), w.say("two")
		c = w.cause(subject.Command, "web", `{"name":"/reset"}`)
		w.process(c, nil)
		w.ends(one.Sequence, "reset")
		w.ends(two.Sequence, "reset")
		w.ends(c.Sequence, "recorded")
		if w.state.Locked != "" || len(w.state.Window) != 0 || w.state.Driver != 0 ||
			!slices.Equal(w.state.Breaker.Recent, nil) {
			t.Fatalf("%+v", w.state)
		}
		w.reload()
	})
	t.Run("/cancel ends what ran when it was stored", func(t *testing.T) {
		w := newWorld(t)
		one, two := w.say("one"), w.say("two")
		c := w.cause(subject.Command, "web", `{"name":"/cancel"}`)
		w.process(c, nil)
		w.ends(one.Sequence, "cancelled")
		w.ends(c.Sequence, "recorded")
		if w.state.Turn.Sequence != two.Sequence {
			t.Fatal("the next one has not begun")
		}
	})
	t.Run("/cancel hits no turn that began after it was stored", func(t *testing.T) {
		w := newWorld(t)
		in := w.cause(subject.Input, "web", `{"text":"x"}`)
		c := w.cause(subject.Command, "web", `{"name":"/cancel"}`)
		w.process(in, nil) // its commit follows the command
		if must := decide.MustClose(w.state, c); len(must) > 0 {
			t.Fatal("it would stop calls")
		}
		w.process(c, nil)
		w.ends(in.Sequence, "")
		w.ends(c.Sequence, "recorded")
	})
}

// A command that is refused for its arguments has no effect: it does not stop the calls
// that the valid command would have stopped.
func TestARefusedCommandStopsNothing(t *testing.T) {
	for _, name := range []string{"reset", "cancel"} {
		w := newWorld(t)
		in := w.say("x")
		c := w.cause(subject.Command, "web", fmt.Sprintf(`{"name":%q,"args":["now"],"id":"1"}`, name))
		if must := decide.MustClose(w.state, c); len(must) > 0 {
			t.Fatalf("/%s now would stop %d calls", name, len(must))
		}
		w.process(c, nil)
		w.ends(c.Sequence, "malformed")
		w.ends(in.Sequence, "")
		f := events[event.TurnFailed](w)[0]
		if want := "/" + name + ` takes no arguments, got "now"`; !strings.Contains(f.Reason, want) || f.InputID != "1" {
			t.Fatalf("%+v, want %q of input 1", f, want)
		}
	}
}

func TestAnUnknownCommandNamesTheNearest(t *testing.T) {
	for name, want := range map[string]string{
		"halp":       "unknown command /halp; did you mean /help? (",
		"HELP":       "did you mean /help? (",
		"plug":       "did you mean /plugins? (",
		"re":         "did you mean /reset or /repair or /resume or /replay? (",
		"cnacel":     "did you mean /cancel? (",
		"metricss":   "did you mean /metrics? (",
		"toosl":      "did you mean /tools? (",
		"etc/passwd": "unknown command /etc/passwd (",
		"x":          "unknown command /x (",
		"":           "unknown command / (",
	} {
		w := newWorld(t)
		w.process(w.cause(subject.Command, "web", fmt.Sprintf(`{"name":%q,"id":"1"}`, name)), nil)
		f := events[event.TurnFailed](w)[0]
		if f.Code != event.FailUnknownCommand || f.InputID != "1" || !strings.Contains(f.Reason, want) ||
			!strings.HasSuffix(f.Reason, "(/help lists all commands; begin with // to send text that begins with a slash)") {
			t.Errorf("%q: %+v, want %q", name, f, want)
		}
	}
}

func TestHelpListsEveryCommandWithItsArguments(t *testing.T) {
	w := newWorld(t)
	w.process(w.cause(subject.Command, "web", `{"name":"help"}`), nil)
	answer := events[event.Recorded](w)[0].Answer
	for _, c := range commands.All() {
		if want := "`" + strings.TrimSpace("/"+c.Name+" "+c.Args) + "` — " + c.Help; !strings.Contains(answer, want) {
			t.Errorf("%q is not in\n%s", want, answer)
		}
	}
	for _, want := range []string{"help", "reset", "quit", "metrics", "provider", "tools", "plugins", "cancel", "replay"} {
		if !slices.ContainsFunc(commands.All(), func(c commands.Command) bool { return c.Name == want }) {
			t.Errorf("there is no /%s", want)
		}
	}
}

// The answers of commands come from the environment, and are in the commit.
func TestCommandsShowWhatTheEnvironmentKnows(t *testing.T) {
	env := func(w *world) *decide.Env {
		e := w.env()
		e.Plugins = func() []commands.Plugin {
			return []commands.Plugin{
				{Name: "guard", Version: "1.2.0", State: "suspended", Reason: "it\nfailed", Hooks: []string{"before_act"}},
				{
					Name: "maps", Version: "0.1.0", State: "active", Tools: []string{"maps:find", "odd`name"},
					Other: []string{"guide cartography"},
				},
			}
		}
		e.Stats = func() []commands.ToolUse {
			return []commands.ToolUse{
				{Tool: "rare", Used: 1},
				{Tool: "often", Used: 9, Unknown: 2, SuccessRate: 0.5, MeanLatency: 1500 * time.Microsecond},
			}
		}
		e.HookStats = func() []commands.HookUse {
			return []commands.HookUse{{Point: "before_act", Plugin: "guard", Asked: 7, Failed: 1, P50US: 250, P99US: 4000}}
		}
		e.Replay = func(q commands.Turns) (string, error) {
			if q.Turn == "t9" {
				return "", commands.ErrNoTurn
			}
			return fmt.Sprintf("account of %+v", q), nil
		}
		return e
	}
	for _, c := range []struct {
		body string
		want []string
	}{
		{`{"name":"plugins"}`, []string{
			"- **guard** 1.2.0 — suspended: it failed\n  - hooks: `before_act`\n",
			"- **maps** 0.1.0 — active\n  - tools: `maps:find`, `odd'name`\n  - offers: `guide cartography`",
		}},
		{`{"name":"metrics"}`, []string{
			"0 turns",
			"- `often`: used 9 times, expected success rate 50 %, outcome unknown 2 times, mean 2ms\n- `rare`: used 1 time,",
			"guard at `before_act`: asked 7 times, failed 1, p50 250µs, p99 4ms",
		}},
		{`{"name":"replay"}`, []string{"account of {Last:1 Turn:}"}},
		{`{"name":"replay","args":["3"]}`, []string{"account of {Last:3 Turn:}"}},
		{`{"name":"replay","args":["t42"]}`, []string{"account of {Last:0 Turn:t42}"}},
		{`{"name":"replay","args":["t9"]}`, []string{"Turn t9 is not in this session's log"}},
		{`{"name":"quit"}`, []string{"only closes a terminal", "The session stays open"}},
	} {
		w := newWorld(t)
		cause := w.cause(subject.Command, "web", c.body)
		d, reason := decide.OnCause(w.state, cause.Sequence, cause, nil, env(w))
		if d == nil {
			t.Fatalf("%s: %s", c.body, reason)
		}
		w.commit(d, cause.Sequence)
		answer := events[event.Recorded](w)[0].Answer
		for _, want := range c.want {
			if !strings.Contains(answer, want) {
				t.Errorf("%s: %q is not in\n%s", c.body, want, answer)
			}
		}
	}
}
