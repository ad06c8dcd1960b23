package registry

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
)

// Compute returns the snapshot for the bucket's content. It depends on nothing else, so
// all processes that have read the same bucket have the same snapshot.
func Compute(c *Content) *Snapshot {
	d := &derived{byName: make(map[subject.Plugin]*Plugin, len(c.Records)), tools: map[string]*Plugin{}}
	var there []plugin.Manifest
	var gone []*Plugin
	for name := range c.Records {
		p := c.plugin(name)
		d.byName[name] = p
		if p.State == plugin.Gone {
			gone = append(gone, p)
		} else {
			there = append(there, p.Manifest)
		}
	}
	d.place(there)
	for _, p := range d.plugins {
		d.await(p)
	}
	slices.SortFunc(gone, func(a, b *Plugin) int { return cmp.Compare(a.Name(), b.Name()) })
	for _, p := range d.plugins {
		if p.State != plugin.Active {
			continue
		}
		for _, t := range p.Manifest.Tools {
			if d.tools[t.Name] == nil {
				d.tools[t.Name] = p
			}
		}
	}
	d.plugins = append(d.plugins, gone...)
	return &Snapshot{Revision: c.Revision, derived: d}
}

// plugin returns one plugin, without regard to the others.
func (c *Content) plugin(name subject.Plugin) *Plugin {
	r := c.Records[name]
	p := &Plugin{Manifest: r.Manifest, Hash: r.Hash, State: plugin.Gone, Registered: r.Registered}
	if r.Suspended != nil {
		s := r.Suspended.Suspension
		p.Suspended = &s
	}
	working := 0
	for _, l := range c.Live(name) {
		lease := Lease{Instance: l.Instance, Since: l.Since}
		if drain := r.Drain(l.Instance); drain != nil {
			lease.Draining, lease.Reason = true, drain.Reason
			p.Reason = cmp.Or(p.Reason, drain.Reason)
		} else {
			working++
		}
		p.Instances = append(p.Instances, lease)
	}
	switch {
	case len(p.Instances) == 0:
		p.Lost = r.Lost
	case working == 0:
		p.State = plugin.Draining
		return p
	case p.Suspended != nil:
		p.State, p.Reason = plugin.Suspended, suspendReason(p.Suspended)
		return p
	default:
		p.State = plugin.Active
	}
	p.Reason = ""
	return p
}

func suspendReason(s *Suspension) string {
	return fmt.Sprintf("suspended by %s: %s", s.By, cmp.Or(s.Reason, "no reason given"))
}

// place orders the plugins that are present. Admission refuses cycles; if the bucket
// nevertheless has one, one of its plugins waits, and the others are not affected.
func (d *derived) place(there []plugin.Manifest) {
	var stuck []*Plugin
	order, err := Order(there)
	for cycle := new(CycleError); errors.As(err, &cycle); order, err = Order(there) {
		p := d.byName[cycle.Edges[0].Before]
		p.State, p.Reason = plugin.Waiting, cycle.Error()
		stuck = append(stuck, p)
		there = slices.DeleteFunc(there, func(m plugin.Manifest) bool { return m.Name == p.Name() })
	}
	for _, name := range order {
		d.plugins = append(d.plugins, d.byName[name])
	}
	d.plugins = append(d.plugins, stuck...)
}

// await makes an active plugin wait if dependencies are missing. They come before it in
// the order, so their states are already known.
func (d *derived) await(p *Plugin) {
	if p.State != plugin.Active {
		return
	}
	var missing []string
	for _, name := range p.Manifest.Dependencies {
		switch dep := d.byName[name]; {
		case dep == nil || dep.State == plugin.Gone:
			missing = append(missing, fmt.Sprintf("plugin %s is not registered", name))
		case dep.State == plugin.Waiting || dep.State == plugin.Draining:
			missing = append(missing, fmt.Sprintf("plugin %s is %s", name, dep.State))
		}
	}
	if len(missing) > 0 {
		p.State, p.Reason = plugin.Waiting, strings.Join(missing, "; ")
	}
}

// same reports whether two snapshots are equal except for the revision.
func (d *derived) same(o *derived) bool {
	return slices.EqualFunc(d.plugins, o.plugins, func(a, b *Plugin) bool {
		return a.Manifest.Name == b.Manifest.Name && a.Hash == b.Hash && a.State == b.State && a.Reason == b.Reason &&
			a.Lost == b.Lost && a.Registered.Equal(b.Registered) && sameSuspension(a.Suspended, b.Suspended) &&
			slices.EqualFunc(a.Instances, b.Instances, func(x, y Lease) bool {
				return x.Instance == y.Instance && x.Draining == y.Draining && x.Reason == y.Reason && x.Since.Equal(y.Since)
			})
	})
}

func sameSuspension(a, b *Suspension) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.By == b.By && a.Reason == b.Reason && a.At.Equal(b.At)
}
