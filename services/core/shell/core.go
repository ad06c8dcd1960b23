package shell

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/core/directory"
	"skandha.dev/services/core/dispatch"
	"skandha.dev/services/core/loader"
	"skandha.dev/services/core/plugins"
	"skandha.dev/services/core/view"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/executor"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/registry"
	"skandha.dev/services/internal/store"
)

// Config of a shell.
type Config struct {
	Agents        map[subject.Agent]*decide.Agent
	Policy        decide.Policy // required
	Plugins       plugins.Config
	Streams       journal.StreamsConfig
	CacheSessions int           // states cached besides those of open sessions; default 1024
	OpenSessions  int           // sessions open at once; inputs of others wait; default 2000
	Compare       time.Duration // how often the view is compared with the log; default 30 s
	Drain         time.Duration // grace period for open turns at shutdown; default 10 s
	// Backlog is how many causes may wait before inputs are refused; default
	// DefaultBacklog, negative: no limit.
	Backlog int
	Version string
}

// Stats counts what this core has done since it started.
type Stats struct {
	Commits, FenceLost, Deliveries, Panics, Poison, Snapshots, DeadLetters, Mismatches, InternalCalls atomic.Int64
}

// Core is one replica.
type Core struct {
	cfg    Config
	bus    *journal.Journal
	caller *bus.Caller
	store  store.Store
	log    *slog.Logger
	dir    *directory.Directory
	loader *loader.Loader
	views  *view.Writer
	live   *livePublisher
	refill *view.Refill
	folds  *foldQueue
	view   *view.Store
	beacon *beacon

	release  *releases
	plugins  *plugins.Host
	stats    Stats
	troubles troubles
	panics   panics
	parked   parked
	overflow *overflow
	appends  *appendLanes
	ctx      context.Context //nolint:containedctx // the loops outlive every call; cancelled after the drain
	end      context.CancelFunc

	mu       sync.Mutex
	sessions map[subject.Ref]*session
	cache    *stateCache
	newLog   time.Time // when the log was found lost and created again; zero: never
	stopping bool
	ready    chan struct{} // closed once causes are consumed
	gone     sync.WaitGroup
}

// New prepares a core; Run does the work.
func New(cfg Config, b *journal.Journal, st store.Store, log *slog.Logger) (*Core, error) {
	if cfg.Policy == nil {
		return nil, errors.New("core: Policy must be set")
	}
	if cfg.CacheSessions <= 0 {
		cfg.CacheSessions = 1024
	}
	if cfg.OpenSessions <= 0 {
		cfg.OpenSessions = DefaultOpenSessions
	}
	if cfg.Drain <= 0 {
		cfg.Drain = 10 * time.Second
	}
	ctx, end := context.WithCancel(context.Background())
	v := view.NewStore(st)
	c := &Core{
		cfg: cfg, bus: b, store: v, view: v, log: log, dir: directory.New(log),
		ctx: ctx, end: end, sessions: map[subject.Ref]*session{}, cache: newStateCache(cfg.CacheSessions),
		ready: make(chan struct{}), overflow: newOverflow(), appends: &appendLanes{},
	}
	c.loader = &loader.Loader{Bus: b, Store: v, Log: log}
	c.refill = view.NewRefill(view.RefillConfig{
		Bus: b, Store: v, Loader: c.loader, Log: log, Every: cfg.Compare, Busy: func() bool { return c.open() > 0 },
	})
	c.views = view.NewWriter(view.WriterConfig{
		Bus: b, Store: v, Loader: c.loader, Log: log, Incomplete: c.refill, Snapshots: &c.stats.Snapshots,
		LogLost: func(what string) { c.troubles.note(subject.Ref{}, coreapi.TroubleLog, what) },
	})
	c.loader.Folded = c.views.Folded
	c.loader.Spoiled = func(ref subject.Ref) { c.refill.Want(ref, true) }
	c.live, c.release = newLivePublisher(b, log, c.views.Observe), newReleases(ctx, b, log)
	c.plugins = plugins.New(ctx, cfg.Plugins, plugins.Deps{
		Bus: b, Log: log, Directory: c.dir, Agents: cfg.Agents, Streams: cfg.Streams,
	})
	c.beacon = newBeacon(b, log, c.dir, &c.parked, cfg.Backlog)
	c.folds = newFoldQueue(ctx, c.refill.Yield)
	return c, nil
}

// Directory returns the core's directory of executors and tools.
func (c *Core) Directory() *directory.Directory { return c.dir }

// Plugins returns the current snapshot of the registry.
func (c *Core) Plugins() *registry.Snapshot { return c.plugins.Current().Snapshot }

// Hooks returns the current hook table.
func (c *Core) Hooks() *dispatch.HookSet { return c.plugins.Current().Hooks }

// Stats returns the live counters.
func (c *Core) Stats() *Stats { return &c.stats }

// Run serves until ctx ends. It then gives open turns time to finish, hands back
// the remaining deliveries and returns.
func (c *Core) Run(ctx context.Context) error {
	err := c.run(ctx)
	if ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, bus.ErrCancelled)) {
		return nil // stopped before it was ready
	}
	return err
}

func (c *Core) run(ctx context.Context) (err error) {
	defer c.end()
	if err := c.bus.EnsureStreams(ctx, c.cfg.Streams); err != nil {
		return fmt.Errorf("ensuring streams: %w", err)
	}
	if c.caller, err = c.bus.NewCaller(); err != nil {
		return fmt.Errorf("opening the reply subscription: %w", err)
	}
	defer func() { err = errors.Join(err, c.caller.Close()) }()
	if err := c.plugins.Start(ctx, c.caller); err != nil {
		return err
	}
	defer c.plugins.Stop()
	c.dir.Expect(ctx, c.store)
	if err := c.dir.Watch(c.ctx, c.bus); err != nil {
		return fmt.Errorf("watching executors: %w", err)
	}
	defer c.background()()
	go c.bus.KeepStreams(c.ctx, c.cfg.Streams, c.renewed)
	go c.bus.KeepArtifacts(c.ctx)
	services, err := c.serve()
	if err != nil {
		return err
	}
	defer stopAll(services)
	if err := c.views.LoadFloor(ctx); err != nil {
		c.log.Warn("the ack floor is unknown; a new consumer would deliver every cause again", "error", err)
	}
	fired, err := c.bus.ConsumeFired(ctx, c.fired)
	if err != nil {
		return fmt.Errorf("consuming timers: %w", err)
	}
	defer fired.Stop()
	causes, err := c.bus.ConsumeCauses(ctx, journal.ConsumeConfig{
		AckWait: ackWait, Floor: c.views.ConfirmedFloor, Room: c.appends.room,
	}, c.deliver)
	if err != nil {
		return fmt.Errorf("consuming causes: %w", err)
	}
	c.views.Follow(causes)
	c.beacon.causes.Store(causes)
	c.plugins.Begin()
	close(c.ready)
	c.log.Info("core is ready", "instance", c.bus.Instance(), "agents", len(c.cfg.Agents))
	<-ctx.Done()
	c.log.Info("core is stopping", "open_sessions", c.open())
	causes.Stop()
	c.drain()
	c.plugins.End()
	return nil
}

// background starts the work outside of sessions. stop lets pending work finish.
func (c *Core) background() (stop func()) {
	stopViews, stopLive := c.views.Start(), c.live.start()
	stopRelease, stopRefill := c.release.start(), c.refill.Start(c.ctx)
	go c.overflow.extend(c.ctx, c.log)
	go c.dir.RememberOffer(c.ctx, c.store)
	go c.recheckTroubles(c.ctx)
	stopBeacon := c.beacon.start()
	go c.view.Watch(c.ctx, c.log)
	return func() {
		stopRefill()
		stopBeacon()
		stopLive()
		stopRelease()
		if err := c.bus.Conn().FlushTimeout(time.Second); err != nil {
			c.log.Debug("flushing the last live events", "error", err)
		}
		stopViews()
	}
}

func stopAll(responders []*bus.Responder) {
	for _, r := range responders {
		r.Stop()
	}
}

// AwaitReady waits until the core consumes causes.
func (c *Core) AwaitReady(ctx context.Context) error {
	select {
	case <-c.ready:
		return nil
	case <-c.ctx.Done():
		return errors.New("core ended before it was ready")
	case <-ctx.Done():
		return fmt.Errorf("core is not ready: %w", ctx.Err())
	}
}

// AwaitExecutors waits until all of the instances have announced themselves. From
// then on, their tools are offered to models.
func (c *Core) AwaitExecutors(ctx context.Context, all ...subject.Instance) error {
	return c.dir.Await(ctx, all...)
}

// Ready reports whether the core consumes causes and its bus is connected.
func (c *Core) Ready() bool {
	select {
	case <-c.ready:
		return c.bus.Connected()
	default:
		return false
	}
}

// Health returns an error if the core cannot work now.
func (c *Core) Health() error {
	if !c.Ready() {
		return errors.New("core is not consuming causes, or its bus is disconnected")
	}
	if f := c.bus.StorageFault(); f != nil {
		return f
	}
	return nil
}

// drain waits for open sessions, then makes the remaining ones hand back their deliveries.
func (c *Core) drain() {
	deadline := time.Now().Add(c.cfg.Drain)
	for c.open() > 0 && time.Now().Before(deadline) {
		time.Sleep(20 * time.Millisecond)
	}
	c.mu.Lock()
	c.stopping = true
	for _, s := range c.sessions {
		s.mailbox.put(stopMail{})
	}
	c.mu.Unlock()
	c.overflow.handBack(c.log)
	done := make(chan struct{})
	go func() { c.gone.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(5 * time.Second):
		c.end() // cancels the closings that still wait for a runner
		<-done
	}
}

func (c *Core) open() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.sessions)
}

// deliver passes a delivery to its session, or to the overflow.
func (c *Core) deliver(d journal.Delivery) {
	c.stats.Deliveries.Add(1)
	at, err := subject.ParseCause(d.Subject)
	if err != nil { // a stream filter admits tokens that are not ids
		c.log.Warn("invalid cause subject", "subject", d.Subject, "error", err)
		c.deadLetter(c.ctx, subject.Ref{Agent: "unknown", Session: "unknown"}, d.StoredMsg, err.Error())
		if err := d.Ack(); err != nil {
			c.log.Debug("acknowledging", "error", err)
		}
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopping {
		if err := d.Nak(0); err != nil {
			c.log.Debug("handing back a delivery", "error", err)
		}
		return
	}
	if at.Kind == subject.Input &&
		(c.overflow.len() > 0 || c.sessions[at.Ref] == nil && len(c.sessions) >= c.cfg.OpenSessions) {
		c.overflow.put(at.Ref, d)
		return
	}
	c.session(at.Ref).mailbox.put(mailOf(d))
}

// mailOf marks deliveries that do not affect a running turn: inputs that do not interrupt
// it. It only searches the body for the mode's name; the input is parsed later.
func mailOf(d journal.Delivery) deliveryMail {
	at, err := subject.ParseCause(d.Subject)
	return deliveryMail{d, err == nil && at.Kind == subject.Input && !bytes.Contains(d.Data, []byte(event.ModeInterrupt))}
}

// session returns the open session, or opens it. The caller holds c.mu.
func (c *Core) session(ref subject.Ref) *session {
	s := c.sessions[ref]
	if s == nil {
		s = &session{
			c: c, ref: ref, ctx: c.ctx, mailbox: newMailbox(), state: c.cache.take(ref),
			held: map[uint64]*held{}, work: map[string]*work{}, timers: map[string]bool{}, looked: time.Now(),
			reconnects: c.bus.Conn().Stats().Reconnects,
		}
		if c.ofOldLog(s.state) {
			s.doubt.base, s.state = s.state, nil
		}
		s.claimant = directory.NewClaimant(func() { s.mailbox.put(pokeMail{}) })
		c.sessions[ref] = s
		c.gone.Add(1)
		go s.run()
	}
	return s
}

// retire closes an idle session, unless it has new mail, and opens waiting sessions.
func (c *Core) retire(s *session) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !s.mailbox.empty() {
		return false
	}
	delete(c.sessions, s.ref)
	c.dir.Leave(s.claimant)
	if s.state != nil {
		c.cache.put(s.ref, s.state)
	} else if c.ofOldLog(s.doubt.base) {
		c.cache.put(s.ref, s.doubt.base)
	}
	for len(c.sessions) < c.cfg.OpenSessions && !c.stopping {
		ref, waits := c.overflow.next()
		if !waits {
			break
		}
		for _, d := range c.overflow.take(ref) {
			c.session(ref).mailbox.put(mailOf(d))
		}
	}
	c.gone.Done()
	return true
}

// fired copies a fired timer into the log as a cause (rule 12).
func (c *Core) fired(ctx context.Context, ref subject.Ref, id string) error {
	body, err := json.Marshal(event.Timer{ID: id})
	if err != nil {
		return err
	}
	_, err = c.bus.PublishCause(ctx, ref, subject.Timer, subject.TimerWriter, "", body)
	return err
}

// stop asks an executor to stop an attempt that is no longer needed.
func (c *Core) stop(w *work, ref subject.Ref) {
	body, err := json.Marshal(executor.Request{
		Op: executor.OpStop, Agent: ref.Agent, Session: ref.Session, Call: w.id, Attempt: w.attempt,
	})
	if err != nil {
		panic(err)
	}
	if err := c.bus.Publish(c.ctx, subject.Executor(w.kind, w.instance), nil, body); err != nil {
		c.log.Debug("stopping an attempt", "executor", w.instance, "error", err)
	}
}

// deadLetter stores a copy of a message that could not be handled, with the reason.
func (c *Core) deadLetter(ctx context.Context, ref subject.Ref, m bus.StoredMsg, reason string) {
	h := nats.Header{
		"Skandha-Reason":   {reason},
		"Skandha-Subject":  {m.Subject},
		"Skandha-Sequence": {strconv.FormatUint(m.Seq, 10)},
	}
	c.stats.DeadLetters.Add(1)
	if err := c.bus.PublishDead(ctx, ref, h, m.Data); err != nil {
		c.log.Warn("storing a dead letter", "session", ref, "cause", m.Seq, "error", err)
	}
}

func (c *Core) agent(a subject.Agent) *decide.Agent { return c.plugins.Agent(a) }

func nonce() string {
	var b [12]byte
	if _, err := rand.Read(b[:]); err != nil {
		panic(err) // crypto/rand does not fail
	}
	return hex.EncodeToString(b[:])
}
