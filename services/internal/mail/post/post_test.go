package post_test

import (
	"context"
	"errors"
	"net/mail"
	"strings"
	"testing"
	"time"

	config "skandha.dev/services/internal/mail"
	"skandha.dev/services/internal/mail/letter"
	"skandha.dev/services/internal/mail/post"
	"skandha.dev/services/test/mailtest"
	"skandha.dev/services/test/natstest"
)

func open(t *testing.T, c config.AccountConfig) *config.Account {
	t.Helper()
	all, err := config.Open(config.Config{Accounts: map[string]config.AccountConfig{"a": c}})
	if err != nil {
		t.Fatal(err)
	}
	a, err := all.Get("a")
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func sender(t *testing.T) *post.Sender {
	t.Helper()
	s := post.NewSender(natstest.Logger(t))
	t.Cleanup(s.Close)
	return s
}

func compose(t *testing.T, a *config.Account, key string, d post.Draft) post.Letter {
	t.Helper()
	d.Kind = post.Generated
	l, err := post.Compose(a, key, d, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func begun(context.Context) error { return nil }

func TestALetterArrivesAndItsCopyIsFiled(t *testing.T) {
	t.Parallel()
	servers := mailtest.Start(t)
	for name, c := range map[string]config.AccountConfig{
		"tls": servers.Account(mailtest.Agent), "starttls": servers.StartTLS(mailtest.Agent),
	} {
		t.Run(name, func(t *testing.T) {
			a, s := open(t, c), sender(t)
			l := compose(t, a, "key-"+name, post.Draft{
				To: []string{"Älice <alice@example.org>"}, Bcc: []string{mailtest.Bob}, Subject: "Grüße " + name,
				Text: "line\n.\n.dot 漢字\n", Files: []letter.File{{Name: "ä.txt", MediaType: "text/plain", Content: []byte("inside")}},
			})
			began := 0
			if _, err := s.Send(t.Context(), a, l, func(context.Context) error { began++; return nil }); err != nil || began != 1 {
				t.Fatalf("Send: %v, begun %d times", err, began)
			}
			for _, user := range []string{mailtest.Alice, mailtest.Bob} {
				raw := find(t, servers, user, "", l.ID)
				got := letter.Parse([]byte(raw), 0, letter.DefaultLimits())
				if !strings.Contains(raw, "\nMessage-ID: <"+l.ID+">") || strings.Count(raw, "Message-ID:") != 1 {
					t.Errorf("the Message-ID is not in one line:\n%s", raw)
				}
				if got.Subject != "Grüße "+name || got.Text != "line\n.\n.dot 漢字" || len(got.Files) != 1 ||
					string(got.Files[0].Content) != "inside" || got.Files[0].Name != "ä.txt" || strings.Contains(raw, "bob@") && user == mailtest.Alice {
					t.Errorf("%s got %+v:\n%s", user, got, raw)
				}
			}
			find(t, servers, mailtest.Agent, "Sent", l.ID)
			if id, err := s.Probe(t.Context(), a, "key-"+name, ""); id != l.ID || err != nil {
				t.Errorf("Probe: %s, %v; want %s", id, err, l.ID)
			}
		})
	}
	if left := servers.Letters(mailtest.Agent, ""); len(left) > 0 {
		t.Errorf("%d copies are left in the inbox", len(left))
	}
}

// find waits for a letter with a Message-ID.
func find(t *testing.T, s *mailtest.Servers, user, folder, id string) string {
	t.Helper()
	for n := 1; ; n++ {
		for _, l := range s.Await(user, folder, n) {
			if m, err := mail.ReadMessage(strings.NewReader(l)); err == nil && m.Header.Get("Message-Id") == "<"+id+">" {
				return l
			}
		}
	}
}

func TestIfOneRecipientIsRefusedNothingIsSent(t *testing.T) {
	t.Parallel()
	servers := mailtest.Start(t)
	a, s := open(t, servers.Account(mailtest.Agent)), sender(t)
	for bad, want := range map[string]error{
		"nobody@example.org": post.ErrRefused, mailtest.Grey: post.ErrTemporary, "x@elsewhere.example": post.ErrRefused,
	} {
		l := compose(t, a, "key "+bad, post.Draft{To: []string{mailtest.Alice, bad}, Text: "x"})
		if _, err := s.Send(t.Context(), a, l, begun); !errors.Is(err, want) || !strings.Contains(err.Error(), bad) {
			t.Errorf("%s: %v, want %v", bad, err, want)
		}
	}
	l := compose(t, a, "both", post.Draft{To: []string{mailtest.Grey, "nobody@example.org"}, Text: "x"})
	if _, err := s.Send(t.Context(), a, l, begun); !errors.Is(err, post.ErrRefused) {
		t.Errorf("one refused for now, one for ever: %v, want not temporary", err)
	}
	l = compose(t, a, "good", post.Draft{To: []string{mailtest.Alice}, Text: "x"})
	if _, err := s.Send(t.Context(), a, l, begun); err != nil {
		t.Fatal(err)
	}
	if n := len(servers.Await(mailtest.Alice, "", 1)); n != 1 {
		t.Errorf("alice has %d letters, want only the one that nobody refused", n)
	}
}

func TestThereIsNoEffectBeforeBegin(t *testing.T) {
	t.Parallel()
	servers := mailtest.Start(t)
	a, s := open(t, servers.Account(mailtest.Agent)), sender(t)
	l := compose(t, a, "refused", post.Draft{To: []string{mailtest.Alice}, Text: "x"})
	broken := errors.New("the bus is away")
	if _, err := s.Send(t.Context(), a, l, func(context.Context) error { return broken }); !errors.Is(err, post.ErrNotSent) || !errors.Is(err, broken) {
		t.Errorf("Send: %v", err)
	}
	after := compose(t, a, "after", post.Draft{To: []string{mailtest.Alice}, Text: "x"})
	if _, err := s.Send(t.Context(), a, after, begun); err != nil {
		t.Fatal(err)
	}
	find(t, servers, mailtest.Alice, "", after.ID)
	if n := len(servers.Letters(mailtest.Alice, "")); n != 1 {
		t.Errorf("alice has %d letters, want 1", n)
	}
}

func TestAppendFilesAfterSending(t *testing.T) {
	t.Parallel()
	servers := mailtest.Start(t)
	c := servers.Account(mailtest.Agent)
	c.Sent, c.Folders.Sent = config.SentAppend, "Gesendet"
	a, s := open(t, c), sender(t)
	l := compose(t, a, "appended", post.Draft{To: []string{mailtest.Alice}, Text: "x"})
	if note, err := s.Send(t.Context(), a, l, begun); err != nil || note != "" {
		t.Fatalf("Send: %q, %v", note, err)
	}
	find(t, servers, mailtest.Agent, "Gesendet", l.ID)
	find(t, servers, mailtest.Alice, "", l.ID)
}
