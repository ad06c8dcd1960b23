package shell

import (
	"slices"

	"skandha.dev/pkg/executor"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/registry"
)

// picks is the directory as one decision sees it: what it has given out already
// counts, so that calls made together spread over the runners; and a plugin's
// tools are there if its hooks are.
type picks struct {
	*Directory
	registry *registry.Snapshot
	provider string // the agent's, by name; empty: any
	given    map[subject.Instance]int
}

// Lookup implements decide.Catalog.
func (p *picks) Lookup(name string) (tool.Spec, bool) {
	t, ok := p.Directory.Lookup(name)
	if !ok || !offers(p.registry, t) {
		return tool.Spec{}, false
	}
	return t, true
}

// Left implements decide.Catalog.
func (p *picks) Left(name string) bool {
	if _, there := p.Lookup(name); there {
		return false
	}
	left := false
	for _, pl := range p.registry.Plugins() {
		if slices.ContainsFunc(pl.Manifest.Tools, func(t tool.Spec) bool { return t.Name == name }) {
			if pl.State == plugin.Active {
				return false // its runners will offer it in a moment
			}
			left = true
		}
	}
	return left
}

// Public implements decide.Catalog.
func (p *picks) Public() []tool.Spec {
	all, as := p.publicAs()
	if as == p.registry {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(t tool.Spec) bool { return !offers(p.registry, t) })
}

func (p *picks) count(i subject.Instance, ok bool) (subject.Instance, bool) {
	if ok {
		if p.given == nil {
			p.given = map[subject.Instance]int{}
		}
		p.given[i]++
	}
	return i, ok
}

// PickRunner implements decide.Directory.
func (p *picks) PickRunner(spec tool.Spec, be subject.Instance, not []subject.Instance) (subject.Instance, bool) {
	return p.count(p.pickRunner(spec, be, not, p.given))
}

// PickProvider implements decide.Directory.
func (p *picks) PickProvider(not []subject.Instance) (subject.Instance, bool) {
	return p.count(p.pickProvider(p.provider, not, p.given))
}

// PickRunner chooses the least busy runner with a free slot that offers the tool.
func (d *Directory) PickRunner(spec tool.Spec, not []subject.Instance) (subject.Instance, bool) {
	return d.pickRunner(spec, "", not, nil)
}

// PickProvider chooses the least busy provider with a free slot.
func (d *Directory) PickProvider(not []subject.Instance) (subject.Instance, bool) {
	return d.pickProvider("", not, nil)
}

func (d *Directory) pickRunner(spec tool.Spec, be subject.Instance, not []subject.Instance, given map[subject.Instance]int) (subject.Instance, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	pool := spec.Pool
	if pool == "" {
		pool = executor.DefaultPool
	}
	t := d.tools[spec.Name]
	if t == nil {
		return "", false
	}
	offers := func(i *instance) bool {
		return i.Kind == subject.Runner && slices.ContainsFunc(i.Tools, func(o tool.Spec) bool {
			return o.Name == spec.Name && ownerOf(i.Service, o) == t.owner
		})
	}
	if i := d.instances[be]; i != nil && !i.Draining && i.gone.IsZero() && offers(i) {
		return d.leastBusy(pool, not, given, func(o *instance) bool { return o == i })
	}
	return d.leastBusy(pool, not, given, offers)
}

func (d *Directory) pickProvider(name string, not []subject.Instance, given map[subject.Instance]int) (subject.Instance, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.leastBusy(executor.DefaultPool, not, given, func(i *instance) bool {
		return i.Kind == subject.Provider &&
			(name == "" || slices.ContainsFunc(i.Providers, func(p provider.Info) bool { return p.Name == name }))
	})
}

func (d *Directory) leastBusy(pool string, not []subject.Instance, given map[subject.Instance]int, fits func(*instance) bool) (subject.Instance, bool) {
	var best *instance
	var bestLoad float64
	for id, i := range d.instances {
		if i.Draining || !i.gone.IsZero() || slices.Contains(not, id) || !fits(i) {
			continue
		}
		for _, p := range i.Pools {
			if p.Name != pool || p.Slots <= 0 {
				continue
			}
			busy := max(p.Busy, d.reserved[id][pool]) + given[id]
			if busy >= p.Slots {
				continue
			}
			load := float64(busy) / float64(p.Slots)
			if best == nil || load < bestLoad || load == bestLoad && i.Instance < best.Instance {
				best, bestLoad = i, load
			}
		}
	}
	if best == nil {
		return "", false
	}
	return best.Instance, true
}
