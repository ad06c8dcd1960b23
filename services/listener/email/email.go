package email

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/effect"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/mail"
	"skandha.dev/services/internal/mail/mailstore"
	"skandha.dev/services/internal/mail/post"
	"skandha.dev/services/listener/contract"
)

// The pauses after a failure.
const firstPause, maxPause = time.Second, time.Minute

// Deps are a listener's dependencies.
type Deps struct {
	Account *mail.Account
	Bus     *journal.Journal
	Logger  *slog.Logger // default slog.Default
	Stats   *Stats       // may be nil
	// StateDir is where the listener records how far its letters got; see [effect.Attempts]. Empty:
	// nowhere.
	StateDir string
	// Timeout bounds each operation on the mailbox; default [mailstore.OpTimeout].
	Timeout time.Duration
}

// Stats counts letters.
type Stats struct {
	Stored  atomic.Int64 // as inputs
	Ignored atomic.Int64 // because of the sender, or because a program wrote them
	Invalid atomic.Int64 // refused by the log
	Dials   atomic.Int64 // connections that were opened
}

// Listener reads the mail of one account.
type Listener struct {
	name     subject.Writer
	cfg      Config
	account  *mail.Account
	bus      *journal.Journal
	bucket   *journal.Bucket
	sender   *post.Sender
	attempts effect.Attempts
	log      *slog.Logger
	stats    *Stats
	timeout  time.Duration

	emitter  contract.Emitter
	inFlight contract.InFlight
	ready    atomic.Pointer[error] // points to nil while mail is received
	end      context.CancelFunc    // of work in progress
	quit     context.CancelFunc    // of waiting
	ended    sync.WaitGroup
}

var _ contract.Listener = (*Listener)(nil)

// New returns a listener; an error of the configuration names its field.
func New(name subject.Writer, cfg Config, deps Deps) (*Listener, error) {
	if _, err := subject.Parse[subject.Writer](string(name)); err != nil {
		return nil, err
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if deps.Bus == nil || deps.Account == nil {
		return nil, errors.New("deps.Bus and deps.Account are required")
	}
	log := cmp.Or(deps.Logger, slog.Default()).With("listener", string(name))
	l := &Listener{
		name: name, cfg: cfg.withDefaults(), account: deps.Account, bus: deps.Bus, log: log,
		bucket: deps.Bus.Bucket(journal.BucketEmail), stats: cmp.Or(deps.Stats, &Stats{}), sender: post.NewSender(log),
		attempts: effect.NewAttempts(deps.StateDir, log),
		timeout:  cmp.Or(deps.Timeout, mailstore.OpTimeout),
		end:      func() {}, quit: func() {},
	}
	l.isReady(errors.New("the mailbox is not open yet"))
	return l, nil
}

// Name implements [contract.Listener].
func (l *Listener) Name() subject.Writer { return l.name }

// Ready returns why no mail is received now; nil if it is.
func (l *Listener) Ready() error { return *l.ready.Load() }

func (l *Listener) isReady(err error) {
	if err != nil {
		err = fmt.Errorf("listener %s: %w", l.name, err)
	}
	l.ready.Store(&err)
}

// OnStart implements [contract.Listener].
func (l *Listener) OnStart(ctx context.Context, e contract.Emitter) error {
	if !l.inFlight.Open() {
		return fmt.Errorf("listener %s was already started", l.name)
	}
	if l.cfg.AuthServer == "" {
		l.log.Warn("the addresses of senders are not verified, so anybody can claim to be one that from admits; set auth_server")
	}
	if l.account.IMAP.Security == mail.None || l.account.SMTP.Security == mail.None {
		l.log.Warn("a connection to the mail server is not encrypted (security: none)", "account", l.account.ID)
	}
	l.emitter = e
	var work, wait context.Context
	work, l.end = context.WithCancel(context.WithoutCancel(ctx))
	wait, l.quit = context.WithCancel(work)
	l.ended.Go(func() { l.run(wait, work) })
	return nil
}

// OnStop implements [contract.Listener]. A letter that was not acknowledged is read again at the
// next start.
func (l *Listener) OnStop(ctx context.Context) error {
	l.quit()
	err := l.inFlight.Shut(ctx)
	l.end()
	l.ended.Wait()
	l.sender.Close()
	if err != nil {
		return fmt.Errorf("listener %s: %w; they stay in the mailbox and are read after the next start", l.name, err)
	}
	return nil
}

// run serves until wait ends; work in progress continues until work ends.
func (l *Listener) run(wait, work context.Context) {
	for pause := firstPause; wait.Err() == nil; {
		began := time.Now()
		err := l.serve(wait, work)
		if wait.Err() != nil {
			return
		}
		if err == nil {
			pause = firstPause
			continue // it is time to connect anew
		}
		l.isReady(err)
		l.log.Warn("receiving mail failed; retrying", "error", err, "in", pause)
		rest(wait, pause)
		if pause = min(2*pause, maxPause); time.Since(began) > maxPause {
			pause = firstPause
		}
	}
}

func rest(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	<-ctx.Done()
}

// serve uses one connection until it has to be renewed, fails, or wait ends.
func (l *Listener) serve(wait, work context.Context) error {
	b, err := mailstore.Open(work, l.account, mailstore.Timeout(l.timeout))
	if err != nil {
		return err
	}
	defer b.Close()
	l.stats.Dials.Add(1)
	s, err := b.Select(l.cfg.Folder, false)
	if err != nil {
		return err
	}
	p, err := l.position(wait, b, s)
	if err != nil {
		return err
	}
	if err := l.tidy(b); err != nil {
		return err
	}
	for renew := time.Now().Add(l.cfg.Redial); ; {
		if err := l.read(wait, work, b, p); err != nil || wait.Err() != nil {
			return err
		}
		l.isReady(nil)
		left := time.Until(renew)
		if left <= 0 {
			return nil
		}
		if err := b.Wait(wait, min(l.cfg.Poll, left)); err != nil || wait.Err() != nil {
			return err
		}
		if err := b.Refresh(); err != nil {
			return err
		}
	}
}

// read handles the letters that have arrived.
func (l *Listener) read(wait, work context.Context, b *mailstore.Store, p *position) error {
	uids, err := b.After(p.UID)
	if err != nil {
		return err
	}
	for _, uid := range uids {
		leave, ok := l.inFlight.Enter()
		if !ok || wait.Err() != nil {
			if ok {
				leave()
			}
			return nil
		}
		err := l.handle(work, b, p, uid)
		leave()
		if err != nil {
			return err
		}
	}
	return nil
}
