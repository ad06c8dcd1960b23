package main

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"skandha.dev/pkg/event"
	"skandha.dev/services/internal/follow"
	"skandha.dev/services/internal/turn"
	"skandha.dev/services/test/natstest"
)

func TestAPlainPromptEndsWhenOthersHaveDecided(t *testing.T) {
	w := newWorld(t)
	w.plug(nil)
	items, err := w.c.Follow(t.Context(), w.ref("both"))
	if err != nil {
		t.Fatal(err)
	}
	s := w.chat("--plain", "-s", "both")
	s.await("session main/both")
	for _, c := range []struct {
		text     string
		approved bool
		want     []string
	}{
		{"one", true, []string{"approved by ui-web", `"did one"`}},
		{"two", false, []string{"refused by ui-web: not today", "denied"}},
	} {
		s.keys(`call kit:risky {"text":"`+c.text+`"}`, enter)
		s.await(`"text": "`+c.text+`"`, "Approve? [y/N")
		if err := w.c.Confirm(t.Context(), w.ref("both"), awaitEvent[event.ToolCallRequest](t, items), c.approved,
			map[bool]string{false: "not today"}[c.approved]); err != nil {
			t.Fatal(err)
		}
		s.await(c.want...)
	}
	s.keys("hello", enter)
	s.await("echo: hello")
}

func TestAPlainPromptEndsWithItsTurn(t *testing.T) {
	w := newWorld(t)
	w.plug(nil)
	s := w.chat("--plain", "-s", "cut")
	s.await("session main/cut")
	s.keys(`call kit:risky {"text":"one"}`, enter)
	s.await("Approve? [y/N")
	s.keys(ctrlC)
	s.await("ancelled")
	s.keys("hello", enter)
	s.await("echo: hello")

	s = w.terminal([]string{"TERM=xterm-256color"}, "ask", "-s", "once", `call kit:risky {"text":"one"}`)
	s.await("Approve? [y/N")
	s.keys(ctrlC)
	s.await("skandha: cancelled")
	if code := s.leaves(); code != 130 {
		t.Errorf("exit code %d", code)
	}
}

// What was typed before a question is no answer to it, but what is said next.
func TestWhatWasTypedBeforeAQuestionIsNoAnswer(t *testing.T) {
	in, person := io.Pipe()
	lines := newLineReader(in)
	lines.next()
	if _, err := io.WriteString(person, "yes\nand more\n"); err != nil {
		t.Fatal(err)
	}
	typed := func(n int) func() bool { return func() bool { return len(lines.out) == n } }
	natstest.Eventually(t, "both lines are read", typed(2))
	var out bytes.Buffer
	w := &waiter{lines: lines, interactive: true, out: &out, err: &out, in: turn.Input{Turn: "t1"}}
	q := event.ToolCallRequest{ToolName: "kit:risky", ConfirmationID: "t1-p1-c1"}
	items := make(chan follow.Item)
	asked := make(chan error)
	go func() { asked <- w.confirm(t.Context(), q, items) }()
	natstest.Eventually(t, "neither is taken for an answer", typed(0))
	e := event.New(w.ref, "e1", "test", event.ActConfirmed{Call: q.ConfirmationID, Outcome: event.Expired})
	items <- follow.Item{Event: e}
	if err := <-asked; err != nil || !strings.Contains(out.String(), "expired: no answer in time") {
		t.Errorf("%v, %s", err, out.String())
	}
	for _, want := range []string{"yes\n", "and more\n"} {
		if l, _ := lines.kept(); l.text != want {
			t.Errorf("%q is kept, want %q", l.text, want)
		}
	}
}
