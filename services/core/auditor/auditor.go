package auditor

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nuid"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/audit"
	"skandha.dev/services/internal/journal"
)

// Marks are numbers that are kept outside of the bus, and never fall.
type Marks interface {
	SetMark(ctx context.Context, name string, value uint64) error
	Mark(ctx context.Context, name string) (uint64, error)
}

// The marks: the number of the last entry that was written, and of the first one that is kept.
const (
	lastMark  = "audit_last"
	firstMark = "audit_first"
)

// Fact is a state that is audited when it changes.
type Fact struct {
	Of    string // what it is about, such as plugin/echo
	Is    string // the state; another text is another entry
	Entry audit.Entry
}

// Config is what an auditor needs.
type Config struct {
	Bus   *journal.Journal
	Log   *slog.Logger
	Marks Marks
	// Facts returns what is so now.
	Facts func(context.Context) ([]Fact, error)
	// Start is a fact that is compared once, when this core starts. Of may be empty.
	Start Fact
	Head  Head
	Now   func() time.Time // default time.Now
}

// Auditor is one core's part in keeping the audit log. Its methods may be called concurrently.
type Auditor struct {
	cfg  Config
	me   subject.Instance
	wake chan struct{}
	turn chan struct{} // holds one: who reads the chain and continues it
	have state         // owned by the holder of turn

	looked time.Time // owned by the holder of turn: when have was last compared with the log

	marked  uint64         // owned by run: the number that the store has
	scanned audit.Position // owned by run: further than the entries say, if what followed is not audited
	short   time.Time      // owned by run: since when the log seems to have lost its end

	mu        sync.Mutex
	damage    []damage // of the last days, that the log or this core knows of
	published published
	unheard   string // why the head is not published
}

// damage is something that was found wrong.
type damage struct {
	at     time.Time
	reason string
}

// New returns an auditor; Start makes it work.
func New(cfg Config) *Auditor {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Auditor{cfg: cfg, me: cfg.Bus.Instance(), wake: make(chan struct{}, 1), turn: make(chan struct{}, 1)}
}

// Wake says that there may be something to audit.
func (a *Auditor) Wake() {
	select {
	case a.wake <- struct{}{}:
	default: // it is awake
	}
}

const (
	every = time.Second // between two looks
	// gather is how long a core waits after a commit, so that a turn becomes few blocks.
	gather = 200 * time.Millisecond
	// takeOver is how long the core that wrote the last entry may write none before others go on.
	takeOver    = 3 * time.Second
	verifyEvery = time.Hour
	sayEvery    = 10 * time.Second
)

// Start works until ctx ends or stop is called.
func (a *Auditor) Start(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var gone sync.WaitGroup
	gone.Go(func() { a.run(ctx) })
	gone.Go(func() { a.publish(ctx) })
	gone.Go(func() { a.verifyNow(ctx) })
	return func() {
		cancel()
		gone.Wait()
	}
}

func (a *Auditor) run(ctx context.Context) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	var said time.Time
	for {
		if err := a.step(ctx); err != nil && ctx.Err() == nil && time.Since(said) > sayEvery {
			said = time.Now()
			a.cfg.Log.Warn("the audit log is behind; trying again", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-a.wake:
			t := time.NewTimer(gather)
			select {
			case <-ctx.Done():
			case <-t.C:
			}
			t.Stop()
		}
	}
}

// step audits everything that is new, if that is this core's turn.
func (a *Auditor) step(ctx context.Context) error {
	if err := a.lock(ctx); err != nil {
		return err
	}
	err := a.look(ctx)
	mine := a.have.writer == a.me || a.cfg.Now().Sub(a.have.moved) > takeOver || a.have.chain.N == 0
	found := a.have.found
	a.have.found = nil
	a.unlock()
	for _, f := range found {
		a.wrong(ctx, f)
	}
	if err != nil {
		return err
	}
	if mine {
		err = errors.Join(a.start(ctx), a.reconcile(ctx), a.scan(ctx))
	}
	return errors.Join(err, a.mark(ctx))
}

// mark remembers the end of the log in the store of views.
func (a *Auditor) mark(ctx context.Context) error {
	if err := a.lock(ctx); err != nil {
		return err
	}
	n := a.have.chain.N
	a.unlock()
	if n == a.marked {
		return nil
	}
	if err := a.cfg.Marks.SetMark(ctx, lastMark, n); err != nil {
		a.cfg.Log.Debug("remembering the end of the audit log", "error", err) // status shows that the store does not work
		return nil
	}
	a.marked = n
	return nil
}

func (a *Auditor) lock(ctx context.Context) error {
	select {
	case a.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (a *Auditor) unlock() { <-a.turn }

// start compares the fact of this core's start.
func (a *Auditor) start(ctx context.Context) error {
	f := a.cfg.Start
	if f.Of == "" {
		return nil
	}
	if err := a.state(ctx, []Fact{f}); err != nil {
		return err
	}
	a.cfg.Start.Of = "" // only run reads it
	return nil
}

// reconcile compares what is so with what the audit log says.
func (a *Auditor) reconcile(ctx context.Context) error {
	if a.cfg.Facts == nil {
		return nil
	}
	facts, err := a.cfg.Facts(ctx)
	if err != nil {
		return err
	}
	return a.state(ctx, facts)
}

// state writes entries of the facts that the audit log has otherwise.
func (a *Auditor) state(ctx context.Context, facts []Fact) error {
	return a.change(ctx, func(s *state) (out []audit.Entry) {
		for _, f := range facts {
			if s.facts[f.Of] != f.Is {
				e := f.Entry
				e.ID = f.Of + factIs + f.Is
				if e.Time.IsZero() {
					e.Time = a.cfg.Now().UTC()
				}
				out = append(out, e)
			}
		}
		return out
	})
}

// Announce writes an entry of an act that is about to be done, and returns its number.
func (a *Auditor) Announce(ctx context.Context, e audit.Entry) (n uint64, err error) {
	e.ID, e.Time, e.Detail = nuid.Next(), a.cfg.Now().UTC(), audit.Words(e.Detail)
	err = a.append(ctx, func(s *state) []audit.Entry {
		if n = s.acts[e.ID]; n != 0 {
			return nil // stored, although the answer was lost
		}
		n = s.chain.N + 1
		return []audit.Entry{e}
	})
	return n, err
}

// Failed writes that an announced act was not done.
func (a *Auditor) Failed(ctx context.Context, n uint64, e audit.Entry, why error) error {
	e.What, e.Verb, e.Of, e.Detail = string(e.Verb)+" "+e.What, audit.Failed, n, why.Error()
	_, err := a.Announce(ctx, e)
	return err
}

// change is append for what is rarely needed: the bus is asked only if f returns entries for what was read last.
func (a *Auditor) change(ctx context.Context, f func(*state) []audit.Entry) error {
	if err := a.lock(ctx); err != nil {
		return err
	}
	none := len(f(&a.have)) == 0
	a.unlock()
	if none {
		return nil
	}
	return a.append(ctx, f)
}

// append writes the entries that f returns. f is called again whenever others have written meanwhile, with what is
// known then, so it must not return what is written already.
func (a *Auditor) append(ctx context.Context, f func(*state) []audit.Entry) error {
	if err := a.lock(ctx); err != nil {
		return err
	}
	defer a.unlock()
	for pause := time.Millisecond; ; pause = min(2*pause, time.Second) {
		// The fence shows whether others have written since the last look.
		if pause > time.Millisecond || time.Since(a.looked) > every {
			if err := a.look(ctx); err != nil {
				return err
			}
		}
		entries := f(&a.have)
		if len(entries) == 0 {
			return nil
		}
		entries, lines, err := a.seal(entries)
		if err != nil {
			return err
		}
		seq, err := a.cfg.Bus.AppendAudit(ctx, audit.Block(lines), a.have.seq)
		switch {
		case err == nil:
			for _, e := range entries {
				_ = a.have.chain.Extend(e) // seal has checked it
				a.have.note(e)
			}
			a.have.seq = seq
			a.remember()
			return nil
		case errors.Is(err, bus.ErrFenceLost), errors.Is(err, bus.ErrAmbiguous):
			t := time.NewTimer(pause)
			select {
			case <-ctx.Done():
				t.Stop()
				return err
			case <-t.C:
			}
		default:
			return err
		}
	}
}

// seal makes entries continue the chain.
func (a *Auditor) seal(entries []audit.Entry) (sealed []audit.Entry, lines [][]byte, err error) {
	chain := a.have.chain
	for _, e := range entries {
		e.N, e.Prev, e.Core = chain.N+1, chain.Digest, a.me
		if e.Log.Log.IsZero() {
			e.Log = chain.Log
		}
		line, err := e.Seal()
		if err == nil {
			err = chain.Extend(e)
		}
		if err != nil {
			return nil, nil, err
		}
		sealed, lines = append(sealed, e), append(lines, line)
	}
	return sealed, lines, nil
}

// wrong notes that the log was damaged, and writes it into the log.
func (a *Auditor) wrong(ctx context.Context, f finding) {
	b := f.Break
	if a.note(damage{a.cfg.Now(), b.Reason}) {
		a.cfg.Log.Error("ALARM: the audit log was damaged", "entry", b.N, "error", b.Reason)
	}
	err := a.append(ctx, func(s *state) []audit.Entry {
		if s.damages[b.Reason] {
			return nil
		}
		return []audit.Entry{{
			Time: a.cfg.Now().UTC(), By: audit.Who{Kind: audit.Core, Name: "core"}, Verb: audit.Damaged, Detail: b.Reason,
			Expected: f.expected,
		}}
	})
	if err != nil && ctx.Err() == nil {
		a.cfg.Log.Warn("the audit log does not say that it was damaged yet", "error", err)
	}
}

// Audited returns the last commit of the log of decisions of which there is an entry. All entries of earlier commits
// are written.
func (a *Auditor) Audited(ctx context.Context) (seq uint64, err error) {
	if err := a.lock(ctx); err != nil {
		return 0, err
	}
	defer a.unlock()
	err = a.look(ctx)
	return a.have.chain.Log.Sequence, err
}
