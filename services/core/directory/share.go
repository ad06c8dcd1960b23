package directory

import (
	"context"
	"math"
	"slices"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/periodic"
)

// Cores with sessions that wait for the same executors share the slots in proportion to
// their numbers of waiting sessions. A core is the first to see a slot that one of its
// own attempts frees. Without shares it would keep every slot it ever had, and serve its
// sessions more often than a core that started later.
//
// No beacon is fully trusted: a claim is capped, it counts for at most maxRatio times the
// smallest, and slots of a share that its core does not use are lent, see usage. So each
// core that waits keeps a share, whatever another one claims.
//
// Each core computes the shares itself, from the beacons of all cores. Fractions of slots
// rotate over time, so that two cores take turns at a single slot. Cores with different
// data or clocks briefly use a slot too many or too few: the executor has a queue, so
// nothing is lost.

// shareTurn is how often fractional slots change hands. With several slots, the only
// session of a core is served among a hundred of another core after a few seconds.
const shareTurn = 250 * time.Millisecond

// DefaultOpenSessions is how many sessions a core has open at once.
const DefaultOpenSessions = 2000

const (
	// maxSessions caps the waiting sessions that a core can claim, at the default limit of
	// open sessions.
	maxSessions = DefaultOpenSessions
	// maxRatio is how many times the smallest claim the largest one may count. Below that,
	// shares are proportional.
	maxRatio = 256
)

// golden, the golden ratio's fraction, spreads the turns evenly for any number of slots.
const golden = 0.6180339887498949

// demand holds the needs that one core's sessions wait for.
type demand struct {
	core    subject.Instance
	waiting []bus.Waiting
}

// fewMore is a difference in waiting sessions that the next regular beacon reports.
const fewMore = 4

// demandMoves requests an immediate beacon if many more or fewer sessions wait than the
// latest one reported. Within a second, a core that does not know of the others' sessions
// would serve its own several times. The caller holds the lock.
func (d *Directory) demandMoves() {
	n, sent := d.waiting.order.Len(), d.published
	if len(d.cores) < 2 || n <= 2*sent+fewMore && sent <= 2*n+fewMore {
		return
	}
	select {
	case d.moved <- struct{}{}:
	default:
	}
}

// Moved receives a value when the next beacon should be sent at once, because many more or
// fewer sessions wait than the latest one reported.
func (d *Directory) Moved() <-chan struct{} { return d.moved }

// Lives reports whether a core publishes beacons, or may do so: a core that has just started
// has not heard all of them.
func (d *Directory) Lives(core subject.Instance) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Since(d.started) < heardAfter || slices.Contains(d.cores, core)
}

// heardAfter is how long after the start every live core has been heard.
const heardAfter = 2 * bus.BeaconEvery

// NewestFold returns the newest fold version that any core knows.
func (d *Directory) NewestFold() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.fold
}

// OldestFold returns the oldest fold version that any core knows.
func (d *Directory) OldestFold() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.oldest
}

// Demand counts the waiting sessions, for the beacon.
func (d *Directory) Demand() []bus.Waiting {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.published = d.waiting.order.Len()
	counts := map[Need]int{}
	for e := d.waiting.order.Front(); e != nil; e = e.Next() {
		for _, n := range e.Value.(*waiter).needs {
			n.At = ""
			counts[n]++
		}
	}
	out := make([]bus.Waiting, 0, len(counts))
	for n, sessions := range counts {
		out = append(out, bus.Waiting{Kind: n.Kind, Name: n.Name, Sessions: sessions})
	}
	slices.SortFunc(out, func(a, b bus.Waiting) int { return b.Sessions - a.Sessions })
	return out[:min(len(out), bus.MaxWaiting)]
}

// Share sets the demands of all cores, including this one, so that all compute the shares
// from the same numbers. It wakes sessions for which slots are free now.
func (d *Directory) Share(self subject.Instance, all []bus.Beacon) {
	d.mu.Lock()
	d.self, d.demands, d.cores, d.fold, d.oldest = self, d.demands[:0], nil, 0, math.MaxInt
	for _, b := range all {
		d.cores = append(d.cores, b.Instance)
		d.fold, d.oldest = max(d.fold, b.Fold), min(d.oldest, b.Fold)
		if len(b.Waiting) > 0 {
			d.demands = append(d.demands, demand{b.Instance, b.Waiting})
		}
	}
	wake := d.wake(false)
	d.mu.Unlock()
	wakeUp(wake)
}

// Turns wakes sessions that may take a slot because slots have changed hands.
func (d *Directory) Turns(ctx context.Context) {
	periodic.Every(ctx, shareTurn, func() {
		d.mu.Lock()
		var wake []*Claimant
		if len(d.demands) > 1 {
			d.countUse()
			wake = d.wake(false)
		} else {
			d.usage = nil
		}
		d.mu.Unlock()
		wakeUp(wake)
	})
}

// left returns how many more of the slots that serve a need this core may take. The
// caller holds the lock.
func (d *Directory) left(n Need) int {
	before, mine, after := 0, 0, 0 // sessions of cores with smaller names, of this core, and of the rest
	claims, most := d.claimed(n)
	for core, sessions := range claims {
		sessions = min(sessions, most)
		switch {
		case core < d.self:
			before += sessions
		case core == d.self:
			mine = sessions
		default:
			after += sessions
		}
	}
	if before+after == 0 {
		return math.MaxInt
	}
	total, used, pool := 0, 0, d.poolFor(n)
	for id, i := range d.instances {
		if !i.Draining && i.gone.IsZero() && d.offersNeed(i, n) {
			total += i.slots(pool)
			used += d.reserved[id][pool]
		}
	}
	share := part(total, before, max(1, mine), before+max(1, mine)+after, time.Now())
	if others, ok := d.usage[Need{Kind: n.Kind, Name: n.Name}].most(); ok {
		share = max(share, total-others)
	}
	return share - used
}

// claimed returns how many sessions of each core compete for the slots that serve a
// need, and for how many a claim may count. The caller holds the lock.
func (d *Directory) claimed(n Need) (of map[subject.Instance]int, most int) {
	of = make(map[subject.Instance]int, len(d.demands))
	least := maxSessions
	for _, o := range d.demands {
		sessions := 0
		for _, w := range o.waiting {
			sessions += d.compete(n, Need{Kind: w.Kind, Name: w.Name}, min(max(w.Sessions, 0), maxSessions))
		}
		if sessions = min(sessions, maxSessions); sessions > 0 {
			of[o.core], least = sessions, min(least, sessions)
		}
	}
	return of, min(least*maxRatio, maxSessions)
}

// part returns how many of total slots belong, at a time, to a core with mine of all
// sessions that comes after cores with before of them.
func part(total, before, mine, all int, at time.Time) int {
	turn := float64(at.UnixNano()/int64(shareTurn)) * golden
	turn -= math.Floor(turn)
	edge := func(sessions int) float64 { return math.Floor(float64(total)*float64(sessions)/float64(all) + turn) }
	return int(edge(before+mine) - edge(before))
}

// compete returns how many of the sessions with the need o compete for the slots that
// serve n: all for the same need, else in proportion to the slots of o that also serve
// n. The caller holds the lock.
func (d *Directory) compete(n, o Need, sessions int) int {
	if n == o || sessions == 0 {
		return sessions
	}
	pool := d.poolFor(n)
	if n.Kind != o.Kind || pool != d.poolFor(o) {
		return 0
	}
	all, both := 0, 0
	for _, i := range d.instances {
		if d.offersNeed(i, o) {
			all += i.slots(pool)
			if d.offersNeed(i, n) {
				both += i.slots(pool)
			}
		}
	}
	if both == 0 {
		return 0
	}
	return (sessions*both + all - 1) / all
}

// Slots of a share that its core does not use are lent to other cores. A core may claim
// more sessions than it has, because it is broken or lies, or it may be slow to take its
// slots. Lending keeps the sessions of other cores from waiting for idle slots.

// lendAfter is the number of turns (two seconds) for which slots must be unused before
// they are lent. A core that begins to use its share gets it back at once: borrowed slots
// do not count as the borrower's share.
const lendAfter = 8

// usage holds how many of the slots that serve a need other cores used at each of the
// latest turns.
type usage struct {
	at [lendAfter]int
	n  int // number of turns counted
}

func (u *usage) add(slots int) {
	u.at[u.n%lendAfter] = slots
	u.n++
}

// most returns the largest of the latest counts. ok is false until there are lendAfter
// counts.
func (u *usage) most() (slots int, ok bool) {
	if u == nil || u.n < lendAfter {
		return 0, false
	}
	for _, n := range u.at {
		slots = max(slots, n)
	}
	return slots, true
}

// countUse counts the slots that other cores use, for each need that sessions of any core
// wait for. The caller holds the lock.
func (d *Directory) countUse() {
	counted := map[Need]*usage{}
	for _, o := range d.demands {
		for _, w := range o.waiting {
			n := Need{Kind: w.Kind, Name: w.Name}
			if counted[n] != nil || len(counted) >= maxCounted {
				continue
			}
			u := d.usage[n]
			if u == nil {
				u = &usage{}
			}
			u.add(d.usedByOthers(n))
			counted[n] = u
		}
	}
	d.usage = counted
}

// maxCounted bounds the needs that are counted, because beacons may name any number.
const maxCounted = 256

// usedByOthers counts the slots for a need that are busy with attempts of other cores.
// The caller holds the lock.
func (d *Directory) usedByOthers(n Need) (slots int) {
	pool := d.poolFor(n)
	for id, i := range d.instances {
		if i.Draining || !i.gone.IsZero() || !d.offersNeed(i, n) {
			continue
		}
		for _, p := range i.Pools {
			if p.Name == pool {
				slots += max(0, min(p.Busy, p.Slots)-max(i.mine[pool], d.reserved[id][pool]))
			}
		}
	}
	return slots
}

// keepMine records the most slots of an instance that this core has used since the
// instance's latest announcement, which still counts them as busy. The caller holds the
// lock.
func (d *Directory) keepMine(id subject.Instance, pool string) {
	if i := d.instances[id]; i != nil {
		if i.mine == nil {
			i.mine = map[string]int{}
		}
		i.mine[pool] = max(i.mine[pool], d.reserved[id][pool])
	}
}
