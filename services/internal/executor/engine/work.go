package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/executor"
	"skandha.dev/services/internal/text"
)

// execute does the work of an attempt that has a slot, and then that of the attempts that
// wait for the slot.
func (t *Attempts) execute(a *attempt) {
	for a != nil {
		if ctx, req, ok := t.begin(a); ok {
			t.carryOut(ctx, a, req)
		}
		a = t.handOver(a.pool)
	}
}

// begin starts an attempt, unless it was stopped or is too late. No attempt starts anywhere
// else.
func (t *Attempts) begin(a *attempt) (context.Context, executor.Request, bool) {
	t.mu.Lock()
	if a.phase != ready {
		t.mu.Unlock()
		return nil, executor.Request{}, false
	}
	if late := t.late(a.req); late != "" {
		t.mu.Unlock()
		t.conclude(a, ready, executor.Answer{State: executor.Refused, Reason: executor.RefusedLate, Message: late})
		return nil, executor.Request{}, false
	}
	defer t.mu.Unlock()
	a.phase, a.began = running, time.Now()
	deadline := a.began.Add(a.limit)
	if a.req.NotAfter.Before(deadline) {
		deadline = a.req.NotAfter
	}
	ctx, cancel := context.WithDeadline(a.parent, deadline)
	a.cancel = cancel
	return ctx, a.req, true
}

// carryOut does the work and concludes the attempt, unless the grace period ended before
// the work returned.
func (t *Attempts) carryOut(ctx context.Context, a *attempt, req executor.Request) {
	unwatch := context.AfterFunc(ctx, func() {
		time.AfterFunc(t.grace, func() { t.abandon(a) })
	})
	answer := t.call(ctx, a, req)
	unwatch()
	timedOut := errors.Is(ctx.Err(), context.DeadlineExceeded)
	a.cancel()

	t.mu.Lock()
	stopping, took := a.stopping, time.Since(a.began)
	t.mu.Unlock()
	// Work may succeed in spite of the stop or the deadline, and it may report that it did
	// not run. Both answers are kept.
	if answer.State != executor.Refused {
		switch {
		case failed(answer) && stopping:
			answer = executor.Answer{State: executor.Stopped}
		case failed(answer) && timedOut:
			answer = t.outOfTime(answer, took)
			answer.State = executor.Finished
		default:
			answer.State = executor.Finished
		}
		answer.DurationMS = took.Milliseconds()
	}
	if !t.conclude(a, running, answer) {
		t.log.WarnContext(ctx, "work returned after its final answer; its result is dropped", "call", a.call, "attempt", a.attempt,
			"took", took)
	}
}

// call calls the work function.
func (t *Attempts) call(ctx context.Context, a *attempt, req executor.Request) (answer executor.Answer) {
	defer func() {
		if v := recover(); v != nil {
			t.log.ErrorContext(ctx, "work panicked", "call", a.call, "attempt", a.attempt, "panic", v, "stack", string(debug.Stack()))
			answer = t.failure(tool.CodeInternal, provider.ErrInternal,
				fmt.Sprintf("it panicked: %s", text.Cut(fmt.Sprint(v), maxIDLen)))
		}
	}()
	ctx, end := t.observed(ctx, req)
	defer func() { end(answer) }()
	return t.onlyPayload(t.work(ctx, req, a.setProgress))
}

// abandon answers for work that ignores the end of its context. The work keeps its slot.
func (t *Attempts) abandon(a *attempt) {
	t.mu.Lock()
	stopping, took := a.stopping, time.Since(a.began)
	t.mu.Unlock()
	answer := executor.Answer{State: executor.Stopped, Message: "it was stopped and has not returned"}
	if !stopping {
		answer = t.timeout(took)
		answer.State = executor.Finished
	}
	answer.DurationMS = took.Milliseconds()
	if t.conclude(a, running, answer) {
		t.log.Warn("work ignores the end of its context; it keeps its slot", "call", a.call, "attempt", a.attempt,
			"ran", took)
	}
}

// handOver gives a slot to the attempt that has waited longest, or back to the pool.
func (t *Attempts) handOver(p *pool) *attempt {
	t.mu.Lock()
	next := p.next()
	var urgent bool
	if next != nil {
		next.phase = ready
	} else {
		urgent = p.full()
		p.running--
	}
	t.mu.Unlock()
	t.changed(urgent)
	return next
}

// conclude gives the attempt its final answer and sends it to the watchers, unless the
// attempt already has one or is past the phase upTo, after which the answer is not true.
func (t *Attempts) conclude(a *attempt, upTo phase, answer executor.Answer) bool {
	payload := t.encode(a.key, answer) // without the lock: it may be large
	a.sending.Lock()
	defer a.sending.Unlock()
	t.mu.Lock()
	if a.phase > upTo || a.phase == done {
		t.mu.Unlock()
		return false
	}
	if a.phase == waiting {
		a.pool.remove(a)
	}
	watchers := a.watchers
	t.settle(a, answer, payload)
	t.mu.Unlock()
	for _, w := range watchers {
		t.send(w, payload)
	}
	t.mu.Lock()
	if !a.kept { // only now, so that a drain does not end before the answer was sent
		delete(t.live, a.key)
		t.checkEmpty()
	}
	t.mu.Unlock()
	return true
}

// settle records the final answer.
func (t *Attempts) settle(a *attempt, answer executor.Answer, payload []byte) {
	notAfter := a.req.NotAfter
	a.phase, a.final = done, payload
	a.watchers, a.req, a.parent = nil, executor.Request{}, nil
	a.monitor.Stop()
	close(a.done)
	if answer.State != executor.Finished || a.released {
		t.past.put(a.key, verdictOf(answer.State, answer.Reason))
		return
	}
	if latest := a.began.Add(tool.MaxTimeout); latest.Before(notAfter) {
		notAfter = latest
	}
	a.kept, a.expires, a.heard = true, notAfter.Add(executor.Skew), time.Now()
	t.kept += int64(len(payload))
}

// monitor informs the watchers of an attempt that does not finish at once that it runs,
// and refuses the attempt if its time to start passes while it waits.
func (t *Attempts) monitor(a *attempt) {
	t.mu.Lock()
	open, startBy := a.phase != done, a.req.StartBy
	t.mu.Unlock()
	if !open {
		return
	}
	t.sendRunning(a, nil)
	beat, late := time.NewTicker(executor.Heartbeat), time.NewTimer(time.Until(startBy)+time.Millisecond)
	defer beat.Stop()
	defer late.Stop()
	for {
		select {
		case <-a.done:
			return
		case <-beat.C:
			t.sendRunning(a, nil)
		case <-late.C:
			t.conclude(a, waiting,
				executor.Answer{
					State: executor.Refused, Reason: executor.RefusedLate, Message: "start_by passed while it waited for a slot",
				})
		}
	}
}

// sendRunning informs one watcher, or all of them if w is nil, that the attempt runs
// or waits.
func (t *Attempts) sendRunning(a *attempt, w Watcher) {
	a.sending.Lock()
	defer a.sending.Unlock()
	t.mu.Lock()
	if a.phase == done { // the watchers have the final answer
		t.mu.Unlock()
		return
	}
	watchers := []Watcher{w}
	if w == nil {
		watchers = append(watchers[:0], a.watchers...)
	}
	answer := executor.Answer{State: executor.Running}
	if a.phase != running {
		answer.Message = "it waits for a slot"
	}
	t.mu.Unlock()
	if p := a.progress.Load(); p != nil {
		answer.Progress = *p
	}
	payload := t.encode(a.key, answer)
	for _, w := range watchers {
		t.send(w, payload)
	}
}

// send sends an answer. If that fails, it is sent again when core asks.
func (t *Attempts) send(w Watcher, payload []byte) {
	if w == nil {
		return
	}
	if err := w.Reply(payload); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
		t.log.Warn("cannot send an answer; core will ask again", "error", err)
	}
}
