package view

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/core/loader"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/store"
)

// RefillConfig is what a refill needs.
type RefillConfig struct {
	Bus    *journal.Journal
	Store  store.Store
	Loader *loader.Loader // saves snapshots, and confirms them
	Log    *slog.Logger
	// Learn writes what a commit leaves for the agent's memory; see [WriterConfig].
	Learn func(ctx context.Context, ref subject.Ref, c event.Commit) error
	// Asks is called with each session that was folded again. A log that was restored from a backup
	// may lack timers of open confirmations.
	Asks  func(ctx context.Context, s *decide.State)
	Every time.Duration // between two comparisons; default 30 s
	Busy  func() bool   // whether sessions are open, to which folding gives way
}

// Refill compares the view with the log and folds what is missing: sessions that are
// unlisted or out of date, uncounted statistics, spoiled snapshots. The core that holds
// the store's lease compares for all cores. A second one would be harmless, as every
// write is idempotent.
type Refill struct {
	cfg   RefillConfig
	sweep sweep

	leads  atomic.Bool // this core holds the lease
	looked atomic.Bool // for what a killed core has not written

	mu     sync.Mutex
	wanted map[subject.Ref]bool // sessions that this core found incomplete; true: spoiled
	missed bool                 // some write failed
	view   coreapi.View         // the latest, ours or the lease holder's
	log    string               // the log's identity; empty until it is known

	// Used only by the loop.
	behind    map[subject.Ref]uint64 // sessions that the view lacked at the first look, and its commits of them
	lookAgain time.Time
	held      bool // this core holds the lease
	renewed   time.Time
	next      time.Time     // time of the next comparison
	pause     time.Duration // after a failure
}

const (
	defaultCompare = 30 * time.Second
	lookAt         = 2 * time.Second // interval of checking the coverage and the lease
	leaseTTL       = 15 * time.Second
	maxPause       = 30 * time.Second
	maxWanted      = 10_000 // the comparison finds any others
	seldom         = 20     // comparing takes at most a twentieth of the time
)

// coverage is the content of the store's coverage record.
type coverage struct {
	State coverState `json:"state"`
	Log   string     `json:"log"`
	Fold  int        `json:"fold"`
}

type coverState string

const (
	covered coverState = "complete"
	filling coverState = "filling"
	anew    coverState = "anew" // everything must be folded again, whatever the view holds
)

// NewRefill returns a refill; Start runs it.
func NewRefill(cfg RefillConfig) *Refill {
	if cfg.Every <= 0 {
		cfg.Every = defaultCompare
	}
	r := &Refill{cfg: cfg, wanted: map[subject.Ref]bool{}, view: coreapi.View{State: coreapi.ViewUnknown}}
	r.sweep = newSweep(r)
	return r
}

// Want schedules a session for folding.
func (r *Refill) Want(ref subject.Ref, spoiled bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.wanted) < maxWanted || spoiled {
		r.wanted[ref] = r.wanted[ref] || spoiled
	}
}

// MissedSome notes that the view lacks something because a write by this core failed.
func (r *Refill) MissedSome() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.missed = true
}

// Start runs the loop until ctx ends; stop ends it and gives up the lease.
func (r *Refill) Start(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		every := min(lookAt, r.cfg.Every/4)
		for r.step(ctx); sleep(ctx, every+r.pause); r.step(ctx) {
		}
	}()
	return func() {
		cancel()
		<-done
		if r.held {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			if _, err := r.cfg.Store.Lease(ctx, store.Lease{Holder: r.holder()}, 0); err != nil {
				r.cfg.Log.Debug("giving up the lease of the view", "error", err)
			}
		}
	}
}

// sleep reports false when ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// step does the work that is due. Each failure in a row lengthens the pause before
// the next step.
func (r *Refill) step(ctx context.Context) {
	err := r.try(ctx)
	if err == nil || ctx.Err() != nil {
		r.pause = 0
		return
	}
	r.pause = min(max(2*r.pause, lookAt), maxPause, 8*r.cfg.Every)
	r.cfg.Log.Debug("comparing the view with the log", "error", err)
	if errors.Is(err, store.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
		r.show(func(v *coreapi.View) { v.State, v.Error = coreapi.ViewUnavailable, err.Error() })
	}
}

func (r *Refill) try(ctx context.Context) error {
	if r.identity() == "" {
		if err := r.Identify(ctx); err != nil {
			return err
		}
	}
	if err := r.revokeCoverage(ctx); err != nil {
		return err
	}
	if err := r.lookFirst(ctx); err != nil {
		r.cfg.Log.Debug("looking for what a killed core has not written", "error", err)
	}
	if err := r.mendWanted(ctx); err != nil {
		return err
	}
	if held, err := r.lease(ctx); err != nil || !held {
		return err
	}
	what, err := r.coverage(ctx)
	if err != nil {
		return err
	}
	if what == r.complete() && time.Now().Before(r.next) {
		r.show(func(v *coreapi.View) {
			if v.State == coreapi.ViewUnavailable {
				v.State, v.Error = coreapi.ViewComplete, ""
			}
		})
		return nil
	}
	if err := r.Identify(ctx); err != nil {
		return err
	}
	begun := time.Now()
	if err := r.sweep.run(ctx, what); err != nil {
		return err
	}
	r.next = r.after(begun)
	return r.renew(ctx)
}

// lookFirst finds, once after the start, what a core that was killed has not written. It needs no
// lease, which a dead core may still hold, and leaves a view that is known to be incomplete to the
// core that does. What lags behind now, and has not moved when a living core would have written
// it, is folded.
func (r *Refill) lookFirst(ctx context.Context) error {
	if r.looked.Load() || time.Now().Before(r.lookAgain) {
		return nil
	}
	what, err := r.coverage(ctx)
	if err != nil || what != r.complete() {
		r.looked.Store(err == nil)
		return err
	}
	begun := time.Now()
	behind, sessions, err := r.sweep.behind(ctx)
	if err != nil {
		return err
	}
	if r.behind == nil && len(behind) > 0 {
		r.behind, r.lookAgain = behind, time.Now().Add(min(stale+lookAt, r.cfg.Every))
		return nil
	}
	for ref, commits := range behind {
		if before, was := r.behind[ref]; was && before == commits {
			r.Want(ref, false)
		}
	}
	if len(behind) == 0 && r.next.IsZero() { // the first comparison would find the same
		r.next = r.after(begun)
		r.show(func(v *coreapi.View) {
			*v = coreapi.View{State: coreapi.ViewComplete, Sessions: sessions, Done: sessions}
		})
	}
	r.behind = nil
	r.looked.Store(true)
	return nil
}

// after returns when to compare again after a comparison that has begun then.
func (r *Refill) after(begun time.Time) time.Time {
	return time.Now().Add(max(r.cfg.Every, seldom*(time.Since(begun)-r.sweep.folding)))
}

// Identify reads the log's identity, which is its time of creation: a recreated stream has
// a different one.
func (r *Refill) Identify(ctx context.Context) error {
	s, err := r.cfg.Bus.JetStream().Stream(ctx, bus.StreamSessions)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log = s.CachedInfo().Created.UTC().Format(time.RFC3339Nano)
	return nil
}

func (r *Refill) identity() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log
}

func (r *Refill) complete() coverage {
	return coverage{State: covered, Log: r.identity(), Fold: foldVersion}
}

func (r *Refill) coverage(ctx context.Context) (c coverage, err error) {
	text, err := r.cfg.Store.Coverage(ctx)
	if err != nil || text == "" {
		return c, err
	}
	if json.Unmarshal([]byte(text), &c) != nil {
		c = coverage{} // unreadable: it covers nothing
	}
	return c, nil
}

func (r *Refill) setCoverage(ctx context.Context, c coverage) error {
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return r.cfg.Store.SetCoverage(ctx, string(text))
}

// revokeCoverage revokes the coverage after failed writes, so that the lease holder looks
// for what is missing.
func (r *Refill) revokeCoverage(ctx context.Context) error {
	r.mu.Lock()
	missed := r.missed
	r.missed = false
	r.mu.Unlock()
	if !missed {
		return nil
	}
	what, err := r.coverage(ctx)
	if err == nil && what == r.complete() { // otherwise the lease holder looks for it anyway
		what.State = filling
		err = r.setCoverage(ctx, what)
	}
	if err != nil {
		r.MissedSome()
	}
	return err
}

// Everything requests that all sessions are folded again.
func (r *Refill) Everything(ctx context.Context) error {
	return r.setCoverage(ctx, coverage{State: anew, Log: r.identity()})
}

// mendWanted folds the sessions that this core found incomplete.
func (r *Refill) mendWanted(ctx context.Context) error {
	r.mu.Lock()
	wanted := maps.Clone(r.wanted)
	clear(r.wanted)
	r.mu.Unlock()
	for ref, spoiled := range wanted {
		begun := time.Now()
		if _, err := r.Refold(ctx, ref, spoiled); err != nil && !r.sweep.hopeless(ref, err) {
			r.MissedSome()
			return err
		}
		if !r.Yield(ctx, begun) {
			return ctx.Err()
		}
	}
	return nil
}

// Yield gives live work priority: refolding takes half of the time of an idle core,
// and a fifth of a busy one's.
func (r *Refill) Yield(ctx context.Context, begun time.Time) bool {
	pause := max(time.Since(begun), time.Millisecond)
	if r.cfg.Busy() {
		pause = max(4*pause, 5*time.Millisecond)
	}
	return sleep(ctx, pause)
}

// Leads reports whether this core does the work on derived data for all cores.
func (r *Refill) Leads() bool { return r.leads.Load() }

func (r *Refill) holder() string { return string(r.cfg.Bus.Instance()) }

// lease renews the lease when due, and reports whether this core holds it.
func (r *Refill) lease(ctx context.Context) (held bool, err error) {
	if r.held && time.Since(r.renewed) < leaseTTL/3 {
		return true, nil
	}
	return r.held, r.renew(ctx)
}

// renew renews the lease and publishes the progress with it, or adopts the progress of
// the core that holds it.
func (r *Refill) renew(ctx context.Context) error {
	note, err := json.Marshal(r.shown())
	if err != nil {
		return err
	}
	now, err := r.cfg.Store.Lease(ctx, store.Lease{Holder: r.holder(), Note: string(note)}, leaseTTL)
	if err != nil {
		return err
	}
	r.renewed = time.Now()
	r.held = now.Holder == r.holder()
	r.leads.Store(r.held)
	if r.held {
		return nil
	}
	var theirs coreapi.View
	if json.Unmarshal([]byte(now.Note), &theirs) == nil {
		r.show(func(v *coreapi.View) { *v = theirs })
	}
	return nil
}

func (r *Refill) show(change func(*coreapi.View)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.view)
}

func (r *Refill) shown() coreapi.View {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.view
}

// State returns the view's state for queries. It checks the coverage again: a view that
// was complete may have been wiped since. At the start, that of another core does not count: a
// killed one may have left sessions unwritten.
func (r *Refill) State(ctx context.Context) coreapi.View {
	v := r.shown()
	if v.State == coreapi.ViewComplete && !r.looked.Load() {
		v.State = coreapi.ViewUnknown
	}
	if v.State != coreapi.ViewComplete || r.identity() == "" {
		return v
	}
	what, err := r.coverage(ctx)
	switch {
	case err != nil:
		v.State, v.Error = coreapi.ViewUnavailable, err.Error()
	case what != r.complete():
		v.State, v.Done = coreapi.ViewRefilling, 0
	}
	return v
}
