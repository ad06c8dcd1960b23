package cron

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
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/listener/contract"
)

const (
	lookEvery  = time.Minute            // how often the stored positions are read
	wakeEvery  = time.Second            // how often the clock is read, which may be set
	retryPause = 500 * time.Millisecond // after something failed; it doubles
	maxPause   = 5 * time.Second
	steady     = time.Minute // of work, after which a failure is a new one
)

// Deps are a listener's dependencies.
type Deps struct {
	Bus    *journal.Journal
	Logger *slog.Logger     // default slog.Default
	Now    func() time.Time // default time.Now
	Stats  *Stats           // may be nil
}

// Stats counts occurrences.
type Stats struct {
	Occurred atomic.Int64 // emitted
	Missed   atomic.Int64 // skipped because they were too late; counts at most [MaxCatchUp] at a time
}

// Listener is the listener that follows the clock.
type Listener struct {
	name    subject.Writer
	entries map[string]entry
	bus     *journal.Journal
	log     *slog.Logger
	now     func() time.Time
	stats   *Stats

	emitter  contract.Emitter
	inFlight contract.InFlight
	store    *store
	at       map[string]position   // by entry, as far as this replica knows
	cleared  bool                  // positions of entries that are not configured were removed
	ready    atomic.Pointer[error] // points to nil once the positions are stored
	failures int                   // one after the other, since it worked for a while
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
	entries, err := cfg.build()
	if err != nil {
		return nil, err
	}
	if deps.Bus == nil {
		return nil, errors.New("deps.Bus is required")
	}
	deps.Logger = cmp.Or(deps.Logger, slog.Default())
	if deps.Now == nil {
		deps.Now = time.Now
	}
	deps.Stats = cmp.Or(deps.Stats, &Stats{})
	l := &Listener{
		name: name, entries: entries, bus: deps.Bus, log: deps.Logger.With("listener", string(name)), now: deps.Now,
		stats: deps.Stats, at: map[string]position{},
		store: &store{listener: name, bucket: deps.Bus.Bucket(journal.BucketCron)},
		end:   func() {}, quit: func() {},
	}
	l.isReady(errors.New("the positions are not stored yet"))
	return l, nil
}

// Name implements [contract.Listener].
func (l *Listener) Name() subject.Writer { return l.name }

// Ready returns why the positions are not stored; nil if they are.
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
	l.emitter = e
	var work, wait context.Context
	work, l.end = context.WithCancel(context.WithoutCancel(ctx))
	wait, l.quit = context.WithCancel(work)
	l.ended.Go(func() { l.run(wait, work) })
	return nil
}

// OnStop implements [contract.Listener]. An occurrence that could not be emitted stays
// due, for another replica or the next start.
func (l *Listener) OnStop(ctx context.Context) error {
	l.quit()
	err := l.inFlight.Shut(ctx)
	l.end()
	l.ended.Wait()
	if err != nil {
		return fmt.Errorf("listener %s: %w; they stay due and are emitted after the next start", l.name, err)
	}
	return nil
}

// run serves until wait ends; work in progress continues until work ends.
func (l *Listener) run(wait, work context.Context) {
	for wait.Err() == nil {
		began := time.Now()
		err := l.serve(wait, work)
		if wait.Err() != nil {
			return
		}
		pause(wait, l.failed(err, time.Since(began)))
	}
}

// failed notes a failure after some time of work, and returns how long to pause. Repetitions are not
// logged until it works again.
func (l *Listener) failed(err error, worked time.Duration) (pause time.Duration) {
	if worked > steady {
		l.failures = 0
	}
	l.failures++
	level := slog.LevelDebug
	if l.Ready() == nil || l.failures == 1 {
		level = slog.LevelInfo
	}
	l.isReady(err)
	l.log.Log(context.Background(), level, "cron failed; retrying", "error", err)
	return min(retryPause<<min(l.failures-1, 10), maxPause)
}

// serve handles occurrences until wait ends or something fails.
func (l *Listener) serve(wait, work context.Context) error {
	for wait.Err() == nil {
		if err := l.lookThrough(wait); err != nil {
			return err
		}
		l.isReady(nil)
		for again := time.Now().Add(lookEvery); time.Now().Before(again) && wait.Err() == nil; {
			next, err := l.occurAll(work)
			if err != nil {
				return err
			}
			pause(wait, min(next.Sub(l.now()), wakeEvery))
		}
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	<-ctx.Done()
}

// lookThrough reads the positions of the configured entries, and stores those of new ones. The first time, it
// removes those of other entries.
func (l *Listener) lookThrough(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lookEvery)
	defer cancel()
	if !l.cleared {
		if err := l.clear(ctx); err != nil {
			return err
		}
		l.cleared = true
	}
	for name := range l.entries {
		e := l.entries[name]
		begin := l.now().UTC()
		if p, known := l.at[name]; known { // what is stored may have been lost since
			begin = p.Last
		}
		p, err := l.position(ctx, &e, begin)
		if err != nil {
			return err
		}
		if l.at[name] = p; e.schedule.Next(p.Last).IsZero() {
			l.log.Warn("entry never occurs in the next years", "entry", name, "schedule", e.Schedule)
		}
	}
	return nil
}

// clear removes the positions of entries that are not configured any more.
func (l *Listener) clear(ctx context.Context) error {
	known, err := l.store.entries(ctx)
	if err != nil {
		return err
	}
	for name, p := range known {
		if _, ok := l.entries[name]; ok {
			continue
		}
		if err := l.store.remove(ctx, name, p); err != nil {
			return err
		}
		l.log.Info("entry is not configured any more; its position was removed", "entry", name)
	}
	return nil
}

// position reads the entry's position. One that is new, or has a new
// schedule, begins at the given time.
func (l *Listener) position(ctx context.Context, e *entry, begin time.Time) (position, error) {
	for {
		p, known, err := l.store.load(ctx, e.name)
		if err != nil || known && p.Schedule == e.Schedule && p.Zone == e.Zone {
			return p, err
		}
		p = position{Schedule: e.Schedule, Zone: e.Zone, Last: begin, revision: p.revision}
		ok, err := l.store.save(ctx, e.name, &p)
		if err != nil {
			return position{}, err
		}
		if ok {
			l.log.Info("entry has a new schedule", "entry", e.name, "schedule", e.Schedule, "zone", e.Zone)
			return p, nil
		}
	}
}
