package executor

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"skandha.dev/pkg/executor"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
)

// maxIDLen bounds the call's and the attempt's id, in bytes.
const maxIDLen = 256

// Attempts decides, under one lock, what becomes of every attempt at an instance.
// [Serve] puts it on the bus.
type Attempts struct {
	kind     subject.ExecutorKind
	instance subject.Instance
	work     Work
	log      *slog.Logger
	grace    time.Duration
	changed  func(urgent bool) // slots were taken or freed; urgent: a pool became full or free

	mu        sync.Mutex
	live      map[key]*attempt
	past      ids
	pools     map[string]*pool
	order     []*pool // as configured
	tools     map[string]tool.Spec
	providers map[string]bool // and "" if there is one
	kept      int64           // bytes of final answers in live
	draining  bool
	empty     chan struct{} // closed when it drains and nothing is live
}

// NewAttempts makes the table of an instance.
func NewAttempts(cfg Config, instance subject.Instance) (*Attempts, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return newTable(cfg.withDefaults(), instance), nil
}

func newTable(cfg Config, instance subject.Instance) *Attempts {
	t := &Attempts{
		kind: cfg.Kind, instance: instance, work: cfg.Work, log: cfg.Logger, grace: Grace,
		changed: func(bool) {},
		live:    map[key]*attempt{}, past: ids{}, pools: map[string]*pool{}, empty: make(chan struct{}),
	}
	for _, p := range cfg.Pools {
		room := cfg.Waiting
		if room == 0 {
			room = waitingPerSlot * p.Slots
		}
		q := &pool{name: p.Name, slots: p.Slots, room: max(room, 0)}
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
	t.tools, t.providers = tools, providers
}

// Run starts the attempt, lets it wait for a slot, attaches to it, or says why it
// never will run. If it has a slot, Run does the work itself and returns when
// that is done and nothing waits for the slot any more. The context is the
// parent of the work's.
func (t *Attempts) Run(ctx context.Context, r executor.Request, w Watcher) {
	k := key{r.Call, r.Attempt}
	if err := validKey(k); err != nil {
		t.tell(w, t.encode(k, executor.Answer{State: executor.Refused, Reason: executor.RefusedBad, Message: err.Error()}))
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
		t.tell(w, t.encode(k, executor.Answer{State: executor.Refused, Reason: reason, Message: message}))
		return
	}
	p := t.pools[poolOf(spec)]
	a := &attempt{key: k, parent: ctx, req: r, pool: p, limit: limitOf(spec, t.kind), done: make(chan struct{})}
	a.watch(w)
	a.minder = time.AfterFunc(quiet, func() { t.mind(a) })
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

// Refuse answers a request that makes no sense. It leaves a tombstone, as any
// refusal does.
func (t *Attempts) Refuse(r executor.Request, w Watcher, why string) {
	k := key{r.Call, r.Attempt}
	t.mu.Lock()
	answer := t.known(k, w)
	if answer == nil {
		if validKey(k) == nil {
			t.past.put(k, wasRefusedBad)
		}
		answer = func() {
			t.tell(w, t.encode(k, executor.Answer{State: executor.Refused, Reason: executor.RefusedBad, Message: why}))
		}
	}
	t.mu.Unlock()
	answer()
}

// admit says which tool's limits apply, or why the attempt is refused.
func (t *Attempts) admit(r executor.Request) (tool.Spec, executor.RefusedReason, string) {
	var spec tool.Spec
	switch {
	case r.StartBy.IsZero() || r.NotAfter.IsZero():
		return spec, executor.RefusedBad, "start_by and not_after are needed"
	case t.kind == subject.Runner && r.Tool == nil:
		return spec, executor.RefusedBad, "this is a runner, and the request has no tool"
	case t.kind == subject.Provider && r.Model == nil:
		return spec, executor.RefusedBad, "this is a provider, and the request has no model"
	case t.draining:
		return spec, executor.RefusedDraining, "the instance is going away"
	}
	if t.kind == subject.Runner {
		var ok bool
		if spec, ok = t.tools[r.Tool.Name]; !ok {
			return spec, executor.RefusedUnknown, fmt.Sprintf("there is no tool %q here", clip(r.Tool.Name, maxIDLen))
		}
	} else if !t.providers[r.Provider] {
		return spec, executor.RefusedUnknown, fmt.Sprintf("there is no provider %q here", clip(r.Provider, maxIDLen))
	}
	if late := t.late(r); late != "" {
		return spec, executor.RefusedLate, late
	}
	p := t.pools[poolOf(spec)]
	switch {
	case p.full() && len(p.queue) >= p.room:
		return spec, executor.RefusedFull, fmt.Sprintf("pool %q: all %d slots are taken and %d wait", p.name, p.slots, len(p.queue))
	case t.kept > maxKept:
		return spec, executor.RefusedFull, fmt.Sprintf("%d bytes of results wait for their release", t.kept)
	}
	return spec, "", ""
}

// late says why it is too late to start now, or "".
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
			return fmt.Errorf("call and attempt are needed, with at most %d bytes each", maxIDLen)
		}
	}
	return nil
}

// known attaches to an attempt that was heard of before; what it returns answers
// the watcher, without the lock. It returns nil for one never seen.
func (t *Attempts) known(k key, w Watcher) func() {
	a := t.live[k]
	switch {
	case a == nil:
		v := t.past.get(k)
		if v == noVerdict {
			return nil
		}
		state, reason := v.state()
		return func() { t.tell(w, t.encode(k, executor.Answer{State: state, Reason: reason})) }
	case a.phase == done:
		return func() {
			a.saying.Lock() // not before its earlier watchers were told
			defer a.saying.Unlock()
			t.tell(w, a.final)
		}
	default:
		a.watch(w)
		return func() { t.sayRunning(a, w) }
	}
}
