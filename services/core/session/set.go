package session

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/hashicorp/golang-lru/v2/simplelru"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/attempt"
	"skandha.dev/services/core/commands"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/core/directory"
	"skandha.dev/services/core/live"
	"skandha.dev/services/core/loader"
	"skandha.dev/services/core/planner/engine"
	"skandha.dev/services/core/plugins"
	"skandha.dev/services/core/tracing"
	"skandha.dev/services/core/trouble"
	"skandha.dev/services/internal/embed"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/logburst"
)

// Config of a set of sessions.
type Config struct {
	Open      int // sessions open at once, at least 1; inputs of others wait
	Cache     int // states cached besides those of open sessions, at least 1
	Policy    decide.Policy
	Approvals decide.Approvals // nil: none
	Version   string
	ToolUse   func() []commands.ToolUse // for /metrics
	// Memory returns what agents remember, for one decision that waits so long for embeddings;
	// nil: nothing.
	Memory func(*embed.Patience) decide.Memory
	// PerListener is how many inputs of one writer may wait here before it is reported to Pressed, which must not wait:
	// with their number, now and then, and with 0 once half of them are done. 0: no limit.
	PerListener int
	Pressed     func(w subject.Writer, waiting int)
	Undelete    time.Duration // how long a deleted session can be brought back
	// Matcher returns what matches an agent's tools with requests; nil: nothing does.
	Matcher func(agent subject.Agent, patience *embed.Patience) engine.Matcher
}

// Deps is what sessions work with.
type Deps struct {
	Bus       *journal.Journal
	Log       *slog.Logger
	Loader    *loader.Loader
	Directory *directory.Directory
	Plugins   *plugins.Host
	Attempts  *attempt.Sender
	Live      *live.Publisher
	Troubles  *trouble.List
	Outbox    Outbox
	Traces    *tracing.Recorder // nil: none are made
}

// Outbox delivers what commits have to deliver.
type Outbox interface {
	// Ensure prepares for an outgoing commit, which must not be appended after an error.
	Ensure(ctx context.Context) error
	// Wants reports whether people are to be notified of what is in a commit.
	Wants(c event.Commit) bool
}

// Stats counts what the sessions of this core have done since it started.
type Stats struct {
	Commits, FenceLost, Deliveries, Redeliveries, Panics, Poison, DeadLetters, Mismatches atomic.Int64
}

// Set holds the open sessions of one core.
type Set struct {
	*Deps
	cfg      Config
	ctx      context.Context //nolint:containedctx // sessions outlive every call
	end      context.CancelFunc
	stats    Stats
	appends  appendLanes
	pressure *pressure
	suspects suspects
	gates    *gates
	base     atomic.Uint64 // the end of the log when this core started: what came later is new
	outages  *logburst.Log
	panics   *lru.Cache[panicKey, int] // how often this core has panicked while it decided a cause

	mu       sync.Mutex
	open     map[subject.Ref]*session
	overflow overflow
	// cache has the states of other sessions. They may lag behind the log; the fence detects that.
	cache    *simplelru.LRU[subject.Ref, *decide.State]
	newLog   time.Time // when the log was found lost and created again; zero: never
	stopping bool
	gone     sync.WaitGroup
}

// NewSet returns a set without sessions. Those that it opens end with ctx at the latest.
func NewSet(ctx context.Context, cfg Config, deps Deps) (*Set, error) {
	cache, err := simplelru.NewLRU[subject.Ref, *decide.State](cfg.Cache, nil)
	if err != nil {
		return nil, err
	}
	panics, err := lru.New[panicKey, int](maxPanics)
	if err != nil {
		return nil, err
	}
	gates, err := newGates()
	if err != nil {
		return nil, err
	}
	ctx, end := context.WithCancel(ctx)
	return &Set{
		Deps: &deps, cfg: cfg, ctx: ctx, end: end, panics: panics, open: map[subject.Ref]*session{}, cache: cache,
		overflow: newOverflow(), suspects: newSuspects(), gates: gates, outages: logburst.New(deps.Log), pressure: newPressure(cfg.PerListener, cfg.Pressed),
	}, nil
}

// warn logs that something has failed and is tried again. While the bus is away everything fails, for
// every session: then each what is logged once in a while.
func (s *Set) warn(what string, args ...any) {
	if s.Bus.Connected() {
		s.Log.Warn(what, args...)
		return
	}
	s.outages.Log(slog.LevelWarn, what, what+"; the bus is away", args...)
}

// Stats returns the live counters.
func (s *Set) Stats() *Stats { return &s.stats }

// Room reports whether inputs are appended without a long wait.
func (s *Set) Room() bool { return s.appends.room() }

// HasPlace reports whether one more session may be open. Thousands of timers that fire at once
// must not open that many: no one waits for them.
func (s *Set) HasPlace() bool { return s.Len() < s.cfg.Open }

// Len returns how many sessions are open.
func (s *Set) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
}

// Waiting returns how many sessions wait until they can be opened.
func (s *Set) Waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.overflow.len()
}

// Limited returns how many sessions wait for a limit of their agent.
func (s *Set) Limited() int { return s.gates.len() }

// StoredBefore sets the end of the log before the first delivery. The server may have forgotten
// who was delivered what is stored up to there.
func (s *Set) StoredBefore(end uint64) { s.base.Store(end) }

// Start begins to extend the deliveries of sessions that wait.
func (s *Set) Start() { go s.extendWaiting() }

// Drain waits until no session is open, for as long as grace, then makes the remaining ones
// hand back their deliveries.
func (s *Set) Drain(grace time.Duration) {
	deadline := time.Now().Add(grace)
	for s.Len() > 0 && time.Now().Before(deadline) {
		time.Sleep(20 * time.Millisecond)
	}
	close(s.suspects.closed)
	s.mu.Lock()
	s.stopping = true
	for _, o := range s.open {
		o.mailbox.put(stopMail{})
	}
	s.mu.Unlock()
	for _, d := range s.waiting() {
		s.nak(d.Delivery)
	}
	done := make(chan struct{})
	go func() { s.gone.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(5 * time.Second):
		s.end() // cancels the closings that still wait for a runner
		<-done
	}
}

// Deliver passes a delivery to its session, or to the overflow.
func (s *Set) Deliver(d journal.Delivery) {
	s.stats.Deliveries.Add(1)
	if d.NumDelivered > 1 {
		s.stats.Redeliveries.Add(1)
	}
	at, err := subject.ParseCause(d.Subject)
	if err == nil && at.Old && at.Kind != subject.Input {
		// It may have been written by anybody. An input of before the upgrade is answered.
		err = fmt.Errorf("%s by %s on the subject of contract 1; people write on agent.<agent>.<session>.person.<kind>.<name>",
			at.Kind, at.Writer)
	}
	if err != nil { // a stream filter admits tokens that are not ids
		s.Log.Warn("invalid cause subject", "subject", d.Subject, "error", err)
		s.deadLetter(s.ctx, subject.Ref{Agent: "unknown", Session: "unknown"}, d.StoredMsg, err.Error())
		if err := d.Ack(); err != nil {
			s.Log.Debug("acknowledging", "error", err)
		}
		return
	}
	if journal.IsNoise(d.StoredMsg) {
		s.ackNoise(d)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		s.nak(d)
		return
	}
	// Searching the body for the mode's name is enough here; the input is parsed later.
	in := at.Kind == subject.Input
	m := delivery{
		Delivery: d, at: at, queues: in && !bytes.Contains(d.Data, []byte(event.ModeInterrupt)), arrived: time.Now(),
		fresh: d.NumDelivered == 1 && d.Seq > s.base.Load(),
	}
	if in {
		s.pressure.add(d.Seq, at.Writer)
	}
	if in && (s.overflow.len() > 0 || s.open[at.Ref] == nil && len(s.open) >= s.cfg.Open) {
		s.overflow.put(m)
		return
	}
	s.session(at.Ref).mailbox.put(m)
}

// ackNoise drops a cause that nobody has written. A session passes over it when it reads its causes.
func (s *Set) ackNoise(d journal.Delivery) {
	s.Log.Warn("dropping a cause that the server has stored for somebody else", "subject", d.Subject, "cause", d.Seq,
		"stream", d.Header.Get(jetstream.StreamHeader))
	if err := d.Ack(); err != nil {
		s.Log.Debug("acknowledging", "error", err)
	}
}

func (s *Set) nak(d journal.Delivery) {
	s.pressure.done(d.Seq)
	if err := d.Nak(0); err != nil {
		s.Log.Debug("handing back a delivery", "error", err)
	}
}

// session returns the open session, or opens it. The caller holds the lock.
func (s *Set) session(ref subject.Ref) *session {
	o := s.open[ref]
	if o == nil {
		state, _ := s.cache.Peek(ref)
		s.cache.Remove(ref)
		o = &session{
			Deps: s.Deps, set: s, ref: ref, ctx: s.ctx, mailbox: newMailbox(), state: state,
			held: map[uint64]*held{}, work: map[string]*work{}, timers: map[string]bool{}, looked: time.Now(),
			reconnects: s.Bus.Conn().Stats().Reconnects,
		}
		if s.ofOldLog(o.state) {
			o.doubt.base, o.state = o.state, nil
		}
		o.claimant = directory.NewClaimant(func() { o.mailbox.put(pokeMail{}) })
		s.open[ref] = o
		s.gone.Add(1)
		go o.run()
	}
	return o
}

// retire closes an idle session, unless it has new mail, and opens waiting sessions.
func (s *Set) retire(o *session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !o.mailbox.empty() {
		return false
	}
	delete(s.open, o.ref)
	s.Directory.Leave(o.claimant)
	if o.state != nil {
		s.cache.Add(o.ref, o.state)
	} else if s.ofOldLog(o.doubt.base) {
		s.cache.Add(o.ref, o.doubt.base)
	}
	for len(s.open) < s.cfg.Open && !s.stopping {
		waiting := s.overflow.open()
		if len(waiting) == 0 {
			break
		}
		for _, d := range waiting {
			s.session(d.at.Ref).mailbox.put(d)
		}
	}
	s.gone.Done()
	return true
}

// Renew informs the sessions that streams were lost and created again: those of timers, or
// that of the log. Then nothing that this core holds of the old streams is valid:
// deliveries and scheduled timers refer to sequences that are used again. A state is
// compared with the log before it is used, as after a start: see [loader.Loader.Load] and
// schemas/adr/0021.
func (s *Set) Renew(log bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if log {
		s.newLog = time.Now()
		s.base.Store(0)
		s.overflow = newOverflow()
		s.pressure.clear()
	}
	for _, o := range s.open {
		o.mailbox.put(renewMail{log})
	}
}

// ofOldLog reports whether a state may belong to a log that was lost while this core was
// running. The caller holds the lock.
func (s *Set) ofOldLog(st *decide.State) bool {
	return st != nil && !s.newLog.IsZero() && !st.Now.After(s.newLog.Add(loader.ClockSkew))
}

// Asking lists the cached sessions that wait for confirmations.
func (s *Set) Asking() (refs []subject.Ref) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range s.cache.Values() {
		if len(st.Confirmations()) > 0 {
			refs = append(refs, st.Ref)
		}
	}
	return refs
}

// deadLetter stores a copy of a message that could not be handled, with the reason.
func (s *Set) deadLetter(ctx context.Context, ref subject.Ref, m bus.StoredMsg, reason string) {
	h := nats.Header{
		"Skandha-Reason":   {reason},
		"Skandha-Subject":  {m.Subject},
		"Skandha-Sequence": {strconv.FormatUint(m.Seq, 10)},
	}
	s.stats.DeadLetters.Add(1)
	if err := s.Bus.PublishDead(ctx, ref, h, m.Data); err != nil {
		s.Log.Warn("storing a dead letter", "session", ref, "cause", m.Seq, "error", err)
	}
}
