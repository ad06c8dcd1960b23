package plugintest

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/registrar"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/journal"
	view "skandha.dev/services/internal/registry"
	"skandha.dev/services/test/natstest"
)

// lease is short, for tests that wait until one ends, and longer than what a busy machine
// keeps a heartbeat from being written.
const lease = 1500 * time.Millisecond

// coreRig is a rig whose registry is that of core.
type coreRig struct {
	*rig
	registrar *registrar.Registrar
	view      *view.View
}

func newCoreRig(t *testing.T) *coreRig {
	t.Helper()
	s := natstest.Start(t)
	return newCoreRigOn(t, bus.Config{InProcess: s, Token: s.Token()})
}

func newCoreRigOn(t *testing.T, c bus.Config) *coreRig {
	t.Helper()
	r := &coreRig{rig: &rig{T: t, dial: func() *journal.Journal { return natstest.Dial(t, c) }}}
	natstest.EnsureStreams(t, r.dial())
	r.bus = r.dial()
	r.ask = caller(t, r.bus)
	b := r.dial()
	if err := b.EnsurePlugins(natstest.Context(t), journal.StreamsConfig{}); err != nil {
		t.Fatal(err)
	}
	var err error
	if r.view, err = view.Watch(natstest.Context(t), b, natstest.Logger(t)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.view.Close)
	r.begin(b)
	return r
}

// begin starts a core's registrar.
func (r *coreRig) begin(b *journal.Journal) {
	r.Helper()
	cfg := registrar.Config{Lease: lease}
	cfg.Owner = func(kind registrar.Kind, name string) (string, bool) {
		return "the tool runner", kind == registrar.KindTool && name == "clock:now"
	}
	var err error
	if r.registrar, err = registrar.New(cfg, b, r.view, natstest.Logger(r)); err != nil {
		r.Fatal(err)
	}
	if err := r.registrar.Serve(natstest.Context(r)); err != nil {
		r.Fatal(err)
	}
	if err := b.Conn().Flush(); err != nil {
		r.Fatal(err)
	}
	r.Cleanup(r.registrar.Stop)
}

func (r *coreRig) operate(op registrar.Op, name subject.Plugin, reason string) {
	r.Helper()
	body, err := json.Marshal(registrar.PluginRequest{Op: op, Plugin: name, Reason: reason})
	if err != nil {
		r.Fatal(err)
	}
	if _, err := r.ask.Request(natstest.Context(r), subject.Service(coreapi.AdminName, coreapi.VerbPlugin),
		coreapi.AdminName, body); err != nil {
		r.Fatal(err)
	}
}

func TestARealRegistryAdmitsAndReleases(t *testing.T) {
	r := newCoreRig(t)
	p := r.active(manifest("policy"), everything("policy"))
	if !r.view.Snapshot().Active("policy") {
		t.Error("the view does not have it")
	}
	if reply, err := r.hook(t.Context(), "i"); err != nil || reply.Verb != hook.DenyVerb {
		t.Errorf("%+v, %v", reply, err)
	}
	instance := r.view.Snapshot().Get("policy").Instances[0].Instance
	var beats atomic.Int64
	if _, err := r.bus.Conn().Subscribe(subject.Registry(subject.Heartbeat, "policy"),
		func(*nats.Msg) { beats.Add(1) }); err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, "its first lease has passed", func() bool { return beats.Load() > 4 }) // three to a lease
	r.operate(registrar.OpSuspend, "policy", "enough")
	p.await("suspended: suspended by operator: enough")
	if got := r.view.Snapshot().Get("policy").Instances; len(got) != 1 || got[0].Instance != instance {
		t.Errorf("the lease was not kept: %+v", got)
	}
	r.operate(registrar.OpResume, "policy", "")
	p.await("active")
	if err := p.stop(); err != nil {
		t.Error(err)
	}
	natstest.Eventually(t, "it is gone", func() bool { return r.view.Snapshot().Get("policy").State == plugin.Gone })
	if p.log.count("registering again") != 0 || strings.Contains(p.seen(), "not registered") {
		t.Errorf("%s\n%s", p.seen(), p.log)
	}
}

// everything is one of each kind.
func everything(name subject.Plugin) plugin.Handlers {
	return plugin.Handlers{
		deny("no"),
		plugin.Tool(string(name)+":it", "d", func(context.Context, struct{}) (int, error) { return 0, nil }),
		plugin.Listen(subject.Writer(name), func(ctx context.Context, _ *plugin.Emitter) error { <-ctx.Done(); return nil }),
		plugin.StorageBackend{Delete: func(context.Context, plugin.StorageRequest) error { return nil }},
	}
}

func TestARealRegistryRefuses(t *testing.T) {
	r := newCoreRig(t)
	p := r.start(manifest("clock"), plugin.Handlers{
		plugin.Tool("clock:now", "d", func(context.Context, struct{}) (int, error) { return 0, nil }),
	})
	if err := p.end(); !errors.Is(err, bus.ErrInvalidArgument) || !strings.Contains(err.Error(), "tools[0].name") {
		t.Error(err)
	}
}

// The second version is admitted when the first has gone, and nothing is refused
// or answered by the wrong one meanwhile.
func TestAVersionReplacesAnother(t *testing.T) {
	r := newCoreRig(t)
	first := r.active(manifest("policy"), plugin.Handlers{deny("1.0.0")})
	next := manifest("policy")
	next.Version = "2.0.0"
	second := r.start(next, plugin.Handlers{deny("2.0.0")})
	natstest.Eventually(t, "the second waits",
		func() bool { return strings.Contains(second.seen(), "waiting: not registered") })
	for i := range 20 {
		if reply, err := r.hook(t.Context(), string(rune('a'+i))); err != nil || reply.Reason != "1.0.0" {
			t.Fatalf("%+v, %v", reply, err)
		}
	}
	if err := first.stop(); err != nil {
		t.Error(err)
	}
	second.await("active")
	if reply, err := r.hook(t.Context(), "z"); err != nil || reply.Reason != "2.0.0" {
		t.Errorf("%+v, %v", reply, err)
	}
}

func TestADependencyIsWaitedFor(t *testing.T) {
	r := newCoreRig(t)
	m := manifest("guard")
	m.Dependencies = []subject.Plugin{"vault"}
	guard := r.start(m, plugin.Handlers{deny("no")})
	natstest.Eventually(t, "it waits", func() bool {
		return strings.HasPrefix(guard.seen(), "waiting: ") && strings.Contains(guard.seen(), "vault")
	})
	vault := r.active(manifest("vault"), plugin.Handlers{deny("no")})
	guard.await("active")
	if err := vault.stop(); err != nil {
		t.Error(err)
	}
	natstest.Eventually(t, "it waits again", func() bool { return strings.Count(guard.seen(), "waiting: ") == 2 })
}

func TestAnOperatorUnloadsAPlugin(t *testing.T) {
	r := newCoreRig(t)
	p := r.active(manifest("policy"), plugin.Handlers{deny("no")})
	r.operate(registrar.OpUnload, "policy", "not needed")
	if err := p.end(); !errors.Is(err, plugin.ErrUnloaded) {
		t.Error(err)
	}
	natstest.Eventually(t, "it is gone", func() bool { return len(r.view.Snapshot().Get("policy").Instances) == 0 })
}

// A process that dies is gone within its lease, and its name is free.
func TestAPluginThatDiesIsReleased(t *testing.T) {
	r := newCoreRig(t)
	b := r.dial()
	p := r.startOn(b, manifest("policy"), plugin.Handlers{deny("first")})
	p.await("active")
	next := manifest("policy")
	next.Version = "2.0.0"
	second := r.start(next, plugin.Handlers{deny("second")})
	natstest.Eventually(t, "the second waits",
		func() bool { return strings.Contains(second.seen(), "waiting: not registered") })
	b.Close()
	second.await("active")
	if reply, err := r.hook(t.Context(), "z"); err != nil || reply.Reason != "second" {
		t.Errorf("%+v, %v", reply, err)
	}
	if err := p.end(); !errors.Is(err, bus.ErrUnavailable) {
		t.Error(err)
	}
}

// The last core goes and another comes: nothing is lost, and nobody registers.
func TestCoresGoAndCome(t *testing.T) {
	r := newCoreRig(t)
	p := r.active(manifest("policy"), plugin.Handlers{deny("no")})
	r.registrar.Stop()
	natstest.Eventually(t, "the plugin notices", func() bool { return p.log.count("the registry does not respond") == 1 })
	if _, err := r.hook(t.Context(), "i"); err != nil {
		t.Error(err)
	}
	r.begin(r.dial())
	natstest.Eventually(t, "the registry responds again",
		func() bool { return p.log.count("the registry responds again") == 1 })
	if p.seen() != "active" || !r.view.Snapshot().Active("policy") {
		t.Error(p.seen())
	}
}
