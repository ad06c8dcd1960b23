package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/commands"
	"skandha.dev/services/internal/follow"
	"skandha.dev/services/test/natstest"
)

func TestTerminalStreamsAnAnswer(t *testing.T) {
	w := newWorld(t)
	items, err := w.c.Follow(t.Context(), w.ref("talk"))
	if err != nil {
		t.Fatal(err)
	}
	s := w.chat("-s", "talk")
	s.await("session main/talk", "›")
	s.keys("hang", enter) // what is streamed comes from the test, piece by piece
	s.await("thinking", "Ctrl-C cancels")
	asked := awaitEvent[event.PlanRequested](t, items)
	delta := func(n int, d provider.Delta) {
		d.Plan, d.Attempt, d.N = asked.Plan, asked.Attempt, n
		e := event.New(w.ref("talk"), fmt.Sprint("d", n), "test", deltaPayload(d))
		if err := w.c.Journal.Publish(t.Context(), w.ref("talk").Stream(), nil, e.AppendJSON(nil)); err != nil {
			t.Fatal(err)
		}
	}
	delta(0, provider.Delta{Reasoning: "let me think"})
	s.await("let me think")
	delta(1, provider.Delta{Text: "**first** words"})
	s.await("first words")
	s.gone("let me think")
	s.keys("and then this", enter)
	s.await("waits › and then this")
	var many strings.Builder
	for i := range 40 {
		fmt.Fprintf(&many, "\n\nline %d", i)
	}
	delta(2, provider.Delta{Text: many.String()})
	s.await("lines above", "line 39")
	s.keys(ctrlC)
	s.await("ancelled by", "echo: and then this", "1 round")

	s.keys("stream 300 words", enter)
	s.until("the end of the turn", func(screen string) bool {
		return strings.Contains(screen, "word300") && strings.Contains(screen, "1 round")
	})
	s.keys("drawn after all that")
	s.await("› drawn after all that")
	for _, once := range []string{"word1 ", "word151 ", "word299 ", "echo: and then this", "› stream 300", "› hang"} {
		s.until(fmt.Sprintf("%q once", once), func(string) bool { return strings.Count(s.all(), once) == 1 })
	}
	if all := s.all(); strings.Contains(all, "line 39") {
		t.Errorf("what was streamed and never said stays:\n%s", all)
	}
	s.keys(ctrlC)
	s.gone("drawn after")
	s.keys("/quit", enter)
	if code := s.leaves(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if !strings.Contains(strings.Join(strings.Fields(s.all()), " "),
		"To continue: skandha chat -a main -s talk --data "+w.data) {
		t.Errorf("it does not say how to go on:\n%s", s)
	}
}

type deltaPayload provider.Delta

func (deltaPayload) EventType() event.Type { return event.TypeDelta }

func TestTerminalAsksForApproval(t *testing.T) {
	w := newWorld(t)
	w.plug(nil)
	s := w.chat("-s", "ask")
	s.await("session main/ask")
	call := func(text string) { s.keys(`call kit:risky {"text":"`+text+`"}`, enter) }

	call("one")
	s.await("kit:risky of the plugin kit wants to run", `"text": "one"`, "⚠", "y approve")
	s.keys("e")
	s.await("description: Does what cannot be undone.")
	s.keys("y")
	s.await("Enter approves")
	s.keys(enter)
	s.await("kit:risky approved by you", `"did one"`)
	s.gone("╭")

	call("two")
	s.await(`"text": "two"`, "n refuse")
	s.keys("n", enter)
	s.await("kit:risky refused by you", "kit:risky failed: denied")

	call("three")
	s.await(`"text": "three"`, "n refuse")
	s.keys("r")
	s.await("why not ›")
	s.keys("too risky", enter)
	s.await("kit:risky refused by you: too risky")

	call("four")
	s.await(`"text": "four"`, "a always")
	s.keys("a")
	s.await("from now on in this session", "1 ")
	s.keys("1")
	s.await("Enter approves this call, and from now on")
	s.keys(enter)
	s.await("approved by you, and from now on", `"did four"`)
	s.keys(ctrlL)
	s.gone("did four")
	call("four")
	s.await(`"did four"`)
	if strings.Contains(s.String(), "wants to run") {
		t.Errorf("it was asked again:\n%s", s)
	}
}

// What is typed or pasted while a request appears answers nothing.
func TestTerminalApprovesNothingByAccident(t *testing.T) {
	w := newWorld(t)
	w.plug(nil)
	s := w.chat("-s", "busy")
	s.await("session main/busy")
	s.keys("yyy")
	s.await("› yyy")
	w.say("busy", `call kit:risky {"text":"x"}`)
	s.await("wants to run", "Esc: answer this", "› yyy")
	s.keys("y")
	s.await("› yyyy")
	s.keys(escape)
	s.await("y approve")
	s.keys(paste("y\r\ny"))
	s.await("› yyyyy", "wants to run")
	if all := s.all(); strings.Contains(all, "approved") {
		t.Fatalf("it was answered:\n%s", all)
	}
	s.keys(escape)
	s.await("n refuse")
	s.keys("n", enter)
	s.await("refused by you")
}

func TestTerminalSeesWhatOthersDo(t *testing.T) {
	w := newWorld(t)
	w.plug(nil)
	items, err := w.c.Follow(t.Context(), w.ref("shared"))
	if err != nil {
		t.Fatal(err)
	}
	s := w.chat("-s", "shared")
	s.await("session main/shared")
	w.say("shared", `call kit:risky {"text":"x"}`)
	s.await("ui-web in web › call kit:risky", "y approve")
	again := w.chat("-s", "shared") // it comes when the request is there already
	again.await("kit:risky of the plugin kit wants to run", "y approve")

	q := awaitEvent[event.ToolCallRequest](t, items)
	if _, err := w.c.Answer(t.Context(), w.ref("shared"), event.Confirmation{
		ConfirmationID: q.ConfirmationID, Hash: q.Hash, Approved: true, Source: "web",
	}); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*screen{s, again} {
		s.await("kit:risky approved by ui-web in web", `"did x"`)
		s.gone("╭")
	}
	s.keys("hello", enter)
	again.await("in terminal › hello", "echo: hello")
	if _, err := w.c.Command(t.Context(), w.ref("shared"), "help"); err != nil {
		t.Fatal(err)
	}
	again.reads("— /help by ui-web")

	later := w.chat("-s", "shared")
	later.reads("earlier in this session", "ui-web in web › call kit:risky", "echo: hello")
}

// awaitEvent waits for the next event with a payload.
func awaitEvent[P event.Payload](t *testing.T, items <-chan follow.Item) (p P) {
	t.Helper()
	deadline := time.After(natstest.Patience)
	for {
		select {
		case i := <-items:
			if i.Event.Type != p.EventType() {
				continue
			}
			if err := i.Event.DataAs(any(&p).(event.Payload)); err != nil {
				t.Fatal(err)
			}
			return p
		case <-deadline:
			t.Fatalf("there was no %s", p.EventType())
		}
	}
}

func TestTerminalCancelsAndLeaves(t *testing.T) {
	s := newWorld(t).chat("-s", "stop")
	s.await("session main/stop")
	s.keys("hang", enter)
	s.await("thinking")
	s.keys(ctrlC)
	s.await("ancelled by")
	s.keys("x") // it is no second Ctrl-C now
	s.await("› x")
	s.keys(ctrlC + ctrlC) // the second must come soon
	if code := s.leaves(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestTerminalCompletesCommands(t *testing.T) {
	s := newWorld(t).chat("-s", "slash")
	s.await("session main/slash")
	s.keys("/")
	for _, c := range commands.All()[:1] {
		s.await("/"+c.Name, c.Help)
	}
	s.keys("re")
	s.await("/replay [n | turn]", "/reset")
	s.gone("/metrics")
	s.keys("pl", tab)
	s.await("› /replay")
	s.keys("2", enter)
	s.await("› /replay 2", "This session has no turns yet.")
	s.keys("/help now", enter)
	s.await("/help takes no arguments")
	s.keys("/sudo", enter)
	s.await("Unknown command /sudo")
	s.keys("/halp", enter)
	s.await("did you mean /help?")
	s.keys("/pl", tab)
	s.await("› /plugins")
	s.keys(enter)
	s.await("No plugins are registered.")
	s.keys(ctrlD)
	s.leaves()
}

func TestTerminalEditsSeveralLines(t *testing.T) {
	s := newWorld(t).chat("-s", "lines")
	s.await("session main/lines")
	s.keys("one", ctrlJ, "two", escape+enter, "three")
	s.await("› one\n  two\n  three")
	s.keys(enter)
	s.await("echo: one")
	s.keys(paste("four\r\nfive\rsix \x1b[2J\x07 \u202ex"))
	s.await("› four\n  five\n  six")
	if strings.Contains(s.all(), "echo: four") {
		t.Fatalf("what is pasted was sent:\n%s", s)
	}
	s.keys(enter)
	s.await("echo: four", "six")
}

func TestTerminalRemembersWhatWasTyped(t *testing.T) {
	w := newWorld(t)
	s := w.chat("-s", "memory")
	s.await("session main/memory")
	s.keys("first", enter)
	s.await("echo: first")
	s.keys(" secret", enter)
	s.await("echo: secret")
	s.keys("a\nb", enter)
	s.await("echo: a")
	s.keys(ctrlD)
	s.leaves()
	info, err := os.Stat(filepath.Join(w.data, "chat_history"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v; it must be its owner's alone", info, err)
	}

	s = w.chat("-s", "memory2")
	s.await("session main/memory2")
	s.keys("draft", up)
	s.await("› a\n  b")
	s.keys(up, up) // through its lines, to the one before
	s.await("› first")
	s.keys("\x1b[B", "\x1b[B", "\x1b[B", "\x1b[B")
	s.await("› draft")
	if strings.Contains(s.all(), "secret") {
		t.Errorf("a line that begins with a space was kept:\n%s", s)
	}
}

// After the terminal has become narrower and wider again, everything is there once:
// nothing is left of how it was drawn before.
func TestTerminalIsResized(t *testing.T) {
	w := newWorld(t)
	w.plug(nil)
	s := w.chat("-s", "size")
	s.await("session main/size")
	s.keys(`call kit:risky {"text":"`+strings.Repeat("long ", 20)+`"}`, enter)
	s.await("y approve", "╭", "╰")
	for _, size := range [][2]int{{40, 24}, {40, 12}, {80, 24}, {60, 10}, {100, 30}, {80, 24}} {
		s.resize(size[0], size[1])
		s.until("one prompt of the new width", func(screen string) bool {
			return strings.Count(screen, "╭─") == 1 && strings.Count(screen, "╰") == 1 &&
				strings.Count(screen, "waiting for your answer") == 1 &&
				strings.Contains(screen, "╭─ approval "+strings.Repeat("─", 3)) && len([]rune(lineWith(screen, "╭─"))) == size[0]-1
		})
	}
	s.keys("y", enter)
	s.await("approved by you")
	s.gone("╭")
	s.resize(40, 12)
	s.until("one prompt", func(screen string) bool { return strings.HasSuffix(strings.TrimSpace(screen), "›") })
	s.keys("still here", enter)
	s.await("echo: still here")
}

func lineWith(screen, text string) string {
	for line := range strings.SplitSeq(screen, "\n") {
		if strings.Contains(line, text) {
			return line
		}
	}
	return ""
}

// Nothing that others have written reaches the terminal as more than text.
func TestTerminalIsNotSpokenToByStrangers(t *testing.T) {
	const hostile = "A\x1b]52;c;aGFja2Vk\x07B\x1b]8;;http://evil\x1b\\C\x1b]8;;\x1b\\D\x1b]0;pwned\x07E\x1b[13;37HF\x1b[2JG\u009b13;37HH\u202eI\rJ\x1bcK"
	w := newWorld(t)
	w.plug(func() (any, error) { return map[string]string{"text": hostile}, nil })
	s := w.chat("-s", "evil")
	s.await("session main/evil")

	w.say("evil", hostile) // an input, and the model's answer
	s.until("it twice", func(screen string) bool { return strings.Count(screen, "A�]52;c;aGFja2Vk�B") == 2 })
	w.say("evil", "call kit:answer {}")
	s.await("✓ kit:answer")
	w.say("evil", "call "+strings.ReplaceAll(strings.ReplaceAll(hostile, " ", ""), "\r", "")+" {}") // a tool's name
	s.await("⟨U+001B⟩]52", "unknown_tool")
	w.say("evil", `call kit:risky {"text":"pay `+"\u202e\u200b"+`bob\u001b[2J"}`) // arguments
	s.await("⟨U+202E⟩⟨U+200B⟩bob", "y approve")
	s.keys("e")
	s.await("exactly as they will be used")
	s.keys("y", enter)
	s.await("approved by you")
	w.say("evil", "fail internal")
	s.await("Failed (provider_failed)")

	ref := w.ref("evil")
	w.say("evil", "hang")
	s.await("› hang", "thinking") // of this turn, not of the one before
	printed := event.New(ref, "1", "test", out(tool.Output{Call: "x", Text: hostile}))
	if err := w.c.Journal.Publish(t.Context(), ref.Stream(), nil, printed.AppendJSON(nil)); err != nil {
		t.Fatal(err)
	}
	s.keys(ctrlC)
	s.await("ancelled by")

	s.mu.Lock()
	raw := bytes.Clone(s.raw.Bytes())
	s.mu.Unlock()
	for _, bad := range []string{
		"\x1b]52", "\x1b]8;", "\x1b]0;", "pwned\x07", "\x1b[13;37H", "\x1b[2J", "\u009b", "\x1bc", "\u202e",
	} {
		if i := bytes.Index(raw, []byte(bad)); i >= 0 {
			t.Errorf("%q reached the terminal: %q", bad, raw[max(i-40, 0):min(i+40, len(raw))])
		}
	}
}

type out tool.Output

func (out) EventType() event.Type { return event.TypeOutput }

func TestTerminalNoticesThatTheBusIsAway(t *testing.T) {
	addr := fmt.Sprintf("127.0.0.1:%d", natstest.FreePort(t))
	w := newWorldAt(t, addr)
	s := w.chat("-s", "away")
	s.await("session main/away")
	s.keys("hello", enter)
	s.await("echo: hello")
	w.sys.Stop()
	s.await("The bus is unreachable.", "the bus is unreachable")
	s.keys("are you there?", enter)
	s.await("sending › are you there?")
	w.start(addr)
	s.await("The bus is back", "echo: are you there?")
	if all := s.all(); strings.Contains(all, "level=WARN") {
		t.Errorf("the log is among the conversation:\n%s", all)
	}
	s.keys(ctrlD)
	s.reads("warnings are in ", "chat.log")
}
