package mailstore_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"skandha.dev/services/internal/mail"
	"skandha.dev/services/internal/mail/mailstore"
	"skandha.dev/services/test/mailtest"
)

// account is one whose server is a script.
func account(t *testing.T, security mail.Security, serve func(*mailtest.Dialog)) *mail.Account {
	t.Helper()
	t.Setenv("MAILTEST_PASSWORD", "secret")
	all, err := mail.Open(mail.Config{Accounts: map[string]mail.AccountConfig{"a": {
		Address: mailtest.Agent, Password: "env:MAILTEST_PASSWORD",
		IMAP: mail.ServerConfig{Host: "127.0.0.1", Port: mailtest.Script(t, serve), Security: security},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	a, err := all.Get("a")
	if err != nil {
		t.Fatal(err)
	}
	return a
}

const greeting = "* OK [CAPABILITY IMAP4rev1 AUTH=PLAIN SASL-IR] ready"

// tag returns the tag of a command.
func tag(command string) string {
	t, _, _ := strings.Cut(command, " ")
	return t
}

func TestServersThatDoNotWork(t *testing.T) {
	for name, serve := range map[string]func(*mailtest.Dialog){
		"it hangs":                    func(d *mailtest.Dialog) { d.Hang() },
		"it hangs after the greeting": func(d *mailtest.Dialog) { d.Say(greeting); d.Hang() },
		"it talks garbage":            func(d *mailtest.Dialog) { d.Say("\x16\x03\x01\x00 hello") },
		"it goes":                     func(*mailtest.Dialog) {},
		"it never stops talking": func(d *mailtest.Dialog) {
			d.Say(greeting)
			for {
				if _, err := d.Write([]byte(strings.Repeat("x", 1<<20))); err != nil {
					return
				}
			}
		},
	} {
		a := account(t, mail.None, serve)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		_, err := mailstore.Open(ctx, a, mailstore.Timeout(200*time.Millisecond))
		if err == nil || ctx.Err() != nil && name != "it never stops talking" || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
	}
}

func TestARefusedLoginSaysWhere(t *testing.T) {
	a := account(t, mail.None, func(d *mailtest.Dialog) {
		d.Say(greeting)
		d.Say(tag(d.Hear()) + " NO [AUTHENTICATIONFAILED] wrong")
		d.Hang()
	})
	_, err := mailstore.Open(t.Context(), a)
	if err == nil || !strings.Contains(err.Error(), "as agent@example.org: the server answered NO: wrong") {
		t.Errorf("Open: %v", err)
	}
}

func TestSTARTTLSThatIsNotOffered(t *testing.T) {
	a := account(t, mail.StartTLS, func(d *mailtest.Dialog) {
		d.Say(greeting)
		d.Say(tag(d.Hear()) + " BAD unknown command")
		d.Hang()
	})
	if _, err := mailstore.Open(t.Context(), a); err == nil {
		t.Error("it went on without TLS")
	}
}

func TestAFolderWithoutLastingNumbers(t *testing.T) {
	a := account(t, mail.None, func(d *mailtest.Dialog) {
		d.Say(greeting)
		d.Say(tag(d.Hear()) + " OK [CAPABILITY IMAP4rev1] welcome")
		d.Say("* 0 EXISTS", tag(d.Hear())+" OK selected")
		d.Say(tag(d.Hear()) + " NO [NONEXISTENT] no such folder")
		d.Hang()
	})
	s, err := mailstore.Open(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Select("INBOX", true); !errors.Is(err, mailstore.ErrNoFolder) || !strings.Contains(err.Error(), "UIDVALIDITY") {
		t.Errorf("Select: %v", err)
	}
	if _, err := s.Select("Nope", true); !errors.Is(err, mailstore.ErrNoFolder) || !strings.Contains(err.Error(), `"Nope": the server answered NO`) {
		t.Errorf("Select: %v", err)
	}
}
