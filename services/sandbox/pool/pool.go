package pool

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"skandha.dev/services/sandbox/agent"
	"skandha.dev/services/sandbox/driver"
)

// The defaults.
const (
	DefaultMax          = 32
	DefaultStartTimeout = 30 * time.Second
)

const (
	// refills is how many sandboxes are started at a time for nobody in particular. The start
	// of one waits for the kernel about as long as it computes.
	refills = 4
	// patience is how long a refill waits for a moment in which nothing runs.
	patience = time.Second
	// Between attempts to refill that fail.
	minBackoff, maxBackoff = 500 * time.Millisecond, 15 * time.Second
	// destroying bounds the end of one sandbox.
	destroying = 20 * time.Second
)

// Errors of a pool.
var (
	ErrClosed = errors.New("the pool of sandboxes is closed")
	// ErrFull is wrapped with how many sandboxes there are when the caller's time was over
	// before one of them was given back.
	ErrFull = errors.New("all sandboxes are in use")
)

// Config of a pool. Driver is needed.
type Config struct {
	Driver driver.Driver
	Limits driver.Limits // of each sandbox; zero: driver.DefaultLimits
	Warm   int           // how many clean sandboxes are kept ready; 0: none
	Max    int           // sandboxes in all, warm ones included; default 32
	// StartTimeout bounds the start of a sandbox, until its interpreter has answered;
	// default 30 s.
	StartTimeout time.Duration
	// Full is called when somebody is [Pool.Blocked]: giving back a sandbox helps. It is called
	// without a lock, on a goroutine of its own; nil: nothing is called.
	Full   func()
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.Max == 0 {
		c.Max = DefaultMax
	}
	c.Warm = min(c.Warm, c.Max)
	if c.StartTimeout == 0 {
		c.StartTimeout = DefaultStartTimeout
	}
	if c.Limits == (driver.Limits{}) {
		c.Limits = driver.DefaultLimits()
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

// Sandbox is a sandbox and the way to speak to what is inside.
type Sandbox struct {
	*agent.Conn
	Set   string // the package set that is mounted; empty: none
	Owner string // whose share it counts towards; set when Get gives it

	sandbox driver.Sandbox
	gone    chan struct{} // closed when somebody has begun to destroy it
	over    chan struct{} // closed when nothing is left of it, or that was tried
	once    sync.Once
}

// Name is that of the sandbox.
func (b *Sandbox) Name() string { return b.sandbox.Name() }

// Ended says why the sandbox is of no more use, or is nil. What the driver says of the
// sandbox's end says more than that its pipe is closed.
func (b *Sandbox) Ended() error {
	select {
	case <-b.Done():
	case <-b.sandbox.Done():
	default:
		return nil
	}
	// The pipe's end is seen before that of the sandbox.
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

// endsWithin is how long after its pipe a sandbox may end to say why. Only a sandbox whose
// agent has stopped to make sense, and which lives on, takes so long.
const endsWithin = 5 * time.Second

// waiter is a Get that has not got its sandbox.
type waiter struct {
	owner   string
	set     string
	started bool        // a sandbox with its set is being started for it
	got     chan result // takes one
}

type result struct {
	sandbox *Sandbox
	err     error
}

// Pool keeps sandboxes. Its methods may be used at the same time.
type Pool struct {
	cfg   Config
	ctx   context.Context //nolint:containedctx // the pool's own life, not a call's
	stop  context.CancelFunc
	tasks sync.WaitGroup // starts, ends and watchers

	mu      sync.Mutex
	closed  bool
	filling bool
	warm    []*Sandbox          // the oldest first
	used    map[*Sandbox]string // by whom
	clean   int                 // being started with no set
	special int                 // being started with one
	ending  int                 // being destroyed
	waiters []*waiter
	running int // calls that work in sandboxes
	idle    chan struct{}
	backoff time.Duration
	retry   *time.Timer // set while a refill waits for its time
	stats   Stats
	blocked []Want
}

// New makes a pool, which begins to fill at [Pool.Fill].
func New(cfg Config) *Pool {
	ctx, cancel := context.WithCancel(context.Background())
	return &Pool{cfg: cfg.withDefaults(), ctx: ctx, stop: cancel, used: map[*Sandbox]string{}}
}

// Fill begins to keep clean sandboxes ready.
func (p *Pool) Fill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.filling = true
	p.refill()
}

// Get gives a clean sandbox with the package set mounted; empty: without one. The caller
// gives it to Discard in the end. It waits while there are Max of them, or while the owner
// has its share; when its context ends meanwhile, or too many wait for the owner already,
// the error wraps [ErrFull].
func (p *Pool) Get(ctx context.Context, owner, set string) (*Sandbox, error) {
	w := &waiter{owner: owner, set: set, got: make(chan result, 1)}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, ErrClosed
	}
	if p.waiting(owner) >= max(p.cfg.Max, DefaultMax) {
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

// giveUp withdraws a waiter, unless it has got its sandbox at the same time.
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

// Discard destroys a sandbox that Get gave, in the background. What is discarded already
// is left alone.
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

// Working says that a call works in a sandbox from now on, until done is called. Sandboxes
// that nobody waits for are started when nothing works, if that is soon.
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

// Close destroys all sandboxes and waits for that. Whoever waits for one gets ErrClosed.
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

// total is how many sandboxes there are or will be.
func (p *Pool) total() int { return len(p.warm) + len(p.used) + p.clean + p.special + p.ending }

// takeWarm takes a warm sandbox that lives, for the owner.
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

// use notes that the sandbox is the owner's.
func (p *Pool) use(b *Sandbox, owner string) { b.Owner, p.used[b] = owner, owner }
