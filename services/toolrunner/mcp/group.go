package mcp

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/bounds"
	"skandha.dev/services/toolrunner/tools"
)

// Options are what a group is given by its runner.
type Options struct {
	// StateDir has the homes of commands, in its directory mcp. Empty: they are kept in memory.
	StateDir string
	// Room is the limit of all servers' specs together, in bytes.
	Room int
	// Recheck is the interval at which the file of added servers is read again; default 2 s.
	Recheck time.Duration
	// Wants reports whether the runner's operator wants the tool.
	Wants func(name string) bool
	// Taken reports whether another part of the runner offers a tool of the name.
	Taken func(name string) bool
	// Refuses returns why commands may not see a directory, such as one with keys; nil: they may see any.
	Refuses func(dir string) error
	// Changed is called when [Group.Specs] may have changed. It must not call the group's Close.
	Changed func()
	Logger  *slog.Logger
}

// Group holds the connections to the servers.
type Group struct {
	opt   Options
	ctx   context.Context //nolint:containedctx // of all connections, until Close
	close context.CancelFunc
	done  sync.WaitGroup
	reads []tools.Tool

	mu     sync.Mutex
	links  map[string]*link
	tools  map[string]*Tool // by folded name
	warned map[string]bool
	has    capabilities // of any server
}

// New returns a group without connections; see [Group.Start].
func New(opt Options) *Group {
	g := &Group{opt: opt, links: map[string]*link{}, tools: map[string]*Tool{}, warned: map[string]bool{}}
	g.opt.Recheck = cmp.Or(opt.Recheck, recheckAdded)
	g.ctx, g.close = context.WithCancel(context.Background())
	g.reads = g.Reads()
	return g
}

// Start connects to the servers in the background. Their tools are offered as they become known.
func (g *Group) Start(cfg Config) {
	for name, s := range cfg.Servers {
		g.add(name, s, false)
	}
}

// Close ends all connections, and the processes of commands.
func (g *Group) Close() {
	g.close()
	g.done.Wait()
}

// add connects to a server.
func (g *Group) add(name string, s Server, added bool) {
	l := newLink(name, bounds.Filled(s), added, g)
	ctx, cancel := context.WithCancel(g.ctx)
	ended := make(chan struct{})
	l.end = func() { cancel(); <-ended }
	g.mu.Lock()
	g.links[name] = l
	g.mu.Unlock()
	g.done.Go(func() {
		defer close(ended)
		defer cancel()
		l.run(ctx)
	})
}

// Get returns the tool with the name, or nil.
func (g *Group) Get(name string) *Tool {
	if g == nil {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if t := g.tools[tool.FoldName(name)]; t != nil && t.Spec.Name == name {
		return t
	}
	return nil
}

// Takes reports whether a tool is offered whose name differs from this at most in case.
func (g *Group) Takes(name string) bool {
	if g == nil {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.tools[tool.FoldName(name)] != nil
}

// Specs returns what is offered now, by name.
func (g *Group) Specs() []tool.Spec {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make([]tool.Spec, 0, len(g.tools))
	for _, t := range g.tools {
		out = append(out, t.Spec)
	}
	for _, t := range g.reads {
		lists := t.Spec.Name == promptsTool || t.Spec.Name == promptTool
		if lists && g.has.prompts || !lists && g.has.resources {
			out = append(out, t.Spec)
		}
	}
	slices.SortFunc(out, func(a, b tool.Spec) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// refresh puts together what the links offer. What is offered keeps its place: another part of the
// runner cannot take it, nor does it take what another part has.
func (g *Group) refresh() {
	g.mu.Lock()
	offered, warned, room := map[string]*Tool{}, map[string]bool{}, g.opt.Room
	g.has = capabilities{}
	for _, name := range slices.Sorted(maps.Keys(g.links)) {
		c := g.links[name].offered()
		g.has = capabilities{g.has.resources || c.has.resources, g.has.prompts || c.has.prompts}
		for _, why := range c.out {
			g.warn(warned, name, why)
		}
		for _, t := range c.tools {
			key := tool.FoldName(t.Spec.Name)
			size := len(t.Spec.Args) + len(t.Spec.Description) + maxNameShown
			switch {
			case g.tools[key] == nil && g.opt.Taken(t.Spec.Name):
				g.warn(warned, name, t.Spec.Name+": the name is taken")
			case size > room:
				g.warn(warned, name, t.Spec.Name+": the announcement has no room for it")
			default:
				offered[key], room = t, room-size
			}
		}
	}
	g.tools, g.warned = offered, warned
	g.mu.Unlock()
	g.opt.Changed()
}

// warn logs once why something of a server is not offered.
func (g *Group) warn(warned map[string]bool, server, why string) {
	key := server + " " + why
	if warned[key] = true; !g.warned[key] {
		g.opt.Logger.Warn("not offering a tool of an MCP server", "server", server, "why", why)
	}
}

// Names returns the names of what is offered now.
func (g *Group) Names() []string {
	var out []string
	for _, s := range g.Specs() {
		out = append(out, s.Name)
	}
	return out
}
