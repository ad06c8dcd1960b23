package mailtest

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/emersion/go-imap/v2"
	"github.com/emersion/go-imap/v2/imapclient"

	"skandha.dev/services/internal/mail"
)

// Mailbox is the inbox of a user, as another mail program of theirs changes it.
type Mailbox struct {
	servers *Servers
	client  *imapclient.Client
}

// Change connects as a user, opens the inbox, and calls do.
func (s *Servers) Change(user string, do func(*Mailbox)) {
	s.tb.Helper()
	c := s.Account(user)
	accounts, err := mail.Open(mail.Config{Accounts: map[string]mail.AccountConfig{"x": c}})
	if err != nil {
		s.tb.Fatal(err)
	}
	a, err := accounts.Get("x")
	if err != nil {
		s.tb.Fatal(err)
	}
	client, err := imapclient.DialTLS(c.IMAP.Address(), &imapclient.Options{TLSConfig: a.TLSConfig(c.IMAP)})
	if err != nil {
		s.tb.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	m := &Mailbox{s, client}
	m.check(client.Login(user, Password).Wait())
	_, err = client.Select("INBOX", nil).Wait()
	m.check(err)
	do(m)
}

func (m *Mailbox) check(err error) {
	m.servers.tb.Helper()
	if err != nil {
		m.servers.tb.Fatalf("mailtest: %v", err)
	}
}

// Flag sets a flag.
func (m *Mailbox) Flag(uid uint32, flag string) {
	m.servers.tb.Helper()
	m.check(m.client.Store(imap.UIDSetNum(imap.UID(uid)), &imap.StoreFlags{
		Op: imap.StoreFlagsAdd, Flags: []imap.Flag{imap.Flag(flag)},
	}, nil).Close())
}

// Append stores a letter in the inbox, as if it had arrived at a time.
func (m *Mailbox) Append(letter string, at time.Time) {
	m.servers.tb.Helper()
	cmd := m.client.Append("INBOX", int64(len(letter)), &imap.AppendOptions{Time: at})
	_, err := cmd.Write([]byte(letter))
	m.check(err)
	m.check(cmd.Close())
	_, err = cmd.Wait()
	m.check(err)
}

// Move moves a letter to another folder, which is created if it does not exist.
func (m *Mailbox) Move(uid uint32, folder string) {
	m.servers.tb.Helper()
	_ = m.client.Create(folder, nil).Wait() // it may exist
	_, err := m.client.Move(imap.UIDSetNum(imap.UID(uid)), folder).Wait()
	m.check(err)
}

// Renumber makes Dovecot give the letters of a user's inbox new UIDs, with another UIDVALIDITY,
// as after a mailbox was restored.
func (s *Servers) Renumber(user string) {
	s.tb.Helper()
	start := s.KillDovecot()
	list := filepath.Join(s.Dir, "mail", user, "Maildir", "dovecot-uidlist")
	b, err := os.ReadFile(list)
	if err != nil {
		s.tb.Fatal(err)
	}
	var version, validity int
	if _, err := fmt.Sscanf(string(b), "%d V%d ", &version, &validity); err != nil {
		s.tb.Fatalf("mailtest: the list of UIDs begins with %.100q", b)
	}
	index, err := filepath.Glob(filepath.Join(filepath.Dir(list), "dovecot*"))
	if err != nil {
		s.tb.Fatal(err)
	}
	for _, f := range index {
		if err := os.Remove(f); err != nil {
			s.tb.Fatal(err)
		}
	}
	// Dovecot itself would take the time in seconds, which may be the same.
	if err := os.WriteFile(list, fmt.Appendf(nil, "%d V%d N1\n", version, validity+1), 0o600); err != nil {
		s.tb.Fatal(err)
	}
	if err := os.Chown(list, nobody, nobody); err != nil {
		s.tb.Fatal(err)
	}
	start()
}
