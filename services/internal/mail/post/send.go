package post

import (
	"context"
	"errors"
	"fmt"
	"net/textproto"
	"strings"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/wneessen/go-mail/smtp"

	"skandha.dev/services/internal/mail"
	"skandha.dev/services/internal/text"
)

// How sending can fail.
var (
	// ErrNotSent: the letter was certainly not sent, to anybody.
	ErrNotSent = errors.New("not sent")
	// ErrTemporary: the server refused it for now. It is also ErrNotSent.
	ErrTemporary = fmt.Errorf("refused for now: %w", ErrNotSent)
	// ErrRefused: the server refused it for good, or one of its recipients. It is also ErrNotSent.
	ErrRefused = fmt.Errorf("refused: %w", ErrNotSent)
	// ErrNotFound: the mailbox does not show that the letter was sent.
	ErrNotFound = errors.New("the letter is neither in the inbox nor in the folder for sent mail")
	// ErrUnknown: it may have been sent.
	ErrUnknown = errors.New("it is not known whether the letter was sent")
)

// sendTimeout bounds the conversation with a server.
const sendTimeout = 2 * time.Minute

// quitTimeout bounds the polite end of a conversation whose outcome is known.
const quitTimeout = time.Second

// deliver gives the letter to the account's server. See the package's documentation for when
// begin is called.
func deliver(ctx context.Context, a *mail.Account, l Letter, begin func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	conn, err := a.Dial(ctx, a.SMTP)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	defer func() { _ = conn.Close() }() // without the end of the letter, the server drops it
	c, err := greet(ctx, a, conn)
	if err != nil {
		return notSent(a, err)
	}
	if err := envelope(c, a.Address, l.Recipients); err != nil {
		return refused(a, err)
	}
	data, err := c.Data()
	if err != nil {
		return refused(a, err)
	}
	if _, err := data.Write(l.Raw); err != nil {
		return notSent(a, err)
	}
	if err := c.Text.W.Flush(); err != nil {
		return notSent(a, err)
	}
	if err := begin(ctx); err != nil {
		return fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	if err := data.Close(); err != nil {
		return ended(a, err)
	}
	if conn.SetDeadline(time.Now().Add(quitTimeout)) == nil {
		_ = c.Quit() // the letter is accepted, whatever happens now
	}
	return nil
}

// greet begins the conversation: TLS and the account's credentials.
func greet(ctx context.Context, a *mail.Account, conn *mail.Conn) (*smtp.Client, error) {
	c, err := smtp.NewClient(conn, a.SMTP.Host)
	if err != nil {
		return nil, err
	}
	_, domain, _ := strings.Cut(a.Address, "@")
	if err := c.Hello(domain); err != nil {
		return nil, err
	}
	if a.SMTP.Security == mail.StartTLS {
		if ok, _ := c.Extension("STARTTLS"); !ok {
			return nil, errors.New("the server does not offer STARTTLS; set smtp.security to tls, or to none for a server without TLS")
		}
		if err := c.StartTLS(a.TLSConfig(a.SMTP)); err != nil {
			return nil, fmt.Errorf("securing the connection by STARTTLS: %w", err)
		}
	}
	_, offered := c.Extension("AUTH")
	credentials, err := a.Auth(ctx, strings.Fields(offered))
	if err != nil {
		return nil, err
	}
	if err := c.Auth(auth{credentials}); err != nil {
		a.Rejected()
		return nil, fmt.Errorf("logging in as %s: %w", a.User, err)
	}
	return c, nil
}

// envelope names sender and recipients. If one is refused, the letter is not sent to the others.
func envelope(c *smtp.Client, from string, to []string) error {
	c.SkipSMTPUTF8(ascii(from) && ascii(strings.Join(to, "")))
	if err := c.Mail("<" + from + ">"); err != nil {
		return fmt.Errorf("the server does not accept the sender %s: %w", from, err)
	}
	var failed []error
	for _, r := range to {
		if err := c.Rcpt("<" + r + ">"); err != nil {
			if !isReply(err) {
				return err
			}
			err = fmt.Errorf("the server does not accept the recipient %s: %w", r, err)
			if temporary(err) {
				failed = append(failed, err)
			} else {
				failed = append([]error{err}, failed...) // the first decides about the whole; see temporary
			}
		}
	}
	return errors.Join(failed...)
}

func ascii(s string) bool { return !strings.ContainsFunc(s, func(r rune) bool { return r > '~' }) }

// temporary reports whether a server's first reply in the error says to try again later.
func temporary(err error) bool {
	reply, ok := errors.AsType[*textproto.Error](err)
	return ok && reply.Code/100 == 4
}

func isReply(err error) bool {
	_, ok := errors.AsType[*textproto.Error](err)
	return ok
}

// notSent returns the error for a letter whose end was not sent.
func notSent(a *mail.Account, err error) error {
	kind := ErrNotSent
	if temporary(err) {
		kind = ErrTemporary
	}
	return fmt.Errorf("%w: %s: %s", kind, a.SMTP.Address(), words(err))
}

// refused returns the error for a letter that the server may have refused.
func refused(a *mail.Account, err error) error {
	if isReply(err) && !temporary(err) {
		return fmt.Errorf("%w: %s: %s", ErrRefused, a.SMTP.Address(), words(err))
	}
	return notSent(a, err)
}

// ended returns the error for a letter whose end was sent.
func ended(a *mail.Account, err error) error {
	// 421 is what a server says when it gives the connection up, possibly after it took the letter.
	if reply, ok := errors.AsType[*textproto.Error](err); ok && reply.Code/100 >= 4 && reply.Code != 421 {
		return refused(a, fmt.Errorf("the server refused the letter: %w", err))
	}
	return fmt.Errorf("%w: %s: the connection ended before the server confirmed it: %s", ErrUnknown, a.SMTP.Address(), words(err))
}

func words(err error) string {
	return strings.ToValidUTF8(strings.Join(strings.Fields(text.Cut(err.Error(), 1000)), " "), "?")
}

// auth makes credentials usable for SMTP.
type auth struct{ sasl.Client }

// Start implements smtp.Auth.
func (a auth) Start(*smtp.ServerInfo) (mechanism string, initial []byte, err error) {
	return a.Client.Start()
}

// Next implements smtp.Auth.
func (a auth) Next(challenge []byte, more bool) ([]byte, error) {
	if !more {
		return nil, nil
	}
	return a.Client.Next(challenge)
}
