package toolrunner

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	contract "skandha.dev/services/internal/executor"
	"skandha.dev/services/internal/registry"
	"skandha.dev/services/internal/toolschema"
	"skandha.dev/services/toolrunner/mcp"
)

// remote is a tool that a plugin runs.
type remote struct {
	plugin subject.Plugin
	hash   string    // of the manifest that declares it
	spec   tool.Spec // as announced
	args   *toolschema.Validator
	size   int // of the spec in an announcement, in bytes
}

// remotes are the tools of the active plugins, as far as this runner
// offers them. Only refresh changes them, and it is called by one goroutine at a time.
type remotes struct {
	cfg    Config
	own    []tool.Spec // the runner's own tools, which take precedence
	room   int         // limit of all plugins' specs in an announcement, in bytes
	offers *offering
	// servers are the MCP servers, whose tools are offered beside those of plugins: who comes first
	// has a name.
	servers *mcp.Group
	log     *slog.Logger

	warned map[string]bool
	tools  atomic.Pointer[map[string]*remote]
}

func newRemotes(cfg Config, own []tool.Spec, room int, servers *mcp.Group, offers *offering, log *slog.Logger) *remotes {
	r := &remotes{cfg: cfg, own: own, room: room, servers: servers, offers: offers, log: log, warned: map[string]bool{}}
	r.tools.Store(&map[string]*remote{})
	return r
}

// get returns the plugin's tool with the name, or nil.
func (r *remotes) get(name string) *remote {
	if r == nil {
		return nil
	}
	return (*r.tools.Load())[name]
}

// takes reports whether a plugin's tool is offered whose name differs from this at most in case.
func (r *remotes) takes(name string) bool {
	return slices.ContainsFunc(r.names(), func(n string) bool { return tool.FoldName(n) == tool.FoldName(name) })
}

func (r *remotes) names() []string {
	if r == nil {
		return nil
	}
	return slices.Collect(maps.Keys(*r.tools.Load()))
}

// refresh offers the tools of the snapshot's plugins. Schemas compiled for the
// same manifest are kept.
func (r *remotes) refresh(s *registry.Snapshot) {
	old, tools, warned := *r.tools.Load(), map[string]*remote{}, map[string]bool{}
	room := r.room
	for _, p := range s.Plugins() {
		if p.State != plugin.Active {
			continue
		}
		for _, spec := range p.Manifest.Tools {
			t := old[spec.Name]
			if t == nil || t.plugin != p.Name() || t.hash != p.Hash {
				t = &remote{plugin: p.Name(), hash: p.Hash, spec: spec}
			}
			why := r.refusal(t, tools, room)
			if why == "" {
				tools[spec.Name], room = t, room-t.size
				continue
			}
			key := p.Hash + " " + spec.Name + " " + why
			if warned[key] = true; !r.warned[key] && why != unwanted {
				r.log.Warn("not offering a plugin's tool", "plugin", string(p.Name()), "tool", spec.Name, "why", why)
			}
		}
	}
	r.warned = warned
	r.tools.Store(&tools)
	r.announce(tools)
}

const unwanted = "enable or disable excludes it" // the operator's choice

// refusal returns why this runner does not offer the tool, or "". It completes the tool.
func (r *remotes) refusal(t *remote, taken map[string]*remote, room int) string {
	name := t.spec.Name
	switch {
	case !r.cfg.wants(name):
		return unwanted
	case taken[name] != nil || r.servers.Takes(name) || slices.ContainsFunc(r.own, func(s tool.Spec) bool { return s.Name == name }):
		return "the name is taken"
	case name == "" || len(subject.Encode(name)) > subject.MaxIDLen:
		return fmt.Sprintf("the name is empty or too long: at most %d bytes when encoded", subject.MaxIDLen)
	case t.spec.Pool != "" && t.spec.Pool != contract.DefaultPool:
		return fmt.Sprintf("it requires the pool %q, but this runner has only %q", t.spec.Pool, contract.DefaultPool)
	}
	if t.args == nil {
		if err := t.compile(); err != nil {
			return err.Error()
		}
	}
	if t.size > room {
		return fmt.Sprintf("the announcement has no room for its %d bytes: the limit of all plugins' tools together is %d",
			t.size, r.room)
	}
	return ""
}

func (t *remote) compile() error {
	v, err := toolschema.Compile(t.spec)
	if err != nil {
		return err
	}
	t.spec.Args, t.spec.Plugin = v.Schema(), string(t.plugin)
	b, err := json.Marshal(t.spec)
	if err != nil {
		return err
	}
	t.spec, t.args, t.size = t.spec.Sealed(), v, len(b)
	return nil
}

// announce offers the tools of the plugins.
func (r *remotes) announce(tools map[string]*remote) {
	specs := make([]tool.Spec, 0, len(tools))
	for _, t := range tools {
		specs = append(specs, t.spec)
	}
	slices.SortFunc(specs, func(a, b tool.Spec) int { return strings.Compare(a.Name, b.Name) })
	r.offers.put(func(o *offering) { o.plugins = specs })
}
