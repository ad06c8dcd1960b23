package shell

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/dispatch"
	registrar "skandha.dev/services/core/registry"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/registry"
)

// PointConfig changes how the plugins of one hook point are asked.
type PointConfig struct {
	Mode     hook.Mode        // empty: the manifest's, else the point's
	OnError  hook.OnErrorRule // empty: the manifest's, else the point's
	Budget   time.Duration    // for all plugins together; default dispatch.DefaultBudget
	Required []subject.Plugin // while one of them is missing, everything at the point is denied
}

// PluginsConfig configures leases, suspension and hook points of plugins.
type PluginsConfig struct {
	Lease        time.Duration // how long a plugin may be silent; default 10 s
	SuspendAfter int           // failures in a row; default 5, negative: never
	Points       map[hook.Point]PointConfig
}

// plugins is this core's side of the plugins: the registry, the registrar that serves
// them, and the engine that asks them.
type plugins struct {
	c      *Core
	cfg    PluginsConfig
	engine *dispatch.Engine
	view   *registry.View
	reg    *registrar.Registrar
	pin    atomic.Pointer[pinned]
	guides *guides

	mu      sync.Mutex
	started map[subject.Plugin]bool // plugins asked at on_agent_start; nil before begin and after end
	running sync.WaitGroup
}

// pinned is one snapshot of the registry. A decision takes one, and sees the same
// plugins throughout.
type pinned struct {
	*registry.Snapshot
	hooks *dispatch.HookSet
}

func newPlugins(c *Core, cfg PluginsConfig) *plugins {
	p := &plugins{c: c, cfg: cfg, guides: newGuides(c)}
	p.engine = dispatch.New(dispatch.Config{
		Ask:          p.ask,
		Reachable:    c.bus.Connected,
		SuspendAfter: cfg.SuspendAfter,
		Suspend:      p.suspend,
		Failed:       p.failed,
		Log:          c.log,
	})
	p.pin.Store(&pinned{registry.Compute(registry.NewContent()), p.engine.HookSet()})
	return p
}

// start reads the registry and begins to serve plugins.
func (p *plugins) start(ctx context.Context) error {
	var err error
	if p.view, err = registry.Watch(ctx, p.c.bus, p.c.log); err != nil {
		return fmt.Errorf("reading the registry of plugins: %w", err)
	}
	p.take(p.view.Snapshot())
	p.view.OnChange(p.take)
	p.reg, err = registrar.New(registrar.Config{
		Lease: p.cfg.Lease, Owner: p.owner, Streams: p.c.cfg.Streams,
	}, p.c.bus, p.view, p.c.log)
	if err == nil {
		err = p.reg.Serve(ctx)
	}
	if err != nil {
		p.view.Close()
		return fmt.Errorf("serving the registry of plugins: %w", err)
	}
	p.guides.start(ctx)
	return nil
}

func (p *plugins) stop() {
	p.guides.stop()
	p.reg.Stop()
	p.view.Close()
	p.running.Wait()
}

// take makes a snapshot current. Hooks are set before tools, so that no tool is called
// unguarded.
func (p *plugins) take(s *registry.Snapshot) {
	table := p.engine.NewHookSet(hooked(s, p.cfg.Points), budgets(p.cfg.Points))
	p.engine.Set(table)
	p.engine.Forget(func(name subject.Plugin) bool { return s.Get(name) != nil })
	p.pin.Store(&pinned{s, table})
	p.c.dir.SetPlugins(s)
	p.late(s, table)
	p.guides.changed()
}

func budgets(points map[hook.Point]PointConfig) map[hook.Point]time.Duration {
	out := map[hook.Point]time.Duration{}
	for point, c := range points {
		out[point] = c.Budget
	}
	return out
}

// hooked lists the plugins of each hook point, in order. Those that the configuration
// requires come last, in its order. At before_act they are the judges.
func hooked(s *registry.Snapshot, points map[hook.Point]PointConfig) []dispatch.Hooked {
	out := absent(s, points)
	for _, pl := range s.Plugins() {
		var unasked string
		switch {
		case pl.State == plugin.Active:
		case pl.State == plugin.Suspended:
			unasked = "it is " + pl.Reason
		case pl.Lost:
			unasked = "it is gone without having unregistered; start it again, or unload it if it should not return"
		default:
			continue
		}
		for _, h := range pl.Manifest.Hooks {
			c := points[h.Point]
			required := slices.Contains(c.Required, pl.Name())
			if pl.State == plugin.Gone && (required || h.Point != hook.BeforeAct) {
				continue // absent reports it, or nobody needs to know
			}
			entry := dispatch.Hooked{
				Plugin: pl.Name(), Point: h.Point, Mode: cmp.Or(c.Mode, h.Mode), OnError: cmp.Or(c.OnError, h.OnError),
				OnSilence: cmp.Or(c.OnError, hook.Allow), // a plugin that is not required blocks no call by its silence
				Deadline:  time.Duration(h.DeadlineMS) * time.Millisecond, Unasked: unasked,
			}
			if required {
				entry.OnError, entry.OnSilence = hook.Deny, hook.Deny
				entry.Judge, entry.Required = h.Point == hook.BeforeAct, h.Point != hook.BeforeAct
			}
			out = append(out, entry)
		}
	}
	place := func(h dispatch.Hooked) int {
		return slices.Index(points[h.Point].Required, h.Plugin) // -1: the others, which come first
	}
	slices.SortStableFunc(out, func(a, b dispatch.Hooked) int { return place(a) - place(b) })
	return out
}

// absent lists the plugins that a point requires and that are missing.
func absent(s *registry.Snapshot, points map[hook.Point]PointConfig) []dispatch.Hooked {
	var out []dispatch.Hooked
	for _, point := range hook.Points() {
		for _, name := range points[point].Required {
			pl := s.Get(name)
			why := "it is required but not registered"
			switch {
			case pl == nil:
			case pl.State != plugin.Active && pl.State != plugin.Suspended:
				why = fmt.Sprintf("it is required but %s", pl.State)
			case !slices.ContainsFunc(pl.Manifest.Hooks, func(h plugin.Hook) bool { return h.Point == point }):
				why = "it is required but declares no hook here"
			default:
				continue
			}
			out = append(out, dispatch.Hooked{
				Plugin: name, Point: point, Mode: points[point].Mode, OnError: hook.Deny, Unasked: why,
				Judge: point == hook.BeforeAct, Required: point != hook.BeforeAct,
			})
		}
	}
	return out
}

// ask sends the engine's questions to the plugins.
func (p *plugins) ask(ctx context.Context, questions []bus.Question) []bus.Answer {
	answers := p.c.caller.RequestAll(ctx, questions)
	for i := range answers {
		if errors.Is(answers[i].Err, nats.ErrNoResponders) {
			answers[i].Err = fmt.Errorf("%w: no responders on %s", dispatch.ErrAbsent, questions[i].Subject)
		}
	}
	return answers
}

func (p *plugins) suspend(name subject.Plugin, reason string) {
	ctx, cancel := context.WithTimeout(p.c.ctx, 10*time.Second)
	defer cancel()
	changed, err := p.reg.Suspend(ctx, name, reason, registry.ByCore)
	switch {
	case err != nil:
		p.c.log.Error("a plugin that keeps failing could not be suspended", "plugin", name, "reason", reason, "error", err)
	case changed:
		p.c.log.Warn("a plugin is suspended", "plugin", name, "reason", reason)
		for a := range p.c.cfg.Agents {
			p.report(hook.Envelope{Agent: a},
				hook.ErrorData{
					Code: hook.ErrSuspended, Message: "plugin " + string(name) + " is suspended: " + reason, Plugin: name,
				})
		}
	}
}

// failed reports a hook that failed.
func (p *plugins) failed(at hook.Envelope, name subject.Plugin, err error) {
	p.report(at, hook.ErrorData{
		Code: hook.ErrHookFailed, Message: fmt.Sprintf("hook %s of plugin %s failed: %v", at.Point, name, err), Plugin: name,
	})
}

// report runs on_error for a plugin's failure, at all other plugins. No decision waits for
// it, and no commit records it.
func (p *plugins) report(at hook.Envelope, e hook.ErrorData) {
	t, who := p.pin.Load().hooks, map[subject.Plugin]bool{}
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
func (p *plugins) owner(kind registrar.Kind, name string) (string, bool) {
	switch kind {
	case registrar.KindPlugin: // answers are sent under the responder's name
		if name == coreapi.ServiceName {
			return "core", true
		}
		return "an executor", p.c.dir.Has(subject.Instance(name))
	case registrar.KindTool:
		return p.c.dir.BuiltIn(name)
	case registrar.KindProvider:
		for _, pl := range p.pin.Load().Plugins() {
			for _, i := range pl.Manifest.Providers {
				if i.Name == name {
					return "", false // the registrar checks the names of plugins
				}
			}
		}
		for _, i := range p.c.dir.Providers() {
			if i.Name == name {
				return "the provider service", true
			}
		}
	}
	return "", false
}

// begin runs on_agent_start for every agent. Plugins that arrive later are asked when
// they arrive.
func (p *plugins) begin() {
	p.mu.Lock()
	p.started = map[subject.Plugin]bool{}
	at := p.pin.Load()
	fresh := p.unstarted(at)
	p.mu.Unlock()
	p.runStart(at, fresh, "start")
}

// end runs on_agent_stop.
func (p *plugins) end() {
	p.mu.Lock()
	p.started = nil // plugins that arrive from now on are not asked
	p.mu.Unlock()
	p.runAgents(p.pin.Load().hooks, hook.OnAgentStop, "shutdown", nil)
}

// late runs on_agent_start for plugins that have arrived while the core runs.
func (p *plugins) late(s *registry.Snapshot, table *dispatch.HookSet) {
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
	at := &pinned{s, table}
	if fresh := p.unstarted(at); len(fresh) > 0 {
		p.running.Go(func() { p.runStart(at, fresh, "plugin_started") })
	}
}

// unstarted returns the plugins not yet asked at on_agent_start, and marks them as asked.
func (p *plugins) unstarted(at *pinned) map[subject.Plugin]bool {
	fresh := map[subject.Plugin]bool{}
	for _, h := range at.hooks.Hooks(hook.OnAgentStart) {
		if h.Unasked == "" && !p.started[h.Plugin] {
			p.started[h.Plugin], fresh[h.Plugin] = true, true
		}
	}
	return fresh
}

func (p *plugins) runStart(at *pinned, who map[subject.Plugin]bool, reason string) {
	if len(who) > 0 {
		p.runAgents(at.hooks, hook.OnAgentStart, reason, who)
	}
}

// runAgents runs a hook point outside of sessions, once for each agent. With nil for only, it
// asks all plugins.
func (p *plugins) runAgents(t *dispatch.HookSet, at hook.Point, reason string, only map[subject.Plugin]bool) {
	if !t.Any(at) {
		return
	}
	data, err := json.Marshal(hook.AgentData{Instance: string(p.c.bus.Instance()), Reason: reason})
	if err != nil {
		panic(err)
	}
	for a := range p.c.cfg.Agents {
		env := hook.Envelope{Point: at, Agent: a, Data: data}
		var d hook.Decision
		if only == nil {
			d = t.Run(env)
		} else {
			d = t.RunOnly(env, only)
		}
		for _, v := range d.Verdicts {
			p.c.log.Debug("a hook was asked", "point", at, "agent", a, "plugin", v.Plugin, "error", v.Error)
		}
	}
}

func (p *plugins) info() coreapi.HooksInfo {
	out := coreapi.HooksInfo{Instance: p.c.bus.Instance()}
	t := p.pin.Load().hooks
	for _, point := range hook.Points() {
		i := coreapi.PointInfo{
			Point: point, Mode: cmp.Or(p.cfg.Points[point].Mode, point.DefaultMode()),
			BudgetMS: cmp.Or(p.cfg.Points[point].Budget, dispatch.DefaultBudget).Milliseconds(), Plugins: []coreapi.HookInfo{},
		}
		for _, h := range t.Hooks(point) {
			u := p.engine.Use(point, h.Plugin)
			i.Plugins = append(i.Plugins, coreapi.HookInfo{
				Plugin: h.Plugin, Mode: h.Mode, OnError: h.OnError, OnSilence: h.OnSilence, Judge: h.Judge,
				DeadlineMS: h.Deadline.Milliseconds(), Unasked: h.Unasked,
				Asked: u.Asked, Failed: u.Failed, P50US: u.P50.Microseconds(), P99US: u.P99.Microseconds(), LastError: u.LastError,
			})
		}
		out.Points = append(out.Points, i)
	}
	return out
}

// Plugins returns the current snapshot of the registry.
func (c *Core) Plugins() *registry.Snapshot { return c.plugins.pin.Load().Snapshot }

// Hooks returns the current hook table.
func (c *Core) Hooks() *dispatch.HookSet { return c.plugins.pin.Load().hooks }
