package directory

import (
	"slices"
	"time"

	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/registry"
)

// Picks is the directory as one decision sees it. A slot that it picks is claimed at
// once, so that no other call and no other session gets it. The tools and the hooks of
// plugins come from the same registry snapshot.
type Picks struct {
	*Directory
	registry *registry.Snapshot
	claimant *Claimant                 // owns the claims and the place in the queue
	serves   func(subject.Plugin) bool // nil: all plugins serve the agent
	known    map[subject.Plugin]bool   // what serves has answered
}

// Picks returns the directory for one decision of the claimant, with those plugins of a
// registry snapshot that serve its agent: all if serves is nil.
func (d *Directory) Picks(c *Claimant, r *registry.Snapshot, serves func(subject.Plugin) bool) *Picks {
	return &Picks{Directory: d, registry: r, claimant: c, serves: serves, known: map[subject.Plugin]bool{}}
}

// serving reports whether a plugin, or the system itself, serves the agent.
func (p *Picks) serving(name subject.Plugin) bool {
	if p.serves == nil || name == "" {
		return true
	}
	yes, ok := p.known[name]
	if !ok {
		yes = p.serves(name)
		p.known[name] = yes
	}
	return yes
}

// offers reports whether the agent may use a tool.
func (p *Picks) offers(t tool.Spec) bool {
	return offers(p.registry, t) && p.serving(subject.Plugin(t.Plugin))
}

// models reports whether the agent may use a provider: it is a plugin's that serves others alone if not.
func (p *Picks) models(name string) bool {
	for _, pl := range p.registry.Plugins() {
		if slices.ContainsFunc(pl.Manifest.Providers, func(i provider.Info) bool { return i.Name == name }) {
			return p.serving(pl.Manifest.Name)
		}
	}
	return true
}

// Lookup implements decide.Catalog.
func (p *Picks) Lookup(name string) (tool.Spec, bool) {
	t, ok := p.Directory.Lookup(name)
	if !ok || !p.offers(t) {
		return tool.Spec{}, false
	}
	return t, true
}

// Gone implements decide.Catalog.
func (p *Picks) Gone(name string) (since time.Time, left bool) {
	if _, there := p.Lookup(name); there {
		return time.Time{}, false
	}
	since = p.goneSince(name)
	for _, pl := range p.registry.Plugins() {
		if slices.ContainsFunc(pl.Manifest.Tools, func(t tool.Spec) bool { return t.Name == name }) {
			if !p.serving(pl.Manifest.Name) {
				return time.Time{}, true
			}
			if pl.State == plugin.Active {
				return since, false // its runners will offer it soon
			}
			left = true
		}
	}
	return since, left
}

// Public implements decide.Catalog.
func (p *Picks) Public() []tool.Spec {
	all, as := p.publicAs()
	if as == p.registry && p.serves == nil {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(t tool.Spec) bool { return !p.offers(t) })
}

// NoProvider implements decide.Directory.
func (p *Picks) NoProvider(name string) time.Duration {
	if !p.models(name) {
		return never
	}
	return p.WithoutProvider(name)
}

// never is longer than anybody waits.
const never = 1000 * time.Hour

// Providers implements decide.Directory.
func (p *Picks) Providers() []provider.Info {
	return slices.DeleteFunc(p.Directory.Providers(), func(i provider.Info) bool { return !p.models(i.Name) })
}

// PickRunner implements decide.Directory.
func (p *Picks) PickRunner(spec tool.Spec, be subject.Instance, not []subject.Instance) (subject.Instance, bool) {
	return p.pickRunner(p.claimant, spec, be, not)
}

// PickProvider implements decide.Directory.
func (p *Picks) PickProvider(name string, not []subject.Instance) (subject.Instance, bool) {
	if p.Missing() != "" || !p.models(name) {
		return "", false
	}
	return p.pick(p.claimant, Need{Kind: subject.Provider, Name: name}, not)
}

func (d *Directory) pickRunner(
	s *Claimant, spec tool.Spec, be subject.Instance, not []subject.Instance,
) (subject.Instance, bool) {
	n := Need{Kind: subject.Runner, Name: spec.Name}
	delete(s.bound, spec.Name)
	d.mu.Lock()
	defer d.mu.Unlock()
	i := d.instances[be]
	if i == nil || i.Draining || !i.gone.IsZero() || !d.offersNeed(i, n) {
		return d.pickLocked(s, n, not)
	}
	// The session's data exists only there, so its place in the queue does not matter.
	pool := d.poolFor(n)
	if slices.Contains(not, be) || d.freeAt(be, i, pool) <= 0 {
		if s.bound == nil {
			s.bound = map[string]subject.Instance{}
		}
		s.bound[spec.Name] = be
		return be, false
	}
	d.claim(s, be, pool)
	return be, true
}

func (d *Directory) pick(s *Claimant, n Need, not []subject.Instance) (subject.Instance, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.pickLocked(s, n, not)
}

// pickLocked chooses the least busy executor with a free slot, and claims the slot,
// unless sessions that have waited longer need all free slots. The caller holds the
// lock.
func (d *Directory) pickLocked(s *Claimant, n Need, not []subject.Instance) (subject.Instance, bool) {
	var best *instance
	var bestLoad float64
	all, pool := 0, d.poolFor(n)
	for id, i := range d.instances {
		if i.Draining || !i.gone.IsZero() || !d.offersNeed(i, n) {
			continue
		}
		free := d.freeAt(id, i, pool)
		if free > 0 {
			free -= d.waiting.ahead(s, Need{n.Kind, n.Name, id})
		}
		if free <= 0 {
			continue
		}
		all += free
		if slices.Contains(not, id) {
			continue
		}
		load := 1 - float64(free)/float64(i.slots(pool))
		if best == nil || load < bestLoad || load == bestLoad && i.Instance < best.Instance {
			best, bestLoad = i, load
		}
	}
	if best == nil || min(all, d.left(n)) <= d.waiting.ahead(s, n) {
		return "", false
	}
	d.claim(s, best.Instance, pool)
	return best.Instance, true
}

// Idle returns the least busy runner of a tool for a call outside of turns. It claims no
// slot: if sessions take the runner's slots meanwhile, the runner refuses the call.
func (d *Directory) Idle(name string, not []subject.Instance) (best subject.Instance, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, most := Need{Kind: subject.Runner, Name: name}, 0
	pool := d.poolFor(n)
	for id, i := range d.instances {
		if i.Draining || !i.gone.IsZero() || slices.Contains(not, id) || !d.offersNeed(i, n) {
			continue
		}
		if free := d.freeAt(id, i, pool); free > most {
			best, most = id, free
		}
	}
	return best, most > 0
}
