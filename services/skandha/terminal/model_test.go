package terminal

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/provider"
	"skandha.dev/services/internal/follow"
)

func TestWhatIsTyped(t *testing.T) {
	play(t, []scenario{
		{"an input is sent, waits to be taken up, and is printed then", func(r *rig) {
			r.typed("hello")
			r.keys("enter")
			r.asked(`say id1 "hello" terminal`)
			r.sees("sending › hello")
			r.send(stored{"id1", nil})
			r.sees("sent › hello")
			r.event("t7", event.Perceived{Sequence: 7, InputID: "id1", Writer: "me", Text: "hello", Disposition: event.Started})
			r.seesNot("sent")
			r.reads("› hello")
			r.sees("thinking · 0 s · Ctrl-C cancels")
			r.event("t7",
				event.Recorded{
					Sequence: 7, InputID: "id1", DurationMS: 1500, Rounds: 2, Usage: provider.Usage{InputTokens: 3, OutputTokens: 4},
				})
			r.sees("1.5 s · 2 rounds · 0 calls · 7 tokens")
		}},
		{"what cannot be sent is said, and can be had back", func(r *rig) {
			r.fails = errors.New("no bus")
			r.typed("hello")
			r.keys("enter")
			r.asked(`say id1 "hello" terminal`)
			r.send(stored{"id1", r.fails})
			r.reads("› hello", "Not sent: no bus")
			r.keys("up")
			r.sees("› hello")
		}},
		{"a slash makes a command, a space before it none", func(r *rig) {
			r.typed("/replay 2")
			r.keys("enter")
			r.asked(`run id1 replay ["2"]`)
			r.typed(" /etc is full")
			r.keys("enter")
			r.asked(`say id2 "/etc is full" terminal`)
			r.typed("/")
			r.keys("enter")
			r.asked(`run id3 help []`)
		}},
		{"two slashes begin a text with one", func(r *rig) {
			r.typed("//etc is full")
			r.keys("enter")
			r.asked(`say id1 "/etc is full" terminal`)
		}},
		{"nothing is sent of nothing", func(r *rig) {
			r.typed("   ")
			r.keys("enter")
			r.idle()
		}},
		{"a command in the list is run", func(r *rig) {
			r.typed("/re")
			r.keys("down", "down")
			r.sees("/replay [n]", "/reset")
			r.keys("enter")
			r.asked(`run id1 reset []`)
		}},
		{"a command with arguments is completed, not run", func(r *rig) {
			r.typed("/re")
			r.keys("down", "enter")
			r.idle()
			r.sees("› /replay ")
		}},
		{"Esc closes the list", func(r *rig) {
			r.typed("/r")
			r.sees("an account")
			r.keys("esc")
			r.seesNot("an account")
			r.keys("up")
			r.seesNot("/reset")
		}},
		{"Ctrl-C cancels once", func(r *rig) {
			r.begin()
			r.keys("ctrl+c")
			r.asked("cancel 5")
			r.sees("cancelling; Ctrl-C again leaves")
			r.later(armedFor)
			r.keys("ctrl+c")
			r.idle()
			if r.m.leaving {
				r.t.Fatal("it leaves, though it was long ago")
			}
			r.keys("ctrl+c")
			if !r.m.leaving {
				r.t.Fatal("it stays")
			}
		}},
		{"Ctrl-C clears what is typed; another key in between makes it the first again", func(r *rig) {
			r.typed("x")
			r.keys("ctrl+c")
			r.sees("Ctrl-C again leaves")
			r.typed("y")
			r.keys("ctrl+c")
			if r.m.leaving {
				r.t.Fatal("it leaves")
			}
		}},
		{"Ctrl-D leaves when nothing is typed", func(r *rig) {
			r.typed("x")
			r.keys("ctrl+d")
			if r.m.leaving {
				r.t.Fatal("it leaves with something typed")
			}
			r.keys("ctrl+c", "ctrl+d")
			if !r.m.leaving {
				r.t.Fatal("it stays")
			}
			r.reads("To continue: skandha chat -a main -s s")
		}},
		{"several lines, and history with a draft", func(r *rig) {
			r.typed("one")
			r.keys("alt+enter")
			r.typed("two")
			r.keys("enter")
			r.asked(`say id1 "one\ntwo" terminal`)
			r.typed("draft")
			r.keys("up")
			r.sees("› one ", "\n  two ")
			r.keys("down")
			r.sees("› draft")
		}},
	})
}

// The live region never takes the whole screen, whatever there is, and never more
// than the width: what is printed above needs a row.
func TestTheLiveRegionFits(t *testing.T) {
	r := newRig(t, nil)
	r.begin()
	for i := range 6 {
		r.event("t5",
			event.ActRequested{
				Call: fmt.Sprint("c", i), Tool: "sh", Args: json.RawMessage(`{"x":"` + strings.Repeat("世", 100) + `"}`),
			})
		r.event("",
			event.Perceived{
				Sequence: uint64(10 + i), Writer: "w", Text: strings.Repeat("long ", 100), Disposition: event.Queued,
			})
	}
	r.delta(provider.Delta{Plan: "t5-p1", Attempt: "a", Text: strings.Repeat("words and\nlines ", 50)})
	r.typed("/r")
	r.request("c9", event.Grant{Tool: "mail:send"})
	for w := 20; w <= 120; w += 7 {
		for h := 5; h <= 40; h += 3 {
			r.send(tea.WindowSizeMsg{Width: w, Height: h})
			r.later(time.Second)
			rows := strings.Split(r.view(), "\n")
			if len(rows) >= h {
				t.Fatalf("%dx%d: %d rows:\n%s", w, h, len(rows), r.view())
			}
			for _, row := range rows {
				if ansi.StringWidth(strings.TrimRight(row, " ")) > w {
					t.Fatalf("%dx%d: %d cells: %s", w, h, ansi.StringWidth(row), row)
				}
			}
			if h >= 9 && !strings.Contains(r.view(), "› /r") {
				t.Fatalf("%dx%d: there is nothing to type in:\n%s", w, h, r.view())
			}
		}
	}
}

func TestEarlierTurnsAreShownShortly(t *testing.T) {
	r := newRig(t, func(c *Config) {
		c.Past = []Past{
			{Writer: "me", Text: "mine", Answer: strings.Repeat("line\n\n", 20)},
			{Writer: "ui-ann", Source: "web", Text: "hers", Answer: "limit_rounds: too many", Failed: true},
		}
		e := event.New(ref, "e", "test",
			event.Perceived{Sequence: 5, Writer: "ui-ann", Text: "now", Disposition: event.Started})
		e.Turn = "t5"
		c.Backlog = []follow.Item{{Event: e}}
	})
	r.reads("earlier in this session:", "› mine", "… 34 more lines", "ui-ann in web › hers",
		"limit_rounds: too many", "ui-ann › now")
	r.sees("thinking")
}

func TestWithoutColour(t *testing.T) {
	r := newRig(t, func(c *Config) { c.NoColour = true })
	r.begin()
	r.request("c1")
	r.later(grace)
	r.event("t5", event.ActRequested{Call: "c2", Tool: "sh", Args: json.RawMessage(`{"x":1}`)})
	if v := r.m.View().Content; v == noColour(v) && strings.Contains(v, bold.of("approval")) && strings.Contains(v, "y") {
		return
	}
	t.Errorf("%q", r.m.View().Content)
}

func TestColoursAreTakenOut(t *testing.T) {
	for in, want := range map[string]string{
		"\x1b[1;36ma\x1b[39mb\x1b[m": "\x1b[1ma" + "b\x1b[m",
		"\x1b[31m" + bold.of("x"):    bold.of("x"),
		"\x1b[3mitalic\x1b[23m":      "\x1b[3mitalic\x1b[23m",
		"\x1b[7mr\x1b[27m":           "\x1b[7mr\x1b[27m",
	} {
		if got := noColour(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// The live region becomes lower only when something has been printed above it, if
// need be nothing: the renderer would leave rows of it behind otherwise.
func TestTheRegionBecomesLowerWhenSomethingIsPrinted(t *testing.T) {
	r := newRig(t, nil)
	high := func() int { return strings.Count(r.m.View().Content, "\n") + 1 }
	low := high()
	r.keys("/")
	list := high()
	if list <= low {
		t.Fatalf("the commands take no room: %d rows, %d without them", list, low)
	}
	r.keys("esc", "ctrl+u")
	if n := high(); n != list || !r.m.printer.busy {
		t.Errorf("%d rows, want %d until something is printed; on its way: %v", n, list, r.m.printer.busy)
	}
	r.send(tea.Println(nothing)(), printed{})
	if n := high(); n != low || r.m.printer.busy {
		t.Errorf("%d rows, want %d again; on its way: %v", n, low, r.m.printer.busy)
	}
	r.begin()
	r.request("c1")
	asked := high()
	r.event("t5", event.ActConfirmed{Call: "c1", Outcome: event.Denied, By: "you"})
	if n := high(); n != asked {
		t.Errorf("%d rows, want %d until it is printed that it was refused", n, asked)
	}
	r.send(tea.Println("x")())
	if n := high(); n >= asked {
		t.Errorf("%d rows, want fewer than %d", n, asked)
	}
}

func TestTheArtifactsOfAResultAreThoseOfASandbox(t *testing.T) {
	for data, want := range map[string]int{
		`{"artifacts":[{"path":"out/a.png","ref":"r","bytes":3}]}`: 1, `{"artifacts":[]}`: 0, `{"artifacts":"x"}`: 0,
		`[1]`: 0, ``: 0,
	} {
		if got, leftOut := Artifacts([]byte(data)); len(got) != want || leftOut != nil {
			t.Errorf("%s: %+v, %q left out", data, got, leftOut)
		}
	}
	if _, got := Artifacts([]byte(`{"artifacts":[],"artifacts_left_out":["a: too large"]}`)); len(got) != 1 {
		t.Errorf("%q are left out", got)
	}
}
