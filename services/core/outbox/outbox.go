package outbox

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/journal"
)

// Call is a call of a tool that delivers.
type Call struct {
	subject.Ref
	Tool     string
	Args     json.RawMessage
	ID, Key  string
	NotAfter time.Time // it must have ended by then
	// Probe asks what became of the earlier call with the ID, instead of delivering.
	Probe *tool.Probe
}

// Caller calls internal tools.
type Caller interface {
	// Deliver makes the call and returns its result: a failure with tool.CodeNotRun or
	// tool.CodeUnknownTool if it certainly did not run, with tool.CodeOutcomeUnknown if it may
	// have run.
	Deliver(ctx context.Context, c Call) tool.Result
	// Delivers reports whether an executor offers the tool, and its time limit.
	Delivers(tool string) (limit time.Duration, ok bool)
	// Cancel cancels what another session works on.
	Cancel(ctx context.Context, t event.Task) error
	// Pending reports whether a request for approval still waits for an answer.
	Pending(ctx context.Context, ref subject.Ref, call string) (bool, error)
}

// Config is what an outbox needs.
type Config struct {
	Bus    *journal.Journal
	Log    *slog.Logger
	Caller Caller
	Notify Notify
	GiveUp time.Duration // how long a message is tried; default 72 h
}

// defaultGiveUp is how long a message is tried.
const defaultGiveUp = 72 * time.Hour

// Outbox is one core's part in delivering.
type Outbox struct {
	cfg     Config
	bucket  *journal.Bucket
	now     func() time.Time
	ensured atomic.Bool
	wake    chan struct{}

	mu      sync.Mutex
	entries map[dest]map[string]*entry // by destination and id; all that the bucket has
	lease   lease
	last    uint64                   // the last commit of which there was an entry
	done    uint64                   // entries up to this commit are delivered: no earlier one is still to come
	sizes   map[subject.Writer]int64 // bytes of the entries, by listener
	end     uint64                   // of the log, when this core started
	busy    map[dest]delivering      // the destinations that are being delivered to
	held    map[dest]hold            // the destinations whose last attempt has failed
	outage  int                      // attempts since the last one whose outcome was stored
	limit   int64                    // bytes that the entries of one listener take
	counts  struct{ delivered, failed, dead, probed, resolved int64 }
}

// New returns an outbox; Start makes it work.
func New(cfg Config) *Outbox {
	if cfg.GiveUp <= 0 {
		cfg.GiveUp = defaultGiveUp
	}
	return &Outbox{
		cfg: cfg, bucket: cfg.Bus.Bucket(journal.BucketOutbox), now: time.Now, wake: make(chan struct{}, 1),
		entries: map[dest]map[string]*entry{}, sizes: map[subject.Writer]int64{},
		busy: map[dest]delivering{}, held: map[dest]hold{}, limit: maxListener,
	}
}

// Ensure prepares for the first outgoing commit: without it, the outbox would miss the commit. The
// caller must not append the commit after an error.
func (o *Outbox) Ensure(ctx context.Context) error {
	if o.ensured.Load() {
		return nil
	}
	if err := o.cfg.Bus.EnsureOutgoing(ctx); err != nil {
		return err
	}
	o.ensured.Store(true)
	o.kick()
	return nil
}

func (o *Outbox) kick() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// lookEvery is how often a core looks whether another one has made the consumer.
const lookEvery = 10 * time.Second

// Start works until ctx ends; stop waits for deliveries in progress.
func (o *Outbox) Start(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	watch := o.bucket.Watch(o.take)
	var gone sync.WaitGroup
	gone.Go(func() { o.consume(ctx) })
	gone.Go(func() { o.deliver(ctx) })
	return func() {
		cancel()
		gone.Wait()
		watch.Stop()
	}
}

// consume makes entries of outgoing commits, once there is a consumer.
func (o *Outbox) consume(ctx context.Context) {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for first := true; ; first = false {
		if !first {
			select {
			case <-ctx.Done():
				return
			case <-look.C:
			case <-time.After(100 * time.Millisecond):
				if !o.ensured.Load() {
					continue
				}
			}
		}
		if !o.ensured.Load() {
			if has, err := o.cfg.Bus.HasOutgoing(ctx); err != nil || !has {
				continue
			}
			o.ensured.Store(true)
		}
		o.setEnd(ctx)
		running, err := o.cfg.Bus.ConsumeOutgoing(ctx, o.floor, o.project)
		if err != nil {
			o.cfg.Log.Debug("consuming outgoing commits", "error", err)
			continue
		}
		<-ctx.Done()
		running.Stop()
		return
	}
}

// setEnd notes where the log ends.
func (o *Outbox) setEnd(ctx context.Context) {
	end, err := o.cfg.Bus.LastSequence(ctx)
	if err != nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.end = max(o.end, end)
}

// floor is where a new consumer begins, if the server has lost the old one: after the last commit of
// which the bucket knows an entry, or at the end of the log as it was when this core started.
func (o *Outbox) floor() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.last == 0 {
		return o.end
	}
	return o.last
}

// take follows the bucket.
func (o *Outbox) take(c journal.Change) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if c.Reset { // perhaps another bucket
		clear(o.entries)
		clear(o.sizes)
		clear(o.held) // the bus is back
		o.lease = lease{idle: o.lease.idle}
	}
	for _, e := range c.Entries {
		o.adopt(e)
	}
	maps.DeleteFunc(o.held, func(d dest, _ hold) bool { return o.entries[d] == nil })
	o.kick()
}

// adopt takes over one change of the bucket.
func (o *Outbox) adopt(e journal.Entry) {
	if e.Key == leaseKey {
		o.lease.seen(e, time.Now())
		return
	}
	d, _ := splitID(e.Key)
	o.last = max(o.last, commitOf(e.Key))
	if e.Deleted {
		o.forget(d, e.Key)
		return
	}
	n, err := decode(e)
	if err != nil {
		o.cfg.Log.Warn("an entry of the outbox is left alone", "error", err)
		return
	}
	if old := o.entries[d][e.Key]; old != nil && old.revision > n.revision {
		return
	}
	o.forget(d, e.Key)
	if o.entries[d] == nil {
		o.entries[d] = map[string]*entry{}
	}
	o.entries[d][e.Key] = n
	o.sizes[n.Via] += n.size()
}

// forget removes an entry from what this core knows.
func (o *Outbox) forget(d dest, id string) {
	e := o.entries[d][id]
	if e == nil {
		return
	}
	delete(o.entries[d], id)
	if len(o.entries[d]) == 0 {
		delete(o.entries, d)
	}
	if o.sizes[e.Via] -= e.size(); o.sizes[e.Via] <= 0 {
		delete(o.sizes, e.Via)
	}
}

// store changes an entry that nobody else has changed since it was read.
func (o *Outbox) store(ctx context.Context, e *entry) error {
	value, err := json.Marshal(e)
	if err != nil {
		return err
	}
	rev, err := o.put(ctx, e.id, value, e.revision)
	if err != nil {
		return err
	}
	e.revision = rev
	o.mu.Lock()
	defer o.mu.Unlock()
	n := *e
	if list := o.entries[e.dest()]; list != nil {
		list[e.id] = &n
	}
	return nil
}

// put stores a value, and finds out whether one whose acknowledgement was lost is stored.
func (o *Outbox) put(ctx context.Context, key string, value []byte, after uint64) (uint64, error) {
	rev, err := o.bucket.Put(ctx, key, value, journal.Fence{Revision: after})
	if errors.Is(err, bus.ErrAmbiguous) {
		if now, e := o.bucket.Get(ctx, key); e == nil && string(now.Value) == string(value) {
			return now.Revision, nil
		}
	}
	return rev, err
}

// remove deletes an entry.
func (o *Outbox) remove(ctx context.Context, e *entry) error {
	if _, err := o.bucket.Delete(ctx, e.id, journal.Fence{Revision: e.revision}); err != nil && !errors.Is(err, bus.ErrFenceLost) {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.forget(e.dest(), e.id)
	return nil
}

// Dead returns how many messages were given up, and since when the oldest of them was to be
// delivered.
func (o *Outbox) Dead() (n int, since time.Time) {
	for _, e := range o.list() {
		if e.State != coreapi.OutboxDead {
			continue
		}
		if n++; n == 1 || e.Stored.Before(since) {
			since = e.Stored
		}
	}
	return n, since
}

// absentFor is how long messages of a listener that is not running wait before that is a problem.
const absentFor = time.Minute

// Waits is what waits for one listener.
type Waits struct {
	Via      subject.Writer
	Messages int
	Since    time.Time // of the oldest
	Full     bool      // no more of its messages are kept
}

// Absent returns the listeners that do not run and whose messages wait, and those that have as many
// messages as are kept.
func (o *Outbox) Absent() (out []Waits) {
	by := map[subject.Writer]*Waits{}
	for _, e := range o.list() {
		if e.State == coreapi.OutboxDead || o.now().Before(e.Delay) {
			continue
		}
		w := by[e.Via]
		if w == nil {
			w = &Waits{Via: e.Via, Since: e.Stored}
			by[e.Via] = w
		}
		if w.Messages++; e.Stored.Before(w.Since) {
			w.Since = e.Stored
		}
	}
	for _, via := range slices.Sorted(maps.Keys(by)) {
		w := by[via]
		w.Full = o.full(via)
		_, runs := o.cfg.Caller.Delivers(tool.Deliverer(via))
		if w.Full || !runs && o.now().Sub(w.Since) > absentFor {
			out = append(out, *w)
		}
	}
	return out
}

// Counters returns the counts by metric name.
func (o *Outbox) Counters() map[string]int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return map[string]int64{
		"outbox_dead": o.counts.dead, "outbox_delivered": o.counts.delivered,
		"outbox_failed_attempts": o.counts.failed, "outbox_probed": o.counts.probed, "outbox_resolved": o.counts.resolved,
	}
}
