package directory

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/internal/executor"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/periodic"
	"skandha.dev/services/internal/registry"
	"skandha.dev/services/internal/toolschema"
)

// Directory tracks the executors that have announced themselves recently, and the
// slots that this core uses there. It implements decide.Catalog; [Picks], its view
// for one decision, implements decide.Directory.
type Directory struct {
	log *slog.Logger

	mu         sync.Mutex
	instances  map[subject.Instance]*instance
	reserved   map[subject.Instance]map[string]int // by pool: attempts that this core follows, and claims
	tools      map[string]*toolEntry
	public     []tool.Spec
	waiting    queue
	self       subject.Instance
	demands    []demand             // of all cores
	cores      []subject.Instance   // cores that publish beacons
	fold       int                  // the newest fold version that any of them knows
	oldest     int                  // the oldest one
	published  int                  // waiting sessions in this core's latest beacon
	usage      map[Need]*usage      // of slots by other cores
	moved      chan struct{}        // receives a value when the next beacon should be sent at once
	lostTools  map[string]time.Time // when each tool was last offered
	arrived    map[string]time.Time // when a tool's latest executor or plugin replica arrived
	lostModel  map[string]time.Time // the same for providers
	models     map[string]bool      // providers on offer, by name; "": any; false: all their processes drain
	started    time.Time
	expected   int                  // tools that were offered before this core started
	lostPublic map[string]time.Time // the same for built-in tools that models were offered
	registry   *registry.Snapshot   // selects the plugins whose tools are offered
	news       chan struct{}        // closed and replaced at each announcement

	// The encoded description of the tools last offered to a model. It rarely changes.
	built       int // how often the catalog was rebuilt
	offered     []string
	description json.RawMessage
}

type instance struct {
	executor.Announcement
	seen time.Time
	gone time.Time      // when it was found to have no responders; zero after its next announcement
	full []string       // pools that refused work for lack of a slot, since it announced itself
	mine map[string]int // by pool: the most slots that this core has used since then
}

type toolEntry struct {
	spec      tool.Spec
	validator *toolschema.Validator
	owner     string // the only service or plugin that may offer it
}

// New returns a directory that knows no executors; [Directory.Watch] fills it.
func New(log *slog.Logger) *Directory {
	return &Directory{
		log: log, instances: map[subject.Instance]*instance{}, reserved: map[subject.Instance]map[string]int{},
		tools: map[string]*toolEntry{}, waiting: newQueue(), registry: registry.Compute(registry.NewContent()),
		news: make(chan struct{}), moved: make(chan struct{}, 1), lostTools: map[string]time.Time{},
		arrived: map[string]time.Time{}, lostModel: map[string]time.Time{}, lostPublic: map[string]time.Time{},
		started: time.Now(),
	}
}

// Watch follows announcements until ctx ends, and asks all executors to announce themselves.
func (d *Directory) Watch(ctx context.Context, b *journal.Journal) error {
	sub, err := b.Subscribe(subject.AllAnnouncements, "", func(m *nats.Msg) { d.announced(m) })
	if err != nil {
		return err
	}
	go func() {
		const interval = executor.AnnounceTTL / 4
		last := time.Now()
		periodic.Every(ctx, interval, func() {
			// A process that was paused or starved has missed announcements.
			awake := time.Since(last) < 2*interval
			last = time.Now()
			d.forgetSilent(awake && b.Connected())
		})
		if err := sub.Unsubscribe(); err != nil {
			d.log.Debug("unsubscribing from announcements", "error", err)
		}
	}()
	if err := d.discover(ctx, b); err != nil {
		return err
	}
	d.settle(ctx)
	return nil
}

func (d *Directory) discover(ctx context.Context, b *journal.Journal) error {
	for _, k := range []subject.ExecutorKind{subject.Runner, subject.Provider} {
		if err := b.Publish(ctx, subject.Discover(k), nil, nil); err != nil {
			return err
		}
	}
	return nil
}

// announced handles an announcement. Its subject identifies the sender.
func (d *Directory) announced(m *nats.Msg) {
	var a executor.Announcement
	if err := json.Unmarshal(m.Data, &a); err != nil || m.Subject != subject.Announce(a.Kind, a.Instance) {
		d.log.Warn("invalid announcement", "subject", m.Subject, "error", err)
		return
	}
	d.mu.Lock()
	old := d.instances[a.Instance]
	changed := old == nil || a.Gone || !sameOffer(old.Announcement, a)
	if old == nil {
		d.arrive(a.Tools)
	}
	if a.Gone {
		delete(d.instances, a.Instance)
	} else {
		d.instances[a.Instance] = &instance{Announcement: a, seen: time.Now(), gone: stillGone(old)}
	}
	if changed {
		d.rebuild()
	}
	wake := d.wake(changed)
	close(d.news)
	d.news = make(chan struct{})
	d.mu.Unlock()
	wakeUp(wake)
}

func wakeUp(all []*Claimant) {
	for _, c := range all {
		c.wake()
	}
}

// sameOffer reports whether two announcements of an instance offer the same.
func sameOffer(a, b executor.Announcement) bool {
	return a.Draining == b.Draining && reflect.DeepEqual(a.Tools, b.Tools) && slices.Equal(a.Providers, b.Providers)
}

// SetPlugins sets the registry, so that only the tools of active plugins are offered.
func (d *Directory) SetPlugins(s *registry.Snapshot) {
	d.mu.Lock()
	for _, p := range s.Plugins() {
		if old := d.registry.Get(p.Name()); old == nil || hasNew(old.Instances, p.Instances) {
			d.arrive(p.Manifest.Tools)
		}
	}
	d.registry = s
	d.rebuild()
	wake := d.wake(true)
	d.mu.Unlock()
	wakeUp(wake)
}

// offers reports whether the registry lets the tool be offered.
func offers(s *registry.Snapshot, t tool.Spec) bool {
	if t.Plugin == "" {
		return true
	}
	p, _, ok := s.Tool(t.Name)
	return ok && string(p.Name()) == t.Plugin
}

// Has reports whether an executor with that name has announced itself.
func (d *Directory) Has(name subject.Instance) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.instances[name] != nil
}

// BuiltIn returns the service that offers a tool, unless the tool is a plugin's.
func (d *Directory) BuiltIn(name string) (service string, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t := d.tools[name]; t != nil && t.spec.Plugin == "" {
		return t.owner, true
	}
	return "", false
}

// forgetSilent drops instances that have been silent for the TTL. While this process
// cannot receive announcements, their silence means nothing.
func (d *Directory) forgetSilent(hearing bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	changed := false
	for id, i := range d.instances {
		if !hearing {
			i.seen = time.Now()
		} else if time.Since(i.seen) > executor.AnnounceTTL {
			d.log.Info("dropping a silent executor", "instance", id, "service", i.Service)
			delete(d.instances, id)
			changed = true
		}
	}
	if changed {
		d.rebuild()
	}
}

// stillGone keeps an instance gone for one announcement interval: an announcement that
// arrives right after a missing responder is older. A delayed core reads many of those.
func stillGone(old *instance) time.Time {
	if old == nil || time.Since(old.gone) > executor.AnnounceEvery {
		return time.Time{}
	}
	return old.gone
}

// Lost notes that an instance has no responders. Its last announcement stays valid for
// a while, and without this, work would go from one dead instance to the next.
func (d *Directory) Lost(id subject.Instance) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if i := d.instances[id]; i != nil {
		i.gone = time.Now()
	}
}

// rebuild recomputes the catalog. Built-in tools take precedence over those of plugins.
// If several instances offer a tool, the oldest determines its owner and its schema.
func (d *Directory) rebuild() {
	order := slices.SortedFunc(maps.Values(d.instances), older)
	tools, names := map[string]*toolEntry{}, map[string]*toolEntry{}
	d.public, d.description = nil, nil
	d.built++
	models := map[string]bool{}
	for _, builtIn := range []bool{true, false} {
		for _, i := range order {
			for _, spec := range i.Tools {
				if (spec.Plugin == "") == builtIn {
					d.offer(tools, names, i.Service, spec)
				}
			}
		}
	}
	for _, i := range order {
		if i.Kind == subject.Provider {
			models[""] = models[""] || !i.Draining
		}
		for _, p := range i.Providers {
			models[p.Name] = models[p.Name] || !i.Draining
		}
	}
	d.noteLost(tools, models)
	d.tools = tools
	for _, t := range tools {
		if !t.spec.Internal {
			d.public = append(d.public, t.spec)
		}
	}
	slices.SortFunc(d.public, byName)
}

// Described returns the description of the offered tools for a model, as JSON.
func (d *Directory) Described(offered []string) json.RawMessage {
	d.mu.Lock()
	if d.description != nil && slices.Equal(d.offered, offered) {
		defer d.mu.Unlock()
		return d.description
	}
	built := d.built
	d.mu.Unlock()
	b, err := json.Marshal(decide.Describe(offered, d.Lookup))
	if err != nil {
		panic(err) // schemas were compiled, so they are JSON
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.built == built { // otherwise b may describe tools that no longer exist
		d.offered, d.description = offered, b
	}
	return b
}

// ownerOf returns the owner of a tool: its plugin, whichever service runs it, or the service.
func ownerOf(service string, t tool.Spec) string {
	if t.Plugin != "" {
		return "plugin " + t.Plugin
	}
	return service
}

// offer adds a tool to tools, and under its folded name to names.
func (d *Directory) offer(tools, names map[string]*toolEntry, service string, spec tool.Spec) {
	if !offers(d.registry, spec) {
		return
	}
	owner := ownerOf(service, spec)
	key := tool.FoldName(spec.Name)
	if t := names[key]; t != nil {
		if t.owner != owner || t.spec.Name != spec.Name {
			d.log.Warn("the name of a tool is already taken", "tool", spec.Name, "owner", t.owner, "refused", owner)
		}
		return
	}
	if err := tool.CheckName(spec.Name); err != nil && spec.Plugin != "" {
		d.log.Warn("rejecting a tool", "tool", spec.Name, "plugin", spec.Plugin, "error", err)
		return
	}
	defer func() {
		if t := tools[spec.Name]; t != nil {
			names[key] = t
		}
	}()
	if old := d.tools[spec.Name]; old != nil && string(old.spec.Args) == string(spec.Args) {
		tools[spec.Name] = &toolEntry{spec.Sealed(), old.validator, owner}
		return
	}
	v, err := toolschema.Compile(spec)
	if err != nil {
		d.log.Warn("rejecting a tool", "tool", spec.Name, "service", service, "error", err)
		return
	}
	spec = spec.Sealed() // as it was announced
	spec.Args = v.Schema()
	tools[spec.Name] = &toolEntry{spec, v, owner}
}

// Providers implements decide.Directory.
func (d *Directory) Providers() []provider.Info {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []provider.Info
	for _, i := range d.instances {
		for _, p := range i.Providers {
			if !slices.Contains(out, p) {
				out = append(out, p)
			}
		}
	}
	slices.SortFunc(out, func(a, b provider.Info) int {
		if a.Name+a.Model < b.Name+b.Model {
			return -1
		}
		return 1
	})
	return out
}

// Lookup implements decide.Catalog.
func (d *Directory) Lookup(name string) (tool.Spec, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t := d.tools[name]; t != nil {
		return t.spec, true
	}
	return tool.Spec{}, false
}

// publicAs returns the tools that may be offered to models, and the registry they come from.
func (d *Directory) publicAs() ([]tool.Spec, *registry.Snapshot) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.public, d.registry
}

// Public implements decide.Catalog.
func (d *Directory) Public() []tool.Spec {
	all, _ := d.publicAs()
	return all
}

// All lists every tool, internal ones included.
func (d *Directory) All() []tool.Spec {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make([]tool.Spec, 0, len(d.tools))
	for _, t := range d.tools {
		out = append(out, t.spec)
	}
	slices.SortFunc(out, byName)
	return out
}

func byName(a, b tool.Spec) int { return cmp.Compare(a.Name, b.Name) }

// Validate implements decide.Catalog.
func (d *Directory) Validate(name string, args json.RawMessage) (json.RawMessage, []string) {
	d.mu.Lock()
	t := d.tools[name]
	d.mu.Unlock()
	if t == nil {
		return args, []string{"no runner offers the tool " + name + " any more"}
	}
	return t.validator.Validate(args)
}

// PoolOf returns the pool that serves a tool.
func (d *Directory) PoolOf(name string) string {
	if spec, ok := d.Lookup(name); ok && spec.Pool != "" {
		return spec.Pool
	}
	return executor.DefaultPool
}

// Project returns the notes of the workspace: those of the runner that started first, of the
// runners that have some. Those of a runner without responders count if there are no others, for as
// long as its tools are offered.
func (d *Directory) Project() event.Project {
	d.mu.Lock()
	defer d.mu.Unlock()
	var first *instance
	for _, i := range d.instances {
		if i.Project != nil && (first == nil || noted(i, first) < 0) {
			first = i
		}
	}
	if first == nil {
		return event.Project{}
	}
	return *first.Project
}

// noted orders runners by whose notes count.
func noted(a, b *instance) int {
	if live := a.gone.IsZero(); live != b.gone.IsZero() {
		if live {
			return -1
		}
		return 1
	}
	return older(a, b)
}

// older orders instances by their start.
func older(a, b *instance) int {
	return cmp.Or(a.Started.Compare(b.Started), cmp.Compare(a.Instance, b.Instance))
}

// Executors lists the live instances, for status.
func (d *Directory) Executors() []executor.Announcement {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make([]executor.Announcement, 0, len(d.instances))
	for _, i := range d.instances {
		a := i.Announcement
		a.Tools = nil
		if a.Project != nil {
			a.Project = &event.Project{Path: a.Project.Path, Size: a.Project.Size}
		}
		out = append(out, a)
	}
	slices.SortFunc(out, func(a, b executor.Announcement) int { return cmp.Compare(a.Instance, b.Instance) })
	return out
}
