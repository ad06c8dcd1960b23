package main

import (
	"os/exec"
	"strings"
	"testing"
)

func TestExportLineIsReadByAShellAsItIs(t *testing.T) {
	for _, c := range []struct{ at, token, want string }{
		{"nats://127.0.0.1:4222", "", "nats://127.0.0.1:4222"},
		{"nats://127.0.0.1:4222", "0a1b", "nats://0a1b@127.0.0.1:4222"},
		{"nats://own@127.0.0.1:4222", "0a1b", "nats://own@127.0.0.1:4222"},
		{"nats://127.0.0.1:4222", "it's $HOME; `id` \"x\"", "nats://it%27s%20$HOME;%20%60id%60%20%22x%22@127.0.0.1:4222"},
	} {
		line, err := exportLine(c.at, c.token)
		if err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(t.Context(), "sh", "-c", line+"; printf %s \"$SKANDHA_NATS\"").CombinedOutput()
		if err != nil || string(out) != c.want {
			t.Errorf("%s: a shell reads %q, %v, want %q", line, out, err, c.want)
		}
	}
}

func TestExportLineDoesNotShowTheTokenOfABadURL(t *testing.T) {
	if line, err := exportLine("nats://secret@host:port", ""); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %q, %v", line, err)
	}
}
