package outbox

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/executor"
)

const (
	tick       = 250 * time.Millisecond
	atOnce     = 32              // destinations that are delivered to at once
	firstPause = time.Second     // after a failed attempt
	maxPause   = 5 * time.Minute // likewise
	probes     = 8               // attempts to find out what became of a message
	storeWait  = 5 * time.Second
	drainWait  = 5 * time.Second // for what is being delivered at shutdown
)

// deliver delivers while this core holds the lease.
func (o *Outbox) deliver(ctx context.Context) {
	t := time.NewTicker(tick)
	defer t.Stop()
	var running sync.WaitGroup
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer func() {
		finished := make(chan struct{})
		go func() { running.Wait(); close(finished) }()
		select {
		case <-finished:
		case <-time.After(drainWait): // the next core finds out what became of the rest
		}
		stop()
		<-finished
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeWait)
		defer cancel()
		o.letGo(ctx)
	}()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		case <-o.wake:
		}
		if !o.open() {
			o.rest(ctx)
			continue
		}
		if !o.hold(ctx) {
			continue
		}
		for _, e := range o.due() {
			running.Go(func() {
				o.attempt(work, e)
				o.mu.Lock()
				delete(o.busy, e.dest())
				o.mu.Unlock()
				o.kick()
			})
		}
	}
}

// rest gives up the lease once there was nothing to deliver for a while.
func (o *Outbox) rest(ctx context.Context) {
	o.mu.Lock()
	now := time.Now()
	if o.lease.idle.IsZero() {
		o.lease.idle = now
	}
	done := o.lease.mine && len(o.busy) == 0 && now.Sub(o.lease.idle) > keepFor
	o.mu.Unlock()
	if done {
		o.letGo(ctx)
	}
}

// open reports whether anything is undelivered.
func (o *Outbox) open() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := o.now()
	for _, list := range o.entries {
		if head(list, now) != nil {
			o.lease.idle = time.Time{}
			return true
		}
	}
	return false
}

// due returns the entries that can be attempted now, the first of each destination, and marks the
// destinations as busy.
func (o *Outbox) due() (due []*entry) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := o.now()
	for d, list := range o.entries {
		first := head(list, now)
		if first == nil || o.busy[d] || len(o.busy) >= atOnce || now.Before(first.Next) {
			continue
		}
		if _, ok := o.cfg.Caller.Delivers(tool.Deliverer(first.Via)); !ok && !o.hopeless(first) {
			continue
		}
		o.busy[d] = true
		e := *first
		due = append(due, &e)
	}
	return due
}

// head returns the first entry that is to be delivered now.
func head(list map[string]*entry, now time.Time) *entry {
	var first *entry
	for _, e := range list {
		if e.State != coreapi.OutboxDead && !now.Before(e.Delay) && (first == nil || e.id < first.id) {
			first = e
		}
	}
	return first
}

// hopeless reports whether an entry is not worth another attempt.
func (o *Outbox) hopeless(e *entry) bool {
	a := e.Delivery.Approval
	return o.now().Sub(e.Stored) > o.cfg.GiveUp || a != nil && !o.now().Before(a.ExpiresAt)
}

// attempt moves one entry a step forward.
func (o *Outbox) attempt(ctx context.Context, e *entry) {
	var err error
	switch {
	case e.State == coreapi.OutboxSending:
		err = o.findOut(ctx, e)
	case o.hopeless(e):
		err = o.giveUp(ctx, e)
	case o.answered(ctx, e):
		err = o.remove(ctx, e)
	default:
		err = o.send(ctx, e)
	}
	if err != nil {
		o.cfg.Log.Warn("delivering a message", "id", e.id, "via", e.Via, "error", err)
	}
}

// answered reports whether an entry asks for an approval that was answered meanwhile.
func (o *Outbox) answered(ctx context.Context, e *entry) bool {
	a := e.Delivery.Approval
	if a == nil {
		return false
	}
	pending, err := o.cfg.Caller.Pending(ctx, e.Ref, a.ConfirmationID)
	return err == nil && !pending
}

// giveUp ends an entry that nobody has sent: a request for approval that has expired disappears.
func (o *Outbox) giveUp(ctx context.Context, e *entry) error {
	if a := e.Delivery.Approval; a != nil && !o.now().Before(a.ExpiresAt) {
		return o.remove(ctx, e)
	}
	return o.bury(ctx, e, fmt.Sprintf("not delivered within %s: %s", o.cfg.GiveUp,
		cmp.Or(e.Error, "the listener "+string(e.Via)+" is not running")))
}

// bury marks an entry as dead.
func (o *Outbox) bury(ctx context.Context, e *entry, why string) error {
	e.State, e.Error, e.Call, e.NotAfter, e.Next = coreapi.OutboxDead, why, "", time.Time{}, time.Time{}
	o.mu.Lock()
	o.counts.dead++
	o.mu.Unlock()
	o.cfg.Log.Error("a message to people was not delivered; `skandha outbox` lists it", "id", e.id, "via", e.Via,
		"session", e.Ref, "reason", why)
	return o.store(ctx, e)
}

// send makes the call that delivers an entry.
func (o *Outbox) send(ctx context.Context, e *entry) error {
	limit, _ := o.cfg.Caller.Delivers(tool.Deliverer(e.Via))
	e.State, e.Call = coreapi.OutboxSending, "internal-"+nonce()
	e.NotAfter = o.now().Add(executor.StartWithin + limit).UTC()
	if err := o.store(ctx, e); err != nil {
		return err // another core delivers it, or it is tried again
	}
	r, err := o.call(ctx, e, nil)
	if err != nil {
		return err
	}
	return o.settle(ctx, e, r)
}

// findOut probes an entry whose call may have been made.
func (o *Outbox) findOut(ctx context.Context, e *entry) error {
	o.mu.Lock()
	o.counts.probed++
	o.mu.Unlock()
	r, err := o.call(ctx, e, &tool.Probe{NotAfter: e.NotAfter.Add(executor.Skew)})
	if err != nil {
		return err
	}
	if r.Success || r.Error.Code == tool.CodeNotRun && !unasked(r) {
		o.mu.Lock()
		o.counts.resolved++
		o.mu.Unlock()
		return o.settle(ctx, e, r)
	}
	e.Error = r.Error.Message
	asked := !unasked(r)
	if asked {
		e.Attempts++
	}
	enough := asked && e.Attempts >= probes && o.now().After(e.NotAfter.Add(executor.Skew))
	if enough || !asked && o.hopeless(e) {
		return o.bury(ctx, e, "unknown whether it was sent: "+e.Error)
	}
	e.Next = o.now().Add(pause(e.Attempts)).UTC()
	return o.store(ctx, e)
}

// unasked reports whether a probe's result means that no runner was asked.
func unasked(r tool.Result) bool { return r.Metadata[metadataUnasked] == true }

// metadataUnasked marks results of calls that no runner got. A probe that was not made says nothing
// about the earlier call.
const metadataUnasked = "unasked"

// Unasked returns the result of a call that no runner got.
func Unasked(why string) tool.Result {
	r := tool.Failure(tool.CodeNotRun, why)
	r.Metadata = map[string]any{metadataUnasked: true}
	return r
}

func (o *Outbox) call(ctx context.Context, e *entry, probe *tool.Probe) (tool.Result, error) {
	args, err := json.Marshal(e.Delivery)
	if err != nil {
		return tool.Result{}, err
	}
	r := o.cfg.Caller.Deliver(ctx, Call{
		Ref: e.Ref, Tool: tool.Deliverer(e.Via), Args: args, ID: e.Call, Key: e.Key, NotAfter: e.NotAfter, Probe: probe,
	})
	if !r.Success && r.Error == nil {
		r = tool.Failure(tool.CodeOutcomeUnknown, "the call ended without a result")
	}
	return r, nil
}

// settle decides about an entry by the result of its call.
func (o *Outbox) settle(ctx context.Context, e *entry, r tool.Result) error {
	if r.Success {
		o.mu.Lock()
		o.counts.delivered++
		o.mu.Unlock()
		return o.remove(ctx, e)
	}
	code := r.Error.Code
	e.Error = string(code) + ": " + r.Error.Message
	switch {
	case code == tool.CodeOutcomeUnknown, code == tool.CodeTimeout:
		e.Attempts = 0 // of probes
		e.Next = o.now().Add(firstPause).UTC()
		return o.store(ctx, e)
	case r.Metadata[tool.MetadataPermanent] == true, slices.Contains(permanent, code):
		return o.bury(ctx, e, e.Error)
	}
	e.State, e.Call, e.NotAfter = coreapi.OutboxWaiting, "", time.Time{}
	if code == tool.CodeNotRun || code == tool.CodeUnknownTool {
		e.Next = o.now().Add(firstPause).UTC()
		return o.store(ctx, e)
	}
	e.Attempts++
	o.mu.Lock()
	o.counts.failed++
	o.mu.Unlock()
	wait := pause(e.Attempts)
	if ms, ok := r.Metadata[tool.MetadataRetryAfter].(float64); ok && ms > 0 {
		wait = min(max(wait, time.Duration(ms)*time.Millisecond), time.Hour)
	}
	e.Next = o.now().Add(wait).UTC()
	return o.store(ctx, e)
}

// permanent are the codes of results that a repetition does not change.
var permanent = []tool.Code{tool.CodeInvalidArgs, tool.CodeDenied}

func pause(failed int) time.Duration {
	return min(firstPause<<min(max(failed-1, 0), 20), maxPause)
}

// list returns all entries, in the order of destinations and of the log.
func (o *Outbox) list() []*entry {
	o.mu.Lock()
	defer o.mu.Unlock()
	var out []*entry
	for _, list := range o.entries {
		for _, e := range list {
			n := *e
			out = append(out, &n)
		}
	}
	slices.SortFunc(out, func(a, b *entry) int { return strings.Compare(a.id, b.id) })
	return out
}
