package plugins

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"skandha.dev/pkg/guide"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/registry"
)

const (
	guideWait  = 2 * time.Second // for one request
	guideAgain = 2 * time.Second // after a failed request
	maxGuide   = 256 << 10       // bytes
)

// guides adds the guides of plugins to the agents' configured ones. They are fetched when
// the plugin arrives or changes, and removed with it. No turn waits for them. While a guide
// that an agent requires is missing, the agent's turns fail.
type guides struct {
	host   *Host
	agents atomic.Pointer[map[subject.Agent]*decide.Agent]
	failed atomic.Pointer[[]coreapi.GuideTrouble]
	poke   chan struct{}
	end    context.CancelFunc
	done   sync.WaitGroup

	known map[wanted]fetched // used only by the goroutine that refreshes
}

type wanted struct {
	agent subject.Agent
	name  string
}

type fetched struct {
	from  string // the plugin, its manifest and its replicas
	guide guide.Guide
}

func newGuides(h *Host) *guides {
	g := &guides{host: h, poke: make(chan struct{}, 1), known: map[wanted]fetched{}, end: func() {}}
	g.agents.Store(&h.deps.Agents)
	g.failed.Store(&[]coreapi.GuideTrouble{})
	return g
}

// troubles returns the guides that are missing or were refused.
func (g *guides) troubles() []coreapi.GuideTrouble { return *g.failed.Load() }

// agent returns the agent with its current guides, or nil.
func (g *guides) agent(a subject.Agent) *decide.Agent { return (*g.agents.Load())[a] }

// start fetches the guides that are available, and then follows changes.
func (g *guides) start(ctx context.Context) {
	if !slices.ContainsFunc(g.names(), func(n []string) bool { return len(n) > 0 }) {
		return
	}
	g.refresh(ctx)
	ctx, g.end = context.WithCancel(g.host.ctx)
	g.done.Go(func() { g.follow(ctx) })
}

func (g *guides) names() [][]string {
	var out [][]string
	for _, a := range g.host.deps.Agents {
		out = append(out, a.Guides)
	}
	return out
}

func (g *guides) stop() {
	g.end()
	g.done.Wait()
}

// changed is called when the registry has changed.
func (g *guides) changed() {
	select {
	case g.poke <- struct{}{}:
	default:
	}
}

func (g *guides) follow(ctx context.Context) {
	again := time.NewTimer(guideAgain)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.poke:
		case <-again.C:
		}
		if !g.refresh(ctx) {
			again.Reset(guideAgain)
		}
	}
}

// refresh recomposes every agent. It returns false if an available guide could not be fetched.
func (g *guides) refresh(ctx context.Context) (all bool) {
	at := g.host.Current().Snapshot
	agents := make(map[subject.Agent]*decide.Agent, len(g.host.deps.Agents))
	failed := []coreapi.GuideTrouble{}
	all = true
	for name, a := range g.host.deps.Agents {
		whole := *a
		for _, n := range a.Guides {
			got, ok, err := g.get(ctx, at, wanted{name, n})
			if ok {
				whole.Guide = whole.Guide.And(got)
				if got.Permissions != nil {
					whole.Granted = append(slices.Clip(whole.Granted), got.Permissions)
				}
			}
			all = all && (err == nil || errors.Is(err, errNoGuide))
			if err == nil {
				continue
			}
			t := coreapi.GuideTrouble{
				Agent: name, Guide: n, Required: slices.Contains(a.Required, n), Stale: ok, Reason: err.Error(),
			}
			failed = append(failed, t)
			if t.Required && !ok && whole.Unguided == "" {
				whole.Unguided = fmt.Sprintf("guide %q is required but missing: %v", n, err)
			}
		}
		agents[name] = &whole
	}
	slices.SortFunc(failed, func(a, b coreapi.GuideTrouble) int {
		return cmp.Or(cmp.Compare(a.Agent, b.Agent), cmp.Compare(a.Guide, b.Guide))
	})
	g.agents.Store(&agents)
	old := *g.failed.Swap(&failed)
	for _, t := range failed {
		if !slices.Contains(old, t) {
			g.host.deps.Log.Warn("cannot load a guide", "agent", t.Agent, "guide", t.Guide, "required", t.Required,
				"error", t.Reason)
		}
	}
	return all
}

// errNoGuide means that no active plugin declares the guide.
var errNoGuide = errors.New("no active plugin declares it")

// get returns the guide of an active plugin. While the plugin does not answer, it returns
// the previous guide and an error. Without such a plugin the error is errNoGuide.
func (g *guides) get(ctx context.Context, at *registry.Snapshot, w wanted) (got guide.Guide, ok bool, err error) {
	for _, p := range at.Plugins() {
		if !at.Active(p.Name()) || !slices.Contains(p.Manifest.Guides, w.name) {
			continue
		}
		from := []string{string(p.Name()), p.Hash}
		for _, i := range p.Instances {
			from = append(from, string(i.Instance))
		}
		key := strings.Join(from, " ")
		old, had := g.known[w]
		if had && old.from == key {
			return old.guide, true, nil
		}
		if got, err = g.fetch(ctx, p.Name(), w); err != nil {
			return old.guide, had, err
		}
		g.known[w] = fetched{key, got}
		g.host.deps.Log.Info("a guide was loaded", "agent", w.agent, "guide", w.name, "plugin", p.Name())
		return got, true, nil
	}
	if _, had := g.known[w]; had {
		g.host.deps.Log.Info("a guide was removed with its plugin", "agent", w.agent, "guide", w.name)
		delete(g.known, w)
	}
	return guide.Guide{}, false, errNoGuide
}

func (g *guides) fetch(ctx context.Context, p subject.Plugin, w wanted) (guide.Guide, error) {
	body, err := json.Marshal(guide.Request{Name: w.name, Agent: w.agent})
	if err != nil {
		return guide.Guide{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, guideWait)
	defer cancel()
	answer, err := g.host.caller.Request(ctx, subject.Guide(p), string(p), body)
	if err != nil {
		return guide.Guide{}, err
	}
	if len(answer) > maxGuide {
		return guide.Guide{}, fmt.Errorf("the guide of plugin %s has %d bytes; the limit is %d", p, len(answer), maxGuide)
	}
	got, err := guide.Decode(answer, w.name)
	if err != nil {
		return guide.Guide{}, fmt.Errorf("the answer of plugin %s was refused: %w", p, err)
	}
	return got, nil
}
