package plugins

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/core/dispatch"
	"skandha.dev/services/core/registrar"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/registry"
	"skandha.dev/services/internal/rights"
)

// PointConfig changes how the plugins of one hook point are asked.
type PointConfig struct {
	Mode     hook.Mode        // empty: the manifest's, else the point's
	OnError  hook.OnErrorRule // empty: the manifest's, else the point's
	Budget   time.Duration    // for all plugins together; default dispatch.DefaultBudget
	Required []subject.Plugin // while one of them is missing, everything at the point is denied
}

// Config configures leases, suspension and hook points of plugins.
type Config struct {
	Lease        time.Duration // how long a plugin may be silent; default 10 s
	SuspendAfter int           // failures in a row; default 5, negative: never
	Points       map[hook.Point]PointConfig
	GuidesDir    string // with guides as Markdown files; empty: none
	// Listeners are the configured ones, as far as this core knows; no plugin may take their names.
	Listeners []string
}

// Directory is what a host needs of the directory of executors: it offers the tools of
// plugins that are active, and knows the names of what is built in.
type Directory interface {
	SetPlugins(s *registry.Snapshot)
	Has(i subject.Instance) bool
	BuiltIn(tool string) (service string, ok bool)
	Providers() []provider.Info
}

// Deps is what a host works with.
type Deps struct {
	Bus       *journal.Journal
	Log       *slog.Logger
	Directory Directory
	Agents    map[subject.Agent]*decide.Agent // as configured
	Streams   journal.StreamsConfig
	// Operate calls do, which performs an operator's request about a plugin; nil: it is performed.
	Operate func(q *bus.Request, ask registrar.PluginRequest, do func() error) error
	// Refused is called for a manifest that declares more than its plugin's charter grants. Default: none.
	Refused  func(ctx context.Context, m plugin.Manifest, why plugin.Problems)
	Charters Charters // nil: the bus enforces no rights, and every plugin may do everything
}

// Charters are what plugins were invited for.
type Charters interface {
	Charter(ctx context.Context, name subject.Identity) (rights.Charter, error)
	// Listens reports whether a writer is a listener of somebody from outside.
	Listens(w subject.Writer) bool
}

// Host is this core's side of the plugins: the registry, the registrar that serves them,
// and the engine that asks them.
type Host struct {
	deps   Deps
	ctx    context.Context //nolint:containedctx // suspending and fetching guides outlive every call
	cfg    Config
	caller *bus.Caller // set by Start
	engine *dispatch.Engine
	view   *registry.View
	reg    *registrar.Registrar
	pin    atomic.Pointer[Pinned]
	guides *guides

	unguard context.CancelFunc // set by Start

	mu      sync.Mutex
	started map[subject.Plugin]bool // plugins asked at on_agent_start; nil before Begin and after End
	running sync.WaitGroup
}

// Pinned is one snapshot of the registry. A decision takes one, and sees the same
// plugins throughout.
type Pinned struct {
	*registry.Snapshot
	Hooks *dispatch.HookSet
}

// New returns a host without plugins. Its work outside of calls ends with ctx.
func New(ctx context.Context, cfg Config, deps Deps) *Host {
	p := &Host{deps: deps, ctx: ctx, cfg: cfg}
	p.guides = newGuides(p)
	p.engine = dispatch.New(dispatch.Config{
		Ask:          p.ask,
		Serves:       p.serves,
		Allows:       p.allows,
		Observes:     p.observes,
		Reachable:    deps.Bus.Connected,
		SuspendAfter: cfg.SuspendAfter,
		Suspend:      p.suspend,
		Failed:       p.failed,
		Log:          deps.Log,
	})
	p.pin.Store(&Pinned{registry.Compute(registry.NewContent()), p.engine.HookSet()})
	return p
}

// Start reads the registry and begins to serve plugins.
func (p *Host) Start(ctx context.Context, caller *bus.Caller) error {
	p.caller = caller
	var err error
	if p.view, err = registry.Watch(ctx, p.deps.Bus, p.deps.Log); err != nil {
		return fmt.Errorf("reading the registry of plugins: %w", err)
	}
	p.take(p.view.Snapshot())
	p.view.OnChange(p.take)
	p.reg, err = registrar.New(registrar.Config{
		Lease: p.cfg.Lease, Owner: p.owner, Streams: p.deps.Streams, Refuse: p.refuse, Operate: p.deps.Operate,
	}, p.deps.Bus, p.view, p.deps.Log)
	if err == nil {
		err = p.reg.Serve(ctx)
	}
	if err != nil {
		p.view.Close()
		return fmt.Errorf("serving the registry of plugins: %w", err)
	}
	p.guides.start(ctx)
	guarding, cancel := context.WithCancel(p.ctx)
	p.unguard = cancel
	p.running.Go(func() { p.guard(guarding) })
	return nil
}

// Stop ends what Start began, and waits for hooks that still run.
func (p *Host) Stop() {
	p.unguard()
	p.guides.stop()
	p.reg.Stop()
	p.view.Close()
	p.running.Wait()
}

// Current returns the plugins as they are now.
func (p *Host) Current() *Pinned { return p.pin.Load() }

// Agent returns the agent with its current guides, or nil.
func (p *Host) Agent(a subject.Agent) *decide.Agent { return p.guides.agent(a) }

// GuideTroubles returns the guides that are missing or were refused.
func (p *Host) GuideTroubles() []coreapi.GuideTrouble { return p.guides.troubles() }

// take makes a snapshot current. Hooks are set before tools, so that no tool is called
// unguarded.
func (p *Host) take(s *registry.Snapshot) {
	table := p.engine.NewHookSet(hooked(s, p.cfg.Points), budgets(p.cfg.Points))
	p.engine.Set(table)
	p.engine.Forget(func(name subject.Plugin) bool { return s.Get(name) != nil })
	p.pin.Store(&Pinned{s, table})
	p.deps.Directory.SetPlugins(s)
	p.late(s, table)
	p.guides.changed()
}

// charter returns what a plugin was invited for; nil if the bus enforces no rights.
func (p *Host) charter(ctx context.Context, name subject.Plugin) (*rights.Charter, error) {
	if p.deps.Charters == nil {
		return nil, nil //nolint:nilnil // there are no charters
	}
	c, err := p.deps.Charters.Charter(ctx, subject.Identity(name))
	return &c, err
}

// refuse returns what of a manifest the plugin's charter does not grant.
func (p *Host) refuse(ctx context.Context, m plugin.Manifest) (plugin.Problems, error) {
	c, err := p.charter(ctx, m.Name)
	if c == nil || err != nil {
		return nil, err
	}
	why := c.Refuse(m)
	if len(why) > 0 && p.deps.Refused != nil {
		p.deps.Refused(ctx, m, why)
	}
	return why, nil
}

func (p *Host) serves(name subject.Plugin, a subject.Agent) bool {
	c, err := p.charter(p.ctx, name)
	return c == nil || err == nil && c.Serves(a)
}

// Serving returns what reports whether a plugin serves an agent; nil: all plugins serve all.
func (p *Host) Serving(a subject.Agent) func(subject.Plugin) bool {
	if p.deps.Charters == nil {
		return nil
	}
	return func(name subject.Plugin) bool { return p.serves(name, a) }
}

func (p *Host) allows(name subject.Plugin, at hook.Point, v hook.Verb) bool {
	c, err := p.charter(p.ctx, name)
	return c == nil || err == nil && c.Allows(at, v)
}

func (p *Host) observes(name subject.Plugin, at hook.Point) bool {
	c, err := p.charter(p.ctx, name)
	if c == nil || err != nil {
		return false
	}
	mark, _ := c.Mark(at)
	return mark == rights.Observe
}

// ask sends the engine's questions to the plugins.
func (p *Host) ask(ctx context.Context, questions []bus.Question) []bus.Answer {
	answers := p.caller.RequestAll(ctx, questions)
	for i := range answers {
		if errors.Is(answers[i].Err, nats.ErrNoResponders) {
			answers[i].Err = fmt.Errorf("%w: no responders on %s", dispatch.ErrAbsent, questions[i].Subject)
		}
	}
	return answers
}

func (p *Host) suspend(name subject.Plugin, reason string) {
	ctx, cancel := context.WithTimeout(p.ctx, 10*time.Second)
	defer cancel()
	changed, err := p.reg.Suspend(ctx, name, reason, registry.ByCore)
	switch {
	case err != nil:
		p.deps.Log.Error("a plugin that keeps failing could not be suspended", "plugin", name, "reason", reason, "error", err)
	case changed:
		p.deps.Log.Warn("a plugin is suspended", "plugin", name, "reason", reason)
		for a := range p.deps.Agents {
			p.report(hook.Envelope{Agent: a},
				hook.ErrorData{
					Code: hook.ErrSuspended, Message: "plugin " + string(name) + " is suspended: " + reason, Plugin: name,
				})
		}
	}
}

// failed reports a hook that failed.
func (p *Host) failed(at hook.Envelope, name subject.Plugin, err error) {
	p.report(at, hook.ErrorData{
		Code: hook.ErrHookFailed, Message: fmt.Sprintf("hook %s of plugin %s failed: %v", at.Point, name, err), Plugin: name,
	})
}

// report runs on_error for a plugin's failure, at all other plugins. No decision waits for
// it, and no commit records it.
func (p *Host) report(at hook.Envelope, e hook.ErrorData) {
	t, who := p.pin.Load().Hooks, map[subject.Plugin]bool{}
	for _, h := range t.Hooks(hook.OnError) {
		if h.Plugin != e.Plugin && h.Unasked == "" {
			who[h.Plugin] = true
		}
	}
	if len(who) == 0 {
		return
	}
	data, err := json.Marshal(e)
	if err != nil {
		panic(err) // only strings
	}
	at.Point, at.Data = hook.OnError, data
	t.RunOnly(at, who)
}

// owner returns the built-in owner of a name that a plugin claims.
func (p *Host) owner(kind registrar.Kind, name string) (string, bool) {
	switch kind {
	case registrar.KindPlugin: // answers are sent under the responder's name
		if name == coreapi.ServiceName {
			return "core", true
		}
		return "an executor", p.deps.Directory.Has(subject.Instance(name))
	case registrar.KindTool:
		return p.deps.Directory.BuiltIn(name)
	case registrar.KindListener:
		return listenerOwner, p.listens(p.ctx, name)
	case registrar.KindProvider:
		for _, pl := range p.pin.Load().Plugins() {
			for _, i := range pl.Manifest.Providers {
				if i.Name == name {
					return "", false // the registrar checks the names of plugins
				}
			}
		}
		for _, i := range p.deps.Directory.Providers() {
			if i.Name == name {
				return "the provider service", true
			}
		}
	}
	return "", false
}

// Begin runs on_agent_start for every agent. Plugins that arrive later are asked when
// they arrive.
func (p *Host) Begin() {
	p.mu.Lock()
	p.started = map[subject.Plugin]bool{}
	at := p.pin.Load()
	fresh := p.unstarted(at)
	p.mu.Unlock()
	p.runStart(at, fresh, "start")
}

// End runs on_agent_stop.
func (p *Host) End() {
	p.mu.Lock()
	p.started = nil // plugins that arrive from now on are not asked
	p.mu.Unlock()
	p.runAgents(p.pin.Load().Hooks, hook.OnAgentStop, "shutdown", nil)
}

// late runs on_agent_start for plugins that have arrived while the core runs.
func (p *Host) late(s *registry.Snapshot, table *dispatch.HookSet) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.started == nil {
		return
	}
	for name := range p.started {
		if pl := s.Get(name); pl == nil || pl.State == plugin.Gone || pl.State == plugin.Waiting {
			delete(p.started, name)
		}
	}
	at := &Pinned{s, table}
	if fresh := p.unstarted(at); len(fresh) > 0 {
		p.running.Go(func() { p.runStart(at, fresh, "plugin_started") })
	}
}

// unstarted returns the plugins not yet asked at on_agent_start, and marks them as asked.
func (p *Host) unstarted(at *Pinned) map[subject.Plugin]bool {
	fresh := map[subject.Plugin]bool{}
	for _, h := range at.Hooks.Hooks(hook.OnAgentStart) {
		if h.Unasked == "" && !p.started[h.Plugin] {
			p.started[h.Plugin], fresh[h.Plugin] = true, true
		}
	}
	return fresh
}

func (p *Host) runStart(at *Pinned, who map[subject.Plugin]bool, reason string) {
	if len(who) > 0 {
		p.runAgents(at.Hooks, hook.OnAgentStart, reason, who)
	}
}

// runAgents runs a hook point outside of sessions, once for each agent. With nil for only, it
// asks all plugins.
func (p *Host) runAgents(t *dispatch.HookSet, at hook.Point, reason string, only map[subject.Plugin]bool) {
	if !t.Any(at) {
		return
	}
	data, err := json.Marshal(hook.AgentData{Instance: string(p.deps.Bus.Instance()), Reason: reason})
	if err != nil {
		panic(err)
	}
	for a := range p.deps.Agents {
		env := hook.Envelope{Point: at, Agent: a, Data: data}
		var d hook.Decision
		if only == nil {
			d = t.Run(env)
		} else {
			d = t.RunOnly(env, only)
		}
		for _, v := range d.Verdicts {
			p.deps.Log.Debug("a hook was asked", "point", at, "agent", a, "plugin", v.Plugin, "error", v.Error)
		}
	}
}
