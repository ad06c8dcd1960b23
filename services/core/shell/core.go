package shell

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/attempt"
	"skandha.dev/services/core/auditor"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/core/directory"
	"skandha.dev/services/core/dispatch"
	"skandha.dev/services/core/identities"
	"skandha.dev/services/core/live"
	"skandha.dev/services/core/loader"
	"skandha.dev/services/core/memories"
	"skandha.dev/services/core/outbox"
	"skandha.dev/services/core/plugins"
	"skandha.dev/services/core/ranking"
	"skandha.dev/services/core/retention"
	"skandha.dev/services/core/schedules"
	"skandha.dev/services/core/session"
	"skandha.dev/services/core/subagents"
	"skandha.dev/services/core/tracing"
	"skandha.dev/services/core/trouble"
	"skandha.dev/services/core/view"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/embed"
	"skandha.dev/services/internal/journal"
	index "skandha.dev/services/internal/memory"
	"skandha.dev/services/internal/registry"
	"skandha.dev/services/internal/store"
)

// Config of a shell.
type Config struct {
	Agents        map[subject.Agent]*decide.Agent
	Policy        decide.Policy    // required
	Approvals     decide.Approvals // nil: any one person who may answer approves
	Plugins       plugins.Config
	Streams       journal.StreamsConfig
	CacheSessions int           // states cached besides those of open sessions; default 1024
	OpenSessions  int           // sessions open at once; inputs of others wait; default 2000
	Compare       time.Duration // how often the view is compared with the log; default 30 s
	Drain         time.Duration // grace period for open turns at shutdown; default 10 s
	// Backlog is how many causes may wait before inputs are refused; default
	// DefaultBacklog, negative: no limit.
	Backlog int
	// PerListener is how many inputs of one invited listener may wait at this core before it is muted; 0: no limit.
	PerListener int
	Version     string
	// Identities are who from outside may connect; nil: the bus enforces no rights.
	Identities *identities.Identities
	Index      index.Store // of memories; nil: agents remember nothing beyond a session
	Notify     outbox.Notify
	Head       auditor.Head // where the end of the audit log is published
	// RightsDigest is of what the configuration says about who may do what.
	RightsDigest string
	// Schedules offers agents the tools with which they create schedules. Those that exist
	// occur anyway.
	Schedules bool
	Traces    bool // make traces and metrics of turns, see package tracing
	Retention Retention
}

// Core is one replica.
type Core struct {
	cfg    Config
	bus    *journal.Journal
	store  *view.Store
	denied *lru.Cache[string, time.Time] // refusals that are in the audit log
	log    *slog.Logger
	dir    *directory.Directory
	loader *loader.Loader
	views  *view.Writer
	live   *live.Publisher
	traces *tracing.Recorder // nil: none
	refill *view.Refill
	folds  *foldQueue
	beacon *beacon

	attempts *attempt.Sender
	ranker   *ranking.Ranker
	own      map[string]ownTool
	plugins  *plugins.Host
	sessions *session.Set
	memories *memories.Memories // nil without an index
	model    embedder
	troubles *trouble.List
	outbox   *outbox.Outbox
	auditor  *auditor.Auditor
	schedule *schedules.Schedules
	agents   *subagents.Subagents
	retain   *retention.Retention
	ctx      context.Context //nolint:containedctx // the loops outlive every call; cancelled after the drain
	end      context.CancelFunc
	ready    chan struct{} // closed once causes are consumed

	snapshots, internalCalls atomic.Int64
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
		cfg.OpenSessions = directory.DefaultOpenSessions
	}
	if cfg.Drain <= 0 {
		cfg.Drain = 10 * time.Second
	}
	ctx, end := context.WithCancel(context.Background())
	v := view.NewStore(st)
	c := &Core{
		cfg: cfg, bus: b, store: v, log: log, dir: directory.New(log),
		ctx: ctx, end: end, ready: make(chan struct{}), troubles: trouble.New(), attempts: attempt.New(ctx, b, log),
	}
	var err error
	if c.denied, err = lru.New[string, time.Time](maxRefusals); err != nil {
		return nil, err
	}
	c.auditor = c.newAuditor()
	c.loader = &loader.Loader{Bus: b, Store: v, Log: log}
	c.refill = view.NewRefill(view.RefillConfig{
		Bus: b, Store: v, Loader: c.loader, Log: log, Every: cfg.Compare, Busy: func() bool { return c.sessions.Len() > 0 },
		Learn: c.learn, Asks: c.scheduleOpen,
	})
	c.memories = c.newMemories()
	c.views = view.NewWriter(view.WriterConfig{
		Bus: b, Store: v, Loader: c.loader, Log: log, Incomplete: c.refill, Snapshots: &c.snapshots,
		Learn:   c.learn,
		LogLost: func(what string) { c.troubles.Note(subject.Ref{}, coreapi.TroubleLog, what) },
	})
	c.loader.Folded = c.views.Folded
	c.loader.Spoiled = func(ref subject.Ref) { c.refill.Want(ref, true) }
	if cfg.Traces {
		if c.traces, err = tracing.New(b, log); err != nil {
			return nil, err
		}
	}
	c.live = live.New(b, log, c.observe)
	var pressed func(subject.Writer, int)
	pluginDeps := plugins.Deps{Bus: b, Log: log, Directory: c.dir, Agents: cfg.Agents, Streams: cfg.Streams, Operate: c.operated}
	if cfg.Identities != nil {
		pluginDeps.Charters, c.live.Listens = cfg.Identities, cfg.Identities.Listens
		pluginDeps.Refused, pressed = c.manifestRefused, cfg.Identities.Pressed
	}
	c.plugins = plugins.New(ctx, cfg.Plugins, pluginDeps)
	if cfg.Identities != nil {
		cfg.Identities.Attach(c.writerOwner, c.muted)
	}
	c.beacon = newBeacon(b, log, c.dir, c.troubles, cfg.Backlog)
	c.folds = newFoldQueue(ctx, c.refill.Yield)
	c.outbox = outbox.New(outbox.Config{Bus: b, Log: log, Caller: c, Notify: cfg.Notify})
	c.schedule, c.agents = c.newSchedules(), c.newSubagents()
	if c.ranker, err = ranking.New(ranking.Config{Tools: c.dir.Public, Stats: v.ToolStats, Embedder: &c.model, Log: log}); err != nil {
		return nil, err
	}
	if c.own, err = c.ownTools(); err != nil {
		return nil, err
	}
	c.sessions, err = session.NewSet(ctx, session.Config{
		Open: cfg.OpenSessions, Cache: cfg.CacheSessions, Policy: cfg.Policy, Approvals: cfg.Approvals, Version: cfg.Version,
		ToolUse: c.views.ToolUse, Memory: c.memory(), Matcher: c.matcher, PerListener: cfg.PerListener, Pressed: pressed, Undelete: cfg.Retention.Undelete,
	}, session.Deps{
		Bus: b, Log: log, Loader: c.loader, Directory: c.dir, Plugins: c.plugins, Attempts: c.attempts, Live: c.live,
		Troubles: c.troubles, Outbox: c.outbox, Traces: c.traces,
	})
	c.retain = c.newRetention()
	return c, err
}

// writerOwner returns whose the name of a writer is already; empty if it is free.
func (c *Core) writerOwner(ctx context.Context, w subject.Writer) string {
	if c.cfg.Approvals != nil {
		if person := c.cfg.Approvals.Person(w, ""); person != "" {
			return "an account of " + person
		}
	}
	return c.plugins.ListenerOwner(ctx, w)
}

// Directory returns the core's directory of executors and tools.
func (c *Core) Directory() *directory.Directory { return c.dir }

// Identities are who from outside may connect; nil if the bus enforces no rights.
func (c *Core) Identities() *identities.Identities { return c.cfg.Identities }

// Plugins returns the current snapshot of the registry.
func (c *Core) Plugins() *registry.Snapshot { return c.plugins.Current().Snapshot }

// Hooks returns the current hook table.
func (c *Core) Hooks() *dispatch.HookSet { return c.plugins.Current().Hooks }

// Stats returns the live counters.
func (c *Core) Stats() *session.Stats { return c.sessions.Stats() }

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
	caller, err := c.bus.NewCaller()
	if err != nil {
		return fmt.Errorf("opening the reply subscription: %w", err)
	}
	defer func() { err = errors.Join(err, caller.Close()) }()
	if c.cfg.Identities != nil {
		defer c.cfg.Identities.Start(c.ctx)()
	}
	if err := c.plugins.Start(ctx, caller); err != nil {
		return err
	}
	defer c.plugins.Stop()
	defer c.auditor.Start(c.ctx)()
	c.dir.Expect(ctx, c.store)
	if err := c.dir.Watch(c.ctx, c.bus); err != nil {
		return fmt.Errorf("watching executors: %w", err)
	}
	defer c.background(caller)()
	if c.traces != nil {
		unmeasure, err := c.measureStreams()
		if err != nil {
			return fmt.Errorf("measuring streams: %w", err)
		}
		defer unmeasure()
	}
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
	fired, err := c.bus.ConsumeFired(ctx, c.sessions.HasPlace, c.fired)
	if err != nil {
		return fmt.Errorf("consuming timers: %w", err)
	}
	defer fired.Stop()
	c.awaitRunner(ctx)
	log, err := c.bus.LogState(ctx)
	if err != nil {
		return fmt.Errorf("reading the end of the log: %w", err)
	}
	c.sessions.StoredBefore(log.Last)
	causes, err := c.bus.ConsumeCauses(ctx, journal.ConsumeConfig{
		AckWait: session.AckWait, Floor: c.views.ConfirmedFloor, Room: c.sessions.Room,
	}, c.sessions.Deliver)
	if err != nil {
		return fmt.Errorf("consuming causes: %w", err)
	}
	c.views.Follow(causes)
	c.beacon.causes.Store(causes)
	c.plugins.Begin()
	close(c.ready)
	c.log.Info("core is ready", "instance", c.bus.Instance(), "agents", len(c.cfg.Agents))
	<-ctx.Done()
	c.log.Info("core is stopping", "open_sessions", c.sessions.Len())
	causes.Stop()
	c.sessions.Drain(c.cfg.Drain)
	c.plugins.End()
	return nil
}

// background starts the work outside of sessions. stop lets pending work finish.
func (c *Core) background(caller *bus.Caller) (stop func()) {
	stopViews, stopLive, stopTraces := c.views.Start(), c.live.Start(), func() {}
	if c.traces != nil {
		stopTraces = c.traces.Start()
	}
	stopRelease, stopRefill := c.attempts.Start(caller), c.refill.Start(c.ctx)
	c.model.client.Store(embed.NewClient(caller))
	stopMemories, stopOutbox, stopSchedules := c.startMemories(c.ctx), c.outbox.Start(c.ctx), c.schedule.Start(c.ctx)
	stopRunner := c.startRunner()
	c.sessions.Start()
	go c.dir.RememberOffer(c.ctx, c.store)
	go c.ranker.Run(c.ctx)
	go c.troubles.Recheck(c.ctx, c.loader)
	stopBeacon := c.beacon.start()
	go c.store.Watch(c.ctx, c.log)
	go c.retain.Run(c.ctx)
	return func() {
		stopRunner()
		stopSchedules()
		stopOutbox()
		stopRefill()
		stopMemories()
		stopBeacon()
		stopLive()
		stopTraces()
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

// fired copies a fired timer into the log as a cause (rule 12).
func (c *Core) fired(ctx context.Context, ref subject.Ref, id string) error {
	body, err := json.Marshal(event.Timer{ID: id})
	if err != nil {
		return err
	}
	_, err = c.bus.PublishCause(ctx, ref, subject.Timer, subject.TimerWriter, "", body)
	return err
}
