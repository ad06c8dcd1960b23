package retention

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
	"log/slog"
	"math"
	"sync"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/core/loader"
	"skandha.dev/services/internal/archive"
	"skandha.dev/services/internal/audit"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/store"
)

// Config is what retention needs.
type Config struct {
	Bus   *journal.Journal
	Store store.Store
	Log   *slog.Logger
	Keep  Keep
	// Archive opens the archive that takes what leaves the log; nil: that is deleted.
	Archive func(ctx context.Context) (archive.Store, error)
	Every   time.Duration // between two runs; default 1h. While the log is too full, it runs every [hurry]
	// Settle is how old a commit must be to leave, however full the log is; default 3m. Views are written behind, and a
	// publisher that tries again is recognized by its message for [bus.DuplicateWindow].
	Settle time.Duration

	// Leads reports whether this core does the work, and everything in the log is in the views.
	Leads func(ctx context.Context) bool
	// Checkpoint stores a commit with the session's state, of at most so many bytes, and returns its sequence; 0: the
	// session is at work, or its state is larger.
	Checkpoint func(ctx context.Context, ref subject.Ref, most int64) (uint64, error)
	// Trims is called before messages up to a sequence leave the log.
	Trims func(ctx context.Context, upTo uint64) error
	// Forget removes what else is kept of a session that was deleted.
	Forget func(ctx context.Context, ref subject.Ref) error
	// Audited returns the last commit of which the audit log has an entry; it has those of all earlier ones.
	Audited func(ctx context.Context) (uint64, error)
}

const (
	maxTries      = 20 // looks at everything, however little of it is too much
	defaultEvery  = time.Hour
	defaultSettle = bus.DuplicateWindow + time.Minute
	hurry         = 10 * time.Second
	// worth is how much more must leave than a checkpoint adds, unless the log is too full.
	worth = 2
)

// Status is what retention has done since this core started, and how it is.
type Status struct {
	Sessions int64     // of which something has left the log, each time
	Bytes    int64     // of the commits that have left the log
	Archived int64     // messages that were archived
	Removed  int64     // deleted sessions whose content was removed
	Ran      time.Time // when the last run ended; zero: none
	Error    string    // of the last run
	Stuck    bool      // the log is too full, and nothing more can leave
}

// Retention removes from the log what need not be there.
type Retention struct {
	cfg  Config
	wake chan struct{}

	// looked has every session of the log, so it is small: the keys are hashes. Of two sessions with the same one,
	// something leaves later than it could.
	looked map[uint64]looked // owned by the loop
	seed   maphash.Seed

	opening chan struct{} // holds one: who opens the archive
	opened  archive.Store // owned by the holder of opening

	mu     sync.Mutex
	status Status
}

// looked is what is known of a session of which nothing had to leave.
type looked struct {
	commits uint64
	deleted bool
	due     int64 // when something may be too old, in Unix seconds; 0: nothing will be
}

func look(commits uint64, deleted bool, due time.Time) looked {
	l := looked{commits: commits, deleted: deleted}
	if !due.IsZero() {
		l.due = due.Unix()
	}
	return l
}

// still reports whether nothing has to leave now either.
func (l looked) still(commits uint64, deleted bool, now time.Time) bool {
	return l.commits == commits && l.deleted == deleted && (l.due == 0 || now.Unix() < l.due)
}

// New returns a retention; Run makes it work.
func New(cfg Config) *Retention {
	if cfg.Every <= 0 {
		cfg.Every = defaultEvery
	}
	if cfg.Settle <= 0 {
		cfg.Settle = defaultSettle
	}
	return &Retention{
		cfg: cfg, wake: make(chan struct{}, 1), looked: map[uint64]looked{}, seed: maphash.MakeSeed(),
		opening: make(chan struct{}, 1),
	}
}

// Wake starts a run soon.
func (r *Retention) Wake() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Status returns the status.
func (r *Retention) Status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status
}

// Run works until ctx ends.
func (r *Retention) Run(ctx context.Context) {
	next := time.NewTicker(min(r.cfg.Every, hurry))
	defer next.Stop()
	ran, tries := time.Now(), 0
	for {
		awake := false
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
			awake = true
		case <-next.C:
		}
		if !r.cfg.Leads(ctx) {
			clear(r.looked) // another core works meanwhile
			continue
		}
		log, err := r.cfg.Bus.LogInfo(ctx, "")
		if err != nil {
			continue // the bus is away, which others report
		}
		s := log.State
		cut := cutAt(r.cfg.Keep, s.Bytes, uint64(max(log.Config.MaxBytes, 0)), s.Msgs, s.FirstSeq, s.LastSeq, tries)
		if cut == 0 {
			tries = 0
		}
		if cut == 0 && !awake && time.Since(ran) < r.cfg.Every {
			r.note(func(st *Status) { st.Stuck = false })
			continue
		}
		began, before := time.Now(), r.Status()
		err = r.pass(ctx, log.Created, cut, s.LastSeq)
		ran = time.Now()
		after := r.Status()
		n := after.Sessions - before.Sessions
		r.report(ctx, err, cut > s.LastSeq && n == 0)
		if cut > 0 {
			tries = min(tries+1, maxTries)
		}
		if n > 0 {
			r.cfg.Log.Info("turns have left the log", "sessions", n, "bytes", after.Bytes-before.Bytes,
				"archived", after.Archived-before.Archived, "took", time.Since(began).Round(time.Millisecond))
		}
	}
}

// Open returns the archive; nil: there is none.
func (r *Retention) Open(ctx context.Context) (archive.Store, error) {
	if r.cfg.Archive == nil {
		return nil, nil //nolint:nilnil // without an archive, there is nothing to open
	}
	select {
	case r.opening <- struct{}{}:
		defer func() { <-r.opening }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if r.opened == nil {
		a, err := r.cfg.Archive(ctx)
		if err != nil {
			return nil, err
		}
		r.opened = a
	}
	return r.opened, nil
}

func (r *Retention) note(change func(*Status)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.status)
}

// report keeps the outcome of a run, and logs an error when it is new.
func (r *Retention) report(ctx context.Context, err error, stuck bool) {
	if ctx.Err() != nil {
		return
	}
	text := ""
	if err != nil {
		text = err.Error()
	}
	if was := r.Status(); text != "" && text != was.Error {
		r.cfg.Log.Error("turns cannot leave the log; trying again", "error", err)
	}
	r.note(func(s *Status) { s.Ran, s.Error, s.Stuck = time.Now(), text, stuck })
}

// pass looks at every session once. An error of one session does not keep the others from being looked at.
func (r *Retention) pass(ctx context.Context, log time.Time, cut, last uint64) error {
	read, err := r.read(ctx, last)
	if err != nil {
		return err
	}
	all, err := r.cfg.Bus.Sessions(ctx, "")
	if err != nil {
		return err
	}
	deleted, err := r.deleted(ctx)
	if err != nil {
		return err
	}
	now := time.Now()
	lim := limits{Keep: r.cfg.Keep, before: now.Add(-r.cfg.Keep.Age), settled: now.Add(-r.cfg.Settle), cut: cut, read: read}
	known := make(map[uint64]looked, len(all))
	var errs []error
	for _, s := range all {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		key := maphash.Comparable(r.seed, s.Ref)
		if was := r.looked[key]; cut == 0 && was.still(s.Commits, deleted[s.Ref], now) {
			known[key] = was
			continue
		}
		var due time.Time
		var err error
		if deleted[s.Ref] {
			due, err = r.bury(ctx, s.Ref)
		} else {
			due, err = r.trim(ctx, s.Ref, log, lim)
		}
		if err != nil {
			errs = append(errs, err)
			if len(errs) == maxErrors {
				break // whatever it is, it concerns more than a session
			}
			continue
		}
		if cut == 0 {
			known[key] = look(s.Commits, deleted[s.Ref], due)
		}
	}
	r.looked = known
	return errors.Join(errs...)
}

// maxErrors is how many sessions may fail before a run ends.
const maxErrors = 3

// read returns up to which message everything that is derived from the log has read it.
func (r *Retention) read(ctx context.Context, last uint64) (uint64, error) {
	has, err := r.cfg.Bus.HasOutgoing(ctx)
	if err != nil || !has {
		return last, err
	}
	floor, all, err := r.cfg.Bus.OutgoingProgress(ctx)
	if all {
		return last, err
	}
	return floor, err
}

// deleted lists the sessions that were deleted.
func (r *Retention) deleted(ctx context.Context) (map[subject.Ref]bool, error) {
	out := map[subject.Ref]bool{}
	for after := ""; ; {
		page, next, err := r.cfg.Store.ListSessions(ctx, "", store.MaxPage, after)
		if err != nil {
			return nil, fmt.Errorf("listing the sessions that were deleted: %w", err)
		}
		for _, s := range page {
			if s.Phase == loader.PhaseDeleted {
				out[subject.Ref{Agent: subject.Agent(s.Agent), Session: subject.Session(s.Session)}] = true
			}
		}
		if after = next; after == "" {
			return out, nil
		}
	}
}

// bury removes the content of a session that was deleted: everything before its tombstone, which it stores when it is
// time. It returns when to look again.
func (r *Retention) bury(ctx context.Context, ref subject.Ref) (due time.Time, err error) {
	soon := time.Now().Add(r.cfg.Every / 2)
	first, tombstone := uint64(0), uint64(0)
	for m, err := range r.cfg.Bus.Commits(ctx, ref, 0) {
		if err != nil {
			return soon, fmt.Errorf("reading the commits of %s: %w", ref, err)
		}
		if first == 0 {
			first = m.Seq
		}
		if c, err := event.DecodeCommit(ref, m.Data); err == nil && decide.IsTombstone(c) {
			tombstone = m.Seq
			break
		}
	}
	if tombstone == 0 {
		if tombstone, err = r.cfg.Checkpoint(ctx, ref, math.MaxInt64); err != nil || tombstone == 0 {
			return soon, err
		}
	}
	if tombstone == first {
		return time.Time{}, nil // it was buried
	}
	cursor, err := r.checkpoint(ctx, ref, tombstone)
	if err != nil {
		return soon, err
	}
	if err := r.cfg.Forget(ctx, ref); err != nil {
		return soon, fmt.Errorf("removing what is kept of %s: %w", ref, err)
	}
	from, err := r.Open(ctx)
	if err == nil && from != nil {
		err = archive.Delete(ctx, from, ref)
	}
	if err != nil {
		return soon, err
	}
	if err := r.cfg.Trims(ctx, tombstone-1); err != nil {
		return soon, err
	}
	if err := r.cfg.Bus.Trim(ctx, ref, cursor, tombstone); err != nil {
		return soon, err
	}
	r.note(func(s *Status) { s.Removed++ })
	return time.Time{}, nil
}

// trim removes what need not be in the log of a session. It returns when to look at the session again if it has no
// new commits.
func (r *Retention) trim(ctx context.Context, ref subject.Ref, log time.Time, lim limits) (due time.Time, err error) {
	p := plan{limits: lim}
	for m, err := range r.cfg.Bus.Commits(ctx, ref, 0) {
		if err != nil {
			return due, fmt.Errorf("reading the commits of %s: %w", ref, err)
		}
		c, err := event.DecodeCommit(ref, m.Data)
		if err != nil {
			return due, nil // a damaged log stays as it is
		}
		x := read(m.Seq, m.Time, c, len(m.Data))
		x.audited = len(audit.Pick(c, m.Seq, m.Data)) > 0
		if !p.add(x) {
			break
		}
	}
	b, found := p.choose()
	if !found {
		return p.again(r.cfg.Settle), nil
	}
	soon := time.Now().Add(r.cfg.Every / 2)
	if ok, err := r.covered(ctx, ref, b); err != nil || !ok {
		return soon, err
	}
	most := b.bytes
	if lim.cut == 0 {
		most /= worth
	}
	seq, err := r.cfg.Checkpoint(ctx, ref, most)
	if err != nil || seq == 0 {
		return soon, err
	}
	cursor, err := r.checkpoint(ctx, ref, seq)
	if err != nil {
		return soon, err
	}
	causes := min(cursor, b.last)
	if err := r.archive(ctx, ref, log, b.last, causes); err != nil {
		return soon, err
	}
	if err := r.cfg.Trims(ctx, b.last); err != nil {
		return soon, err
	}
	if err := r.cfg.Bus.Trim(ctx, ref, causes, b.last+1); err != nil {
		return soon, err
	}
	r.note(func(s *Status) { s.Sessions, s.Bytes = s.Sessions+1, s.Bytes+b.bytes })
	return soon, nil
}

// covered reports whether the views and the audit log have what leaves.
func (r *Retention) covered(ctx context.Context, ref subject.Ref, b border) (bool, error) {
	heads, err := r.cfg.Store.Heads(ctx, []store.Key{store.KeyOf(ref)})
	if err != nil {
		return false, fmt.Errorf("reading what the view has of %s: %w", ref, err)
	}
	if heads[0].Counted < b.last {
		return false, nil
	}
	if b.audited == 0 {
		return true, nil
	}
	last, err := r.cfg.Audited(ctx)
	return last >= b.audited, err
}

// checkpoint reads the checkpoint from the log, and returns up to which cause it has processed all.
func (r *Retention) checkpoint(ctx context.Context, ref subject.Ref, seq uint64) (cursor uint64, err error) {
	m, err := r.cfg.Bus.Message(ctx, seq)
	if err != nil {
		return 0, fmt.Errorf("reading the checkpoint %d of %s: %w", seq, ref, err)
	}
	c, err := event.DecodeCommit(ref, m.Data)
	if err == nil && (m.Subject != ref.Commit() || !decide.IsCheckpoint(c)) {
		err = errors.New("it is no checkpoint of the session")
	}
	if err != nil {
		return 0, fmt.Errorf("reading the checkpoint %d of %s: %w", seq, ref, err)
	}
	return c.Header.Cursor, nil
}

// archive stores the session's commits up to the last one that leaves, and its causes up to another sequence.
func (r *Retention) archive(ctx context.Context, ref subject.Ref, log time.Time, last, causes uint64) error {
	to, err := r.Open(ctx)
	if err != nil || to == nil {
		return err
	}
	w := archive.NewWriter(to, ref, log)
	for m, err := range r.cfg.Bus.Messages(ctx, ref, 0) {
		if err != nil {
			return fmt.Errorf("reading %s: %w", ref, err)
		}
		if m.Seq > last {
			break
		}
		if m.Subject != ref.Commit() && m.Seq > causes {
			continue // not processed yet
		}
		if err := w.Add(ctx, m); err != nil {
			return err
		}
	}
	if err := w.Close(ctx); err != nil {
		return err
	}
	r.note(func(s *Status) { s.Archived += int64(w.Messages) })
	return nil
}

// Messages yields the session's causes and commits after a sequence, in order, also those that have left the log.
func (r *Retention) Messages(ctx context.Context, ref subject.Ref, after uint64) iter.Seq2[bus.StoredMsg, error] {
	fail := func(err error) iter.Seq2[bus.StoredMsg, error] {
		return func(yield func(bus.StoredMsg, error) bool) { yield(bus.StoredMsg{}, err) }
	}
	from, err := r.Open(ctx)
	if err != nil {
		return fail(err)
	}
	if from == nil {
		return r.cfg.Bus.Messages(ctx, ref, after)
	}
	log, err := r.cfg.Bus.LogState(ctx)
	if err != nil {
		return fail(err)
	}
	return archive.Past(ctx, r.cfg.Bus, archive.Origin{Created: log.Created, Restored: log.Restored}, from, ref, after)
}
