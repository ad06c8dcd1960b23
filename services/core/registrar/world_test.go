package registrar_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/registrar"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/natsserver"
	view "skandha.dev/services/internal/registry"
	"skandha.dev/services/test/natstest"
)

// core is what a core has of the registry.
type core struct {
	b    *journal.Journal
	view *view.View
	*registrar.Registrar
}

// startCore runs a registrar on a separate connection until the test ends.
func startCore(t testing.TB, b *journal.Journal, cfg registrar.Config) *core {
	t.Helper()
	v, err := view.Watch(natstest.Context(t), b, natstest.Logger(t))
	if err != nil {
		t.Fatal(err)
	}
	r, err := registrar.New(cfg, b, v, natstest.Logger(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Serve(natstest.Context(t)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Stop(); v.Close() })
	return &core{b, v, r}
}

// stop ends the registrar as the end of its process would.
func (c *core) stop() {
	c.Stop()
	c.view.Close()
	c.b.Close()
}

// client speaks to the registry as a plugin or an operator does.
type client struct {
	testing.TB
	b        *journal.Journal
	c        *bus.Caller
	patience time.Duration // for one answer
}

func newClient(t testing.TB, b *journal.Journal) *client {
	t.Helper()
	c, err := b.NewCaller()
	if err != nil {
		t.Fatal(err)
	}
	return &client{t, b, c, natstest.Patience}
}

func (c *client) ask(subj string, question, reply any) error {
	c.Helper()
	body, err := json.Marshal(question)
	if err != nil {
		c.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.patience)
	defer cancel()
	responder := registrar.ServiceName
	if subj == operate {
		responder = coreapi.AdminName
	}
	answer, err := c.c.Request(ctx, subj, responder, body)
	if err == nil {
		err = json.Unmarshal(answer, reply)
	}
	return err
}

func (c *client) verb(v subject.PluginVerb, p subject.Plugin, question any) (plugin.Lease, error) {
	c.Helper()
	var l plugin.Lease
	err := c.ask(subject.Registry(v, p), question, &l)
	return l, err
}

// register registers one replica of a manifest.
func (c *client) register(m plugin.Manifest, i subject.Instance) (plugin.Lease, error) {
	c.Helper()
	m.Instance = i
	return c.verb(subject.Register, m.Name, m)
}

func (c *client) heartbeat(m plugin.Manifest, i subject.Instance) (plugin.Lease, error) {
	c.Helper()
	m.Instance = ""
	return c.verb(subject.Heartbeat, m.Name, plugin.Heartbeat{Instance: i, Hash: m.Hash()})
}

func (c *client) unregister(m plugin.Manifest, i subject.Instance, force bool) (plugin.Lease, error) {
	c.Helper()
	return c.verb(subject.Unregister, m.Name, plugin.Unregister{Instance: i, Force: force, Reason: "test"})
}

// operate is where operators ask.
var operate = subject.Service(coreapi.AdminName, coreapi.VerbPlugin)

func (c *client) operate(q registrar.PluginRequest) (registrar.PluginInfo, error) {
	c.Helper()
	var info registrar.PluginInfo
	err := c.ask(operate, q, &info)
	return info, err
}

// is fails the test unless a lease was given in the state.
func is(t testing.TB, want plugin.LeaseState) func(plugin.Lease, error) plugin.Lease {
	return func(l plugin.Lease, err error) plugin.Lease {
		t.Helper()
		if err != nil || l.State != want {
			t.Fatalf("got %+v %v, want a lease that is %s", l, err, want)
		}
		return l
	}
}

// fails fails the test unless the error has the code and says what is wanted.
func fails(t testing.TB, code bus.Code, says ...string) func(plugin.Lease, error) {
	return func(l plugin.Lease, err error) {
		t.Helper()
		if bus.CodeOf(err) != code {
			t.Fatalf("got %+v %v, want the error %s", l, err, code)
		}
		for _, s := range says {
			if !strings.Contains(err.Error(), s) {
				t.Errorf("the error does not say %q: %v", s, err)
			}
		}
	}
}

// replica registers and sends heartbeats until it is stopped, as every plugin must.
type replica struct {
	m     plugin.Manifest
	i     subject.Instance
	c     *client
	state atomic.Value // plugin.LeaseState
	end   chan struct{}
	done  sync.WaitGroup
	again atomic.Int32 // how often it had to register again
	early atomic.Int32 // of these, when its last renewal was less than a lease ago
	spoke time.Time    // when it began to ask for the lease that it was last given
}

func (c *client) live(m plugin.Manifest, i subject.Instance) *replica {
	c.Helper()
	began := time.Now()
	l, err := c.register(m, i)
	if err != nil {
		c.Fatal(err)
	}
	own := *c
	own.patience = short / 2 // a request without an answer is sent again
	r := &replica{m: m, i: i, c: &own, end: make(chan struct{}), spoke: began}
	r.state.Store(l.State)
	r.done.Go(func() {
		tick := time.NewTicker(short / 20)
		defer tick.Stop()
		for {
			select {
			case <-r.end:
				return
			case <-tick.C:
				r.beat()
			}
		}
	})
	c.Cleanup(r.die)
	return r
}

func (r *replica) beat() {
	began := time.Now()
	l, err := r.c.heartbeat(r.m, r.i)
	if errors.Is(err, bus.ErrNotFound) {
		if time.Since(r.spoke) < short {
			r.early.Add(1)
		}
		r.again.Add(1)
		began = time.Now()
		l, err = r.c.register(r.m, r.i)
	}
	if err == nil {
		r.spoke = began
		r.state.Store(l.State)
	}
}

// die stops without a word.
func (r *replica) die() {
	select {
	case <-r.end:
	default:
		close(r.end)
	}
	r.done.Wait()
}

func (r *replica) await(want plugin.LeaseState) {
	r.c.Helper()
	natstest.Eventually(r.c, fmt.Sprintf("%s to hear that it is %s", r.m.Name, want),
		func() bool { return r.state.Load() == want })
}

// m makes a manifest.
func m(name string, change ...func(*plugin.Manifest)) plugin.Manifest {
	out := plugin.Manifest{Name: subject.Plugin(name), Version: "1.0.0"}
	for _, f := range change {
		f(&out)
	}
	return out
}

func needs(names ...subject.Plugin) func(*plugin.Manifest) {
	return func(m *plugin.Manifest) { m.Dependencies = names }
}

func version(v string) func(*plugin.Manifest) { return func(m *plugin.Manifest) { m.Version = v } }

func offers(tools ...string) func(*plugin.Manifest) {
	return func(m *plugin.Manifest) {
		for _, name := range tools {
			m.Tools = append(m.Tools, tool.Spec{Name: name, Description: name, Args: json.RawMessage(`{"type":"object"}`)})
		}
	}
}

// states is "name:state" of all plugins, in their order.
func states(s *view.Snapshot) string {
	var out []string
	for _, p := range s.Plugins() {
		out = append(out, fmt.Sprintf("%s:%s", p.Name(), p.State))
	}
	return strings.Join(out, " ")
}

// now is what the core knows once it has seen all that is stored: other cores
// answer, too, and this one may be behind them.
func (c *core) now(t testing.TB) *view.Snapshot {
	t.Helper()
	ctx := natstest.Context(t)
	revision, err := c.b.Bucket(journal.BucketPlugins).Revision(ctx)
	if err == nil {
		err = c.view.Await(ctx, revision)
	}
	if err != nil {
		t.Fatal(err)
	}
	return c.view.Snapshot()
}

func (c *core) eventually(t testing.TB, want string) {
	t.Helper()
	natstest.Eventually(t, "the registry to be "+want, func() bool { return states(c.view.Snapshot()) == want })
}

// world is some cores on a server of the test's own, and a client.
type world struct {
	*client
	server *natsserver.Server
	cores  []*core
}

func newWorld(t testing.TB, n int, cfg registrar.Config) *world {
	t.Helper()
	w := &world{server: natstest.Start(t)}
	w.client = newClient(t, natstest.Connect(t, w.server))
	for range n {
		w.cores = append(w.cores, w.core(cfg))
	}
	return w
}

// core starts one more.
func (w *world) core(cfg registrar.Config) *core {
	w.Helper()
	return startCore(w, natstest.Dial(w, bus.Config{InProcess: w.server, Name: "core"}), cfg)
}

// check holds a snapshot to what must be true of every one.
func check(s *view.Snapshot) error {
	there := map[subject.Plugin]*view.Plugin{}
	tools := map[string]subject.Plugin{}
	for _, p := range s.Plugins() {
		if (len(p.Instances) == 0) != (p.State == plugin.Gone) {
			return fmt.Errorf("%s is %s with %d replicas", p.Name(), p.State, len(p.Instances))
		}
		if p.State == plugin.Gone {
			continue
		}
		if rand.IntN(20) == 0 && p.Hash != p.Manifest.Hash() { // which takes long
			return fmt.Errorf("%s is half: hash %s of %+v", p.Name(), p.Hash, p.Manifest)
		}
		for _, before := range slices.Concat(p.Manifest.Dependencies, p.Manifest.RunAfter) {
			if other := s.Get(before); other != nil && other.State != plugin.Gone && there[before] == nil {
				return fmt.Errorf("%s comes before %s", p.Name(), before)
			}
		}
		for _, after := range p.Manifest.RunBefore {
			if there[after] != nil {
				return fmt.Errorf("%s comes after %s", p.Name(), after)
			}
		}
		for _, d := range p.Manifest.Dependencies {
			ok := there[d] != nil && (there[d].State == plugin.Active || there[d].State == plugin.Suspended)
			if p.State == plugin.Active != ok && p.State != plugin.Draining && p.State != plugin.Suspended &&
				len(p.Manifest.Dependencies) == 1 {
				return fmt.Errorf("%s is %s, its dependency %s is there: %t", p.Name(), p.State, d, ok)
			}
		}
		for _, t := range p.Manifest.Tools {
			if other := tools[t.Name]; other != "" {
				return fmt.Errorf("tool %s is that of %s and of %s", t.Name, other, p.Name())
			}
			tools[t.Name] = p.Name()
			if owner, spec, ok := s.Tool(t.Name); ok != (p.State == plugin.Active) || ok && (owner != p || spec.Name != t.Name) {
				return fmt.Errorf("tool %s of %s, which is %s, is offered: %t", t.Name, p.Name(), p.State, ok)
			}
		}
		there[p.Name()] = p
	}
	return nil
}
