package engine

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/executor"
	"skandha.dev/services/internal/text"
)

// maxIDLen bounds the call's and the attempt's id, in bytes.
const maxIDLen = 256

// Attempts holds the attempts of an instance and decides about them under one lock.
// [Serve] connects it to the bus.
type Attempts struct {
	kind     subject.ExecutorKind
	instance subject.Instance
	work     Work
	log      *slog.Logger
	grace    time.Duration
	watch    watch
	changed  func(urgent bool) // called when slots were taken or freed; urgent: a pool became full or free

	mu        sync.Mutex
	live      map[key]*attempt
	past      ids
	pools     map[string]*pool
	order     []*pool // as configured
	tools     map[string]tool.Spec
	providers map[string]bool // by name; "" if there is any
	preferred string          // the first provider
	kept      int64           // bytes of final answers in live
	draining  bool
	empty     chan struct{} // closed when it is draining and live is empty
}

func newAttempts(cfg Config, instance subject.Instance) *Attempts {
	t := &Attempts{
		kind: cfg.Kind, instance: instance, work: cfg.Work, log: cfg.Logger, grace: Grace,
		watch:   newWatch(cfg.Kind, cfg.Service),
		changed: func(bool) {},
		live:    map[key]*attempt{}, past: ids{}, pools: map[string]*pool{}, empty: make(chan struct{}),
	}
	for _, p := range cfg.Pools {
		waiting := cfg.Waiting
		if waiting == 0 {
			waiting = waitingPerSlot * p.Slots
		}
		q := &pool{name: p.Name, slots: p.Slots, maxWaiting: max(waiting, 0)}
		t.pools[p.Name] = q
		t.order = append(t.order, q)
	}
	t.setOffer(cfg.Offer)
	return t
}

func (t *Attempts) setOffer(o Offer) {
	tools, providers := make(map[string]tool.Spec, len(o.Tools)), make(map[string]bool, len(o.Providers)+1)
	for _, s := range o.Tools {
		tools[s.Name] = s
	}
	for _, p := range o.Providers {
		providers[p.Name], providers[""] = true, true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tools, t.providers, t.preferred = tools, providers, ""
	if len(o.Providers) > 0 {
		t.preferred = o.Providers[0].Name
	}
}

// Run starts the attempt, queues it for a slot, attaches the watcher to it, or refuses
// it with the reason. If there is a free slot, Run does the work itself, and returns
// when that work is done and no other attempt waits for the slot. ctx is the parent
// of the work's context.
func (t *Attempts) Run(ctx context.Context, r executor.Request, w Watcher) {
	k := key{r.Call, r.Attempt}
	if err := validKey(k); err != nil {
		t.send(w, t.encode(k, executor.Answer{State: executor.Refused, Reason: executor.RefusedBad, Message: err.Error()}))
		return
	}
	t.mu.Lock()
	if known := t.known(k, w); known != nil {
		t.mu.Unlock()
		known()
		return
	}
	spec, reason, message := t.admit(r)
	if reason != "" {
		t.past.put(k, refusals[reason])
		t.mu.Unlock()
		t.send(w, t.encode(k, executor.Answer{State: executor.Refused, Reason: reason, Message: message}))
		return
	}
	p := t.pools[poolOf(spec)]
	a := &attempt{key: k, parent: ctx, req: r, pool: p, limit: limitOf(spec, t.kind), done: make(chan struct{})}
	a.watch(w)
	a.monitor = time.AfterFunc(quiet, func() { t.monitor(a) })
	t.live[k] = a
	start := !p.full()
	if start {
		a.phase = ready
		p.running++
	} else {
		p.queue = append(p.queue, a)
	}
	urgent := start && p.full()
	t.mu.Unlock()
	t.changed(urgent)
	if start {
		t.execute(a)
	}
}

// Refuse answers an invalid request. It leaves a tombstone, as every refusal does.
func (t *Attempts) Refuse(r executor.Request, w Watcher, why string) {
	k := key{r.Call, r.Attempt}
	t.mu.Lock()
	answer := t.known(k, w)
	if answer == nil {
		if validKey(k) == nil {
			t.past.put(k, wasRefusedBad)
		}
		answer = func() {
			t.send(w, t.encode(k, executor.Answer{State: executor.Refused, Reason: executor.RefusedBad, Message: why}))
		}
	}
	t.mu.Unlock()
	answer()
}

// admit returns the tool whose limits apply, or the reason why the attempt is refused.
func (t *Attempts) admit(r executor.Request) (tool.Spec, executor.RefusedReason, string) {
	var spec tool.Spec
	switch {
	case r.StartBy.IsZero() || r.NotAfter.IsZero():
		return spec, executor.RefusedBad, "start_by and not_after are required"
	case t.kind == subject.Runner && r.Tool == nil:
		return spec, executor.RefusedBad, "a runner needs a request with a tool"
	case t.kind == subject.Provider && r.Model == nil:
		return spec, executor.RefusedBad, "a provider needs a request with a model"
	case t.draining:
		return spec, executor.RefusedDraining, "the instance is draining"
	}
	if t.kind == subject.Runner {
		var ok bool
		if spec, ok = t.tools[r.Tool.Name]; !ok {
			return spec, executor.RefusedUnknown, fmt.Sprintf("this instance has no tool %q", text.Cut(r.Tool.Name, maxIDLen))
		}
	} else if !t.providers[r.Provider] {
		return spec, executor.RefusedUnknown, fmt.Sprintf("this instance has no provider %q", text.Cut(r.Provider, maxIDLen))
	}
	if late := t.late(r); late != "" {
		return spec, executor.RefusedLate, late
	}
	p := t.pools[poolOf(spec)]
	switch {
	case p.full() && len(p.queue) >= p.maxWaiting:
		return spec, executor.RefusedFull, fmt.Sprintf("pool %q: all %d slots are in use, and %d attempts wait", p.name,
			p.slots, len(p.queue))
	case t.kept > maxKept:
		return spec, executor.RefusedFull, fmt.Sprintf("%d bytes of results wait for their release", t.kept)
	}
	return spec, "", ""
}

// late returns the reason why it is too late to start now, or "".
func (t *Attempts) late(r executor.Request) string {
	now := time.Now()
	if now.After(r.StartBy) {
		return fmt.Sprintf("start_by passed %v ago", now.Sub(r.StartBy).Round(time.Millisecond))
	}
	if !now.Before(r.NotAfter) {
		return fmt.Sprintf("not_after passed %v ago", now.Sub(r.NotAfter).Round(time.Millisecond))
	}
	return ""
}

func limitOf(spec tool.Spec, kind subject.ExecutorKind) time.Duration {
	if kind == subject.Provider {
		return tool.MaxTimeout // not_after bounds it
	}
	return spec.Timeout()
}

func validKey(k key) error {
	for _, s := range []string{k.call, k.attempt} {
		if s == "" || len(s) > maxIDLen {
			return fmt.Errorf("call and attempt are required, with at most %d bytes each", maxIDLen)
		}
	}
	return nil
}

// known attaches the watcher to a known attempt, and returns the function that answers
// the watcher, to be called without the lock. It returns nil for an unknown attempt.
func (t *Attempts) known(k key, w Watcher) func() {
	a := t.live[k]
	switch {
	case a == nil:
		v := t.past.get(k)
		if v == noVerdict {
			return nil
		}
		state, reason := v.state()
		return func() { t.send(w, t.encode(k, executor.Answer{State: state, Reason: reason})) }
	case a.phase == done:
		return func() {
			a.sending.Lock() // not before its earlier watchers have the answer
			defer a.sending.Unlock()
			t.send(w, a.final)
		}
	default:
		a.watch(w)
		return func() { t.sendRunning(a, w) }
	}
}
