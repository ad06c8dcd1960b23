package system_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/submit"
	"skandha.dev/services/skandha/system"
	"skandha.dev/services/test/mailtest"
	"skandha.dev/services/test/natstest"
)

const mailRules = `
rules:
  - name: send
    match: ['^send "(?P<what>[^"]+)" to (?P<to>\S+)$']
    calls:
      - {tool: 'email:send', args: '{"to":["{{.to}}"],"subject":"hello","text":"{{.what}}"}'}
results:
  'email:send': {success: 'it was sent', failure: '{{.error.message}}'}
  default: {success: '{{.text}}', failure: '{{.error.message}}'}
missing: 'no tool {{.tool}}'
fallback: 'noted'
`

// mailSystem starts a system whose agent has an e-mail account.
func mailSystem(t *testing.T, servers *mailtest.Servers) (b *bus.Bus, events chan event.Event) {
	t.Helper()
	dir := t.TempDir()
	a := servers.Account(mailtest.Agent)
	file, rules := filepath.Join(dir, "config.yaml"), filepath.Join(dir, "rules.yaml")
	for path, text := range map[string]string{rules: mailRules, file: fmt.Sprintf(`
agents: {main: {permissions: [email.*, network.*]}}
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
	s, err := system.Start(natstest.Context(t), system.Config{
		Data: filepath.Join(dir, "data"), ConfigFile: file, Sync: "relaxed", Provider: "offline", OfflineRules: rules,
		Log: natstest.Logger(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	j := natstest.Join(t, s, "looker")
	events = make(chan event.Event, 100)
	if _, err := j.Conn().Subscribe("agent.main.>", func(m *nats.Msg) {
		if e, err := event.Decode(m.Data); err == nil {
			events <- e
		}
	}); err != nil {
		t.Fatal(err)
	}
	if err := j.Conn().Flush(); err != nil {
		t.Fatal(err)
	}
	return j.Bus, events
}

// next waits for an event of a type.
func next(t *testing.T, events chan event.Event, want event.Type) event.Event {
	t.Helper()
	for {
		select {
		case e := <-events:
			if e.Type == want {
				return e
			}
		case <-natstest.Context(t).Done():
			t.Fatalf("no event %s", want)
		}
	}
}

func TestMailIsAnsweredInItsThread(t *testing.T) {
	servers := mailtest.Start(t)
	_, events := mailSystem(t, servers)
	servers.Deliver(mailtest.Alice, mailtest.Agent, "From: alice@example.org\nMessage-ID: <1@x>\nSubject: hi\n\nAre you there?\n")
	got := next(t, events, event.TypeRecorded)
	if !strings.HasPrefix(string(got.Session), "mail-") {
		t.Errorf("the turn is in session %s", got.Session)
	}
	answer := servers.Await(mailtest.Alice, "", 1)[0]
	for _, want := range []string{"Subject: Re: hi", "In-Reply-To: <1@x>", "Auto-Submitted: auto-replied", "\nnoted"} {
		if !strings.Contains(answer, want) {
			t.Errorf("the answer has no %q:\n%s", want, answer)
		}
	}
	servers.Await(mailtest.Agent, "Sent", 1)
}

func TestSendingAsksAPerson(t *testing.T) {
	servers := mailtest.Start(t)
	b, events := mailSystem(t, servers)
	ref := subject.Ref{Agent: "main", Session: "s"}
	person := submit.Sender{Bus: b, Writer: "person"}
	if _, err := person.Say(t.Context(), ref, event.Input{Text: `send "good morning" to alice@example.org`}); err != nil {
		t.Fatal(err)
	}
	var asked event.ToolCallRequest
	if err := json.Unmarshal(next(t, events, event.TypeToolCallRequest).Data, &asked); err != nil {
		t.Fatal(err)
	}
	if asked.ToolName != "email:send" || !strings.Contains(string(asked.Args), mailtest.Alice) {
		t.Errorf("asked is %+v", asked)
	}
	if n := len(servers.Letters(mailtest.Alice, "")); n != 0 {
		t.Fatalf("%d letters were sent before anybody approved", n)
	}
	if _, err := person.Answer(t.Context(), ref, event.Confirmation{
		ConfirmationID: asked.ConfirmationID, Hash: asked.Hash, Approved: true,
	}); err != nil {
		t.Fatal(err)
	}
	if got := next(t, events, event.TypeRecorded); !strings.Contains(string(got.Data), "it was sent") {
		t.Errorf("the turn is %s", got.Data)
	}
	if got := servers.Await(mailtest.Alice, "", 1); len(got) != 1 || !strings.Contains(got[0], "good morning") {
		t.Errorf("alice has %q", got)
	}
}
