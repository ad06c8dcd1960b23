package shell

import "skandha.dev/pkg/subject"

// A share that its core does not use is lent. A core may claim more sessions than it
// has, because it is broken or false, or it may be slow to take its slots: no other
// core's sessions wait for slots that nobody uses.

// lendAfter is for how many turns, two seconds, slots must have been left unused before
// they are lent. A core that begins to use its share gets it back at once: what others
// have borrowed does not count as theirs.
const lendAfter = 8

// usage is how many of the slots that serve a need other cores have used, at the latest
// turns.
type usage struct {
	at [lendAfter]int
	n  int // turns that were counted
}

func (u *usage) add(slots int) {
	u.at[u.n%lendAfter] = slots
	u.n++
}

// most returns the largest of the latest counts; ok is false until there are enough.
func (u *usage) most() (slots int, ok bool) {
	if u == nil || u.n < lendAfter {
		return 0, false
	}
	for _, n := range u.at {
		slots = max(slots, n)
	}
	return slots, true
}

// countUse counts what other cores use of the slots that any core's sessions wait for.
// The caller holds the lock.
func (d *Directory) countUse() {
	counted := map[need]*usage{}
	for _, o := range d.demands {
		for _, w := range o.waiting {
			n := need{kind: w.Kind, name: w.Name}
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

// maxCounted bounds the needs that are counted: beacons name them.
const maxCounted = 256

// usedByOthers counts the slots for a need that are busy with attempts of other cores.
// The caller holds the lock.
func (d *Directory) usedByOthers(n need) (slots int) {
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

// keepMine remembers how many slots of an instance this core has used at most since its
// latest announcement, which still counts those as busy. The caller holds the lock.
func (d *Directory) keepMine(id subject.Instance, pool string) {
	if i := d.instances[id]; i != nil {
		if i.mine == nil {
			i.mine = map[string]int{}
		}
		i.mine[pool] = max(i.mine[pool], d.reserved[id][pool])
	}
}
