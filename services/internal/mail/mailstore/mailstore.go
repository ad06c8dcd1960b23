package mailstore

import (
	"context"
	"errors"
	"fmt"
	"mime"
	"strings"
	"time"

	"github.com/emersion/go-imap/v2"
	"github.com/emersion/go-imap/v2/imapclient"
	"github.com/emersion/go-message/charset"

	"skandha.dev/services/internal/mail"
	"skandha.dev/services/internal/text"
)

// The bounds of an operation.
const (
	OpTimeout  = time.Minute
	MaxOpBytes = 64 << 20
)

// Inbox is the folder that mail arrives in.
const Inbox = "INBOX"

// ErrNoFolder means that a folder does not exist, or cannot be opened.
var ErrNoFolder = errors.New("cannot open the folder")

// Store is a connection to the mailboxes of an account.
type Store struct {
	account *mail.Account
	client  *imapclient.Client
	conn    *mail.Conn
	timeout time.Duration
	cancel  context.CancelFunc
	news    chan struct{}
}

// Option changes how a store works.
type Option func(*Store)

// Timeout bounds each operation, instead of [OpTimeout].
func Timeout(d time.Duration) Option { return func(b *Store) { b.timeout = d } }

// State is what a server says about a folder.
type State struct {
	Folder      string
	UIDValidity uint32
	UIDNext     uint32
	Messages    uint32
	ModSeq      uint64 // 0: the server does not count changes (CONDSTORE)
}

// Open connects and logs in. The connection ends with ctx.
func Open(ctx context.Context, a *mail.Account, options ...Option) (*Store, error) {
	ctx, cancel := context.WithCancel(ctx)
	b := &Store{account: a, cancel: cancel, timeout: OpTimeout, news: make(chan struct{}, 1)}
	for _, o := range options {
		o(b)
	}
	if err := b.open(ctx); err != nil {
		cancel()
		return nil, err
	}
	return b, nil
}

func (b *Store) open(ctx context.Context) error {
	s := b.account.IMAP
	var err error
	if b.conn, err = b.account.Dial(ctx, s); err != nil {
		return err
	}
	defer b.within()()
	options := &imapclient.Options{
		TLSConfig: b.account.TLSConfig(s), WordDecoder: &mime.WordDecoder{CharsetReader: charset.Reader},
		UnilateralDataHandler: &imapclient.UnilateralDataHandler{Mailbox: func(d *imapclient.UnilateralDataMailbox) {
			if d.NumMessages != nil {
				b.notify()
			}
		}},
	}
	if s.Security == mail.StartTLS {
		b.client, err = imapclient.NewStartTLS(b.conn, options)
	} else {
		b.client = imapclient.New(b.conn, options)
		err = b.client.WaitGreeting()
	}
	if err != nil {
		_ = b.conn.Close()
		return fmt.Errorf("connecting to %s by IMAP: %w", s.Address(), err)
	}
	if err := b.login(ctx); err != nil {
		_ = b.conn.Close()
		return fmt.Errorf("logging in to %s as %s: %w", s.Address(), b.account.User, err)
	}
	return nil
}

func (b *Store) login(ctx context.Context) error {
	credentials, err := b.account.Auth(ctx, b.client.Caps().AuthMechanisms())
	if err != nil {
		return err
	}
	if err := b.client.Authenticate(credentials); err != nil {
		b.account.Rejected()
		return said(err)
	}
	return nil
}

func (b *Store) notify() {
	select {
	case b.news <- struct{}{}:
	default:
	}
}

// within bounds an operation: if it takes longer, or reads more, the connection is closed, and
// the operation fails.
func (b *Store) within() (done func()) {
	b.conn.Allow(MaxOpBytes)
	timer := time.AfterFunc(b.timeout, func() { _ = b.conn.Close() })
	return func() { timer.Stop() }
}

// Close ends the connection.
func (b *Store) Close() {
	_ = b.conn.Close() // there is nothing to wait for: every change was acknowledged
	b.cancel()
}

// Closed is closed when the connection has ended.
func (b *Store) Closed() <-chan struct{} { return b.client.Closed() }

// Select opens a folder.
func (b *Store) Select(folder string, readOnly bool) (State, error) {
	defer b.within()()
	condstore := b.client.Caps().Has(imap.CapCondStore)
	d, err := b.client.Select(folder, &imap.SelectOptions{ReadOnly: readOnly, CondStore: condstore}).Wait()
	if err != nil {
		if no, ok := errors.AsType[*imap.Error](err); ok {
			return State{}, fmt.Errorf("%w %q: %s", ErrNoFolder, folder, reason(no))
		}
		return State{}, fmt.Errorf("opening the folder %q: %w", folder, err)
	}
	if d.UIDValidity == 0 {
		return State{}, fmt.Errorf("%w %q: the server gives its messages no lasting numbers (UIDVALIDITY)", ErrNoFolder, folder)
	}
	return State{folder, d.UIDValidity, uint32(d.UIDNext), d.NumMessages, d.HighestModSeq}, nil
}

// Refresh makes the server report what has changed in the open folder.
func (b *Store) Refresh() error {
	defer b.within()()
	return said(b.client.Noop().Wait())
}

// Wait returns when the server reports new messages in the open folder, when the time is over,
// or when ctx ends. If the server does not report changes (IDLE), only the time counts. The error is
// that of the connection.
func (b *Store) Wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	if !b.client.Caps().Has(imap.CapIdle) {
		return b.await(ctx, timer.C)
	}
	idle, err := b.idle()
	if err != nil {
		return fmt.Errorf("waiting for mail: %w", said(err))
	}
	err = b.await(ctx, timer.C)
	defer b.within()()
	if stop := idle.Close(); err == nil {
		err = stop
	}
	if stop := idle.Wait(); err == nil {
		err = stop
	}
	if err != nil {
		return fmt.Errorf("waiting for mail: %w", said(err))
	}
	return nil
}

func (b *Store) idle() (*imapclient.IdleCommand, error) {
	defer b.within()()
	return b.client.Idle()
}

func (b *Store) await(ctx context.Context, over <-chan time.Time) error {
	select {
	case <-b.news:
		return nil
	case <-over:
		return nil
	case <-ctx.Done():
		return nil
	case <-b.client.Closed():
		return errors.New("the server closed the connection")
	}
}

// said returns an error in which a server's words are marked as such.
func said(err error) error {
	if no, ok := errors.AsType[*imap.Error](err); ok {
		return errors.New(reason(no))
	}
	return err
}

func reason(e *imap.Error) string {
	return fmt.Sprintf("the server answered %s: %s", e.Type, strings.ToValidUTF8(text.Cut(e.Text, 300), "?"))
}
