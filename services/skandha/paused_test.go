package main

import (
	"errors"
	"os/exec"
	"strings"
	"testing"

	"skandha.dev/pkg/event"
	"skandha.dev/services/internal/turn"
	"skandha.dev/services/test/natstest"
)

// command runs a slash command in a session to its end.
func (w *world) command(session, name string) {
	w.t.Helper()
	items, err := w.c.Follow(w.t.Context(), w.ref(session))
	if err != nil {
		w.t.Fatal(err)
	}
	seq, err := w.c.Run(w.t.Context(), w.ref(session), event.Command{Name: name})
	if err != nil {
		w.t.Fatal(err)
	}
	in := turn.Input{Sequence: seq}
	if _, err := in.Follow(turn.Items(natstest.Context(w.t), items), nil); err != nil {
		w.t.Fatal(err)
	}
}

// pipes runs a conversation with lines of input.
func (w *world) pipes(session, lines string) (out, errs string, code int) {
	w.t.Helper()
	cmd := command(w.t, "chat", "--data", w.data, "-s", session)
	cmd.Stdin = strings.NewReader(lines)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		w.t.Fatal(err)
	}
	return stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()
}

// A conversation with a paused session goes on to the line that resumes it, and shows what waited.
func TestPipedChatResumesAPausedSession(t *testing.T) {
	w := newWorld(t)
	w.command("held", "pause")
	out, errs, code := w.pipes("held", "one\ntwo\n/resume\nthree\n")
	if code != 0 || strings.Count(errs, "the session is paused; the input waits until /resume") != 2 ||
		!inOrder(out, "Resumed", "echo: one", "echo: two", "echo: three") {
		t.Errorf("exit code %d\n%s\n%s", code, out, errs)
	}
	w.command("held", "pause")
	out, errs, code = w.pipes("held", "four\n")
	if code != 1 || strings.Contains(out, "echo: four") || !strings.Contains(errs, "1 input not answered: the session is paused") ||
		!strings.Contains(errs, "sessions resume held --agent main") {
		t.Errorf("exit code %d\n%s\n%s", code, out, errs)
	}
}

func inOrder(all string, parts ...string) bool {
	for _, p := range parts {
		_, rest, found := strings.Cut(all, p)
		if !found {
			return false
		}
		all = rest
	}
	return true
}

// A session that is paused in the middle of a turn is resumed by the next line.
func TestPipedChatIsPausedInTheMiddle(t *testing.T) {
	w := newWorld(t)
	w.plug(func() (any, error) {
		w.command("middle", "pause")
		return "worked", nil
	})
	out, errs, code := w.pipes("middle", "call kit:answer {}\n/resume\n")
	if code != 0 || !inOrder(out, "Resumed", "worked") || !strings.Contains(errs, "the input waits until /resume") {
		t.Errorf("exit code %d\n%s\n%s", code, out, errs)
	}
}

// A question to a paused session is refused at once, and says how the session is resumed.
func TestAPausedSessionRefusesAQuestion(t *testing.T) {
	w := newWorld(t)
	w.command("asked", "pause")
	_, all, err := says(t, "ask", "--data", w.data, "-s", "asked", "hello")
	exit := (*exec.ExitError)(nil)
	if !errors.As(err, &exit) || exit.ExitCode() != 3 || !strings.Contains(all, "asked is paused by ui-web") || !strings.Contains(all, "sessions resume asked --agent main; nothing was sent") {
		t.Errorf("%v\n%s", err, all)
	}
	if out, all, err := says(t, "ask", "--data", w.data, "-s", "asked", "/resume"); err != nil || !strings.Contains(out, "Resumed") {
		t.Errorf("%v\n%s", err, all)
	}
}
