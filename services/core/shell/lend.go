package shell

import "skandha.dev/pkg/subject"

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

// maxCounted bounds the needs that are counted, because beacons may name any number.
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
