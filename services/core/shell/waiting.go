package shell

import (
	"slices"
	"time"

	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/executor"
	"skandha.dev/services/internal/registry"
)

// wait notes that the session waits for executors; see queue.
func (d *Directory) wait(s *session, needs []need, paused bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.waiting.wait(s, needs, paused)
	d.demandMoves()
}

// leave removes the session from the queue, and wakes those that come next.
func (d *Directory) leave(s *session) {
	d.mu.Lock()
	var wake []*session
	if d.waiting.leave(s) {
		wake = d.wake(false)
		d.demandMoves()
	}
	d.mu.Unlock()
	poke(wake)
}

// listens notes that the session would take a free slot at once.
func (d *Directory) listens(s *session) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.waiting.listens(s)
}

// queued counts the sessions that wait.
func (d *Directory) queued() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.waiting.order.Len()
}

// wake lists the sessions to wake: all that wait if the offer has changed, otherwise the
// first ones, as many as there are free slots. The caller holds the lock.
func (d *Directory) wake(all bool) []*session {
	if d.waiting.order.Len() == 0 {
		return nil
	}
	if all {
		return d.waiting.all()
	}
	return d.waiting.first(func(n need) int { return d.slots(n) })
}

// slots counts the free slots for a need that this core may take. The caller holds the lock.
func (d *Directory) slots(n need) int {
	free, pool := 0, d.poolFor(n)
	for id, i := range d.instances {
		if (n.at == "" || n.at == id) && !i.Draining && i.gone.IsZero() && d.offersNeed(i, n) {
			free += max(0, d.freeAt(id, i, pool))
		}
	}
	return min(free, d.left(n))
}

// poolFor returns the pool that serves a need. The caller holds the lock.
func (d *Directory) poolFor(n need) string {
	if t := d.tools[n.name]; n.kind == subject.Runner && t != nil && t.spec.Pool != "" {
		return t.spec.Pool
	}
	return executor.DefaultPool
}

func (d *Directory) offersNeed(i *instance, n need) bool {
	if i.Kind != n.kind {
		return false
	}
	if n.kind == subject.Provider {
		return n.name == "" || slices.ContainsFunc(i.Providers, func(p provider.Info) bool { return p.Name == n.name })
	}
	t := d.tools[n.name]
	return t != nil && slices.ContainsFunc(i.Tools, func(o tool.Spec) bool {
		return o.Name == n.name && ownerOf(i.Service, o) == t.owner
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

// refused notes that an instance has no free slot after all, because another core was
// faster. That holds until its next announcement, or until an attempt of this core frees
// a slot there.
func (d *Directory) refused(id subject.Instance, pool string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if i := d.instances[id]; i != nil && !slices.Contains(i.full, pool) {
		i.full = append(i.full, pool)
	}
}

// noteLost records when tools and providers were last offered. The caller holds the
// lock.
func (d *Directory) noteLost(tools map[string]*toolEntry, models map[string]bool) {
	now := time.Now()
	for name, t := range d.tools {
		if tools[name] != nil {
			continue
		}
		d.lostTools[name] = now
		if t.spec.Plugin == "" && !t.spec.Internal { // a plugin's tools come and go with its lease
			d.lostPublic[name] = now
		}
	}
	for name := range tools {
		delete(d.lostTools, name)
		delete(d.lostPublic, name)
	}
	for name := range d.models {
		if !models[name] {
			d.lostModel[name] = now
		}
	}
	for name := range models {
		delete(d.lostModel, name)
	}
	d.models = models
}

// arrive notes that a new executor or replica offers the tools. The caller holds the lock.
func (d *Directory) arrive(tools []tool.Spec) {
	now := time.Now()
	for _, t := range tools {
		d.arrived[t.Name] = now
	}
}

// hasNew reports whether a plugin has replicas that it did not have before.
func hasNew(before, now []registry.Lease) bool {
	return slices.ContainsFunc(now, func(l registry.Lease) bool {
		return !slices.ContainsFunc(before, func(o registry.Lease) bool { return o.Instance == l.Instance })
	})
}

// Arrived implements decide.Catalog.
func (d *Directory) Arrived(name string) time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.arrived[name]
}

// goneSince returns since when a tool has not been offered, as far as this core knows;
// zero: it is offered.
func (d *Directory) goneSince(name string) time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.tools[name] != nil {
		return time.Time{}
	}
	return d.since(d.lostTools[name])
}

// noProvider returns for how long no provider with that name has been offered. An empty
// name means any provider.
func (d *Directory) noProvider(name string) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.models[name] {
		return 0
	}
	return max(time.Since(d.since(d.lostModel[name])), 1)
}

// since returns t, but no earlier than this core's start.
func (d *Directory) since(t time.Time) time.Time {
	if t.Before(d.started) {
		return d.started
	}
	return t
}
