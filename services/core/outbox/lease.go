package outbox

import (
	"context"
	"encoding/json"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
)

// leaseKey is the key of the lease. Keys of entries have dots.
const leaseKey = "lease"

const (
	renewEvery = time.Second
	// leaseTTL is how long a lease counts that is not renewed, by the clock of the core that waits.
	leaseTTL = 4 * renewEvery
	// keepFor is how long a core keeps the lease without anything to deliver.
	keepFor = 5 * time.Second
)

// lease is the right to deliver, as this core knows it.
type lease struct {
	revision uint64
	holder   subject.Instance // empty: nobody
	at       time.Time        // when this core saw the revision
	mine     bool
	renewed  time.Time
	idle     time.Time // since when there is nothing to deliver
}

// seen takes over a change of the lease.
func (l *lease) seen(e journal.Entry, now time.Time) {
	if e.Revision <= l.revision {
		return
	}
	var v struct {
		Holder subject.Instance `json:"holder"`
	}
	if !e.Deleted {
		_ = json.Unmarshal(e.Value, &v) // garbage is nobody's lease
	}
	if v.Holder != l.holder {
		l.mine = false
	}
	l.revision, l.holder, l.at = e.Revision, v.Holder, now
}

// hold acquires or renews the lease, and reports whether this core has it.
func (o *Outbox) hold(ctx context.Context) bool {
	now := time.Now()
	o.mu.Lock()
	l := o.lease
	o.mu.Unlock()
	switch {
	case l.mine && now.Sub(l.renewed) < renewEvery:
		return true
	case !l.mine && l.holder != "" && now.Sub(l.at) < leaseTTL:
		return false
	}
	me := o.cfg.Bus.Instance()
	value, err := json.Marshal(map[string]any{"holder": me, "at": now.UTC()})
	if err != nil {
		return false
	}
	rev, err := o.put(ctx, leaseKey, value, l.revision)
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil {
		if o.lease.mine && now.Sub(o.lease.renewed) >= leaseTTL {
			o.lease.mine = false // another core may have it
		}
		o.cfg.Log.Debug("acquiring the lease of the outbox", "error", err)
		return o.lease.mine
	}
	o.lease = lease{revision: rev, holder: me, at: now, mine: true, renewed: now, idle: o.lease.idle}
	return true
}

// letGo gives up the lease.
func (o *Outbox) letGo(ctx context.Context) {
	o.mu.Lock()
	l := o.lease
	o.mu.Unlock()
	if !l.mine {
		return
	}
	rev, err := o.bucket.Delete(ctx, leaseKey, journal.Fence{Revision: l.revision})
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lease.mine, o.lease.holder = false, ""
	if err == nil {
		o.lease.revision = rev
	}
}
