package main

import (
	"bufio"
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/creack/pty"

	"skandha.dev/services/skandha/system"
	"skandha.dev/services/uibridge"
	"skandha.dev/services/uibridge/access"
)

// command is the command itself, as people run it.
func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel) // runs after the orderly shutdown
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = []string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH"), asCommand + "=1"}
	return cmd
}

// says runs a command to its end.
func says(t *testing.T, args ...string) (stdout, all string, err error) {
	t.Helper()
	cmd := command(t, args...)
	var out, both bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &both
	err = cmd.Run()
	return out.String(), out.String() + both.String(), err
}

// upOn runs a system and returns what it prints until it is up, and how to end it.
func upOn(t *testing.T, data string, args ...string) (printed string, stop func()) {
	t.Helper()
	return upBy(t, command(t,
		append([]string{"up", "--data", data, "--ready-line", "--no-sandbox", "--provider", "offline"}, args...)...))
}

// upBy is upOn with a command. The test may kill the system instead of stopping it.
func upBy(t *testing.T, cmd *exec.Cmd) (printed string, stop func()) {
	t.Helper()
	var errs bytes.Buffer
	cmd.Stderr = &errs
	pipe, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(pipe)
	for lines.Scan() && lines.Text() != "READY" {
		printed += lines.Text() + "\n"
	}
	if lines.Text() != "READY" {
		_ = cmd.Wait() // why is what it printed
		t.Fatalf("it does not come up: %s%s", printed, errs.String())
	}
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended by itself
		for lines.Scan() {
		}
		// A machine that is slow is warned of; nothing may go wrong.
		err := cmd.Wait()
		killed := err != nil && err.Error() == "signal: killed"
		if err != nil && !killed || strings.Contains(errs.String(), "level=ERROR") {
			t.Errorf("it ended with %v\n%s", err, errs.String())
		}
	}
	t.Cleanup(stop)
	return printed, stop
}

// field is what follows the name on its line.
func field(printed, name string) string {
	_, rest, _ := strings.Cut(printed, name)
	words := strings.Fields(rest)
	if len(words) == 0 {
		return ""
	}
	return words[0]
}

// A user starts a system, learns how to open its page, and finds it again.
func TestThePageIsFound(t *testing.T) {
	data := t.TempDir()
	if _, out, err := says(t, "ui", "--data", data); err == nil || !strings.Contains(out, "make run") {
		t.Errorf("without a system: %v %s", err, out)
	}
	printed, stop := upOn(t, data, "--ui", "127.0.0.1:0")
	page := field(printed, "\n  page ")
	link, all, err := says(t, "ui", "--data", data)
	if at, code, _ := strings.Cut(strings.TrimSpace(link), "#code="); err != nil || at != page || code == "" ||
		!strings.Contains(all, "works once") {
		t.Errorf("skandha ui, for the page %q: %v\n%s", page, err, all)
	}
	if out, all, err := says(t, "status", "--data", data); err != nil || !strings.Contains(out, "page "+page) {
		t.Errorf("skandha status: %v\n%s", err, all)
	}
	// It describes the system that runs, not one that these flags would start.
	out, all, err := says(t, "doctor", "--data", data, "--provider", "openai")
	if err != nil || !strings.Contains(out, "page: "+page) || !strings.Contains(out, "provider: offline rules") ||
		!strings.Contains(out, "view: ") {
		t.Errorf("skandha doctor: %v\n%s", err, all)
	}
	stop()
	if printed, _ := upOn(t, data, "--ui", "off"); strings.Contains(printed, "page") {
		t.Errorf("there is no page, and it prints\n%s", printed)
	}
	if _, out, err := says(t, "ui", "--data", data); err == nil || !strings.Contains(out, "--ui") {
		t.Errorf("without a page: %v %s", err, out)
	}
	if out, all, err := says(t, "status", "--data", data); err != nil || strings.Contains(out, "page") {
		t.Errorf("skandha status without a page: %v\n%s", err, all)
	}
}

// A terminal is shown a link and, once, the owner's token; what is kept, as a service's
// log is, holds no secret, and says where they are.
func TestUpShowsSecretsToATerminalAlone(t *testing.T) {
	data := t.TempDir()
	printed, stop := upOn(t, data, "--ui", "127.0.0.1:0")
	owner := func(data string) string {
		b, err := os.ReadFile(filepath.Join(data, access.TokenFile))
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(b))
	}
	run, err := system.Running(data)
	if err != nil {
		t.Fatal(err)
	}
	for what, s := range map[string]string{
		"the owner's token": owner(data), "the bus's token": run.Token, "a login code": "#code=",
	} {
		if strings.Contains(printed, s) {
			t.Errorf("it prints %s into a pipe:\n%s", what, printed)
		}
	}
	if field(printed, "page's token  kept in") != filepath.Join(data, access.TokenFile) ||
		!strings.Contains(printed, "skandha ui --data ") {
		t.Errorf("it does not say where they are:\n%s", printed)
	}
	stop()
	data = t.TempDir()
	seen := onScreen(t,
		command(t, "up", "--data", data, "--ready-line", "--no-sandbox", "--provider", "offline", "--ui", "127.0.0.1:0"),
		"READY")
	if !strings.Contains(seen, "#code=") || field(seen, "page's token") != owner(data) {
		t.Errorf("a terminal is shown no link, or not the token that is kept:\n%s", seen)
	}
}

// onScreen runs a command in a terminal until it has printed a line, and returns what it
// printed.
func onScreen(t *testing.T, cmd *exec.Cmd, last string) string {
	t.Helper()
	terminal, err := pty.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	var printed string
	lines := bufio.NewScanner(terminal)
	for lines.Scan() && lines.Text() != last {
		printed += lines.Text() + "\n"
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	for lines.Scan() {
	}
	_ = terminal.Close()
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %v\n%s", cmd.Args, err, printed)
	}
	return printed
}

// A port that was asked for is that port, or nothing runs.
func TestAPortThatIsTakenIsSaid(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, out, err := says(t, "up", "--data", t.TempDir(), "--provider", "offline", "--no-sandbox", "--ui", l.Addr().String())
	if err == nil || !strings.Contains(out, "address already in use; choose another with --ui") {
		t.Errorf("%v %s", err, out)
	}
}

func TestTheDoctorLooksAtThePage(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	config := func(text string) string {
		file := filepath.Join(t.TempDir(), "config.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	kept := t.TempDir()
	if err := os.WriteFile(filepath.Join(kept, access.TokenFile), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for about, c := range map[string]struct {
		g    globals
		ok   bool
		want []string
	}{
		"off":            {globals{UI: "off"}, true, []string{"page: off", "--ui"}},
		"the first time": {globals{UI: "127.0.0.1:0"}, true, []string{"page: http://127.0.0.1:0", "will be created"}},
		"later":          {globals{UI: "127.0.0.1:0", Data: kept}, true, []string{"is kept in " + kept}},
		"a port that is taken": {
			globals{UI: l.Addr().String()}, false, []string{"in use", "--ui"},
		},
		"a port of the file that is taken": {
			globals{Config: config("ui: {listen: '" + l.Addr().String() + "'}")}, false, []string{"in use", "--ui"},
		},
		"other machines": {
			globals{
				UI: "0.0.0.0:0", Config: config("ui: {owner: owner-0123456789, tokens: [{name: bot, token: bot-0123456789abc}]}"),
			},
			true,
			[]string{"token is configured", "other configured tokens: 1", "without TLS"},
		},
		"a proxy with TLS": {
			globals{UI: "0.0.0.0:0", Config: config("ui: {url: 'https://agent.example.org'}")},
			true,
			[]string{"will be created"},
		},
		"a wrong file": {
			globals{Config: config("ui: {lisen: x}")}, false, []string{"ui.lisen: unknown key, did you mean listen?"},
		},
		"a missing key": {
			globals{Config: config("ui: {tls_cert: none.pem, tls_key: none.pem}")}, false, []string{"ui.tls_cert", "none.pem"},
		},
		"a wrong address": {globals{UI: "nonsense"}, false, []string{"--ui or SKANDHA_UI: "}},
	} {
		t.Setenv(uibridge.TokenVar, "")
		if c.g.Data == "" {
			c.g.Data = t.TempDir()
		}
		f := c.g.uiFinding(t.Context())
		if f.ok != c.ok {
			t.Errorf("%s: ok is %t: %s; %s", about, f.ok, f.what, f.advice)
		}
		for _, want := range c.want {
			if !strings.Contains(f.what+"; "+f.advice, want) {
				t.Errorf("%s: %s; %s: want %s in it", about, f.what, f.advice, want)
			}
		}
		if strings.Contains(f.advice, "without TLS") != (about == "other machines") {
			t.Errorf("%s: %s", about, f.advice)
		}
	}
}
