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
	again      = 20 * time.Millisecond // until the next look whether earlier messages are still to come
	firstPause = time.Second           // after a failed attempt
	maxPause   = 5 * time.Minute       // likewise
	probes     = 8                     // attempts to find out what became of a message
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
		due, early := o.due()
		for _, e := range due {
			running.Go(func() { o.ended(e, o.attempt(work, e)) })
		}
		if early {
			o.progress(ctx)
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

// progress finds out up to which commit every entry is there: another core may hold earlier commits,
// and may be slow. It makes the loop look again, soon or at once if more can be delivered now.
func (o *Outbox) progress(ctx context.Context) {
	o.mu.Lock()
	known := uint64(0)
	for _, list := range o.entries {
		for id := range list {
			known = max(known, commitOf(id))
		}
	}
	before := o.done
	o.mu.Unlock()
	floor, all, err := o.cfg.Bus.OutgoingProgress(ctx)
	if err != nil {
		o.cfg.Log.Debug("reading how far outgoing commits are handled", "error", err)
		return // the next tick looks again
	}
	if all { // also those of a log that was lost
		floor = max(floor, known)
	}
	o.mu.Lock()
	o.done = floor
	o.mu.Unlock()
	if floor > before {
		o.kick()
		return
	}
	time.AfterFunc(again, o.kick)
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
func (o *Outbox) attempt(ctx context.Context, e *entry) error {
	switch {
	case e.State == coreapi.OutboxSending:
		return o.findOut(ctx, e)
	case o.hopeless(e):
		return o.giveUp(ctx, e)
	case o.answered(ctx, e):
		return o.remove(ctx, e)
	}
	return o.send(ctx, e)
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
	if err := o.store(ctx, e); err != nil {
		return err
	}
	o.count(&o.counts.dead)
	o.cfg.Log.Error("a message to people was not delivered; `skandha outbox` lists it", "id", e.id, "via", e.Via,
		"session", e.Ref, "reason", why)
	return nil
}

func (o *Outbox) count(n *int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	*n++
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
	o.count(&o.counts.probed)
	r, err := o.call(ctx, e, &tool.Probe{NotAfter: e.NotAfter.Add(executor.Skew)})
	if err != nil {
		return err
	}
	if !r.Success && r.Error.Code == tool.CodeOutcomeUnknown && r.Metadata[tool.MetadataPermanent] == true {
		return o.bury(ctx, e, "unknown whether it was sent: "+r.Error.Message)
	}
	if r.Success || r.Error.Code == tool.CodeNotRun && !unasked(r) {
		o.count(&o.counts.resolved)
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
		if err := o.remove(ctx, e); err != nil {
			return err
		}
		o.count(&o.counts.delivered)
		return nil
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
	o.count(&o.counts.failed)
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
