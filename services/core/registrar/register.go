package registrar

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/registry"
)

// patience bounds a request that has no deadline.
const patience = 5 * time.Second

// grace is how long a plugin may own its names without a lease. Only one write lies
// between its manifest and its lease, or between the end of its last lease and its
// release.
const grace = time.Second

// errNameBusy means that a name is owned by a plugin without a lease, which either has
// just lost its lease or is about to get one.
var errNameBusy = errors.New("a plugin that is registering or leaving owns a name")

// register admits a replica. It stores the manifest first and then the lease, so that
// no process sees an incomplete plugin. The lease is refused if the manifest was changed
// in between.
func (r *Registrar) register(ctx context.Context, m plugin.Manifest, invalid plugin.Problems) (plugin.Lease, error) {
	instance := m.Instance
	m.Instance = ""
	hash := m.Hash()
	for {
		got, err := r.claim(ctx, m, instance, hash, invalid)
		if errors.Is(err, errNameBusy) {
			if err := r.pause(ctx, got); err != nil {
				return plugin.Lease{}, err
			}
			continue
		}
		if err != nil {
			return plugin.Lease{}, err
		}
		if got.refused != "" {
			return r.lease(m.Name, instance, hash, got.refused, got.reason), nil
		}
		revision, err := r.grant(ctx, m.Name, instance, hash, got)
		if errors.Is(err, bus.ErrFenceLost) && ctx.Err() == nil {
			r.awaitManifest(ctx, got.seen)
			continue
		}
		if err != nil {
			return plugin.Lease{}, err
		}
		if err := r.view.Await(ctx, revision); err != nil {
			return plugin.Lease{}, err
		}
		r.log.Info("a plugin's replica registered", "plugin", m.Name, "version", m.Version, "instance", instance)
		return r.answer(m.Name, instance, hash)
	}
}

// claim is the progress of a registration.
type claim struct {
	revision uint64    // of the plugin's manifest
	since    time.Time // when the replica first registered
	seen     uint64    // the last manifest's revision when that was read
	conflict error     // with errNameBusy: the reason for which it would be refused

	refused plugin.LeaseState // this replica was unloaded: Draining or Gone
	reason  string
}

// claim ensures that the manifest is the registered one and owns its names.
func (r *Registrar) claim(
	ctx context.Context, m plugin.Manifest, instance subject.Instance, hash string, invalid plugin.Problems,
) (got claim, err error) {
	err = r.change(ctx, func(c *registry.Content) (*edit, error) {
		got = claim{since: time.Now().UTC(), seen: c.ManifestRevision}
		idle := unleased(c)
		if f := compare(c, m, hash, nil); len(invalid)+len(f.conflicts) > 0 {
			f.invalid = invalid
			if without := compare(c, m, hash, idle); len(invalid)+len(without.conflicts) > 0 {
				return nil, f.err()
			}
			got.conflict = f.err()
			return r.evict(c, idle)
		}
		old := c.Records[m.Name]
		if old == nil || old.Hash != hash {
			return &edit{name: m.Name, record: fresh(old, m, hash, instance), more: true}, nil
		}
		lease := c.Leases[m.Name][instance]
		if d := old.Drain(instance); d != nil && d.By == registry.ByOperator {
			if got.refused, got.reason = plugin.Gone, d.Reason; lease != nil {
				got.refused = plugin.Draining
			}
			return nil, nil // nothing to do
		}
		if n := r.renew(c, old, instance); n != nil {
			return &edit{name: m.Name, record: n, more: true}, nil
		}
		if got.revision = old.Revision; lease != nil && lease.Hash == hash {
			got.since = lease.Since
		}
		return nil, nil // nothing to do
	})
	return got, err
}

// evict releases a plugin that has owned its names without a lease for longer than grace.
func (r *Registrar) evict(c *registry.Content, idle []subject.Plugin) (*edit, error) {
	for _, name := range idle {
		if old := c.Records[name]; time.Since(old.Alone) > grace {
			return &edit{name: name, record: r.released(c, old), more: true}, nil
		}
	}
	return nil, errNameBusy
}

// pause waits a moment before the next attempt to claim busy names.
func (r *Registrar) pause(ctx context.Context, got claim) error {
	t := time.NewTimer(grace / 10)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return got.conflict
	}
}

// fresh returns the record of a manifest that replaces another one or none. It keeps an
// operator's suspensions and drains.
func fresh(old *registry.StoredRecord, m plugin.Manifest, hash string, instance subject.Instance) *registry.Record {
	n := &registry.Record{Manifest: m, Hash: hash, Registered: time.Now().UTC()}
	if old != nil {
		n.Suspended = keptSuspension(old.Suspended, instance)
		n.Draining = slices.DeleteFunc(slices.Clone(old.Draining),
			func(d registry.Drain) bool { return d.By != registry.ByOperator })
	}
	return n
}

// keptSuspension returns the suspension that remains when a replica registers: a
// suspension by core is lifted for a replica that it did not concern.
func keptSuspension(s *registry.SuspendRecord, instance subject.Instance) *registry.SuspendRecord {
	if s != nil && s.By == registry.ByCore && !slices.Contains(s.Instances, instance) {
		return nil
	}
	return s
}

// renew returns the record as it must be before the replica may have a lease, or nil if
// nothing must change.
func (r *Registrar) renew(c *registry.Content, old *registry.StoredRecord, instance subject.Instance) *registry.Record {
	suspended := keptSuspension(old.Suspended, instance)
	drain := old.Drain(instance)
	if old.Released.IsZero() && suspended == old.Suspended && drain == nil {
		return nil
	}
	n := r.revise(c, old)
	n.Released, n.Lost, n.Suspended = time.Time{}, false, suspended
	// It had asked to drain, and has now registered again.
	n.Draining = slices.DeleteFunc(n.Draining, func(d registry.Drain) bool { return d.Instance == instance })
	return n
}

func (r *Registrar) grant(
	ctx context.Context, name subject.Plugin, instance subject.Instance, hash string, got claim,
) (uint64, error) {
	body, err := json.Marshal(registry.LeaseRecord{Instance: instance, Hash: hash, Since: got.since})
	if err != nil {
		return 0, err
	}
	return r.bucket.Put(ctx, subject.LeaseKey(name, instance), body, journal.Fence{
		Filter: subject.ManifestKey(name), Revision: got.revision,
	})
}

// answer returns the replica's lease according to the view.
func (r *Registrar) answer(name subject.Plugin, instance subject.Instance, hash string) (plugin.Lease, error) {
	p := r.view.Snapshot().Get(name)
	if p == nil || p.Hash != hash {
		return plugin.Lease{}, registerAgain(name, instance)
	}
	i := slices.IndexFunc(p.Instances, func(l registry.Lease) bool { return l.Instance == instance })
	switch {
	case i < 0:
		return plugin.Lease{}, registerAgain(name, instance)
	case p.Instances[i].Draining:
		return r.lease(name, instance, hash, plugin.Draining, p.Instances[i].Reason), nil
	}
	return r.lease(name, instance, hash, p.State, p.Reason), nil
}

func (r *Registrar) lease(
	name subject.Plugin, instance subject.Instance, hash string, s plugin.LeaseState, reason string,
) plugin.Lease {
	return plugin.Lease{
		Plugin: name, Instance: instance, State: s, Reason: reason, TTLMS: r.cfg.Lease.Milliseconds(), Hash: hash,
	}
}

func registerAgain(name subject.Plugin, instance subject.Instance) error {
	return bus.Errorf(bus.CodeNotFound, "plugin %s has no lease for instance %s; register again", name, instance)
}
