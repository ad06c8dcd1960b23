package main

import (
	"os/exec"
	"strings"
	"testing"
)

func TestExportLineIsReadByAShellAsItIs(t *testing.T) {
	for _, c := range []struct{ at, token, data, want string }{
		{"nats://127.0.0.1:4222", "", "", "nats://127.0.0.1:4222"},
		{"nats://127.0.0.1:4222", "0a1b", "/home/it's $HOME/.data", "nats://0a1b@127.0.0.1:4222"},
		{"nats://own@127.0.0.1:4222", "0a1b", "/home/it's $HOME/.data", "nats://own@127.0.0.1:4222"},
		{"nats://127.0.0.1:4222", "it's $HOME; `id` \"x\"", "", "nats://it%27s%20$HOME;%20%60id%60%20%22x%22@127.0.0.1:4222"},
	} {
		line, err := exportLine(c.at, c.token, c.data)
		if err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(t.Context(), "sh", "-c",
			line+"; printf '%s %s' \"$SKANDHA_NATS\" \"$SKANDHA_DATA\"").CombinedOutput()
		if err != nil || string(out) != c.want+" "+c.data {
			t.Errorf("%s: a shell reads %q, %v, want %q", line, out, err, c.want)
		}
	}
}

func TestExportLineDoesNotShowTheTokenOfABadURL(t *testing.T) {
	if line, err := exportLine("nats://secret@host:port", "", ""); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %q, %v", line, err)
	}
}
