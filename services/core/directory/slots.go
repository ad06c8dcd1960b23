package directory

import (
	"slices"

	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/executor"
)

// Wait notes that the session waits for executors; see queue.
func (d *Directory) Wait(s *Claimant, needs []Need, paused bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.waiting.wait(s, needs, paused)
	d.demandMoves()
}

// Leave removes the session from the queue, and wakes those that come next.
func (d *Directory) Leave(s *Claimant) {
	d.mu.Lock()
	var wake []*Claimant
	if d.waiting.leave(s) {
		wake = d.wake(false)
		d.demandMoves()
	}
	d.mu.Unlock()
	wakeUp(wake)
}

// Listens notes that the session would take a free slot at once.
func (d *Directory) Listens(s *Claimant) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.waiting.listens(s)
}

// Queued counts the sessions that wait.
func (d *Directory) Queued() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.waiting.order.Len()
}

// wake lists the sessions to wake: all that wait if the offer has changed, otherwise the
// first ones, as many as there are free slots. The caller holds the lock.
func (d *Directory) wake(all bool) []*Claimant {
	if d.waiting.order.Len() == 0 {
		return nil
	}
	if all {
		return d.waiting.all()
	}
	return d.waiting.first(func(n Need) int { return d.slots(n) })
}

// slots counts the free slots for a need that this core may take. The caller holds the lock.
func (d *Directory) slots(n Need) int {
	free, pool := 0, d.poolFor(n)
	for id, i := range d.instances {
		if (n.At == "" || n.At == id) && !i.Draining && i.gone.IsZero() && d.offersNeed(i, n) {
			free += max(0, d.freeAt(id, i, pool))
		}
	}
	return min(free, d.left(n))
}

// poolFor returns the pool that serves a need. The caller holds the lock.
func (d *Directory) poolFor(n Need) string {
	if t := d.tools[n.Name]; n.Kind == subject.Runner && t != nil && t.spec.Pool != "" {
		return t.spec.Pool
	}
	return executor.DefaultPool
}

func (d *Directory) offersNeed(i *instance, n Need) bool {
	if i.Kind != n.Kind {
		return false
	}
	if n.Kind == subject.Provider {
		return n.Name == "" || slices.ContainsFunc(i.Providers, func(p provider.Info) bool { return p.Name == n.Name })
	}
	t := d.tools[n.Name]
	return t != nil && slices.ContainsFunc(i.Tools, func(o tool.Spec) bool {
		return o.Name == n.Name && ownerOf(i.Service, o) == t.owner
	})
}

// freeAt returns an instance's free slots in a pool, as far as this core knows.
func (d *Directory) freeAt(id subject.Instance, i *instance, pool string) int {
	if slices.Contains(i.full, pool) {
		return 0
	}
	for _, p := range i.Pools {
		if p.Name == pool {
			return p.Slots - max(p.Busy, d.reserved[id][pool])
		}
	}
	return 0
}

// slots returns the size of an instance's pool.
func (i *instance) slots(pool string) int {
	for _, p := range i.Pools {
		if p.Name == pool {
			return p.Slots
		}
	}
	return 0
}

// Refused notes that an instance has no free slot after all, because another core was
// faster. That holds until its next announcement, or until an attempt of this core frees
// a slot there.
func (d *Directory) Refused(id subject.Instance, pool string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if i := d.instances[id]; i != nil && !slices.Contains(i.full, pool) {
		i.full = append(i.full, pool)
	}
}
