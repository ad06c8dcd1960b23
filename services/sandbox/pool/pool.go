package pool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"skandha.dev/services/internal/bounds"
	"skandha.dev/services/sandbox/agent"
	"skandha.dev/services/sandbox/driver"
)

// defaultMax is the default of Config.Max, and how many callers may wait at least.
const defaultMax = 32

const (
	// refills is how many warm sandboxes are started at a time. The start of one waits for
	// the kernel about as long as it computes.
	refills = 4
	// patience is how long a refill waits for a moment when no call runs.
	patience = time.Second
	// The delay between failed attempts to refill.
	minBackoff, maxBackoff = 500 * time.Millisecond, 15 * time.Second
	// destroying bounds how long one sandbox may take to be destroyed.
	destroying = 20 * time.Second
)

// Errors of a pool.
var (
	ErrClosed = errors.New("the pool of sandboxes is closed")
	// ErrFull is wrapped with the number of sandboxes when the caller's time ended before
	// one was given back.
	ErrFull = errors.New("all sandboxes are in use")
)

// Config configures a pool. Driver is required.
type Config struct {
	Driver driver.Driver
	Limits driver.Limits // of each sandbox; zero: driver.DefaultLimits
	Warm   int           // how many clean sandboxes are kept ready; 0: none
	Max    int           // maximum number of sandboxes, including warm ones; default 32
	// StartTimeout bounds the start of a sandbox, until its interpreter has answered;
	// default 30 s.
	StartTimeout time.Duration `default:"30s"`
	// Full is called when callers are [Pool.Blocked] and giving back a sandbox helps. It is
	// called without the lock, on a separate goroutine. It may be nil.
	Full   func()
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	c = bounds.Filled(c)
	c.Max = cmp.Or(c.Max, defaultMax)
	c.Warm = min(c.Warm, c.Max)
	if c.Limits == (driver.Limits{}) {
		c.Limits = driver.DefaultLimits()
	}
	c.Logger = cmp.Or(c.Logger, slog.Default())
	return c
}

// Sandbox is a sandbox with the connection to its agent.
type Sandbox struct {
	*agent.Conn
	Set   string // the package set that is mounted; empty: none
	Owner string // whose share it counts towards; set by Get

	sandbox driver.Sandbox
	gone    chan struct{} // closed when its destruction begins
	over    chan struct{} // closed when its destruction has succeeded or failed
	once    sync.Once
}

// Name returns the sandbox's name.
func (b *Sandbox) Name() string { return b.sandbox.Name() }

// Ended returns why the sandbox can no longer be used, or nil. It prefers the driver's
// reason, which says more than that the pipe is closed.
func (b *Sandbox) Ended() error {
	select {
	case <-b.Done():
	case <-b.sandbox.Done():
	default:
		return nil
	}
	// The pipe closes before the sandbox ends.
	late := time.NewTimer(endsWithin)
	defer late.Stop()
	select {
	case <-b.sandbox.Done():
	case <-late.C:
	}
	if err := b.sandbox.Err(); err != nil {
		return err
	}
	if err := b.Err(); err != nil {
		return err
	}
	return agent.ErrBroken
}

// endsWithin bounds the time between the end of a sandbox's pipe and the sandbox's end with
// a reason. Only a sandbox whose agent sends garbage and lives on takes that long.
const endsWithin = 5 * time.Second

// waiter is a Get that waits for its sandbox.
type waiter struct {
	owner   string
	set     string
	started bool        // a sandbox with its set is being started for it
	got     chan result // holds one element
}

type result struct {
	sandbox *Sandbox
	err     error
}

// Pool keeps sandboxes. Its methods are safe for concurrent use.
type Pool struct {
	cfg   Config
	ctx   context.Context //nolint:containedctx // lives as long as the pool, not a call
	stop  context.CancelFunc
	tasks sync.WaitGroup // starts, ends and watchers

	mu      sync.Mutex
	closed  bool
	filling bool
	warm    []*Sandbox          // the oldest first
	used    map[*Sandbox]string // the owner
	clean   int                 // being started without a set
	special int                 // being started with one
	ending  int                 // being destroyed
	waiters []*waiter
	running int // running calls
	idle    chan struct{}
	backoff time.Duration
	retry   *time.Timer // set while a refill waits for its time
	stats   Stats
	blocked []Want
}

// New returns a pool. It is empty until [Pool.Fill] is called.
func New(cfg Config) *Pool {
	ctx, cancel := context.WithCancel(context.Background())
	return &Pool{cfg: cfg.withDefaults(), ctx: ctx, stop: cancel, used: map[*Sandbox]string{}}
}

// Fill starts to keep clean sandboxes ready.
func (p *Pool) Fill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.filling = true
	p.refill()
}

// Get returns a clean sandbox with the package set mounted; an empty set means none. The
// caller passes the sandbox to Discard in the end. Get waits while there are Max sandboxes,
// or while the owner has its share. When its context ends meanwhile, or too many calls wait
// for the owner already, the error wraps [ErrFull].
func (p *Pool) Get(ctx context.Context, owner, set string) (*Sandbox, error) {
	w := &waiter{owner: owner, set: set, got: make(chan result, 1)}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, ErrClosed
	}
	if p.waiting(owner) >= max(p.cfg.Max, defaultMax) {
		defer p.mu.Unlock()
		return nil, p.full(owner, errQueue)
	}
	if h := p.holdings(); set == "" && len(p.waiters) == 0 && h.admits(owner) {
		if b := p.takeWarm(owner); b != nil {
			p.stats.Gets++
			p.refill()
			p.mu.Unlock()
			return b, nil
		}
	}
	p.stats.Gets++
	p.stats.Drained++
	p.waiters = append(p.waiters, w)
	p.schedule()
	p.mu.Unlock()
	select {
	case r := <-w.got:
		return r.sandbox, r.err
	case <-ctx.Done():
		return p.giveUp(ctx, w)
	}
}

// giveUp withdraws a waiter, unless it got its sandbox at the same time.
func (p *Pool) giveUp(ctx context.Context, w *waiter) (*Sandbox, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case r := <-w.got:
		return r.sandbox, r.err
	default:
	}
	p.waiters = slices.DeleteFunc(p.waiters, func(o *waiter) bool { return o == w })
	why := fmt.Errorf("waiting for a sandbox: %w", ctx.Err())
	if h := p.holdings(); !w.started && (p.total() >= p.cfg.Max || !h.admits(w.owner)) {
		why = p.full(w.owner, ctx.Err())
	}
	p.schedule()
	return nil, why
}

// Discard destroys a sandbox from Get in the background. Discarding it again has no effect.
func (p *Pool) Discard(b *Sandbox) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end(b)
	p.schedule()
}

// Destroy is Discard that waits until nothing of the sandbox is left.
func (p *Pool) Destroy(ctx context.Context, b *Sandbox) error {
	p.Discard(b)
	select {
	case <-b.over:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("destroying sandbox %s: %w", b.Name(), ctx.Err())
	}
}

// Working reports that a call runs in a sandbox from now until done is called. Warm
// sandboxes are preferably started when no call runs.
func (p *Pool) Working() (done func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running == 0 {
		p.idle = make(chan struct{})
	}
	p.running++
	return sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.running--; p.running == 0 {
			close(p.idle)
			p.idle = nil
		}
	})
}

// Close destroys all sandboxes and waits for it. Waiting calls of Get return ErrClosed.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	p.stop()
	if p.retry != nil {
		p.retry.Stop()
	}
	for _, w := range p.waiters {
		w.got <- result{err: ErrClosed}
	}
	p.waiters = nil
	for _, b := range slices.Clone(p.warm) {
		p.end(b)
	}
	for b := range p.used {
		p.end(b)
	}
	p.mu.Unlock()
	p.tasks.Wait()
}

// total returns how many sandboxes exist or are starting.
func (p *Pool) total() int { return len(p.warm) + len(p.used) + p.clean + p.special + p.ending }

// takeWarm assigns a live warm sandbox to the owner, or returns nil.
func (p *Pool) takeWarm(owner string) *Sandbox {
	for len(p.warm) > 0 {
		b := p.warm[0]
		p.warm = slices.Delete(p.warm, 0, 1)
		select {
		case <-b.Done():
			p.end(b)
			continue
		case <-b.sandbox.Done():
			p.end(b)
			continue
		default:
		}
		p.use(b, owner)
		return b
	}
	return nil
}

// use records the sandbox's owner.
func (p *Pool) use(b *Sandbox, owner string) { b.Owner, p.used[b] = owner, owner }
