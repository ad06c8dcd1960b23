package outbox

import (
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/coreapi"
)

const (
	// atOnce is to how many destinations of a listener are delivered at once. Those that failed the last
	// time, and those that have not answered for [patience], are late and do not count: they have
	// separate places, so that they do not hold up the others.
	atOnce     = coreapi.DeliveriesAtOnce / 4
	lateAtOnce = atOnce // a destination that failed the last time has to wait if so many are late
	patience   = 5 * time.Second

	maxHold = 30 * time.Second // after the bus has not stored the state of an entry
)

// delivering is one delivery that is in progress.
type delivering struct {
	via   subject.Writer
	since time.Time
	late  bool // from its beginning: an earlier attempt has failed
}

// hold is what became of the last attempt for a destination, if it has failed.
type hold struct {
	unstored int       // attempts, one after the other, whose outcome the bus did not store
	until    time.Time // not before, because of them
	late     bool      // the last message was not delivered
}

// places are those that the deliveries of a listener take.
type places struct{ prompt, late int }

// free reports whether there is a place for another delivery.
func (p places) free(late bool) bool {
	if late {
		return p.late < lateAtOnce
	}
	return p.prompt < atOnce && p.prompt+p.late < coreapi.DeliveriesAtOnce
}

func (p places) with(late bool) places {
	if late {
		p.late++
	} else {
		p.prompt++
	}
	return p
}

// failed reports whether the last attempt has failed, or its outcome is unknown.
func (e *entry) failed() bool {
	return e.Attempts > 0 || e.State == coreapi.OutboxSending || e.State == coreapi.OutboxDead
}

// due returns the entries that can be attempted now, the first of each destination, and marks the
// destinations as busy. early means that there are others which may not be the first yet: an earlier
// commit may still become an entry.
func (o *Outbox) due() (due []*entry, early bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now, taken := o.now(), map[subject.Writer]places{}
	for _, b := range o.busy {
		taken[b.via] = taken[b.via].with(b.late || now.Sub(b.since) > patience)
	}
	for d, list := range o.entries {
		first := head(list, now)
		if first == nil || now.Before(first.Next) || now.Before(o.held[d].until) {
			continue
		}
		late := first.failed() || o.held[d].late
		if !taken[first.Via].free(late) {
			continue
		}
		if _, busy := o.busy[d]; busy {
			continue
		}
		if _, ok := o.cfg.Caller.Delivers(tool.Deliverer(first.Via)); !ok && !o.hopeless(first) {
			continue
		}
		if commitOf(first.id) > o.done {
			early = true
			continue
		}
		o.busy[d] = delivering{via: first.Via, since: now, late: late}
		taken[first.Via] = taken[first.Via].with(late)
		e := *first
		due = append(due, &e)
	}
	return due, early
}

// ended notes how an attempt has ended. After one whose outcome the bus did not store, the state of
// the entry is what it was, so that only a hold keeps it from being attempted again at once.
func (o *Outbox) ended(e *entry, err error) {
	o.mu.Lock()
	defer o.kick()
	defer o.mu.Unlock()
	d := e.dest()
	delete(o.busy, d)
	if err == nil {
		delete(o.held, d)
		if e.failed() && o.entries[d] != nil {
			o.held[d] = hold{late: true}
		}
		if o.outage > 0 {
			o.cfg.Log.Info("the state of messages is stored again", "failed_attempts", o.outage)
		}
		o.outage = 0
		return
	}
	h := o.held[d]
	h.unstored++
	h.until = o.now().Add(min(pause(h.unstored), maxHold))
	o.held[d] = h
	if o.outage++; o.outage == 1 { // one line for each outage
		o.cfg.Log.Warn("the state of a message is not stored; it is tried again, and logged when it works", "id", e.id,
			"via", e.Via, "error", err)
		return
	}
	o.cfg.Log.Debug("the state of a message is not stored", "id", e.id, "via", e.Via, "error", err)
}
