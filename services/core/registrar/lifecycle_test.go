package registrar_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/registrar"
	"skandha.dev/services/internal/coreapi"
	view "skandha.dev/services/internal/registry"
	"skandha.dev/services/test/natstest"
)

// short is a lease that ends while a test waits for it, and does not when the
// machine is busy. The tests that wait do so side by side.
const short = 2400 * time.Millisecond

// steady plugins keep their leases for as long as a test may take.
var steady = registrar.Config{Lease: 10 * natstest.Patience}

func TestAPluginWaitsForItsDependenciesAndStartsWhenTheyCome(t *testing.T) {
	w := newWorld(t, 2, steady)
	a, b, c := m("a"), m("b", needs("a")), m("c", needs("b", "a"))
	if l := is(t, plugin.Waiting)(w.register(c,
		"c-1")); l.Reason != "plugin b is not registered; plugin a is not registered" {
		t.Errorf("%+v", l)
	}
	is(t, plugin.Waiting)(w.register(b, "b-1"))
	if l := is(t, plugin.Waiting)(w.heartbeat(c, "c-1")); l.Reason != "plugin b is waiting; plugin a is not registered" {
		t.Errorf("%+v", l)
	}
	is(t, plugin.Active)(w.register(a, "a-1"))
	for _, x := range w.cores {
		x.eventually(t, "a:active b:active c:active")
	}
	is(t, plugin.Active)(w.heartbeat(c, "c-1"))
	is(t, plugin.Draining)(w.unregister(a, "a-1", true))
	if l := is(t, plugin.Waiting)(w.heartbeat(b, "b-1")); l.Reason != "plugin a is draining" {
		t.Errorf("%+v", l)
	}
	is(t, plugin.Gone)(w.unregister(a, "a-1", true))
	if l := is(t, plugin.Waiting)(w.heartbeat(c, "c-1")); l.Reason != "plugin b is waiting; plugin a is not registered" {
		t.Errorf("%+v", l)
	}
	is(t, plugin.Active)(w.register(a, "a-2"))
	for _, x := range w.cores {
		x.eventually(t, "a:active b:active c:active")
	}
}

func TestTheLastReplicaStaysWhileOthersDependOnIt(t *testing.T) {
	w := newWorld(t, 2, steady)
	a := m("a")
	is(t, plugin.Active)(w.register(a, "a-1"))
	is(t, plugin.Active)(w.register(a, "a-2"))
	is(t, plugin.Active)(w.register(m("b", needs("a")), "b-1"))
	is(t, plugin.Active)(w.register(m("c", needs("a")), "c-1"))
	is(t, plugin.Draining)(w.unregister(a, "a-1", false))
	fails(t, bus.CodeConflict,
		"plugin a has dependants: b, c; unload these first, or force it, which makes them wait")(w.unregister(a, "a-2",
		false))
	if got := states(w.cores[0].now(t)); got != "a:active b:active c:active" {
		t.Errorf("a refused request changes the registry to %s", got)
	}
	_, err := w.operate(registrar.PluginRequest{Op: registrar.OpUnload, Plugin: "a"})
	if bus.CodeOf(err) != bus.CodeConflict || !strings.Contains(err.Error(), "b, c") {
		t.Errorf("unload: %v", err)
	}
	is(t, plugin.Draining)(w.unregister(m("b", needs("a")), "b-1", false))
	fails(t, bus.CodeConflict, "dependants: c;")(w.unregister(a, "a-2", false))
	is(t, plugin.Draining)(w.unregister(a, "a-2", true))
	w.cores[1].eventually(t, "a:draining b:draining c:waiting")
	// A waiting plugin does not count as a dependant.
	is(t, plugin.Gone)(w.unregister(a, "a-2", false))
}

// Two replicas that go at the same time do not both think that the other stays.
func TestReplicasThatGoAtOnceLeaveOneToTheirDependants(t *testing.T) {
	w := newWorld(t, 3, steady)
	for round := range 20 {
		a := m(fmt.Sprintf("a%d", round))
		is(t, plugin.Active)(w.register(a, "i-0"))
		is(t, plugin.Active)(w.register(a, "i-1"))
		is(t, plugin.Active)(w.register(m(fmt.Sprintf("b%d", round), needs(a.Name)), "b"))
		var g sync.WaitGroup
		var errs [2]error
		for i := range errs {
			g.Go(func() { _, errs[i] = w.unregister(a, subject.Instance(fmt.Sprintf("i-%d", i)), false) })
		}
		g.Wait()
		if (errs[0] == nil) == (errs[1] == nil) || bus.CodeOf(errors.Join(errs[:]...)) != bus.CodeConflict {
			t.Fatalf("round %d: %v", round, errs)
		}
	}
}

func TestASilentReplicaIsGoneAndFreesItsNames(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3, registrar.Config{Lease: short})
	a, b := m("a", offers("x")), m("b", needs("a"))
	one, two := w.live(a, "a-1"), w.live(a, "a-2")
	dep := w.live(b, "b-1")
	one.die()
	natstest.Eventually(t, "the silent replica to go", func() bool {
		p := w.cores[1].view.Snapshot().Get("a")
		return p != nil && len(p.Instances) == 1 && p.Instances[0].Instance == "a-2" && p.State == plugin.Active
	})
	two.die()
	for _, c := range w.cores {
		c.eventually(t, "b:waiting a:gone")
	}
	dep.await(plugin.Waiting)
	fails(t, bus.CodeNotFound)(w.heartbeat(a, "a-2"))
	is(t, plugin.Active)(w.register(m("other", offers("x")), "o-1"))
	if n := two.early.Load() + dep.early.Load(); n > 0 {
		t.Errorf("replicas that spoke in time had to register again %d times", n)
	}
}

func TestAnyOfSeveralCoresEndsALease(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3, registrar.Config{Lease: short})
	is(t, plugin.Active)(w.register(m("a"), "a-1"))
	w.cores[0].stop()
	w.cores[1].stop()
	w.cores[2].eventually(t, "a:gone")
}

// A heartbeat that arrives when the lease is about to end is either renewed or
// rejected with the request to register again. There is no third outcome.
func TestHeartbeatsRaceWithTheSweepers(t *testing.T) {
	const lease = 200 * time.Millisecond
	w := newWorld(t, 3, registrar.Config{Lease: lease})
	var g sync.WaitGroup
	var renewed, ended atomic.Int32
	for i := range 20 {
		a := m(fmt.Sprintf("p%02d", i))
		g.Go(func() {
			inst := subject.Instance("i")
			register := func() (ok bool) {
				_, err := w.register(a, inst)
				for errors.Is(err, bus.ErrNotFound) { // it ended before that was answered
					_, err = w.register(a, inst)
				}
				if err != nil {
					t.Errorf("registering: %v", err)
				}
				return err == nil
			}
			if !register() {
				return
			}
			for round := range 8 {
				// From at once to behind the end of the lease: a look at the clock is what is tested here.
				<-time.After(time.Duration(round)*lease/5 + time.Duration(i)*lease/100)
				l, err := w.heartbeat(a, inst)
				switch {
				case err == nil && l.State == plugin.Active:
					renewed.Add(1)
				case errors.Is(err, bus.ErrNotFound):
					if ended.Add(1); !register() {
						return
					}
				default:
					t.Errorf("%+v %v", l, err)
				}
			}
		})
	}
	g.Wait()
	t.Logf("%d heartbeats won, %d came too late", renewed.Load(), ended.Load())
	if renewed.Load() == 0 {
		t.Error("no heartbeat won")
	}
}

func TestARestartOfTheBusEndsNoLease(t *testing.T) {
	t.Parallel()
	p := natstest.StartProcess(t, "", 0)
	core := startCore(t, natstest.ConnectURL(t, p.URL()), registrar.Config{Lease: short})
	c := newClient(t, natstest.ConnectURL(t, p.URL()))
	policy := c.live(m("policy"), "p-1")
	var lost sync.Map
	defer core.view.OnChange(func(s *view.Snapshot) {
		if got := states(s); got != "policy:active" {
			lost.Store(got, true)
		}
	})()
	for range 2 {
		p.Kill()
		<-time.After(short * 5 / 4) // how long the bus is away is what is tested
		p.Restart()
		natstest.Eventually(t, "heartbeats to be answered again", func() bool {
			_, err := c.heartbeat(policy.m, policy.i)
			return err == nil
		})
	}
	if n := policy.again.Load(); n > 0 {
		t.Errorf("it had to register again %d times", n)
	}
	lost.Range(func(k, _ any) bool { t.Errorf("in between the registry was %s", k); return true })
}

func TestNoCoreForLongerThanALeaseEndsNoLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2, registrar.Config{Lease: short})
	policy := w.live(m("policy"), "p-1")
	dead := m("dead")
	is(t, plugin.Active)(w.register(dead, "d-1")) // it dies with the cores
	other, err := view.Watch(natstest.Context(t), w.b, natstest.Logger(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(other.Close)
	for _, c := range w.cores {
		c.stop()
	}
	<-time.After(short * 5 / 4) // how long there is no core is what is tested
	if got := states(other.Snapshot()); got != "dead:active policy:active" {
		t.Errorf("without a core the registry is %s", got)
	}
	c := w.core(registrar.Config{Lease: short})
	if got := states(c.view.Snapshot()); got != "dead:active policy:active" {
		t.Errorf("the first core finds %s", got)
	}
	c.eventually(t, "policy:active dead:gone")
	if n := policy.again.Load(); n > 0 {
		t.Errorf("the living plugin had to register again %d times", n)
	}
}

func TestALostBucketIsMadeAnewAndPluginsRegisterAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2, registrar.Config{Lease: short})
	a, b := w.live(m("a"), "a-1"), w.live(m("b", needs("a")), "b-1")
	if err := w.b.JetStream().DeleteStream(natstest.Context(t), "KV_plugins"); err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, "both to register again", func() bool { return a.again.Load() > 0 && b.again.Load() > 0 })
	for _, c := range w.cores {
		c.eventually(t, "a:active b:active")
	}
}

func TestASuspensionByCoreIsLiftedByANewInstance(t *testing.T) {
	w := newWorld(t, 2, steady)
	a, b := m("a", offers("x")), m("b", needs("a"))
	is(t, plugin.Active)(w.register(a, "a-1"))
	is(t, plugin.Active)(w.register(b, "b-1"))
	ctx := natstest.Context(t)
	if changed, err := w.cores[0].Suspend(ctx, "a", "it failed 5 times", view.ByCore); err != nil || !changed {
		t.Fatal(changed, err)
	}
	w.cores[1].eventually(t, "a:suspended b:active") // who depends on it goes on
	if changed, err := w.cores[1].Suspend(ctx, "a", "it failed 6 times", view.ByCore); err != nil || changed {
		t.Errorf("suspended twice: %t %v", changed, err)
	}
	if l := is(t, plugin.Suspended)(w.heartbeat(a, "a-1")); l.Reason != "suspended by core: it failed 5 times" {
		t.Errorf("%+v", l)
	}
	if _, _, ok := w.cores[0].view.Snapshot().Tool("x"); ok {
		t.Error("the tool of a suspended plugin is offered")
	}
	is(t, plugin.Suspended)(w.register(a, "a-1")) // the one that failed
	is(t, plugin.Active)(w.register(a, "a-2"))
	if changed, err := w.cores[0].Resume(ctx, "a"); err != nil || changed {
		t.Errorf("resumed what is not suspended: %t %v", changed, err)
	}
	if _, err := w.cores[0].Suspend(ctx, "nobody", "x", view.ByCore); !errors.Is(err, bus.ErrNotFound) {
		t.Errorf("got %v", err)
	}
}

func TestASuspensionByAnOperatorIsLiftedByAnOperatorAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2, registrar.Config{Keep: time.Millisecond, Lease: short})
	a := m("a")
	one := w.live(a, "a-1")
	if _, err := w.cores[0].Suspend(natstest.Context(t), "a", "it fails", view.ByCore); err != nil {
		t.Fatal(err)
	}
	info, err := w.operate(registrar.PluginRequest{Op: registrar.OpSuspend, Plugin: "a", Reason: "I do not trust it"})
	if err != nil || info.State != plugin.Suspended || info.Suspended.By != view.ByOperator {
		t.Fatalf("%+v %v", info, err)
	}
	if changed, err := w.cores[1].Suspend(natstest.Context(t), "a", "it fails", view.ByCore); err != nil || changed {
		t.Errorf("core overrules an operator: %t %v", changed, err)
	}
	is(t, plugin.Suspended)(w.register(a, "a-2"))
	one.die()
	w.cores[0].eventually(t, "a:gone") // both are silent
	// Neither another version nor time helps.
	is(t, plugin.Suspended)(w.register(m("a", version("2.0.0")), "a-3"))
	// One that leaves later is forgotten, a is not.
	is(t, plugin.Active)(w.register(m("witness"), "w-1"))
	is(t, plugin.Draining)(w.unregister(m("witness"), "w-1", false))
	is(t, plugin.Gone)(w.unregister(m("witness"), "w-1", false))
	w.cores[0].now(t) // knows of both
	w.cores[0].eventually(t, "a:gone")
	l := is(t, plugin.Suspended)(w.register(m("a", version("3.0.0")), "a-4"))
	if l.Reason != "suspended by operator: I do not trust it" {
		t.Errorf("%+v", l)
	}
	info, err = w.operate(registrar.PluginRequest{Op: registrar.OpResume, Plugin: "a"})
	if err != nil || info.State != plugin.Active || info.Suspended != nil {
		t.Fatalf("%+v %v", info, err)
	}
}

func TestAnOperatorUnloadsAPlugin(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2, registrar.Config{Lease: short})
	a := m("a", offers("x"))
	one, two := w.live(a, "a-1"), w.live(a, "a-2")
	dep := w.live(m("b", needs("a")), "b-1")
	info, err := w.operate(registrar.PluginRequest{Op: registrar.OpUnload, Plugin: "a", Force: true, Reason: "it is old"})
	if err != nil || info.State != plugin.Draining || info.Reason != "it is old" || !info.Instances[0].Draining {
		t.Fatalf("%+v %v", info, err)
	}
	one.await(plugin.Draining)
	two.await(plugin.Draining)
	dep.await(plugin.Waiting)
	one.die()
	is(t, plugin.Gone)(w.unregister(a, "a-1", false))
	two.die() // it is killed instead
	// Either may be asked.
	for _, c := range w.cores {
		c.eventually(t, "b:waiting a:gone")
	}
	// An unloaded instance is refused whatever it asks; a new one is admitted.
	if l := is(t, plugin.Gone)(w.heartbeat(a, "a-2")); l.Reason != "it is old" {
		t.Errorf("%+v", l)
	}
	is(t, plugin.Gone)(w.register(a, "a-1"))
	is(t, plugin.Active)(w.register(a, "a-3"))
	if _, err := w.operate(registrar.PluginRequest{Op: registrar.OpResume, Plugin: "a"}); err != nil {
		t.Fatal(err)
	}
	is(t, plugin.Active)(w.register(a, "a-1"))
}

func TestAReplicaThatDrainsForTooLongIsGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, registrar.Config{Lease: short, Drain: short / 4})
	a := w.live(m("a"), "a-1")
	if _, err := w.operate(registrar.PluginRequest{Op: registrar.OpUnload, Plugin: "a"}); err != nil {
		t.Fatal(err)
	}
	a.await(plugin.Gone)
	w.cores[0].eventually(t, "a:gone")
}

func TestAReplicaThatDrainedByItsOwnWillMayComeBack(t *testing.T) {
	w := newWorld(t, 1, steady)
	a := m("a")
	is(t, plugin.Active)(w.register(a, "fixed"))
	is(t, plugin.Draining)(w.unregister(a, "fixed", false))
	is(t, plugin.Active)(w.register(a, "fixed")) // it was killed and started again
	is(t, plugin.Draining)(w.unregister(a, "fixed", false))
	is(t, plugin.Gone)(w.unregister(a, "fixed", false))
	is(t, plugin.Active)(w.register(a, "fixed"))
}

func TestOperatorsSeeAllPlugins(t *testing.T) {
	w := newWorld(t, 2, steady)
	var infos []registrar.PluginInfo
	all := subject.Service(registrar.ServiceName, coreapi.VerbPlugins)
	if err := w.ask(all, nil, &infos); err != nil || infos == nil || len(infos) != 0 {
		t.Fatalf("%v %v, want an empty list", infos, err)
	}
	is(t, plugin.Waiting)(w.register(m("b", needs("a"), offers("b:x")), "b-1"))
	is(t, plugin.Active)(w.register(m("z", func(m *plugin.Manifest) { m.Priority = 5; m.Description = "first" }), "z-1"))
	is(t, plugin.Active)(w.register(m("g"), "g-1"))
	is(t, plugin.Draining)(w.unregister(m("g"), "g-1", false))
	is(t, plugin.Gone)(w.unregister(m("g"), "g-1", false))
	w.cores[0].eventually(t, "z:active b:waiting g:gone")
	w.cores[1].eventually(t, "z:active b:waiting g:gone")
	if err := w.ask(all, nil, &infos); err != nil || len(infos) != 3 {
		t.Fatalf("%v %v", infos, err)
	}
	z, b, g := infos[0], infos[1], infos[2]
	if z.Name != "z" || z.Priority != 5 || z.Description != "first" || z.Why != nil || len(z.Instances) != 1 ||
		z.Hash == "" || z.Registered.IsZero() {
		t.Errorf("%+v", z)
	}
	if b.State != plugin.Waiting || b.Reason == "" || b.Tools[0].Name != "b:x" ||
		!slices.Equal(b.Why, []string{"after z: its priority is higher, 5 > 0"}) {
		t.Errorf("%+v", b)
	}
	if g.State != plugin.Gone || g.Instances == nil || len(g.Instances) != 0 {
		t.Errorf("%+v", g)
	}
	for _, q := range []registrar.PluginRequest{
		{Op: registrar.OpSuspend, Plugin: "nobody"},
		{Op: registrar.OpResume, Plugin: "nobody"},
		{Op: registrar.OpUnload, Plugin: "nobody"},
	} {
		if _, err := w.operate(q); !errors.Is(err, bus.ErrNotFound) {
			t.Errorf("%s of nobody: %v", q.Op, err)
		}
	}
	for _, q := range []any{
		registrar.PluginRequest{Op: "love", Plugin: "a"},
		registrar.PluginRequest{Op: registrar.OpResume, Plugin: "a.b"},
		map[string]any{"opp": 1},
	} {
		if err := w.ask(operate, q, &registrar.PluginInfo{}); !errors.Is(err, bus.ErrInvalidArgument) {
			t.Errorf("%v: %v", q, err)
		}
	}
}

func TestAPluginThatIsGoneIsForgottenInTheEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2, registrar.Config{Lease: short, Keep: time.Millisecond, Marker: time.Millisecond})
	is(t, plugin.Active)(w.register(m("last"), "l-1")) // its manifest is the fence in the end
	for i := range 10 {
		a := m(fmt.Sprintf("p%d", i))
		is(t, plugin.Active)(w.register(a, "i"))
		is(t, plugin.Draining)(w.unregister(a, "i", false))
		is(t, plugin.Gone)(w.unregister(a, "i", false))
	}
	for _, c := range w.cores {
		c.eventually(t, "")
	}
	s, err := w.b.JetStream().Stream(natstest.Context(t), "KV_plugins")
	if err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, "what is left of them to go, but for the fence", func() bool {
		info, err := s.Info(natstest.Context(t))
		return err == nil && info.State.Msgs == 1
	})
	is(t, plugin.Active)(w.register(m("new"), "n-1")) // the fence still holds
}
