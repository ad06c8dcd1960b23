package email_test

import (
	"strings"
	"testing"
	"time"

	"skandha.dev/services/internal/mail/letter"
	"skandha.dev/services/listener/email"
	"skandha.dev/services/test/mailtest"
	"skandha.dev/services/test/natstest"
)

func TestALetterBecomesAnInput(t *testing.T) {
	t.Parallel()
	servers, b := mailtest.Start(t), newBus(t)
	servers.Deliver(mailtest.Alice, mailtest.Agent, simple("alice@example.org", "old@x", "before the first start"))
	servers.Await(mailtest.Agent, "", 1)
	r := start(t, b, servers.Account(mailtest.Agent), email.Config{Agent: "helper", MarkSeen: true, MoveTo: "Done"})
	r.await(t)
	servers.Deliver(mailtest.Alice, mailtest.Agent, write("From: Alice <alice@example.org>", "To: agent@example.org",
		"Message-ID: <1@x>", "Subject: =?utf-8?Q?Gr=C3=BC=C3=9Fe?=", "Content-Type: multipart/mixed; boundary=b", "",
		"--b", "", "Hello", "--b", "Content-Type: text/csv; name=\"a b.csv\"", "", "1,2", "--b--"))
	in := r.inputs(t, 1)[0]
	if in.Agent != "helper" || !strings.HasPrefix(string(in.Session), "mail-") || in.Origin != "email:alice@example.org" ||
		in.Source != "email:agent@example.org" || len(in.Files) != 1 || in.Files[0].Name != "a b.csv" || in.Files[0].MediaType != "text/csv" ||
		!strings.HasPrefix(in.Text, "E-mail from: Alice <alice@example.org>\nTo: agent@example.org\nSubject: Grüße\n") ||
		!strings.HasSuffix(in.Text, "\n\nHello") || !strings.Contains(in.ReplyTo, `"id":"1@x"`) {
		t.Errorf("the input is %+v", in)
	}
	content, err := b.GetArtifact(t.Context(), in.Files[0].Ref)
	if err != nil || !strings.HasPrefix(string(content), "1,2") {
		t.Errorf("the attachment is %q, %v", content, err)
	}
	servers.Await(mailtest.Agent, "Done", 1)
	natstest.Eventually(t, "only the letter that was there before is in the inbox", func() bool {
		return len(servers.Letters(mailtest.Agent, "")) == 1
	})
}

func TestAThreadIsASession(t *testing.T) {
	t.Parallel()
	servers, b := mailtest.Start(t), newBus(t)
	r := start(t, b, servers.Account(mailtest.Agent), email.Config{})
	r.await(t)
	say := func(lines ...string) {
		t.Helper()
		servers.Deliver(mailtest.Alice, mailtest.Agent, write(append([]string{"From: alice@example.org"}, append(lines, "", "x")...)...))
	}
	say("Message-ID: <1@x>")
	first := r.inputs(t, 1)[0].Session
	thread := letter.Thread(strings.TrimPrefix(string(first), "mail-"))
	say("Message-ID: <2@x>", "References: <1@x> <other@x>")
	r.inputs(t, 2)
	say("Message-ID: <3@x>", "In-Reply-To: <"+letter.NewID(mailtest.Agent, "key", thread)+">") // the agent's answer
	r.inputs(t, 3)
	say("Message-ID: <4@x>")
	in := r.inputs(t, 4)
	if in[1].Session != first || in[2].Session != first || in[3].Session == first {
		t.Errorf("the sessions are %s, %s, %s, %s; want one for the first three", first, in[1].Session, in[2].Session, in[3].Session)
	}
}

func TestWhoWakesTheAgent(t *testing.T) {
	t.Parallel()
	servers, b := mailtest.Start(t), newBus(t)
	r := start(t, b, servers.Account(mailtest.Agent), email.Config{
		From: []string{"alice@*", "BOB@example.org"}, AuthServer: "mx.example.org",
	})
	r.await(t)
	const passed = "Authentication-Results: mx.example.org; dmarc=pass"
	ignored := [][]string{
		{"From: eve@evil.example", passed},
		{"From: alice@example.org", "Authentication-Results: mx.example.org; dmarc=fail"},
		{"From: alice@example.org"},
		{"From: alice@example.org, eve@evil.example", passed},
		{"From: alice@example.org", passed, "Auto-Submitted: auto-replied"},
		{"From: alice@example.org", passed, "List-Id: <l.example.org>"},
		{"From: alice@example.org", passed, "Content-Type: multipart/report; boundary=x"},
		{"From: agent@example.org", passed},
	}
	for _, lines := range ignored {
		servers.Deliver(mailtest.Alice, mailtest.Agent, write(append(lines, "", "no")...))
	}
	servers.Deliver("", mailtest.Agent, write("From: alice@example.org", passed, "", "a bounce"))
	servers.Deliver(mailtest.Alice, mailtest.Agent, write("From: Alice@Example.org", passed, "Reply-To: eve@evil.example", "", "yes"))
	in := r.inputs(t, 1)[0]
	if !strings.HasSuffix(in.Text, "yes") || strings.Contains(in.Text, "not verified") || !strings.Contains(in.ReplyTo, `"to":"alice@example.org"`) {
		t.Errorf("the input is %+v", in)
	}
	natstest.Eventually(t, "the others are ignored", func() bool { return r.stats.Ignored.Load() == int64(len(ignored)+1) })
}

func TestARestartNeitherLosesNorDoubles(t *testing.T) {
	t.Parallel()
	servers, b := mailtest.Start(t), newBus(t)
	r := start(t, b, servers.Account(mailtest.Agent), email.Config{Session: "one"})
	r.await(t)
	servers.Deliver(mailtest.Alice, mailtest.Agent, simple("a@x.org", "1@x", "one"))
	r.inputs(t, 1)
	r.stop()
	servers.Deliver(mailtest.Alice, mailtest.Agent, simple("a@x.org", "2@x", "while it was away"))
	servers.Await(mailtest.Agent, "", 2)
	r = start(t, b, servers.Account(mailtest.Agent), email.Config{Session: "one"})
	if in := r.inputs(t, 1)[0]; !strings.HasSuffix(in.Text, "while it was away") {
		t.Errorf("after the restart: %+v", in)
	}
}

// The bus refuses an input: the letter is read again, as the same input.
func TestARefusedInputIsEmittedAgain(t *testing.T) {
	t.Parallel()
	servers, b := mailtest.Start(t), newBus(t)
	r := start(t, b, servers.Account(mailtest.Agent), email.Config{MoveTo: "Done"})
	r.await(t)
	r.gate.Hold()
	servers.Deliver(mailtest.Alice, mailtest.Agent, simple("a@x.org", "1@x", "one"))
	natstest.Eventually(t, "it is on its way", func() bool { return len(r.gate.Seen()) == 1 })
	r.stop()
	if len(servers.Letters(mailtest.Agent, "")) != 1 {
		t.Error("the letter was moved before the log had it")
	}
	again := start(t, b, servers.Account(mailtest.Agent), email.Config{MoveTo: "Done"})
	if in := again.inputs(t, 1)[0]; in.ID != r.gate.Seen()[0].ID {
		t.Errorf("its id is %s, was %s", in.ID, r.gate.Seen()[0].ID)
	}
	servers.Await(mailtest.Agent, "Done", 1)
}

func TestLettersThatAreNumberedAnew(t *testing.T) {
	t.Parallel()
	servers, b := mailtest.Start(t), newBus(t)
	r := start(t, b, servers.Account(mailtest.Agent), email.Config{Session: "one", Start: email.StartAll})
	for _, id := range []string{"1@x", "2@x"} {
		servers.Deliver(mailtest.Alice, mailtest.Agent, simple("a@x.org", id, id))
	}
	r.inputs(t, 2)
	r.stop()
	servers.Deliver(mailtest.Alice, mailtest.Agent, simple("a@x.org", "3@x", "3@x"))
	servers.Await(mailtest.Agent, "", 3)
	servers.Renumber(mailtest.Agent)
	r = start(t, b, servers.Account(mailtest.Agent), email.Config{Session: "one", Start: email.StartAll})
	if in := r.inputs(t, 1)[0]; !strings.HasSuffix(in.Text, "3@x") {
		t.Errorf("after the change: %+v", in)
	}
	servers.Deliver(mailtest.Alice, mailtest.Agent, simple("a@x.org", "4@x", "4@x"))
	if in := r.inputs(t, 2)[1]; !strings.HasSuffix(in.Text, "4@x") {
		t.Errorf("later: %+v", in)
	}
}

func TestWhatAnErrorOfTheConfigurationNames(t *testing.T) {
	for want, c := range map[string]email.Config{
		"from is empty":        {},
		"from: \"alice\"":      {From: []string{"alice"}},
		"start is \"old\"":     {From: []string{"*"}, Start: "old"},
		"poll is 1ms":          {From: []string{"*"}, Poll: time.Millisecond},
		"redial is 30m":        {From: []string{"*"}, Redial: 30 * time.Minute},
		"move_to is \"inbox\"": {From: []string{"*"}, MoveTo: "inbox"},
		"mode":                 {From: []string{"*"}, Mode: "loud"},
		"agent or session":     {From: []string{"*"}, Agent: "a b"},
	} {
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", c, err, want)
		}
	}
	if err := (email.Config{From: []string{"*@x.org"}}).Validate(); err != nil {
		t.Error(err)
	}
}
