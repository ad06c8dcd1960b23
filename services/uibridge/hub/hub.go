package hub

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/client"
	"skandha.dev/services/uibridge/contract"
)

// Config configures a hub. The zero value means the defaults.
type Config struct {
	Queue      int           // maximum number of notifications in a feed's queue; default 1024
	QueueBytes int           // their maximum size in bytes; default 4 MiB
	Ring       int           // notifications of a session kept for reconnecting feeds; default 1024
	RingBytes  int           // their maximum size in bytes; default 2 MiB
	Idle       time.Duration // how long a session without feeds is kept; default 10 s
	Stall      time.Duration // a feed that is not read for so long ends if its queue is full or it lags; default 5 s
	Patience   time.Duration // how long a lagging feed retries reading the log; default 30 s
	Outage     time.Duration // how long the bus must be away before feeds are notified; default 1 s
}

func (c Config) withDefaults() Config {
	orElse(&c.Queue, 1024)
	orElse(&c.QueueBytes, 4<<20)
	orElse(&c.Ring, 1024)
	orElse(&c.RingBytes, 2<<20)
	orElse(&c.Idle, 10*time.Second)
	orElse(&c.Stall, 5*time.Second)
	orElse(&c.Patience, 30*time.Second)
	orElse(&c.Outage, time.Second)
	return c
}

func orElse[T int | time.Duration](v *T, d T) {
	if *v <= 0 {
		*v = d
	}
}

// Deps are a hub's dependencies.
type Deps struct {
	Client   *client.Client // the hub only sends requests, and writes nothing
	Log      *slog.Logger
	Markdown Markdown // nil: nothing is rendered
}

// Stats are the figures of a hub.
type Stats struct {
	Sessions int   // followed now
	Feeds    int   // open now
	Slow     int64 // feeds that did not keep up, since the start
}

// Hub shares the followers of sessions among feeds.
type Hub struct {
	cfg      Config
	deps     Deps
	rendered *rendered // nil without Markdown
	running  sync.WaitGroup
	stop     context.CancelFunc // stops watching the bus
	bus      atomic.Value       // a busState for feeds
	slow     atomic.Int64

	mu       sync.Mutex
	sessions map[subject.Ref]*session
	feeds    map[*feed]struct{}
	closed   bool
}

// New creates a hub; Close ends it.
func New(cfg Config, deps Deps) *Hub {
	h := &Hub{cfg: cfg.withDefaults(), deps: deps, sessions: map[subject.Ref]*session{}, feeds: map[*feed]struct{}{}}
	if deps.Markdown != nil {
		h.rendered = newRendered(deps.Markdown)
	}
	h.bus.Store(busState{})
	ctx, cancel := context.WithCancel(context.Background())
	h.stop = cancel
	h.running.Go(func() { h.watch(ctx) })
	return h
}

// render returns nil without Markdown.
func (h *Hub) render() func(string) string {
	if h.rendered == nil {
		return nil
	}
	return h.rendered.of
}

// errClosed is the error of feeds that end with the hub.
var errClosed = &contract.Error{
	Code: contract.CodeUnavailable, Message: "the bridge is shutting down; attach again after the last id seen",
}

// Close ends all feeds and waits for the hub's goroutines.
func (h *Hub) Close() {
	h.mu.Lock()
	h.closed = true
	feeds := slices.Collect(maps.Keys(h.feeds))
	for _, s := range h.sessions {
		h.remove(s)
	}
	h.mu.Unlock()
	for _, f := range feeds {
		f.end(errClosed)
	}
	h.stop()
	h.running.Wait()
}

// Stats returns the hub's current figures.
func (h *Hub) Stats() Stats {
	h.mu.Lock()
	defer h.mu.Unlock()
	return Stats{Sessions: len(h.sessions), Feeds: len(h.feeds), Slow: h.slow.Load()}
}

// Attach begins a feed of a session's notifications. The feed ends with ctx.
//
// Errors: *contract.Error with CodeInvalid if a.After is not an id of the session, and
// CodeUnavailable if the bus or core does not answer.
func (h *Hub) Attach(ctx context.Context, a contract.Attachment) (contract.Feed, error) {
	s, err := h.session(ctx, a)
	if err != nil {
		return nil, err
	}
	f := &feed{
		s: s, name: a.Name, commits: a.Commits, html: a.HTML && h.deps.Markdown != nil,
		wake: make(chan struct{}, 1), done: make(chan struct{}), taken: time.Now(),
	}
	if !h.add(f) {
		return nil, errClosed
	}
	if err := f.begin(ctx, a.After); err != nil {
		f.end(err)
		return nil, err
	}
	f.endWith(ctx)
	return f, nil
}

// session finds or starts the session of an attachment, and holds it.
func (h *Hub) session(ctx context.Context, a contract.Attachment) (*session, error) {
	h.mu.Lock()
	s := h.sessions[a.Ref]
	switch {
	case h.closed:
		h.mu.Unlock()
		return nil, errClosed
	case s == nil:
		s = h.start(a.Ref)
	}
	s.attached++
	if s.idle != nil {
		s.idle.Stop()
	}
	h.mu.Unlock()
	select {
	case <-s.ready:
		if s.failed == nil {
			return s, nil
		}
		h.drop(s)
		h.deps.Log.Warn("following a session failed", "session", a.Ref, "error", s.failed)
		return nil, &contract.Error{Code: contract.CodeUnavailable, Message: "the bus does not answer; try again"}
	case <-ctx.Done():
		h.drop(s)
		return nil, ctx.Err()
	}
}

// start begins to follow a session. The caller holds the lock.
func (h *Hub) start(ref subject.Ref) *session {
	ctx, cancel := context.WithCancel(context.Background())
	s := &session{
		hub: h, ref: ref, log: h.deps.Log, cancel: cancel, ready: make(chan struct{}), feeds: map[*feed]struct{}{},
	}
	h.sessions[ref] = s
	h.running.Go(func() { s.run(ctx) })
	return s
}

// add registers a feed of a held session.
func (h *Hub) add(f *feed) bool {
	if f.commits {
		f.s.commits.Add(1)
	}
	if f.html {
		f.s.html.Add(1)
	}
	f.s.enter(f)
	h.mu.Lock()
	h.feeds[f] = struct{}{}
	closed := h.closed
	h.mu.Unlock()
	if closed {
		h.release(f)
	}
	return !closed
}

// release unregisters feeds that have ended. Releasing one twice has no effect.
func (h *Hub) release(feeds ...*feed) {
	for _, f := range feeds {
		f.s.leave(f)
		h.mu.Lock()
		_, held := h.feeds[f]
		delete(h.feeds, f)
		h.mu.Unlock()
		if !held {
			continue
		}
		if f.commits {
			f.s.commits.Add(-1)
		}
		if f.html {
			f.s.html.Add(-1)
		}
		h.log(f)
		h.drop(f.s)
	}
}

func (h *Hub) log(f *feed) {
	var e *contract.Error
	if err := f.ended(); errors.As(err, &e) && e.Code == contract.CodeSlow {
		h.slow.Add(1)
		h.deps.Log.Warn("feed did not keep up", "session", f.s.ref, "feed", f.name, "after", e.After)
	}
}

// drop releases one hold on a session.
func (h *Hub) drop(s *session) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.attached--; s.attached > 0 || h.sessions[s.ref] != s {
		return
	}
	s.idle = time.AfterFunc(h.cfg.Idle, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if s.attached == 0 {
			h.remove(s)
		}
	})
}

// forget removes a session that could not be followed.
func (h *Hub) forget(s *session) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.remove(s)
}

// remove ends a session. The caller holds the lock.
func (h *Hub) remove(s *session) {
	if h.sessions[s.ref] == s {
		delete(h.sessions, s.ref)
	}
	if s.idle != nil {
		s.idle.Stop()
	}
	s.cancel()
}
