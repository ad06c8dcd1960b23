package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/mail"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/submit"
	"skandha.dev/services/skandha/system"
	"skandha.dev/services/test/mailtest"
	"skandha.dev/services/test/natstest"
)

const emailRules = `
rules:
  - name: send
    match: ['^send (?P<what>\S+)$']
    calls:
      - {tool: 'email:send', args: '{"to":["alice@example.org"],"subject":"hello","text":"{{.what}}"}'}
results:
  'email:send': {success: 'it was sent', failure: 'code={{.error.code}} {{.error.message}}'}
  default: {success: '{{.text}}', failure: '{{.error.message}}'}
missing: 'no tool {{.tool}}'
fallback: 'noted'
`

// emailFiles writes the configuration of an agent that sends without being asked, and returns the
// arguments of skandha up.
func emailFiles(t *testing.T, servers *mailtest.Servers, data string) (args []string) {
	t.Helper()
	dir := t.TempDir()
	a := servers.Account(mailtest.Agent)
	config, rules := filepath.Join(dir, "config.yaml"), filepath.Join(dir, "rules.yaml")
	for path, text := range map[string]string{rules: emailRules, config: fmt.Sprintf(`
agents: {main: {permissions: [email.*, network.*]}}
policy: [{tool: "email:send", effect: allow}]
email:
  accounts:
    agent:
      address: %s
      password: %q
      ca_file: %s
      imap: {host: 127.0.0.1, port: %d}
      smtp: {host: 127.0.0.1, port: %d}
listeners:
  email: {inbox: {from: ["*@example.org"], start: all}}
`, a.Address, a.Password, a.CAFile, a.IMAP.Port, a.SMTP.Port)} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return []string{"up", "--data", data, "--config", config, "--provider", "offline", "--offline-rules", rules, "--ui", "off"}
}

// The whole system is killed while it sends. What arrives is counted in the recipient's mailbox.
func TestMailIsSentOnceWhateverDies(t *testing.T) {
	servers := mailtest.Start(t)
	data := t.TempDir()
	restart := killable(t, emailFiles(t, servers, data))
	j := joinRunning(t, data)
	turns, perKill := 8, 4
	if n, err := strconv.Atoi(os.Getenv("SKANDHA_STORM")); err == nil {
		turns = n
	}
	ref := func(n int) subject.Ref {
		return subject.Ref{Agent: "main", Session: subject.Session(fmt.Sprintf("s%d", n))}
	}
	person := submit.Sender{Bus: j.Bus, Writer: "person"}
	for n := range turns {
		in := event.Input{Text: fmt.Sprintf("send letter-%d", n), ID: strconv.Itoa(n)}
		natstest.Eventually(t, "an input is stored", func() bool {
			_, err := person.Say(natstest.Context(t), ref(n), in)
			return err == nil
		})
		if n%perKill == perKill-1 {
			<-time.After(rand.N(80 * time.Millisecond)) //nolint:gosec // somewhere in its work
			restart()
		}
	}
	unknown := 0
	for n := range turns {
		var said string
		natstest.Eventually(t, fmt.Sprintf("turn %d ends", n), func() bool {
			said = ended(t, j, ref(n))
			return said != ""
		})
		arrived := 0
		wants := 0
		if strings.Contains(said, "it was sent") {
			wants = 1
		}
		for _, l := range servers.Await(mailtest.Alice, "", wants) {
			if strings.HasSuffix(strings.TrimSpace(l), fmt.Sprintf("\nletter-%d", n)) {
				arrived++
			}
		}
		switch {
		case strings.Contains(said, "outcome_unknown"):
			unknown++
			t.Logf("turn %d: %s", n, said)
			if arrived > 1 {
				t.Errorf("letter %d arrived %d times", n, arrived)
			}
		case arrived != wants:
			t.Errorf("turn %d: %s; and the letter arrived %d times", n, said, arrived)
		}
	}
	t.Logf("%d turns, %d kills, %d outcomes unknown in the end", turns, turns/perKill, unknown)
	if unknown*20 > turns {
		t.Errorf("%d of %d outcomes are unknown in the end", unknown, turns)
	}
}

// killable runs a command until the test ends. The function kills it and runs it again.
func killable(t *testing.T, args []string) (restart func()) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var cmd *exec.Cmd
	kill := func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	begin := func() {
		cmd = exec.CommandContext(natstest.Context(t), exe, args...)
		cmd.Env = append(os.Environ(), asCommand+"=1")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
	}
	begin()
	t.Cleanup(func() { kill() })
	return func() { kill(); begin() }
}

// Letters are answered while the whole system is killed. The answers are counted in the sender's
// mailbox.
func TestMailIsAnsweredOnceWhateverDies(t *testing.T) {
	servers := mailtest.Start(t)
	data := t.TempDir()
	restart := killable(t, emailFiles(t, servers, data))
	joinRunning(t, data)
	letters, perKill := 8, 4
	if n, err := strconv.Atoi(os.Getenv("SKANDHA_STORM")); err == nil {
		letters = n
	}
	for n := range letters {
		servers.Deliver(mailtest.Bob, mailtest.Agent, fmt.Sprintf("From: bob@example.org\nMessage-ID: <letter-%d@x>\nSubject: s\n\nhello\n", n))
		if n%perKill == perKill-1 {
			<-time.After(rand.N(400 * time.Millisecond)) //nolint:gosec // somewhere in its work
			restart()
		}
	}
	answers := map[string]int{}
	for _, l := range servers.Await(mailtest.Bob, "", letters) {
		m, err := mail.ReadMessage(strings.NewReader(l))
		if err != nil {
			t.Fatal(err)
		}
		answers[m.Header.Get("In-Reply-To")]++
	}
	for n := range letters {
		if id := fmt.Sprintf("<letter-%d@x>", n); answers[id] != 1 {
			t.Errorf("%s was answered %d times", id, answers[id])
		}
	}
}

// joinRunning connects to a system that another process has started, and waits for it.
func joinRunning(t *testing.T, data string) *journal.Journal {
	t.Helper()
	var run system.Run
	natstest.Eventually(t, "the system is up", func() bool {
		b, err := os.ReadFile(filepath.Join(data, bus.RunFile))
		return err == nil && json.Unmarshal(b, &run) == nil && run.URL != ""
	})
	return natstest.Dial(t, bus.Config{URL: run.URL, Token: run.Token, Name: "person"})
}

// ended returns the terminal event of a session's turn; "" if there is none yet.
func ended(t *testing.T, j *journal.Journal, ref subject.Ref) string {
	t.Helper()
	for m, err := range j.Messages(natstest.Context(t), ref, 0) {
		if err != nil {
			return "" // the bus is away
		}
		for _, typ := range []event.Type{event.TypeRecorded, event.TypeTurnFailed} {
			if strings.Contains(string(m.Data), string(typ)) {
				return string(m.Data)
			}
		}
	}
	return ""
}
