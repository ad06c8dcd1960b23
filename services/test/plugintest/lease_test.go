package plugintest

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/test/natstest"
)

func TestAPluginComesAndGoes(t *testing.T) {
	r := newRig(t)
	p := r.active(manifest("policy"), plugin.Handlers{deny("no")})
	r.desk.await(subject.Heartbeat, 3)
	reply, err := r.hook(t.Context(), "i1")
	if err != nil || reply.Verb != hook.DenyVerb || reply.Reason != "no" {
		t.Fatalf("%+v, %v", reply, err)
	}
	if err := p.stop(); err != nil {
		t.Error(err)
	}
	if r.desk.leases("policy") != 0 || r.desk.count(subject.Register) != 1 || r.desk.count(subject.Unregister) != 2 {
		t.Errorf("%d leases; the registry heard %v", r.desk.leases("policy"), r.desk.heard)
	}
	if _, err := r.hook(t.Context(), "i2"); !errors.Is(err, bus.ErrUnavailable) {
		t.Errorf("%v, want that nobody is there", err)
	}
	if p.seen() != "active | draining | gone" {
		t.Error(p.seen())
	}
}

// A plugin that ends before it has heard that it is registered leaves no lease.
func TestAPluginThatEndsWhileItRegistersLeavesNoLease(t *testing.T) {
	r := newRig(t)
	registers, ends := make(chan struct{}), make(chan struct{})
	r.desk.with(func(verb subject.PluginVerb, _ subject.Plugin, _ []byte) (*plugin.Lease, error) {
		if verb == subject.Register {
			close(registers)
			<-ends
		}
		return nil, nil
	})
	p := r.start(manifest("policy"), plugin.Handlers{deny("no")})
	<-registers
	p.cancel()
	close(ends)
	if err := p.end(); err != nil {
		t.Error(err)
	}
	natstest.Eventually(t, "the lease is given back", func() bool {
		return r.desk.count(subject.Unregister) > 0 && r.desk.leases("policy") == 0
	})
}

// What is asked between the registry's decision and the plugin's knowing of it is
// answered.
func TestAPluginIsSubscribedBeforeItIsRegistered(t *testing.T) {
	r := newRig(t)
	early := make(chan error, 1)
	r.desk.with(func(verb subject.PluginVerb, _ subject.Plugin, _ []byte) (*plugin.Lease, error) {
		if verb == subject.Register {
			go func() {
				_, err := r.hook(t.Context(), "early")
				early <- err
			}()
			// The server takes messages of one connection in order: when it has
			// answered this, the question above is on its way or refused.
			natstest.Eventually(t, "the question is asked", func() bool { return r.ask.Waiting() > 0 || len(early) > 0 })
		}
		return nil, nil
	})
	r.active(manifest("policy"), plugin.Handlers{deny("no")})
	if err := <-early; err != nil {
		t.Error(err)
	}
}

func TestStatesAreReportedOnce(t *testing.T) {
	r := newRig(t)
	p := r.active(manifest("policy"), plugin.Handlers{deny("no")})
	for _, s := range []struct {
		state        plugin.LeaseState
		reason, want string
	}{
		{plugin.Waiting, "vault is missing", "waiting: vault is missing"},
		{plugin.Suspended, "it failed 5 times", "suspended: it failed 5 times"},
		{plugin.Active, "", "active"},
	} {
		r.desk.set("policy", s.state, s.reason)
		p.await(s.want)
		r.desk.await(subject.Heartbeat, 2)
	}
	if want := "active | waiting: vault is missing | suspended: it failed 5 times | active"; p.seen() != want {
		t.Errorf("%s, want %s", p.seen(), want)
	}
	for text, n := range map[string]int{
		"plugin is active": 2, "plugin is waiting": 1, "plugin is suspended": 1, "it failed 5 times": 1,
	} {
		if p.log.count(text) != n {
			t.Errorf("%q was logged %d times, want %d", text, p.log.count(text), n)
		}
	}
}

func TestALostLeaseIsRegisteredAgain(t *testing.T) {
	r := newRig(t)
	p := r.active(manifest("policy"), plugin.Handlers{deny("no")})
	r.desk.forget("policy")
	natstest.Eventually(t, "it is registered", func() bool { return r.desk.leases("policy") == 1 })
	if _, err := r.hook(t.Context(), "i"); err != nil || p.seen() != "active" {
		t.Errorf("%v; %s", err, p.seen())
	}
	if n := r.desk.count(subject.Register); n != 2 {
		t.Errorf("it registered %d times", n)
	}
}

// Two versions of a plugin never share its subjects: the second waits, takes
// nothing, and takes over when the first has gone.
func TestANameIsOwned(t *testing.T) {
	r := newRig(t)
	first := r.active(manifest("policy"), plugin.Handlers{deny("first")})
	second := manifest("policy")
	second.Version = "2.0.0"
	p := r.start(second, plugin.Handlers{deny("second")})
	const reason = "waiting: not registered: version 1.0.0 of policy is there; stop it first"
	p.await(reason)
	for i := range 50 {
		reply, err := r.hook(t.Context(), "i"+string(rune('a'+i)))
		if err != nil || reply.Reason != "first" {
			t.Fatalf("%+v, %v", reply, err)
		}
	}
	r.desk.await(subject.Register, 3)
	if p.seen() != reason || p.log.count("plugin is waiting") != 1 {
		t.Errorf("%s; logged %d times", p.seen(), p.log.count("plugin is waiting"))
	}
	if err := first.stop(); err != nil {
		t.Fatal(err)
	}
	p.await("active")
	if reply, err := r.hook(t.Context(), "z"); err != nil || reply.Reason != "second" {
		t.Errorf("%+v, %v", reply, err)
	}
}

// What a process was asked before it knew that the name is another's is turned
// away, not answered in the other's name.
func TestARefusedPluginAnswersNothing(t *testing.T) {
	r := newRig(t)
	asked := make(chan error, 1)
	r.desk.with(func(verb subject.PluginVerb, _ subject.Plugin, _ []byte) (*plugin.Lease, error) {
		if verb != subject.Register {
			return nil, nil
		}
		if r.desk.count(subject.Register) == 1 {
			go func() {
				_, err := r.hook(t.Context(), "early")
				asked <- err
			}()
			natstest.Eventually(t, "the question is asked", func() bool { return r.ask.Waiting() > 0 || len(asked) > 0 })
		}
		return nil, bus.Errorf(bus.CodeConflict, "taken")
	})
	p := r.start(manifest("policy"), plugin.Handlers{deny("no")})
	if err := <-asked; !errors.Is(err, bus.ErrUnavailable) {
		t.Error(err)
	}
	p.await("waiting: not registered: taken")
	if err := p.stop(); err != nil {
		t.Error(err)
	}
}

func TestARefusalEndsServe(t *testing.T) {
	for _, code := range []bus.Code{bus.CodeInvalidArgument, bus.CodeDenied} {
		r := newRig(t)
		r.desk.with(func(subject.PluginVerb, subject.Plugin, []byte) (*plugin.Lease, error) {
			return nil, bus.Errorf(code, "tools[0].name: not yours")
		})
		var unloaded atomic.Bool
		p := r.start(manifest("policy"), plugin.Handlers{deny("no"), plugin.Unload(func(context.Context) error {
			unloaded.Store(true)
			return nil
		})})
		if err := p.end(); bus.CodeOf(err) != code || !strings.Contains(err.Error(), "tools[0].name: not yours") {
			t.Error(err)
		}
		if !unloaded.Load() {
			t.Error("it was not unloaded")
		}
	}
}

func TestACoreThatIsAwayIsWaitedFor(t *testing.T) {
	r := newRig(t)
	r.desk.close()
	p := r.start(manifest("policy"), plugin.Handlers{deny("no")})
	p.await("waiting: not registered: no response from core")
	r.desk.open()
	p.await("active")

	r.desk.close()
	natstest.Eventually(t, "it says so", func() bool { return p.log.count("the registry does not respond") == 1 })
	if _, err := r.hook(t.Context(), "i"); err != nil {
		t.Errorf("while core is away: %v", err)
	}
	heard := r.desk.count(subject.Heartbeat)
	r.desk.open()
	natstest.Eventually(t, "it goes on", func() bool { return r.desk.count(subject.Heartbeat) > heard+2 })
	if n := r.desk.count(subject.Register); n != 1 {
		t.Errorf("it registered %d times", n)
	}
	if n := p.log.count("the registry does not respond"); n != 1 {
		t.Errorf("it complained %d times", n)
	}
	if want := "waiting: not registered: no response from core | active"; p.seen() != want {
		t.Error(p.seen())
	}
}

func TestARegistryThatFailsIsAskedAgain(t *testing.T) {
	r := newRig(t)
	r.desk.with(func(verb subject.PluginVerb, _ subject.Plugin, _ []byte) (*plugin.Lease, error) {
		if r.desk.count(verb)%3 != 0 {
			return nil, bus.Errorf(bus.CodeInternal, "a fault")
		}
		return nil, nil
	})
	p := r.active(manifest("policy"), plugin.Handlers{deny("no")})
	r.desk.await(subject.Heartbeat, 6)
	if p.seen() != "waiting: not registered: the registry failed (internal) | active" {
		t.Error(p.seen())
	}
}

// An operator unloads it.
func TestAPluginThatIsUnloadedDrains(t *testing.T) {
	for _, state := range []plugin.LeaseState{plugin.Draining, plugin.Gone} {
		r := newRig(t)
		begun, finish := make(chan struct{}), make(chan struct{})
		var unloaded atomic.Bool
		p := r.active(manifest("slow"), plugin.Handlers{
			plugin.Tool("slow:it", "d", func(context.Context, struct{}) (string, error) {
				close(begun)
				<-finish
				return "done", nil
			}),
			plugin.Unload(func(context.Context) error { unloaded.Store(true); return nil }),
		})
		result := make(chan error, 1)
		go func() {
			_, err := r.call(t.Context(), "slow", "t1-p1-c0", `{}`)
			result <- err
		}()
		<-begun
		r.desk.with(func(verb subject.PluginVerb, _ subject.Plugin, _ []byte) (*plugin.Lease, error) {
			if verb == subject.Heartbeat {
				return &plugin.Lease{Plugin: "slow", State: state, TTLMS: 100}, nil
			}
			return nil, nil
		})
		natstest.Eventually(t, "it says that it goes", func() bool { return r.desk.count(subject.Unregister) > 0 })
		close(finish)
		if err := <-result; err != nil {
			t.Errorf("%s: what ran was not answered: %v", state, err)
		}
		if err := p.end(); !errors.Is(err, plugin.ErrUnloaded) || !unloaded.Load() {
			t.Errorf("%s: %v, unloaded %t", state, err, unloaded.Load())
		}
	}
}
