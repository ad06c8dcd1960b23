package schedules

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/internal/clock"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/logburst"
	"skandha.dev/services/internal/submit"
)

// Config is what Schedules needs.
type Config struct {
	Bus *journal.Journal
	Log *slog.Logger
	// Known reports whether an agent is configured.
	Known func(subject.Agent) bool
	// State returns the state of a session at its last commit.
	State func(ctx context.Context, ref subject.Ref) (*decide.State, error)
	// Read returns the text of a page for a watch of the session, as web:fetch reads it. turn has created
	// the watch, and after is the label of what the agent has scheduled.
	Read func(ctx context.Context, ref subject.Ref, turn, after, url string) (string, error)
	Now  func() time.Time // default time.Now
}

// Schedules is one core's part in keeping them.
type Schedules struct {
	cfg    Config
	bucket *journal.Bucket
	sender submit.Sender
	filled chan struct{} // closed once all is known that the bucket holds
	wake   chan struct{} // has a token when schedules should be looked through

	mu      sync.Mutex
	known   map[string]*record       // by key
	deleted map[string]journal.Entry // deletions that the bucket still holds, by key
	changed map[subject.Agent]uint64 // the last change of an agent's schedules
	clock   *clock.Clock             // nil until it is needed
	rates   map[string]*rate.Limiter // of the calls of webhooks

	work    context.Context          //nolint:containedctx // pages are read beside what is due
	looks   map[string]subject.Agent // whose page is being read, by key
	bursts  *logburst.Log
	looking sync.WaitGroup
	calls   sync.Mutex // held while the call of a webhook is stored

	occurred, skipped atomic.Int64
}

// New returns the schedules; Start makes them occur.
func New(cfg Config) *Schedules {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Schedules{
		cfg: cfg, bucket: cfg.Bus.Bucket(journal.BucketSchedules),
		sender: submit.Sender{Bus: cfg.Bus.Bus, Writer: subject.ScheduleWriter},
		filled: make(chan struct{}), wake: make(chan struct{}, 1),
		known: map[string]*record{}, deleted: map[string]journal.Entry{}, changed: map[subject.Agent]uint64{},
		rates: map[string]*rate.Limiter{}, work: context.Background(), looks: map[string]subject.Agent{},
		bursts: logburst.New(cfg.Log),
	}
}

// Start works until ctx ends; stop waits for what is being emitted.
func (s *Schedules) Start(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	s.work = ctx
	watch := s.bucket.Watch(s.take)
	var gone sync.WaitGroup
	gone.Go(func() { s.run(ctx) })
	return func() {
		cancel()
		gone.Wait()
		s.looking.Wait()
		watch.Stop()
	}
}

// take follows the bucket.
func (s *Schedules) take(c journal.Change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.Reset {
		clear(s.known)
		clear(s.deleted)
		clear(s.changed)
	}
	for _, e := range c.Entries {
		s.adopt(e)
	}
	if c.Reset {
		select {
		case <-s.filled:
		default:
			close(s.filled)
		}
	}
	s.kick()
}

// adopt takes over one change of the bucket, unless a later one is known.
func (s *Schedules) adopt(e journal.Entry) {
	if old := s.known[e.Key]; old != nil && old.revision > e.Revision || s.deleted[e.Key].Revision > e.Revision {
		return
	}
	s.changed[agentOf(e.Key)] = max(s.changed[agentOf(e.Key)], e.Revision)
	if e.Deleted {
		if old := s.known[e.Key]; old != nil {
			delete(s.rates, old.Made)
		}
		delete(s.known, e.Key)
		s.deleted[e.Key] = e
		return
	}
	delete(s.deleted, e.Key)
	r, err := decode(e)
	if err != nil {
		s.cfg.Log.Warn("a schedule cannot be read and does not occur", "error", err)
		return
	}
	s.known[e.Key] = r
}

func (s *Schedules) kick() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// list returns the schedules that f wants, by agent, session and name.
func (s *Schedules) list(f func(*record) bool) []*record {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*record
	for _, r := range s.known {
		if f(r) {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b *record) int {
		return cmp.Or(strings.Compare(string(a.Agent), string(b.Agent)), strings.Compare(string(a.Session), string(b.Session)),
			strings.Compare(a.Name, b.Name))
	})
	return out
}

// await waits until the bucket is known.
func (s *Schedules) await(ctx context.Context) error {
	select {
	case <-s.filled:
		return nil
	case <-ctx.Done():
		return errors.New("the bucket of schedules cannot be read; try again")
	}
}

// openClock returns the clock.
func (s *Schedules) openClock(ctx context.Context) (*clock.Clock, error) {
	s.mu.Lock()
	c := s.clock
	s.mu.Unlock()
	if c != nil {
		return c, nil
	}
	c, err := clock.Open(ctx, s.cfg.Bus, subject.ScheduleWriter, s.cfg.Log)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock = c
	return c, nil
}

// closeClock has the clock opened again: its stream or consumer may be lost.
func (s *Schedules) closeClock() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock = nil
}

// load reads a schedule from the bucket; nil if there is none that can be read.
func (s *Schedules) load(ctx context.Context, key string) (*record, error) {
	e, err := s.bucket.Get(ctx, key)
	if errors.Is(err, bus.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r, err := decode(e)
	if err != nil {
		s.cfg.Log.Warn("a schedule cannot be read and does not occur", "error", err)
		return nil, nil
	}
	return r, nil
}

// Orphans returns how many schedules belong to agents that are not configured, and one of these.
func (s *Schedules) Orphans() (n int, agent subject.Agent) {
	for _, r := range s.list(func(r *record) bool { return !s.cfg.Known(r.Agent) }) {
		n, agent = n+1, r.Agent
	}
	return n, agent
}

// Counters returns the counts by metric name.
func (s *Schedules) Counters() map[string]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return map[string]int64{
		"schedules": int64(len(s.known)), "schedules_occurred": s.occurred.Load(), "schedules_skipped": s.skipped.Load(),
	}
}

// shown returns a schedule for the agent, who does not see keys: they would be in the log and in prompts.
func (s *Schedules) shown(r *record) coreapi.Schedule {
	out := s.info(r)
	out.Key = ""
	return out
}

// info returns a schedule for people.
func (s *Schedules) info(r *record) coreapi.Schedule {
	out := r.info(s.cfg.Now())
	if !s.cfg.Known(r.Agent) {
		out.Problem = "agent " + string(r.Agent) + " is not configured; the schedule occurs again once it is"
	}
	return out
}
