package plugincall

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/registry"
)

// Errors for a request without an answer. Ask may also return the [*bus.Error] with
// which the plugin answered, or the context's error.
var (
	// ErrNotAsked means that the plugin certainly did not get the request, and never will.
	ErrNotAsked = errors.New("the plugin did not get the request")
	// ErrLost means that the plugin may have got the request, but its answer cannot be
	// obtained: all replicas that may have got it are gone, or the connection was lost.
	ErrLost = errors.New("the plugin may have got the request, and its answer is lost")
	// ErrUnreadable means that the plugin answered, but the answer's body could not be
	// fetched. The returned error also wraps a *bus.Error with the reason.
	ErrUnreadable = errors.New("the plugin's answer cannot be fetched")
)

// defaultGrace is how long an Asker waits for a plugin without replicas. It is longer
// than a plugin takes to register again after its lease was lost by mistake: a
// third of the lease's ten seconds.
const defaultGrace = 5 * time.Second

const (
	defaultEvery = time.Second     // interval of checking the replicas
	coreWait     = 2 * time.Second // for a core's answer
)

// View provides the current plugins; a *registry.View is one.
type View interface {
	Snapshot() *registry.Snapshot
}

// Option changes how an Asker works.
type Option func(*Asker)

// Grace sets how long an Asker waits for a plugin without replicas; default
// 5 s. It is measured in steps of a fifth.
func Grace(d time.Duration) Option {
	return func(a *Asker) { a.grace, a.every = d, max(d/5, time.Millisecond) }
}

// Asker asks plugins. Its methods may be called concurrently.
type Asker struct {
	bus          *journal.Journal
	caller       *bus.Caller
	view         View
	grace, every time.Duration
	cores        cores

	mu   sync.Mutex
	open map[string]int // requests under way, by subject
}

// New returns an Asker. A process needs only one. Call Close to end it.
func New(b *journal.Journal, view View, opts ...Option) (*Asker, error) {
	caller, err := b.NewCaller()
	if err != nil {
		return nil, fmt.Errorf("preparing to ask plugins: %w", err)
	}
	a := &Asker{bus: b, caller: caller, view: view, grace: defaultGrace, every: defaultEvery, open: map[string]int{}}
	for _, o := range opts {
		o(a)
	}
	a.cores = cores{caller: caller, every: a.every}
	return a, nil
}

// Plugins is a View that says when it changes; a *registry.View is one.
type Plugins interface {
	View
	OnChange(f func(*registry.Snapshot)) (cancel func())
}

// Follow returns an Asker for a process that offers what plugins have. It calls changed
// with the plugins now and after each change, until leave ends it and the Asker. If view is
// nil, it opens the registry.
func Follow(
	b *journal.Journal, view Plugins, changed func(*registry.Snapshot), log *slog.Logger, opts ...Option,
) (a *Asker, leave func(), err error) {
	stop := func() {}
	if view == nil {
		v := registry.Open(b, log)
		view, stop = v, v.Close
	}
	if a, err = New(b, view, opts...); err != nil {
		stop()
		return nil, nil, err
	}
	cancel := view.OnChange(changed)
	return a, func() {
		cancel()
		if err := a.Close(); err != nil {
			log.Debug("stopping the requests to plugins", "error", err)
		}
		stop()
	}, nil
}

// Snapshot returns the current plugins.
func (a *Asker) Snapshot() *registry.Snapshot { return a.view.Snapshot() }

// Close ends the Asker. Requests that still wait get no answer.
func (a *Asker) Close() error { return a.caller.Close() }

// Request is a request to a plugin.
type Request struct {
	Plugin  subject.Plugin
	Hash    string // of the manifest that the request is for; a plugin with another one is not asked
	Subject string // where the plugin listens
	Body    []byte
	// Replicas is set if replicas may listen on [subject.Replica] of the subject. Such
	// a replica remembers its requests, so it is asked there, and asked again if the
	// answer may be lost.
	Replicas bool
	// Repeatable is set if running the request twice has the same effect as running it
	// once. If the answer of one replica cannot be obtained, another one is asked.
	Repeatable bool
}

// Ask sends the request to one replica of the plugin and waits for its answer until
// ctx ends. The context's deadline is sent with the request.
//
// Errors: see [ErrNotAsked], [ErrLost] and [ErrUnreadable]. A [*bus.Error] is the
// plugin's own answer. The context's error means that the plugin may have got the
// request but has not answered in time.
func (a *Asker) Ask(ctx context.Context, r Request) ([]byte, error) {
	replicas, err := a.replicas(r)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w before it was sent", ErrNotAsked, err)
	}
	w := newWait(a, r, replicas)
	defer w.forget()
	if err := w.start(ctx); err != nil { // the connection never sends a request in part
		return nil, fmt.Errorf("%w: %w", ErrNotAsked, err)
	}
	return w.await(ctx)
}

// replicas returns the replicas that may get the request. They include draining ones,
// which may not have unsubscribed yet.
func (a *Asker) replicas(r Request) ([]subject.Instance, error) {
	p := a.view.Snapshot().Get(r.Plugin)
	switch {
	case p == nil:
		return nil, fmt.Errorf("%w: plugin %s is not registered", ErrNotAsked, r.Plugin)
	case p.State != plugin.Active && p.Reason != "":
		return nil, fmt.Errorf("%w: plugin %s is %s: %s", ErrNotAsked, r.Plugin, p.State, p.Reason)
	case p.State != plugin.Active:
		return nil, fmt.Errorf("%w: plugin %s is %s", ErrNotAsked, r.Plugin, p.State)
	case p.Hash != r.Hash:
		return nil, fmt.Errorf("%w: plugin %s was replaced by version %s", ErrNotAsked, r.Plugin, p.Manifest.Version)
	}
	return instances(p), nil
}

func instances(p *registry.Plugin) []subject.Instance {
	out := make([]subject.Instance, len(p.Instances))
	for i, l := range p.Instances {
		out[i] = l.Instance
	}
	return out
}

// enter counts a request as under way until leave is called.
func (a *Asker) enter(subj string) (leave func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.open[subj]++
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.open[subj]--; a.open[subj] == 0 {
			delete(a.open, subj)
		}
	}
}

// isOnly reports whether no other request to the subject is under way.
func (a *Asker) isOnly(subj string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.open[subj] == 1
}

// left counts the given replicas that still have a lease; nil means all replicas.
func (a *Asker) left(name subject.Plugin, replicas []subject.Instance) int {
	p := a.view.Snapshot().Get(name)
	if p == nil {
		return 0
	}
	n := 0
	for _, l := range p.Instances {
		if replicas == nil || slices.Contains(replicas, l.Instance) {
			n++
		}
	}
	return n
}
