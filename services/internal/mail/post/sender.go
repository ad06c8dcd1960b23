package post

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"skandha.dev/services/internal/mail"
	"skandha.dev/services/internal/mail/letter"
	"skandha.dev/services/internal/mail/mailstore"
)

const (
	// lookFor is how long Probe looks for a letter, and how long Send's copy is waited for.
	lookFor = 30 * time.Second
	// The pauses between two looks.
	firstPause, maxPause = 100 * time.Millisecond, 3 * time.Second
	// fileTimeout bounds filing by APPEND, when the letter is already sent.
	fileTimeout = 30 * time.Second
)

// Sender sends letters. Its zero value is not usable; see [NewSender].
type Sender struct {
	log    *slog.Logger
	ctx    context.Context //nolint:containedctx // of the filing in the background, which Close ends
	stop   context.CancelFunc
	filing sync.WaitGroup
	looks  sync.Map // a *sync.Mutex by account: two who look at once would both move a copy, which makes two
}

// NewSender returns a sender; log may be nil.
func NewSender(log *slog.Logger) *Sender {
	s := &Sender{log: cmp.Or(log, slog.Default())}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

// Close ends the filing of copies in the background. Those that are left stay in the inbox.
func (s *Sender) Close() {
	s.stop()
	s.filing.Wait()
}

// Send sends a letter. The note says what is wrong although it was sent; it may be empty.
func (s *Sender) Send(ctx context.Context, a *mail.Account, l Letter, begin func(context.Context) error) (note string, err error) {
	if err := deliver(ctx, a, l, begin); err != nil {
		return "", err
	}
	switch a.Sent {
	case mail.SentCopy:
		s.filing.Go(func() {
			if _, err := s.look(s.ctx, a, l.ID, lookFor); err != nil && s.ctx.Err() == nil {
				s.log.Warn("the copy of a sent letter was not filed", "account", a.ID, "message_id", l.ID, "error", err)
			}
		})
	case mail.SentAppend:
		if failed := appendTo(ctx, a, l.Raw); failed != nil {
			note = "the letter was sent, but could not be stored in the folder for sent mail: " + failed.Error()
		}
	}
	return note, nil
}

// appendTo stores a letter that was sent, even if the call's own time is over.
func appendTo(ctx context.Context, a *mail.Account, raw []byte) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fileTimeout)
	defer cancel()
	b, err := mailstore.Open(ctx, a)
	if err != nil {
		return err
	}
	defer b.Close()
	folder, err := b.Sent()
	if err != nil {
		return err
	}
	return b.Append(folder, raw)
}

// Probe returns the Message-ID of the letter that was sent with a key, if the mailbox shows that
// the server accepted it. It looks for a while, as mail takes time to arrive. Thread is the
// letter's, if it is known. [ErrNotFound] does not prove that the letter was not sent.
func (s *Sender) Probe(ctx context.Context, a *mail.Account, key string, thread letter.Thread) (id string, err error) {
	if thread == "" {
		thread = letter.NewThread(a.Address, key)
	}
	return s.look(ctx, a, letter.NewID(a.Address, key, thread), lookFor)
}

// look looks for a letter until it is found or the time is over.
func (s *Sender) look(ctx context.Context, a *mail.Account, id string, d time.Duration) (found string, err error) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	f := finder{account: a, queries: []mailstore.Query{{MessageID: id}, {MessageIDPart: letter.CallPart(id)}}}
	defer f.close()
	err = ErrNotFound
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		found, looked := s.alone(a, func() (string, error) { return f.find(ctx) })
		switch {
		case found != "":
			return found, nil
		case ctx.Err() != nil: // this look had no time
		case looked != nil:
			err = fmt.Errorf("looking for the letter: %w", looked)
		default:
			err = ErrNotFound
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return "", err
		case <-timer.C:
		}
	}
}

// alone looks while nobody else looks in the account.
func (s *Sender) alone(a *mail.Account, look func() (string, error)) (string, error) {
	one, _ := s.looks.LoadOrStore(a.ID, new(sync.Mutex))
	mu := one.(*sync.Mutex) //nolint:forcetypeassert // nothing else is stored
	mu.Lock()
	defer mu.Unlock()
	return look()
}

// finder looks for a letter in the inbox and in the folder for sent mail.
type finder struct {
	account *mail.Account
	// queries are tried in this order: servers whose index knows only whole ids find the first,
	// and the second finds a letter whose thread is not known.
	queries []mailstore.Query
	store   *mailstore.Store
	sent    string
}

func (f *finder) close() {
	if f.store != nil {
		f.store.Close()
	}
	f.store = nil
}

// find looks once, with a new connection if the last one failed.
func (f *finder) find(ctx context.Context) (id string, err error) {
	if f.store == nil {
		if f.store, err = mailstore.Open(ctx, f.account); err != nil {
			return "", err
		}
	}
	if id, err = f.search(); err != nil {
		f.close()
	}
	return id, err
}

func (f *finder) search() (id string, err error) {
	if f.sent == "" {
		if f.sent, err = f.store.Sent(); err != nil {
			return "", err
		}
	}
	id, uids, err := f.in(mailstore.Inbox, false)
	if err != nil {
		return "", err
	}
	if id != "" { // what is left to do is tidying
		_ = File(f.store, f.account, uids, f.sent)
		return id, nil
	}
	id, _, err = f.in(f.sent, true)
	if errors.Is(err, mailstore.ErrNoFolder) {
		return "", nil // nothing was ever sent
	}
	return id, err
}

// in looks in one folder.
func (f *finder) in(folder string, readOnly bool) (id string, uids []uint32, err error) {
	if _, err := f.store.Select(folder, readOnly); err != nil {
		return "", nil, err
	}
	for _, q := range f.queries {
		if uids, err = f.store.Search(q); err != nil {
			return "", nil, err
		}
		found, err := f.store.Summaries(uids)
		if err != nil {
			return "", nil, err
		}
		for _, m := range found {
			if letter.Ours(m.Envelope.MessageID, f.account.Address) {
				return m.Envelope.MessageID, uids, nil
			}
		}
	}
	return "", nil, nil
}

// File moves the copies of sent letters from the open folder to the folder for sent mail, if the
// account's copies arrive in the inbox.
func File(b *mailstore.Store, a *mail.Account, uids []uint32, sent string) error {
	if a.Sent != mail.SentCopy {
		return nil
	}
	for _, uid := range uids {
		if err := b.Seen(uid); err != nil {
			return err
		}
		if err := b.Move(uid, sent); err != nil {
			return err
		}
	}
	return nil
}
