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
	"skandha.dev/services/core/guidefile"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/registry"
)

const (
	guideWait  = 2 * time.Second // for one request
	guideAgain = 2 * time.Second // after a failed request
	guideCheck = time.Second     // interval at which files are read again
	maxGuide   = 256 << 10       // bytes
)

// guides adds the guides of files and plugins to the agents' configured ones. Files are read
// again when they change. The guides of a plugin are fetched when the plugin arrives or changes,
// and removed with it. No turn waits for them. While a guide that an agent requires is missing,
// the agent's turns fail.
type guides struct {
	host   *Host
	files  *guidefile.Files // used only by the goroutine that refreshes
	agents atomic.Pointer[map[subject.Agent]*decide.Agent]
	failed atomic.Pointer[[]coreapi.GuideTrouble]
	poke   chan struct{}
	end    context.CancelFunc
	done   sync.WaitGroup

	known map[wanted]fetched     // of plugins; used only by the goroutine that refreshes
	good  map[wanted]guide.Guide // of files: the last versions in use; likewise
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
	g := &guides{
		host: h, files: guidefile.NewFiles(h.cfg.GuidesDir), poke: make(chan struct{}, 1), known: map[wanted]fetched{},
		good: map[wanted]guide.Guide{}, end: func() {},
	}
	g.agents.Store(&h.deps.Agents)
	g.failed.Store(&[]coreapi.GuideTrouble{})
	return g
}

// troubles returns the guides that are missing or were refused.
func (g *guides) troubles() []coreapi.GuideTrouble { return *g.failed.Load() }

// agent returns the agent with its current guides, or nil.
func (g *guides) agent(a subject.Agent) *decide.Agent { return (*g.agents.Load())[a] }

// start loads the guides that are available, and then follows changes.
func (g *guides) start(ctx context.Context) {
	if len(g.names()) == 0 {
		return
	}
	g.files.Check(g.names())
	g.refresh(ctx)
	ctx, g.end = context.WithCancel(g.host.ctx)
	g.done.Go(func() { g.follow(ctx) })
}

// names lists the guides that agents name.
func (g *guides) names() (out []string) {
	for _, a := range g.host.deps.Agents {
		out = append(out, a.Guides...)
	}
	slices.Sort(out)
	return slices.Compact(out)
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
	again, check := time.NewTimer(guideAgain), time.NewTicker(guideCheck)
	defer again.Stop()
	defer check.Stop()
	names := g.names()
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.poke:
		case <-again.C:
		case <-check.C:
			if !g.files.Check(names) {
				continue
			}
			g.host.deps.Log.Info("the files of guides have changed", "dir", g.host.cfg.GuidesDir)
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
		whole, troubles, complete := g.compose(ctx, at, a)
		agents[name] = whole
		failed = append(failed, troubles...)
		all = all && complete
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

// compose returns the agent with its guides, and which of them are missing or wrong. It is
// incomplete if a guide of a plugin could not be fetched.
func (g *guides) compose(ctx context.Context, at *registry.Snapshot, a *decide.Agent) (
	whole *decide.Agent, failed []coreapi.GuideTrouble, complete bool,
) {
	var basis, sum guide.Guide
	unguided := ""
	complete = true
	for _, n := range a.Guides {
		got, own := g.ofFile(a, n)
		must := slices.Contains(a.Required, n) || own && !got.Have // it may restrict the agent
		if !own {
			got = g.ofPlugin(ctx, at, a, n)
			complete = complete && (got.Err == nil || errors.Is(got.Err, errNoGuide))
		}
		switch {
		case got.Have && n == a.Basis:
			basis = got.Guide
		case got.Have:
			sum = sum.And(got.Guide)
		}
		if got.Err == nil {
			continue
		}
		failed = append(failed, coreapi.GuideTrouble{
			Agent: a.Name, Guide: n, Required: must, Stale: got.Have, Reason: got.Err.Error(),
		})
		if must && !got.Have && unguided == "" {
			unguided = fmt.Sprintf("guide %q is required but missing: %v", n, got.Err)
		}
	}
	whole = a.Guided(basis, sum)
	whole.Unguided = unguided
	return whole, failed, complete
}

// ofFile returns a guide that is in a file or built in. If the file is wrong, or has a provider
// that the agent lacks, it returns the last good version and an error.
func (g *guides) ofFile(a *decide.Agent, name string) (got guidefile.Found, ok bool) {
	key := wanted{a.Name, name}
	got = g.files.Get(name)
	if !got.Have && got.Err == nil {
		delete(g.good, key)
		return got, false
	}
	if err := a.Accepts(got.Guide); err != nil {
		good, had := g.good[key]
		return guidefile.Found{Guide: good, Have: had, Err: err}, true
	}
	if got.Have {
		g.good[key] = got.Guide
	}
	return got, true
}

// ofPlugin returns a guide of a plugin that the agent accepts.
func (g *guides) ofPlugin(ctx context.Context, at *registry.Snapshot, a *decide.Agent, name string) guidefile.Found {
	got, have, err := g.get(ctx, at, wanted{a.Name, name})
	if wrong := a.Accepts(got); wrong != nil {
		return guidefile.Found{Err: fmt.Errorf("the guide was refused: %w", wrong)}
	}
	return guidefile.Found{Guide: got, Have: have, Err: err}
}

// errNoGuide means that there is neither a file with the guide nor an active plugin that
// declares it.
var errNoGuide = errors.New("no file has it, and no active plugin declares it")

// get returns the guide of an active plugin. While the plugin does not answer, it returns
// the previous guide and an error. Without such a plugin the error is errNoGuide.
func (g *guides) get(ctx context.Context, at *registry.Snapshot, w wanted) (got guide.Guide, ok bool, err error) {
	for _, p := range at.Plugins() {
		if !at.Active(p.Name()) || !slices.Contains(p.Manifest.Guides, w.name) || !g.host.serves(p.Name(), w.agent) {
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
