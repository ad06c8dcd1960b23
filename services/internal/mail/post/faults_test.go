package post_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	config "skandha.dev/services/internal/mail"
	"skandha.dev/services/internal/mail/post"
	"skandha.dev/services/test/mailtest"
)

func TestWhatIsKnownAfterAFault(t *testing.T) {
	t.Setenv("MAILTEST_PASSWORD", "x")
	for name, c := range map[string]struct {
		answers map[string]string
		want    error
		begun   bool
	}{
		"all is well":                      {nil, nil, true},
		"it hangs at the greeting":         {map[string]string{"greeting": "hang"}, post.ErrNotSent, false},
		"it talks garbage":                 {map[string]string{"greeting": "\x16\x03\x01 hello"}, post.ErrNotSent, false},
		"it never ends a line":             {map[string]string{"greeting": "220-" + strings.Repeat("x", 2<<20)}, post.ErrNotSent, false},
		"it is full":                       {map[string]string{"greeting": "421 later"}, post.ErrTemporary, false},
		"it refuses the password":          {map[string]string{"AUTH": "535 no"}, post.ErrNotSent, false},
		"it knows no login":                {map[string]string{"EHLO": "250 scripted"}, post.ErrNotSent, false},
		"it refuses the sender":            {map[string]string{"MAIL": "553 no"}, post.ErrRefused, false},
		"it refuses the recipient":         {map[string]string{"RCPT": "550 no"}, post.ErrRefused, false},
		"it refuses the recipient for now": {map[string]string{"RCPT": "451 later"}, post.ErrTemporary, false},
		"it dies at the recipient":         {map[string]string{"RCPT": "cut"}, post.ErrNotSent, false},
		"it refuses the letter at once":    {map[string]string{"DATA": "554 no"}, post.ErrRefused, false},
		"it refuses the letter":            {map[string]string{".": "554 spam"}, post.ErrRefused, true},
		"it refuses the letter for now":    {map[string]string{".": "452 full"}, post.ErrTemporary, true},
		"it dies after the letter":         {map[string]string{".": "cut"}, post.ErrUnknown, true},
		"it hangs after the letter":        {map[string]string{".": "hang"}, post.ErrUnknown, true},
		"it gives up after the letter":     {map[string]string{".": "421 closing"}, post.ErrUnknown, true},
		"it dies at the farewell":          {map[string]string{"QUIT": "cut"}, nil, true},
		"it hangs at the farewell":         {map[string]string{"QUIT": "hang"}, nil, true},
	} {
		a := open(t, config.AccountConfig{
			Address: mailtest.Agent, Password: "env:MAILTEST_PASSWORD", Sent: config.SentServer,
			SMTP: config.ServerConfig{Host: "127.0.0.1", Port: mailtest.SMTP(t, c.answers), Security: config.None},
		})
		l := compose(t, a, "key", post.Draft{To: []string{mailtest.Alice}, Text: "x"})
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		begun := false
		_, err := sender(t).Send(ctx, a, l, func(context.Context) error { begun = true; return nil })
		cancel()
		if !errors.Is(err, c.want) || begun != c.begun || other(c.want, err) {
			t.Errorf("%s: %v, begun %t; want %v, begun %t", name, err, begun, c.want, c.begun)
		}
	}
}

// other reports whether the error is more special than what is wanted.
func other(want, err error) bool {
	for _, kind := range []error{post.ErrTemporary, post.ErrRefused} {
		if errors.Is(err, kind) && !errors.Is(want, kind) {
			return true
		}
	}
	return false
}

func TestAServerThatIsNotThere(t *testing.T) {
	t.Setenv("MAILTEST_PASSWORD", "x")
	c := config.AccountConfig{
		Address: mailtest.Agent, Password: "env:MAILTEST_PASSWORD",
		SMTP: config.ServerConfig{Host: "127.0.0.1", Port: 1, Security: config.None},
	}
	c.IMAP = c.SMTP
	a := open(t, c)
	l := compose(t, a, "key", post.Draft{To: []string{mailtest.Alice}, Text: "x"})
	if _, err := sender(t).Send(t.Context(), a, l, begun); !errors.Is(err, post.ErrNotSent) {
		t.Errorf("Send: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := sender(t).Probe(ctx, a, "key", ""); err == nil || errors.Is(err, post.ErrNotFound) {
		t.Errorf("Probe: %v, want an error that says why it could not look", err)
	}
}

func TestSTARTTLSThatIsNotOfferedIsNotDoneWithout(t *testing.T) {
	t.Setenv("MAILTEST_PASSWORD", "x")
	a := open(t, config.AccountConfig{
		Address: mailtest.Agent, Password: "env:MAILTEST_PASSWORD",
		SMTP: config.ServerConfig{Host: "127.0.0.1", Port: mailtest.SMTP(t, nil), Security: config.StartTLS},
	})
	l := compose(t, a, "key", post.Draft{To: []string{mailtest.Alice}, Text: "x"})
	if _, err := sender(t).Send(t.Context(), a, l, begun); !errors.Is(err, post.ErrNotSent) || !strings.Contains(err.Error(), "STARTTLS") {
		t.Errorf("Send: %v", err)
	}
}

// The connection dies when the server has the whole letter: only the mailbox knows what became of it.
func TestALetterWhoseConfirmationIsLostIsFound(t *testing.T) {
	t.Parallel()
	servers := mailtest.Start(t)
	c, _, smtp := servers.Through(mailtest.Agent)
	a, s := open(t, c), sender(t)
	l := compose(t, a, "key", post.Draft{To: []string{mailtest.Alice}, Text: "x"})
	smtp.CutAfter("\r\n.\r\n")
	if _, err := s.Send(t.Context(), a, l, begun); !errors.Is(err, post.ErrUnknown) {
		t.Fatalf("Send: %v", err)
	}
	if id, err := s.Probe(t.Context(), a, "key", ""); err != nil || id != l.ID {
		t.Errorf("Probe: %s, %v", id, err)
	}
	find(t, servers, mailtest.Alice, "", l.ID)
}
