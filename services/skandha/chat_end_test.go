package main

import (
	"strings"
	"syscall"
	"testing"

	"github.com/creack/pty"

	"skandha.dev/services/test/natstest"
)

// A terminal that does not say how large it is shows nothing, but the conversation ends in it.
func TestChatEndsInATerminalWithoutASize(t *testing.T) {
	w, cooked := newWorld(t), newMode(t)
	for name, end := range map[string]func(s *screen){
		"Ctrl-D":  func(s *screen) { s.keys(ctrlD) },
		"SIGTERM": func(s *screen) { s.signal(syscall.SIGTERM) },
		"SIGINT":  func(s *screen) { s.signal(syscall.SIGINT) },
		"SIGHUP":  func(s *screen) { s.signal(syscall.SIGHUP) },
	} {
		t.Run(name, func(t *testing.T) {
			s := w.sizedTerminal(&pty.Winsize{}, []string{"TERM=xterm-256color"}, "chat", "-s", "small-"+strings.ToLower(name))
			natstest.Eventually(t, "the terminal is raw", func() bool { return mode(t, s.pty) != cooked })
			end(s)
			if code := s.leaves(); code != 0 {
				t.Errorf("exit code %d", code)
			}
			if after := mode(t, s.pty); after != cooked {
				t.Errorf("the terminal was\n%+v\nand is\n%+v", cooked, after)
			}
		})
	}
}

// Without its terminal, a conversation ends.
func TestChatEndsWithItsTerminal(t *testing.T) {
	w, cooked := newWorld(t), newMode(t)
	cmd := command(t, "chat", "-s", "lost", "--data", w.data)
	cmd.Env = append(cmd.Env, "TERM=xterm-256color")
	p, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 24, Cols: 80}) // nobody reads it, so that closing it closes it
	if err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, "the terminal is raw", func() bool { return mode(t, p) != cooked })
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // how it ends, nobody sees
}
