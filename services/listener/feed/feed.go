package feed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nuid"
	"golang.org/x/sync/semaphore"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/listener/contract"
	"skandha.dev/services/listener/mapping"
)

// The bounds of what waits.
const (
	MaxWaiting      = 1024
	MaxWaitingBytes = 32 << 20

	maxBatch   = 64
	retryPause = 500 * time.Millisecond
	storeWait  = 5 * time.Second
)

// Item is a reading for some rules.
type Item struct {
	Rules   []string
	Reading mapping.Reading
	Done    func() // called once what follows from it is durable; may be nil
}

// Stats counts readings.
type Stats struct {
	Readings   atomic.Int64 // taken
	Full       atomic.Int64 // dropped because too many waited
	Limited    atomic.Int64 // dropped by every
	Unreadable atomic.Int64 // dropped: no value as the rule wants it, or too large
	Names      atomic.Int64 // dropped by max_names
	Repeated   atomic.Int64 // taken before, or retained and known
	Invalid    atomic.Int64 // inputs that the log refuses as invalid
}

// Counters returns the counts by metric name, after a prefix.
func (s *Stats) Counters(prefix string) map[string]int64 {
	return map[string]int64{
		prefix + "_readings": s.Readings.Load(), prefix + "_dropped_full": s.Full.Load(),
		prefix + "_dropped_rate": s.Limited.Load(), prefix + "_dropped_unreadable": s.Unreadable.Load(),
		prefix + "_dropped_names": s.Names.Load(), prefix + "_repeated": s.Repeated.Load(),
		prefix + "_dropped_invalid": s.Invalid.Load(),
	}
}

// Deps are a feed's dependencies.
type Deps struct {
	Bus    *journal.Journal
	Logger *slog.Logger     // default slog.Default
	Now    func() time.Time // default time.Now
	Stats  *Stats           // may be nil
}

// Feed belongs to one listener.
type Feed struct {
	name  subject.Writer
	rules map[string]*mapping.Mapper
	order []string // of the rules
	store *store
	log   *slog.Logger
	now   func() time.Time
	stats *Stats

	emitter  contract.Emitter
	inFlight contract.InFlight
	space    *semaphore.Weighted
	queue    chan waiting
	open     []waiting // taken from the queue and not done
	health   contract.Condition
	bad      map[string]string // rules whose last reading was unreadable, and why
	end      context.CancelFunc
	ended    sync.WaitGroup
}

type waiting struct {
	Item
	leave func()
}

// New returns a feed; an error of a rule begins with its name.
func New(source mapping.Source, rules map[string]mapping.Config, deps Deps) (*Feed, error) {
	if deps.Bus == nil {
		return nil, errors.New("deps.Bus is required")
	}
	deps.Logger = cmp.Or(deps.Logger, slog.Default())
	if deps.Now == nil {
		deps.Now = time.Now
	}
	name := source.Listener
	f := &Feed{
		name: name, rules: map[string]*mapping.Mapper{}, order: slices.Sorted(maps.Keys(rules)),
		store: newStore(deps.Bus.Bucket(journal.BucketListeners), name),
		log:   deps.Logger.With("listener", string(name)), now: deps.Now, stats: cmp.Or(deps.Stats, &Stats{}),
		space: semaphore.NewWeighted(MaxWaitingBytes), queue: make(chan waiting, MaxWaiting), bad: map[string]string{},
		end: func() {},
	}
	var errs []error
	for _, rule := range f.order {
		m, err := mapping.New(rule, rules[rule], source)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s.%w", rule, err))
			continue
		}
		f.rules[rule] = m
	}
	return f, errors.Join(errs...)
}

// Start begins to store inputs. It can be called once.
func (f *Feed) Start(ctx context.Context, e contract.Emitter) error {
	if !f.inFlight.Open() {
		return fmt.Errorf("listener %s was already started", f.name)
	}
	f.emitter = e
	var work context.Context
	work, f.end = context.WithCancel(context.WithoutCancel(ctx))
	f.ended.Go(func() { f.run(work) })
	return nil
}

// Stop takes no more readings and returns when all that were taken are done.
func (f *Feed) Stop(ctx context.Context) error {
	err := f.inFlight.Shut(ctx)
	f.end()
	f.ended.Wait()
	if err != nil {
		return fmt.Errorf("listener %s: %w", f.name, err)
	}
	return nil
}

// Health returns whether readings become inputs.
func (f *Feed) Health() contract.Health { return f.health.Health() }

// Offer takes a reading if there is space for it; else it is dropped, and counted.
func (f *Feed) Offer(it Item) bool {
	leave, ok := f.inFlight.Enter()
	if !ok {
		return false
	}
	it.name()
	if size := it.size(); f.space.TryAcquire(size) {
		select {
		case f.queue <- waiting{it, leave}:
			return true
		default:
			f.space.Release(size)
		}
	}
	leave()
	f.stats.Full.Add(1)
	return false
}

// Put takes a reading, and waits until there is space for it. It fails when ctx or the feed ends.
func (f *Feed) Put(ctx context.Context, it Item) error {
	leave, ok := f.inFlight.Enter()
	if !ok {
		return fmt.Errorf("%w: listener %s is not running", contract.ErrNotTaken, f.name)
	}
	it.name()
	if err := f.space.Acquire(ctx, it.size()); err != nil {
		leave()
		return err
	}
	select {
	case f.queue <- waiting{it, leave}:
		return nil
	case <-ctx.Done():
		f.space.Release(it.size())
		leave()
		return ctx.Err()
	}
}

// name gives a reading that its source does not deliver again an id for retries.
func (it *Item) name() {
	if it.Reading.ID == "" {
		it.Reading.ID = nuid.Next()
	}
}

// size is what a reading counts as, in bytes.
func (it Item) size() int64 {
	return min(int64(len(it.Reading.Data)+len(it.Reading.Name))+256, MaxWaitingBytes)
}

// run works until the context ends.
func (f *Feed) run(ctx context.Context) {
	defer f.drop()
	for ctx.Err() == nil {
		err := f.load(ctx)
		for err == nil && ctx.Err() == nil {
			err = f.step(ctx)
		}
		if ctx.Err() != nil {
			return
		}
		if f.health.Set(contract.StateDegraded, "readings wait: "+err.Error()) {
			f.log.Warn("readings wait; retrying", "error", err)
		}
		for i := range f.open {
			f.open[i].Reading.Again = true // a part of what follows may be stored
		}
		pause(ctx, retryPause)
	}
}

// drop gives up what is not done; its source delivers it again.
func (f *Feed) drop() {
	for _, w := range f.open {
		w.leave()
	}
	for {
		select {
		case w := <-f.queue:
			w.leave()
		default:
			return
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	<-ctx.Done()
}

// load reads the state of the rules.
func (f *Feed) load(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*storeWait)
	defer cancel()
	for _, m := range f.rules {
		m.Reset()
	}
	return f.store.load(ctx, func(rule string, state []byte) {
		m := f.rules[rule]
		if m == nil {
			return // the rule is not configured any more
		}
		if err := m.Load(state); err != nil {
			f.log.Error("the state of a rule is lost", "rule", rule, "error", err)
		}
	})
}

// step takes what waits through the rules, or waits for it.
func (f *Feed) step(ctx context.Context) error {
	if len(f.open) == 0 {
		f.await(ctx)
	}
	for len(f.open) < maxBatch {
		select {
		case w := <-f.queue:
			f.open = append(f.open, w)
			continue
		default:
		}
		break
	}
	for _, w := range f.open {
		if err := f.take(ctx, w.Item); err != nil {
			return err
		}
	}
	if err := f.due(ctx); err != nil {
		return err
	}
	if err := f.save(ctx); err != nil {
		return err
	}
	for _, w := range f.open {
		if w.Done != nil {
			w.Done()
		}
		f.space.Release(w.size())
		w.leave()
	}
	f.open = f.open[:0]
	f.healthy()
	return nil
}

// await waits for a reading, or until a rule has something to do.
func (f *Feed) await(ctx context.Context) {
	var next time.Time
	for _, m := range f.rules {
		if at := m.Next(); !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	var alarm <-chan time.Time
	if !next.IsZero() {
		t := time.NewTimer(max(0, next.Sub(f.now())))
		defer t.Stop()
		alarm = t.C
	}
	select {
	case <-ctx.Done():
	case <-alarm:
	case w := <-f.queue:
		f.open = append(f.open, w)
	}
}

// take takes one reading through its rules.
func (f *Feed) take(ctx context.Context, it Item) error {
	f.stats.Readings.Add(1)
	for _, rule := range it.Rules {
		inputs, err := f.rules[rule].Take(it.Reading)
		f.count(rule, err)
		if err := f.emit(ctx, inputs); err != nil {
			return err
		}
	}
	return nil
}

func (f *Feed) due(ctx context.Context) error {
	for _, rule := range f.order {
		inputs, err := f.rules[rule].Due(f.now())
		if err != nil {
			f.count(rule, err)
		}
		if err := f.emit(ctx, inputs); err != nil {
			return err
		}
	}
	return nil
}

// emit stores inputs, however long it takes. It fails only when ctx ends.
func (f *Feed) emit(ctx context.Context, inputs []contract.Input) error {
	for i := 0; i < len(inputs); {
		_, err := f.emitter.EmitInput(ctx, inputs[i])
		switch {
		case err == nil:
			i++
		case errors.Is(err, contract.ErrInvalid):
			f.stats.Invalid.Add(1)
			f.log.Error("an input was dropped", "id", inputs[i].ID, "error", err)
			i++
		case ctx.Err() != nil:
			return ctx.Err()
		default:
			f.health.Set(contract.StateDegraded, "inputs wait: "+contract.Outage(err))
			pause(ctx, retryPause)
		}
	}
	return nil
}

// save stores the state of the rules that has changed.
func (f *Feed) save(ctx context.Context) error {
	for _, rule := range f.order {
		for name, state := range f.rules[rule].Changed() {
			if err := f.store.save(ctx, rule, name, state); err != nil {
				return err
			}
		}
	}
	return nil
}

// count counts a reading that was dropped, by the reason.
func (f *Feed) count(rule string, err error) {
	for reason, n := range map[error]*atomic.Int64{
		mapping.ErrLimited: &f.stats.Limited, mapping.ErrUnreadable: &f.stats.Unreadable, mapping.ErrNames: &f.stats.Names,
		mapping.ErrTaken: &f.stats.Repeated,
	} {
		if errors.Is(err, reason) {
			n.Add(1)
		}
	}
	if errors.Is(err, mapping.ErrUnreadable) || errors.Is(err, mapping.ErrNames) {
		f.bad[rule] = err.Error()
		f.log.Debug("a reading was dropped", "rule", rule, "error", err)
	} else {
		delete(f.bad, rule)
	}
}

// healthy says how the feed is when nothing waits.
func (f *Feed) healthy() {
	for _, rule := range f.order {
		if why := f.bad[rule]; why != "" {
			f.health.Set(contract.StateDegraded, "the last reading of rule "+rule+" was dropped: "+why)
			return
		}
	}
	f.health.Set(contract.StateOK, "")
}
