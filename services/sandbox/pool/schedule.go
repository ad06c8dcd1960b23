package pool

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"skandha.dev/services/sandbox/agent"
	"skandha.dev/services/sandbox/driver"
)

// schedule hands sandboxes to waiters, starts the ones they need, and refills. It is called
// with the lock held, after every change.
func (p *Pool) schedule() {
	if p.closed {
		return
	}
	h, clean, short := p.holdings(), p.clean, 0 // waiters for which there is no place
	before := p.blocked
	p.blocked = nil
	for _, w := range p.queue(h) {
		switch {
		case w.started:
			continue
		case !h.admits(w.owner):
			p.blocked = append(p.blocked, Want{w.owner, true})
			continue
		}
		if w.set == "" {
			if b := p.takeWarm(w.owner); b != nil {
				p.serve(w, result{sandbox: b})
				h.give(w.owner)
				continue
			}
		}
		switch {
		case w.set == "" && clean > 0:
			clean-- // one that is starting is for it
		case p.total() >= p.cfg.Max:
			short++
			if short > p.ending {
				p.blocked = append(p.blocked, Want{w.owner, false})
			}
			continue
		case w.set == "":
			p.clean++
			p.start(nil)
		default:
			w.started = true
			p.special++
			p.start(w)
		}
		h.give(w.owner)
	}
	p.makeRoom(short)
	if len(p.blocked) > 0 && !slices.Equal(before, p.blocked) && p.cfg.Full != nil {
		p.tasks.Go(p.cfg.Full)
	}
	if short == 0 {
		p.refill()
	}
}

// makeRoom ends warm sandboxes for waiters that need a place.
func (p *Pool) makeRoom(short int) {
	for short > p.ending && len(p.warm) > 0 {
		p.end(p.warm[0])
	}
	if short <= p.ending {
		p.blocked = slices.DeleteFunc(p.blocked, func(w Want) bool { return !w.Own })
	}
}

// serve hands a waiter its result.
func (p *Pool) serve(w *waiter, r result) {
	p.waiters = slices.DeleteFunc(p.waiters, func(o *waiter) bool { return o == w })
	w.got <- r
}

// refill starts the missing warm sandboxes, unless a start failed recently.
func (p *Pool) refill() {
	for p.filling && !p.closed && p.retry == nil && !p.canServe() && len(p.warm)+p.clean < p.cfg.Warm &&
		p.clean < refills && p.total() < p.cfg.Max {
		if p.running == 0 && p.backoff == 0 {
			p.clean++
			p.start(nil)
			continue
		}
		p.refillLater()
	}
}

// refillLater waits until no call runs, or until the backoff after a failure has passed.
func (p *Pool) refillLater() {
	wait, idle := patience, p.idle
	if p.backoff > 0 {
		wait, idle = p.backoff, nil
	}
	timer := time.NewTimer(wait)
	p.retry = timer
	p.tasks.Go(func() {
		defer timer.Stop()
		select {
		case <-p.ctx.Done():
			return
		case <-timer.C:
		case <-idle:
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.retry = nil
		if p.closed || p.canServe() || len(p.warm)+p.clean >= p.cfg.Warm || p.total() >= p.cfg.Max {
			return
		}
		p.clean++
		p.start(nil)
	})
}

// start starts a sandbox in the background: for one waiter with its set, or a clean one for
// the first waiter.
func (p *Pool) start(w *waiter) {
	p.tasks.Go(func() {
		set := ""
		if w != nil {
			set = w.set
		}
		began := time.Now()
		b, err := p.make(set)
		p.mu.Lock()
		defer p.mu.Unlock()
		if w != nil {
			p.special--
		} else {
			p.clean--
		}
		p.record(time.Since(began), err)
		if err == nil && p.closed {
			p.end(b)
			return
		}
		if err == nil {
			p.tasks.Go(func() { p.watch(b) })
		}
		p.arrived(w, b, err)
		p.schedule()
	})
}

// arrived hands out the result of a start.
func (p *Pool) arrived(w *waiter, b *Sandbox, err error) {
	if w == nil {
		w = p.first()
	} else if !slices.Contains(p.waiters, w) { // it has given up
		if b != nil {
			p.end(b)
		}
		return
	}
	switch {
	case err != nil && w != nil:
		p.serve(w, result{err: err})
	case err != nil:
	case w != nil:
		p.use(b, w.owner)
		p.serve(w, result{sandbox: b})
	case len(p.warm) < p.cfg.Warm:
		p.warm = append(p.warm, b)
	default: // its waiter has given up
		p.end(b)
	}
}

// record keeps what doctor and status report about a start.
func (p *Pool) record(took time.Duration, err error) {
	if err != nil {
		if p.closed {
			return
		}
		level := slog.LevelDebug
		// Do not repeat the same warning; the driver's selection reports a missing driver.
		if p.stats.LastError != err.Error() && !errors.Is(err, driver.ErrUnavailable) {
			level = slog.LevelWarn
		}
		p.stats.Failed++
		p.stats.LastError, p.stats.LastErrorAt = err.Error(), time.Now()
		p.backoff = min(max(minBackoff, 2*p.backoff), maxBackoff)
		p.cfg.Logger.Log(context.Background(), level, "cannot start a sandbox", "error", err, "next", p.backoff)
		return
	}
	p.backoff = 0
	p.stats.Started++
	p.stats.Starts.add(took)
}

// make starts a sandbox and waits until its interpreter answers.
func (p *Pool) make(set string) (*Sandbox, error) {
	ctx, cancel := context.WithTimeout(p.ctx, p.cfg.StartTimeout)
	defer cancel()
	sandbox, err := p.cfg.Driver.Start(ctx,
		driver.Spec{Name: newName(), Args: agent.Args(), Limits: p.cfg.Limits, Set: set})
	if errors.Is(err, driver.ErrUnavailable) {
		return nil, err // its text is complete
	}
	if err != nil {
		return nil, fmt.Errorf("starting a sandbox: %w", err)
	}
	conn, err := agent.Open(ctx, sandbox)
	if err != nil {
		if ended := why(sandbox); ended != nil {
			err = ended
		}
		p.destroy(sandbox)
		return nil, fmt.Errorf("starting the interpreter in a sandbox: %w", err)
	}
	return &Sandbox{Conn: conn, Set: set, sandbox: sandbox, gone: make(chan struct{}), over: make(chan struct{})}, nil
}

// why returns the driver's reason for the end of a sandbox, or nil while it runs.
func why(sandbox driver.Sandbox) error {
	select {
	case <-sandbox.Done():
		return sandbox.Err()
	default:
		return nil
	}
}

// watch removes a sandbox that dies while it is warm from the pool.
func (p *Pool) watch(b *Sandbox) {
	select {
	case <-b.gone:
		return
	case <-b.Done():
	case <-b.sandbox.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if slices.Contains(p.warm, b) {
		p.stats.Died++
		p.cfg.Logger.Warn("a warm sandbox died; replacing it", "sandbox", b.Name())
		p.backoff = max(p.backoff, minBackoff) // otherwise sandboxes that die at once would be restarted in a tight loop
		p.end(b)
	}
}

// end removes a sandbox from the pool and destroys it in the background. It is called with
// the lock held.
func (p *Pool) end(b *Sandbox) {
	b.once.Do(func() {
		close(b.gone)
		delete(p.used, b)
		p.warm = slices.DeleteFunc(p.warm, func(o *Sandbox) bool { return o == b })
		p.ending++
		p.tasks.Go(func() {
			p.destroy(b.sandbox)
			close(b.over)
			p.mu.Lock()
			defer p.mu.Unlock()
			p.ending--
			p.stats.Destroyed++
			p.schedule()
		})
	})
}

// destroy ends a sandbox. The reaper removes whatever is left.
func (p *Pool) destroy(sandbox driver.Sandbox) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), destroying)
	defer cancel()
	if err := sandbox.Destroy(ctx); err != nil {
		p.cfg.Logger.Warn("cannot destroy a sandbox; the reaper retries", "sandbox", sandbox.Name(), "error", err)
	}
}

// newName returns a unique name for a sandbox.
func newName() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return "sb-" + hex.EncodeToString(b[:])
}
