package registrar

import (
	"context"
	"slices"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/registry"
)

// Suspend suspends a plugin: its hooks, tools and providers are no longer asked. A
// suspension by core is lifted when a new instance registers, one by an operator only by
// [Registrar.Resume]. changed is false if the plugin was already suspended, so that only
// one of several cores that find the same problem reports it. An operator's suspension
// replaces that of a core. The error is [bus.ErrNotFound] if the plugin is unknown.
func (r *Registrar) Suspend(
	ctx context.Context, name subject.Plugin, reason string, by registry.By,
) (changed bool, err error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	err = r.change(ctx, func(c *registry.Content) (*edit, error) {
		changed = false
		old := c.Records[name]
		if old == nil {
			return nil, unknown(name)
		}
		if s := old.Suspended; s != nil && (s.By == registry.ByOperator || by == registry.ByCore) {
			return nil, nil // already suspended
		}
		n := r.revise(c, old)
		n.Suspended = &registry.SuspendRecord{
			Suspension: registry.Suspension{By: by, Reason: reason, At: time.Now().UTC()},
			Instances:  instances(c.Live(name)),
		}
		changed = true
		return &edit{name: name, record: n}, nil
	})
	if err != nil {
		return false, err
	}
	if changed {
		r.log.Warn("a plugin is suspended", "plugin", name, "by", by, "reason", reason)
	}
	return changed, nil
}

// Resume lifts a suspension, and allows instances that an operator unloaded to register
// again. changed is false if there was nothing to lift. The error is [bus.ErrNotFound] if
// the plugin is unknown.
func (r *Registrar) Resume(ctx context.Context, name subject.Plugin) (changed bool, err error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	err = r.change(ctx, func(c *registry.Content) (*edit, error) {
		changed = false
		old := c.Records[name]
		if old == nil {
			return nil, unknown(name)
		}
		n := r.revise(c, old)
		n.Suspended = nil
		n.Draining = slices.DeleteFunc(n.Draining, func(d registry.Drain) bool { return c.Leases[name][d.Instance] == nil })
		if changed = old.Suspended != nil || len(n.Draining) < len(old.Draining); !changed {
			return nil, nil // nothing to lift
		}
		return &edit{name: name, record: n}, nil
	})
	if err == nil && changed {
		r.log.Info("a plugin is resumed", "plugin", name)
	}
	return changed && err == nil, err
}

// Unload drains all replicas of a plugin. They learn it from the answer to their next
// heartbeat, finish their work and may exit. It fails with [bus.ErrConflict] while others
// depend on the plugin, unless forced; then those wait. An instance that was unloaded is
// not admitted again, but a new one is. To prevent that, too, suspend the plugin. A lost
// plugin no longer counts as lost.
func (r *Registrar) Unload(ctx context.Context, name subject.Plugin, force bool, reason string) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	return r.change(ctx, func(c *registry.Content) (*edit, error) {
		if c.Records[name] == nil {
			return nil, unknown(name)
		}
		live := instances(c.Live(name))
		if len(live) == 0 {
			if !c.Records[name].Lost {
				return nil, nil // already gone
			}
			n := r.revise(c, c.Records[name])
			n.Lost = false
			return &edit{name: name, record: n}, nil
		}
		if reason == "" {
			reason = "unloaded by an operator"
		}
		r.log.Info("unloading a plugin", "plugin", name, "force", force, "reason", reason)
		return r.drain(c, name, live, registry.Drain{By: registry.ByOperator, Reason: reason}, force)
	})
}

func unknown(name subject.Plugin) error {
	return bus.Errorf(bus.CodeNotFound, "no plugin %s is registered, or was recently", name)
}

// bounded gives ctx a deadline if it has none.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, has := ctx.Deadline(); has {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, patience)
}
