package main

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/follow"
	"skandha.dev/services/internal/turn"
)

func TestTerminalIsPlainWhereItShouldBe(t *testing.T) {
	w := newWorld(t)
	for name, s := range map[string]*screen{
		"TERM=dumb": w.chatWith([]string{"TERM=dumb"}, "-s", "p2"),
		"--plain":   w.chat("--plain", "-s", "p3"),
	} {
		s.await("session main/p")
		s.keys("hello", enter)
		s.await("echo: hello")
		s.keys("/help", enter)
		s.await("/quit")
		s.keys("call a\x1b]0;evil {}", enter) // a tool's name
		s.await("unknown_tool")
		s.keys("/quit", enter)
		s.leaves()
		s.mu.Lock()
		raw := s.raw.String()
		s.mu.Unlock()
		if strings.Contains(raw, "\x1b[?") || strings.Contains(raw, "\x1b]") ||
			name != "--plain" && strings.Contains(raw, "\x1b") {
			t.Errorf("%s: %q", name, raw)
		}
	}
}

var colour = regexp.MustCompile(`\x1b\[[0-9;]*(3[0-7]|4[0-7]|9[0-7]|38|48)[0-9;]*m`)

func TestTerminalHasNoColourWhereNoneIsWanted(t *testing.T) {
	w := newWorld(t)
	w.plug(nil)
	s := w.chatWith([]string{"TERM=xterm-256color", "NO_COLOR=yes"}, "-s", "grey")
	s.await("session main/grey")
	s.keys(`call kit:risky {"text":"x"}`, enter)
	s.await("y approve")
	s.keys("y", enter)
	s.await("✓ kit:risky")
	s.mu.Lock()
	raw := s.raw.String()
	s.mu.Unlock()
	if found := colour.FindString(raw); found != "" || !strings.Contains(raw, "\x1b[1m") {
		t.Errorf("%q in %q", found, raw)
	}
}

// However it ends, the terminal is as it was: cooked, with a cursor.
func TestTerminalIsGivenBack(t *testing.T) {
	w, cooked := newWorld(t), newMode(t)
	for name, end := range map[string]func(s *screen){
		"Ctrl-D":  func(s *screen) { s.keys(ctrlD) },
		"SIGTERM": func(s *screen) { s.signal(syscall.SIGTERM) },
		"SIGINT":  func(s *screen) { s.signal(syscall.SIGINT) },
		"SIGHUP":  func(s *screen) { s.signal(syscall.SIGHUP) },
	} {
		t.Run(name, func(t *testing.T) {
			s := w.chat("-s", "end-"+strings.ToLower(name))
			s.await("session main/end", "›")
			if mode(t, s.pty) == cooked {
				t.Fatal("the terminal is not raw: this test sees nothing")
			}
			end(s)
			if code := s.leaves(); code != 0 {
				t.Errorf("exit code %d", code)
			}
			if after := mode(t, s.pty); after != cooked {
				t.Errorf("the terminal was\n%+v\nand is\n%+v", cooked, after)
			}
			s.until("a cursor", func(string) bool { return s.cursor() })
		})
	}
}

// Piped, every line is an input, the answers come out, and the exit code tells.
func TestChatIsPiped(t *testing.T) {
	w := newWorld(t)
	w.plug(nil)
	for _, c := range []struct {
		name, in, out, err string
		args               []string
		code               int
	}{
		{name: "answers", in: "hello\n/cancel\n\nbye", out: "echo: hello\nNothing was running.\necho: bye\n"},
		{name: "leaves", in: "/quit\nhello\n", out: ""},
		{
			name: "refuses what nobody can be asked about", in: `call kit:risky {"text":"x"}`, code: 3,
			err: "· kit:risky denied", out: "denied",
		},
		{name: "approves", args: []string{"-y"}, in: `call kit:risky {"text":"x"}`, out: `"did x"`},
		{
			name: "sends again what failed", in: "/retry\nfail internal\n/help\n/retry\n", code: 1,
			err: "nothing to retry: no turn has failed here\n" +
				"skandha: the turn failed (provider_failed): provider: internal: as the test asked\nskandha: the turn failed",
		},
		{
			name: "has nothing to send again of a turn that succeeded", in: "hello\n/retry\n", out: "echo: hello\n",
			err: "nothing to retry: no turn has failed here",
		},
		{
			name: "fails", in: "fail internal\nhello\n", out: "echo: hello\n", code: 1, err: "the turn failed (provider_failed)",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := exec.Command(os.Args[0], append([]string{"chat", "--data", w.data, "-s", "pipe"}, c.args...)...)
			cmd.Env = []string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH"), asCommand + "=1", "TERM=xterm-256color"}
			cmd.Stdin = strings.NewReader(c.in)
			var stdout, stderr bytes.Buffer
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			err := cmd.Run()
			if got := cmd.ProcessState.ExitCode(); got != c.code {
				t.Errorf("exit code %d, want %d: %v", got, c.code, err)
			}
			if !strings.Contains(stdout.String(), c.out) || !strings.Contains(stderr.String(), c.err) ||
				strings.Contains(stdout.String(), "\x1b") {
				t.Errorf("stdout %q, want %q\nstderr %q, want %q", stdout.String(), c.out, stderr.String(), c.err)
			}
		})
	}
}

func TestAnAnswerThatIsMissingIsExplained(t *testing.T) {
	w := waiter{ref: subject.Ref{Agent: "main", Session: "s"}, in: turn.Input{Sequence: 5}}
	if got := w.missing(""); !strings.Contains(got, "no core has started on the input") {
		t.Errorf("before it was taken up: %q", got)
	}
	if got := w.missing("the disk is full"); got != ": the disk is full" {
		t.Errorf("with a fault: %q", got)
	}
	for _, step := range []struct {
		p    event.Payload
		want string
	}{
		{event.Perceived{Sequence: 5, Disposition: event.Started}, "agents.main.provider"},
		{event.PlanRequested{Plan: "t5-p1"}, ""},
	} {
		e := event.New(w.ref, "e", "test", step.p)
		e.Turn = "t5"
		w.in.See(e)
		if _, err := w.show(follow.Item{Event: e}); err != nil {
			t.Fatal(err)
		}
		if got := w.missing(""); !strings.Contains(got, step.want) || step.want == "" && got != "" {
			t.Errorf("after %s: %q, want %q", e.Type, got, step.want)
		}
	}
}
