package registrar

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/registry"
)

// heartbeat renews a lease. It never creates one: a plugin without a lease must be
// admitted. Every core handles every heartbeat. One of them writes; the others find the
// lease already renewed, which is just as good.
func (r *Registrar) heartbeat(ctx context.Context, name subject.Plugin, h plugin.Heartbeat) (plugin.Lease, error) {
	for renewed := false; ; {
		l, err := r.stored(ctx, name, h.Instance)
		if errors.Is(err, bus.ErrNotFound) {
			return r.unloaded(name, h.Instance, h.Hash)
		}
		if err != nil {
			return plugin.Lease{}, err
		}
		// A lease for another manifest than the registered one does not count. It is not
		// renewed.
		if err := r.view.Await(ctx, l.Revision); err != nil {
			return plugin.Lease{}, err
		}
		if p := r.view.Snapshot().Get(name); l.Hash != h.Hash || p == nil || p.Hash != h.Hash {
			return plugin.Lease{}, registerAgain(name, h.Instance)
		}
		if renewed {
			return r.answer(name, h.Instance, h.Hash)
		}
		body, err := json.Marshal(l.LeaseRecord)
		if err != nil {
			return plugin.Lease{}, err
		}
		revision, err := r.bucket.Put(ctx, subject.LeaseKey(name, h.Instance), body, journal.Fence{Revision: l.Revision})
		if errors.Is(err, bus.ErrFenceLost) && ctx.Err() == nil {
			renewed = true // by another heartbeat or core; or the lease has ended: read it again
			continue
		}
		if err != nil {
			return plugin.Lease{}, err
		}
		if err := r.view.Await(ctx, revision); err != nil {
			return plugin.Lease{}, err
		}
		return r.answer(name, h.Instance, h.Hash)
	}
}

// stored reads a lease from the bucket, because this core's view may lag behind that of
// the core that granted the lease.
func (r *Registrar) stored(
	ctx context.Context, name subject.Plugin, instance subject.Instance,
) (*registry.StoredLease, error) {
	e, err := r.bucket.Get(ctx, subject.LeaseKey(name, instance))
	if err != nil {
		return nil, err
	}
	l, err := registry.DecodeLease(name, e)
	if err != nil {
		return nil, fmt.Errorf("reading the lease of %s of plugin %s: %w", instance, name, err)
	}
	return l, nil
}

// unloaded answers a replica without a lease. If an operator unloaded it, it may exit;
// otherwise it must register again.
func (r *Registrar) unloaded(name subject.Plugin, instance subject.Instance, hash string) (plugin.Lease, error) {
	if rec := r.view.Content().Records[name]; rec != nil {
		if d := rec.Drain(instance); d != nil && d.By == registry.ByOperator {
			return r.lease(name, instance, hash, plugin.Gone, d.Reason), nil
		}
	}
	return plugin.Lease{}, registerAgain(name, instance)
}

// unregister starts to drain a replica, or ends its lease if it is draining already.
func (r *Registrar) unregister(ctx context.Context, name subject.Plugin, u plugin.Unregister) (plugin.Lease, error) {
	l, err := r.stored(ctx, name, u.Instance)
	if errors.Is(err, bus.ErrNotFound) {
		return r.lease(name, u.Instance, r.hash(name), plugin.Gone, ""), nil
	}
	if err != nil {
		return plugin.Lease{}, err
	}
	if err := r.view.Await(ctx, l.Revision); err != nil {
		return plugin.Lease{}, err
	}
	began, reason := false, ""
	err = r.change(ctx, func(c *registry.Content) (*edit, error) {
		began = false
		old := c.Records[name]
		if old == nil ||
			!slices.ContainsFunc(c.Live(name), func(l *registry.StoredLease) bool { return l.Instance == u.Instance }) {
			return nil, nil // no valid lease: nothing to drain
		}
		if d := old.Drain(u.Instance); d != nil {
			return nil, nil // it is draining already
		}
		e, err := r.drain(c, name, []subject.Instance{u.Instance}, registry.Drain{Reason: u.Reason}, u.Force)
		began, reason = err == nil, u.Reason
		return e, err
	})
	if err != nil {
		return plugin.Lease{}, err
	}
	if began {
		r.log.Info("a plugin's replica is draining", "plugin", name, "instance", u.Instance, "reason", u.Reason)
		return r.lease(name, u.Instance, l.Hash, plugin.Draining, reason), nil
	}
	if err := r.endLease(ctx, name, u.Instance); err != nil {
		return plugin.Lease{}, err
	}
	r.log.Info("a plugin's replica has unregistered", "plugin", name, "instance", u.Instance)
	return r.lease(name, u.Instance, l.Hash, plugin.Gone, ""), nil
}

// hash returns the hash of the plugin's manifest. For an unknown plugin it returns that of
// an empty manifest, because every lease has a hash.
func (r *Registrar) hash(name subject.Plugin) string {
	if p := r.view.Snapshot().Get(name); p != nil {
		return p.Hash
	}
	return plugin.Manifest{}.Hash()
}

// drain returns the edit after which the replicas get no new calls. It fails if other
// plugins depend on this one, unless forced.
func (r *Registrar) drain(
	c *registry.Content, name subject.Plugin, who []subject.Instance, why registry.Drain, force bool,
) (*edit, error) {
	n := r.revise(c, c.Records[name])
	n.Draining = slices.DeleteFunc(n.Draining, func(d registry.Drain) bool { return slices.Contains(who, d.Instance) })
	for _, i := range who {
		d := why
		d.Instance, d.At = i, time.Now().UTC()
		n.Draining = append(n.Draining, d)
	}
	left := 0
	for _, l := range c.Live(name) {
		if n.Drain(l.Instance) == nil {
			left++
		}
	}
	if needed := dependants(c, name); left == 0 && len(needed) > 0 && !force {
		return nil, bus.Errorf(bus.CodeConflict,
			"plugin %s has dependants: %s; unload these first, or force it, which makes them wait",
			name, strings.Join(needed, ", "))
	}
	return &edit{name: name, record: n}, nil
}

// dependants lists the plugins that would wait if this one were not available.
func dependants(c *registry.Content, name subject.Plugin) (out []string) {
	for _, p := range registry.Compute(c).Plugins() {
		if slices.Contains(p.Manifest.Dependencies, name) && (p.State == plugin.Active || p.State == plugin.Suspended) {
			out = append(out, string(p.Name()))
		}
	}
	return out
}

// endLease deletes a lease even if heartbeats renew it meanwhile, and releases the plugin
// if it was the last lease.
func (r *Registrar) endLease(ctx context.Context, name subject.Plugin, instance subject.Instance) error {
	for {
		l, err := r.stored(ctx, name, instance)
		if errors.Is(err, bus.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		err = r.deleteLease(ctx, l)
		if !errors.Is(err, bus.ErrFenceLost) || ctx.Err() != nil {
			return err
		}
	}
}

// deleteLease deletes a lease. If the lease was renewed meanwhile, it returns
// [bus.ErrFenceLost].
func (r *Registrar) deleteLease(ctx context.Context, l *registry.StoredLease) error {
	revision, err := r.bucket.Delete(ctx, subject.LeaseKey(l.Plugin, l.Instance), journal.Fence{Revision: l.Revision})
	if err != nil {
		return err
	}
	if err := r.view.Await(ctx, revision); err != nil {
		return err
	}
	return r.release(ctx, l.Plugin, l.Instance)
}
