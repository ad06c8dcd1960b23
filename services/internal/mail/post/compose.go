package post

import (
	"bytes"
	"errors"
	"fmt"
	netmail "net/mail"
	"slices"
	"strings"
	"time"

	gomail "github.com/wneessen/go-mail"

	"skandha.dev/services/internal/mail"
	"skandha.dev/services/internal/mail/letter"
)

// The limits of a letter.
const (
	MaxRecipients = 100
	MaxSubject    = 500     // bytes
	MaxText       = 1 << 20 // bytes
	MaxFiles      = 16
	MaxBytes      = 25 << 20 // of all attachments
)

// Kind says who wrote a letter, for programs that receive it (RFC 3834).
type Kind string

// The kinds.
const (
	Generated Kind = "auto-generated" // an agent, by itself
	Replied   Kind = "auto-replied"   // an agent, to a letter that it received
)

// Draft is a letter to be sent.
type Draft struct {
	To, Cc, Bcc []string // addresses, with or without names
	Subject     string
	Text        string
	InReplyTo   string   // Message-ID of the letter that this one answers
	References  []string // of the thread, without InReplyTo
	Thread      letter.Thread
	Files       []letter.File
	Kind        Kind
}

// Letter is a composed letter.
type Letter struct {
	ID         string // Message-ID, without angle brackets
	Recipients []string
	Raw        []byte
}

// ErrInvalid means that a draft cannot become a letter; the error says why.
var ErrInvalid = errors.New("invalid letter")

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)
}

// Compose returns the letter of the call with the key.
func Compose(a *mail.Account, key string, d Draft, now time.Time) (Letter, error) {
	if key == "" {
		return Letter{}, errors.New("composing a letter: the call has no key")
	}
	if err := d.check(); err != nil {
		return Letter{}, err
	}
	m := gomail.NewMsg(gomail.WithNoDefaultUserAgent())
	recipients, err := address(m, a, d)
	if err != nil {
		return Letter{}, err
	}
	if d.Thread == "" {
		d.Thread = letter.NewThread(a.Address, key)
	}
	id := letter.NewID(a.Address, key, d.Thread)
	m.SetMessageIDWithValue(id)
	m.SetDateWithValue(now)
	m.Subject(strings.Join(strings.Fields(d.Subject), " "))
	m.SetGenHeader("Auto-Submitted", string(d.Kind))
	if reply := letter.ValidID(d.InReplyTo); reply != "" {
		m.SetGenHeaderPreformatted("In-Reply-To", "<"+reply+">")
		m.SetGenHeaderPreformatted("References", references(d.References, reply))
	}
	m.SetBodyString(gomail.TypeTextPlain, d.Text)
	for _, f := range d.Files {
		err := m.AttachReader(f.Name, bytes.NewReader(f.Content), gomail.WithFileContentType(gomail.ContentType(f.MediaType)))
		if err != nil {
			return Letter{}, invalid("attachment %q: %v", f.Name, err)
		}
	}
	var raw bytes.Buffer
	if _, err := m.WriteTo(&raw); err != nil {
		return Letter{}, fmt.Errorf("composing a letter: %w", err)
	}
	if a.Sent == mail.SentCopy {
		recipients = add(recipients, a.Address)
	}
	return Letter{ID: id, Recipients: recipients, Raw: unfold(raw.Bytes())}, nil
}

// unfold puts the Message-ID into the line of its name: some servers do not find it in the next
// one and add another.
func unfold(raw []byte) []byte {
	return bytes.Replace(raw, []byte("\r\nMessage-ID:\r\n <"), []byte("\r\nMessage-ID: <"), 1)
}

func (d Draft) check() error {
	size := 0
	for _, f := range d.Files {
		size += len(f.Content)
	}
	switch n := len(d.To) + len(d.Cc) + len(d.Bcc); {
	case n == 0:
		return invalid("there are no recipients; name at least one in to")
	case n > MaxRecipients:
		return invalid("there are %d recipients, at most %d", n, MaxRecipients)
	case len(d.Subject) > MaxSubject:
		return invalid("subject has %d bytes, at most %d", len(d.Subject), MaxSubject)
	case len(d.Text) > MaxText:
		return invalid("text has %d bytes, at most %d", len(d.Text), MaxText)
	case len(d.Files) > MaxFiles:
		return invalid("there are %d attachments, at most %d", len(d.Files), MaxFiles)
	case size > MaxBytes:
		return invalid("the attachments have %d bytes, at most %d", size, MaxBytes)
	}
	return nil
}

// address sets the header fields of sender and recipients, and returns all recipients.
func address(m *gomail.Msg, a *mail.Account, d Draft) (recipients []string, err error) {
	m.FromMailAddress(&netmail.Address{Name: a.Name, Address: a.Address})
	for _, field := range []struct {
		name string
		list []string
		set  func(...*netmail.Address)
	}{{"to", d.To, m.ToMailAddress}, {"cc", d.Cc, m.CcMailAddress}, {"bcc", d.Bcc, nil}} {
		var parsed []*netmail.Address
		for _, s := range field.list {
			one, err := netmail.ParseAddress(s)
			if err != nil || strings.ContainsFunc(one.Address, func(r rune) bool { return r <= ' ' || r == '<' || r == '>' }) {
				return nil, invalid("%s: %.100q is not an address; write one such as alice@example.org", field.name, s)
			}
			one.Name = strings.Join(strings.Fields(one.Name), " ")
			parsed = append(parsed, one)
			recipients = add(recipients, one.Address)
		}
		if len(parsed) > 0 && field.set != nil {
			field.set(parsed...)
		}
	}
	return recipients, nil
}

func add(list []string, address string) []string {
	if slices.ContainsFunc(list, func(o string) bool { return strings.EqualFold(o, address) }) {
		return list
	}
	return append(list, address)
}

// maxReferences is how many Message-IDs of a long thread are repeated.
const maxReferences = 20

// references returns the field of an answer: the first of the thread and the latest.
func references(thread []string, reply string) string {
	var list []string
	for _, id := range append(slices.Clone(thread), reply) {
		if id = letter.ValidID(id); id != "" && !slices.Contains(list, "<"+id+">") {
			list = append(list, "<"+id+">")
		}
	}
	if n := len(list); n > maxReferences {
		list = append(list[:1:1], list[n-maxReferences+1:]...)
	}
	return strings.Join(list, "\r\n ")
}
