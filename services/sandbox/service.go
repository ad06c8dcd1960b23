package sandbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	contract "skandha.dev/services/internal/executor"
	"skandha.dev/services/internal/executor/engine"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/periodic"
	"skandha.dev/services/internal/toolschema"
	"skandha.dev/services/internal/workspace"
	"skandha.dev/services/sandbox/deps"
	"skandha.dev/services/sandbox/driver"
	"skandha.dev/services/sandbox/pool"
	"skandha.dev/services/sandbox/snapshot"
	"skandha.dev/services/sandbox/tools"
)

// name is the service's name in announcements and logs.
const name = "sandbox"

// Packages creates package sets; *deps.Manager implements it.
type Packages interface {
	// Ensure creates the set unless it exists, and returns its id.
	Ensure(ctx context.Context, want deps.Requirements, progress func(string)) (set string, err error)
}

// Deps are the dependencies of a sandbox service.
type Deps struct {
	Bus    *journal.Journal // its instance id is the service's
	Logger *slog.Logger
	// Driver starts sandboxes. The service destroys those it started; the caller closes the driver.
	Driver driver.Driver
	// Packages installs packages for code; nil: calls that require packages fail.
	Packages Packages
}

// Service is one instance of the sandbox service.
type Service struct {
	cfg      Config
	bus      *journal.Journal
	log      *slog.Logger
	driver   driver.Driver
	packages Packages
	pool     *pool.Pool
	leases   *leases
	saver    saver
	tools    map[string]offered
	specs    []tool.Spec
	counts   counts
	steps    steps
}

type offered struct {
	tools.Tool
	args *toolschema.Validator
}

// counts are figures for /metrics.
type counts struct {
	calls, failures, broken, expired, evicted, resets, reaped, artifacts atomic.Int64
	saves, saveFailures, restores, forgotten                             atomic.Int64
}

// New returns a service with a valid configuration. It starts nothing before Run.
func New(cfg Config, d Deps) (*Service, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("sandbox: %w", err)
	}
	cfg = cfg.withDefaults()
	if d.Logger == nil {
		d.Logger = slog.Default()
	}
	s := &Service{cfg: cfg, bus: d.Bus, log: d.Logger, driver: d.Driver, packages: d.Packages, tools: map[string]offered{}}
	for _, t := range tools.All() {
		v, err := toolschema.Compile(t.Spec)
		if err != nil {
			return nil, fmt.Errorf("sandbox: %w", err)
		}
		t.Spec.Args = v.Schema()
		s.tools[t.Spec.Name] = offered{t, v}
		s.specs = append(s.specs, t.Spec)
	}
	var err error
	if s.steps, err = newSteps(); err != nil {
		return nil, fmt.Errorf("sandbox: %w", err)
	}
	s.pool = pool.New(pool.Config{
		Driver: d.Driver, Limits: cfg.Limits, Warm: cfg.Warm, Max: cfg.Max, Full: s.makeRoom, Logger: d.Logger,
	})
	s.leases = &leases{self: d.Bus.Instance(), pool: s.pool, all: map[subject.Ref]*session{}}
	s.saver = saver{
		limits: snapshot.Limits{Bytes: cfg.Keep, Files: cfg.KeepFiles}, slots: make(chan struct{}, maxSaves),
	}
	s.saver.ctx, s.saver.stop = context.WithCancel(context.Background())
	if cfg.Keep > 0 {
		if s.saver.store, err = workspace.New(d.Bus); err != nil {
			return nil, fmt.Errorf("sandbox: %w", err)
		}
	}
	return s, nil
}

// Run offers the tools until ctx ends, and then drains.
func (s *Service) Run(ctx context.Context) error {
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	var loops sync.WaitGroup
	defer func() {
		stop()
		loops.Wait()
		s.finish()
		s.pool.Close()
	}()
	follow, err := s.bus.Subscribe(subject.Ref{Agent: "*", Session: "*"}.Live(event.TypeSessionReset.Phase(), "*"), "",
		s.onSessionEvent)
	if err != nil {
		return fmt.Errorf("sandbox: following sessions: %w", err)
	}
	defer func() { _ = follow.Unsubscribe() }() // the connection may be gone
	loops.Go(func() {
		if s.warm(background) {
			s.reap(background)
		}
	})
	loops.Go(func() { s.expire(background) })
	if s.saving() {
		loops.Go(func() { periodic.Every(background, forgetEvery, func() { s.forget(background) }) })
	}
	return engine.Serve(ctx, s.bus, engine.Config{
		Kind: subject.Runner, Service: name, Offer: engine.Offer{Tools: s.specs}, Work: s.work,
		Pools:        []contract.Pool{{Name: tools.Pool, Slots: s.cfg.Slots}, {Name: contract.DefaultPool, Slots: 1}},
		DrainTimeout: s.cfg.DrainTimeout, Logger: s.log,
	})
}

// warm starts to keep warm sandboxes. It reports false if ctx ended before.
func (s *Service) warm(ctx context.Context) bool {
	wait := time.NewTimer(s.cfg.FillAfter)
	defer wait.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-wait.C:
		s.pool.Fill()
		return true
	}
}

// reap removes what dead services left behind.
func (s *Service) reap(ctx context.Context) {
	tick := time.NewTicker(driver.ReapEvery)
	defer tick.Stop()
	var logged string
	for {
		n, err := s.driver.Reap(ctx)
		if n > 0 {
			s.counts.reaped.Add(int64(n))
			s.log.Info("removed leftovers of dead sandbox services", "things", n)
		}
		now := ""
		if err != nil && ctx.Err() == nil {
			now = err.Error()
		}
		if now != "" && now != logged { // not the same error every 15 s
			s.log.Warn("cannot look for leftovers of dead sandbox services", "error", now)
		}
		logged = now
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// expire ends leases that are idle.
func (s *Service) expire(ctx context.Context) {
	tick := time.NewTicker(max(min(s.cfg.Idle/4, 10*time.Second), 100*time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			ended, first := s.leases.expire(s.cfg.Idle)
			s.counts.expired.Add(int64(ended))
			for _, own := range append(first, s.leases.unsaved(false)...) {
				s.resave(own)
			}
		}
	}
}

// makeRoom ends an idle lease for the first waiter that benefits.
func (s *Service) makeRoom() {
	if slices.ContainsFunc(s.pool.Blocked(), s.leases.evict) {
		s.counts.evicted.Add(1)
		return
	}
}

// onSessionEvent ends the sandbox of a session that was reset, or locked until /reset. A session
// that is locked for a limited time keeps its files. Live events may be lost: then the
// session's next call reports the reset, or the sandbox becomes idle.
func (s *Service) onSessionEvent(m *nats.Msg) {
	e, err := event.Decode(m.Data)
	if err != nil || e.Type != event.TypeSessionReset && e.Type != event.TypeSessionLocked || e.Live() != m.Subject {
		return
	}
	seq, err := strconv.ParseUint(e.Cause, 10, 64)
	if e.Type == event.TypeSessionLocked {
		var p event.SessionLocked
		if e.DataAs(&p) != nil || !p.Until.IsZero() {
			return
		}
		if p.Deleted == nil {
			seq, err = turnSequence(e.Turn)+1, nil // the locking turn ends with it
		}
	}
	if err != nil {
		return
	}
	s.counts.resets.Add(1)
	s.leases.end(e.Ref(), seq)
	if s.saving() {
		s.saver.tasks.Go(func() {
			ctx, cancel := context.WithTimeout(s.saver.ctx, saveWithin)
			defer cancel()
			if err := s.saver.store.DeleteBefore(ctx, e.Ref(), seq); err != nil {
				s.log.Debug("the saved files of a session that was reset remain for now", "session", e.Session, "error", err)
			}
		})
	}
}

// forgetEvery is how often saved files that nobody has used for too long are removed.
const forgetEvery = time.Hour

// forget removes them.
func (s *Service) forget(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, forgetEvery)
	defer cancel()
	n, err := s.saver.store.Expire(ctx, s.cfg.KeepFor)
	s.counts.forgotten.Add(int64(n))
	if n > 0 {
		s.log.Info("removed saved files that were not used", "sessions", n, "for", s.cfg.KeepFor)
	}
	if err != nil && ctx.Err() == nil {
		s.log.Warn("cannot remove old saved files; will retry", "error", err)
	}
}

// turnSequence returns the sequence of the turn's input, from its id t<sequence>.
func turnSequence(turn string) uint64 {
	n, err := strconv.ParseUint(strings.TrimPrefix(turn, "t"), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// Ready reports why the service cannot accept calls. A missing driver is not a reason: the
// calls themselves report it.
func (s *Service) Ready() error {
	if !s.bus.Connected() {
		return errors.New("not connected to the bus")
	}
	return nil
}

// Counters returns the figures for /metrics.
func (s *Service) Counters() map[string]int64 {
	p := s.pool.Stats()
	return map[string]int64{
		"sandbox_calls": s.counts.calls.Load(), "sandbox_call_failures": s.counts.failures.Load(),
		"sandbox_broken":  s.counts.broken.Load(),
		"sandbox_expired": s.counts.expired.Load(), "sandbox_evicted": s.counts.evicted.Load(),
		"sandbox_resets": s.counts.resets.Load(),
		"sandbox_saves":  s.counts.saves.Load(), "sandbox_save_failures": s.counts.saveFailures.Load(),
		"sandbox_restores": s.counts.restores.Load(), "sandbox_forgotten": s.counts.forgotten.Load(),
		"sandbox_reaped": s.counts.reaped.Load(), "sandbox_artifacts": s.counts.artifacts.Load(),
		"sandbox_sessions": int64(s.leases.count()),
		"sandbox_warm":     int64(p.Warm), "sandbox_used": int64(p.Used), "sandbox_starting": int64(p.Starting),
		"sandbox_ending": int64(p.Ending), "sandbox_waiting": int64(p.Waiting),
		"sandbox_started": p.Started, "sandbox_destroyed": p.Destroyed, "sandbox_start_failures": p.Failed,
		"sandbox_warm_died": p.Died,
		"sandbox_gets":      p.Gets, "sandbox_gets_drained": p.Drained,
	}
}
