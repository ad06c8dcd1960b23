package registrar_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/registrar"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/test/natstest"
)

func TestAPluginRegistersAndLeaves(t *testing.T) {
	w := newWorld(t, 1, registrar.Config{}) // whose lease is the default
	a := m("a", offers("a:one"))
	l := is(t, plugin.Active)(w.register(a, "a-1"))
	if l.Plugin != "a" || l.Instance != "a-1" || l.TTLMS != 10_000 || l.Hash != a.Hash() || l.Reason != "" {
		t.Errorf("%+v", l)
	}
	s := w.cores[0].view.Snapshot()
	if p, _, ok := s.Tool("a:one"); !ok || p.Name() != "a" || p.Manifest.Instance != "" || p.Registered.IsZero() {
		t.Errorf("%+v", p)
	}
	is(t, plugin.Active)(w.register(a, "a-1")) // a lost answer does no harm
	is(t, plugin.Active)(w.heartbeat(a, "a-1"))
	if l := is(t, plugin.Draining)(w.unregister(a, "a-1", false)); l.Reason != "test" {
		t.Errorf("%+v", l)
	}
	if _, _, ok := w.cores[0].view.Snapshot().Tool("a:one"); ok {
		t.Error("a plugin that drains gets new calls")
	}
	is(t, plugin.Draining)(w.heartbeat(a, "a-1"))
	is(t, plugin.Gone)(w.unregister(a, "a-1", false))
	is(t, plugin.Gone)(w.unregister(a, "a-1", false))
	fails(t, bus.CodeNotFound, "register again")(w.heartbeat(a, "a-1"))
	w.cores[0].eventually(t, "a:gone")
	is(t, plugin.Active)(w.register(a, "a-2"))
}

func TestARefusalListsAllThatIsWrong(t *testing.T) {
	w := newWorld(t, 1, registrar.Config{Lease: steady.Lease, Owner: func(k registrar.Kind, name string) (string, bool) {
		return "toolrunner", k == registrar.KindTool && name == "file_system:read_file"
	}})
	other := m("other", offers("taken"), func(m *plugin.Manifest) {
		m.Providers = []provider.Info{{Name: "llama"}}
		m.Listeners = []plugin.Listener{{Name: "mail"}}
		m.Guides = []string{"sage"}
		m.RunAfter = []subject.Plugin{"a"}
	})
	is(t, plugin.Active)(w.register(other, "o-1"))
	a := m("a", offers("a:fine", "taken", "file_system:read_file", "a:bad"), version("one"), func(m *plugin.Manifest) {
		m.RunAfter = []subject.Plugin{"x", "other"}
		m.Hooks = []plugin.Hook{{Point: "before_lunch"}, {Point: hook.BeforeAct, DeadlineMS: -1}}
		m.Tools[3].Args = json.RawMessage(`{"type":"object","properties":{"x":{"type":"strnig"}}}`)
		m.Providers = []provider.Info{{Name: "llama"}}
		m.Listeners = []plugin.Listener{{Name: "core"}}
		m.Sensors = []plugin.Listener{{Name: "mail"}}
		m.Guides = []string{"fool", "sage"}
	})
	fails(t, bus.CodeInvalidArgument,
		"version: ", "hooks[0].point: ", "hooks[1].deadline_ms: ", "listeners[0].name: ",
		"tools[1].name: \"taken\" is a tool of plugin other", "tools[2].name: \"file_system:read_file\" is reserved",
		"tools[3].args: ", "/properties/x/type",
		"providers[0].name: \"llama\" is a provider of plugin other",
		"sensors[0].name: \"mail\" is a listener of plugin other",
		"guides[1]: \"sage\" is a guide of plugin other",
		"run_after[1]: the order has the cycle a -> other -> a (run_after of other names a, run_after of a names other)",
	)(w.register(a, "a-1"))
	if got := states(w.cores[0].view.Snapshot()); got != "other:active" {
		t.Errorf("a manifest that is refused leaves %s", got)
	}
}

func TestEachReasonToRefuse(t *testing.T) {
	w := newWorld(t, 1, registrar.Config{Lease: steady.Lease, Owner: func(k registrar.Kind, name string) (string, bool) {
		return "core", k == registrar.KindPlugin && name == "runner-1"
	}})
	is(t, plugin.Active)(w.register(m("b", offers("b:x")), "b-1"))
	for about, c := range map[string]struct {
		m    plugin.Manifest
		code bus.Code
		says string
	}{
		"core's name": {m("core"), bus.CodeInvalidArgument, `name: "core" is reserved`},
		"a name of people": {
			plugin.Manifest{Name: "a", Version: "1.0.0", Listeners: []plugin.Listener{{Name: "ui-owner"}}},
			bus.CodeInvalidArgument, `listeners[0].name: "ui-owner" is reserved`,
		},
		"an executor's name":     {m("runner-1"), bus.CodeInvalidArgument, `name: "runner-1" is a built-in plugin, of core`},
		"itself as a dependency": {m("a", needs("a")), bus.CodeInvalidArgument, "dependencies[0]: is the plugin itself"},
		"a tool twice":           {m("a", offers("x", "x")), bus.CodeInvalidArgument, `tools[1].name: duplicate "x"`},
		"a built-in tool, whether or not its service is up": {
			m("a", offers("Python:execute")), bus.CodeInvalidArgument, `tools[0].name: "Python:execute" is reserved`,
		},
		"a tool of another in other letters": {
			m("a", offers("B:x")), bus.CodeConflict, `tools[0].name: "B:x" is a tool of plugin b`,
		},
		"a tool that differs from another in case alone": {
			m("a", offers("x", "X")), bus.CodeInvalidArgument, `tools[1].name: duplicate "X"`,
		},
		"a tool of another": {
			m("a", offers("b:x")), bus.CodeConflict, `tools[0].name: "b:x" is a tool of plugin b`,
		},
		"another version": {
			m("b", version("2.0.0")), bus.CodeConflict,
			"version: plugin b 1.0.0 is registered with another manifest (this one is 2.0.0)",
		},
		"the same version, changed": {
			m("b", offers("b:y")), bus.CodeConflict, "unload it first",
		},
	} {
		t.Run(about, func(t *testing.T) { fails(t, c.code, c.says)(w.register(c.m, "i-1")) })
	}
	_, err := w.verb(subject.Register, "a", m("b"))
	fails(t, bus.CodeInvalidArgument, `name: is "b", but the subject belongs to plugin a`)(plugin.Lease{}, err)
	for about, body := range map[string]any{
		"no object":        []int{1},
		"an unknown field": map[string]any{"name": "a", "version": "1.0.0", "instance": "i", "hoks": 1},
	} {
		_, err := w.verb(subject.Register, "a", body)
		if bus.CodeOf(err) != bus.CodeInvalidArgument {
			t.Errorf("%s: %v", about, err)
		}
	}
	for _, bad := range []any{
		map[string]any{"instance": "a.b", "hash": "x"}, map[string]any{"instance": "a", "hsh": "x"}, 7,
	} {
		if _, err := w.verb(subject.Heartbeat, "b", bad); bus.CodeOf(err) != bus.CodeInvalidArgument {
			t.Errorf("heartbeat %v: %v", bad, err)
		}
		if _, err := w.verb(subject.Unregister, "b", bad); bus.CodeOf(err) != bus.CodeInvalidArgument {
			t.Errorf("unregister %v: %v", bad, err)
		}
	}
	if got := states(w.cores[0].view.Snapshot()); got != "b:active" {
		t.Errorf("got %s", got)
	}
}

func TestNamesAreFreeWhenTheirOwnerHasGone(t *testing.T) {
	w := newWorld(t, 2, steady)
	a, b := m("a", offers("x")), m("b", offers("x"))
	is(t, plugin.Active)(w.register(a, "a-1"))
	fails(t, bus.CodeConflict, "of plugin a")(w.register(b, "b-1"))
	is(t, plugin.Draining)(w.unregister(a, "a-1", false))
	fails(t, bus.CodeConflict, "of plugin a")(w.register(b, "b-1"))
	is(t, plugin.Gone)(w.unregister(a, "a-1", false))
	is(t, plugin.Active)(w.register(b, "b-1"))
	fails(t, bus.CodeConflict, "of plugin b")(w.register(a, "a-2"))
	// Nor may a heartbeat bring the old owner back.
	fails(t, bus.CodeNotFound)(w.heartbeat(a, "a-1"))
	// Another version of a plugin that has gone replaces it.
	is(t, plugin.Active)(w.register(m("a", version("2.0.0")), "a-3"))
}

func TestReplicasShareAManifest(t *testing.T) {
	w := newWorld(t, 2, steady)
	a := m("a")
	for i := range 5 {
		is(t, plugin.Active)(w.register(a, subject.Instance(fmt.Sprintf("a-%d", i))))
	}
	p := w.cores[0].now(t).Get("a")
	if len(p.Instances) != 5 {
		t.Fatalf("%d replicas", len(p.Instances))
	}
	is(t, plugin.Draining)(w.unregister(a, "a-0", false))
	is(t, plugin.Active)(w.heartbeat(a, "a-1"))
	is(t, plugin.Gone)(w.unregister(a, "a-0", false))
	for _, c := range w.cores {
		c.eventually(t, "a:active")
	}
}

// Whatever the timing, of two manifests that do not go together one is admitted,
// by whichever core.
func TestRacingRegistrarsAdmitOneOfTwo(t *testing.T) {
	w := newWorld(t, 3, steady)
	rounds := 40
	if testing.Short() {
		rounds = 10
	}
	cycle := func(name, other string) plugin.Manifest {
		return m(name, func(m *plugin.Manifest) { m.RunAfter = []subject.Plugin{subject.Plugin(other)} })
	}
	for round := range rounds {
		var pair [3]plugin.Manifest
		switch round % 3 {
		case 0: // one tool
			for i := range pair {
				pair[i] = m(fmt.Sprintf("t%d", i), offers("same"))
			}
		case 1: // one name
			for i := range pair {
				pair[i] = m("same", version(fmt.Sprintf("1.0.%d", i)))
			}
		case 2: // a cycle: any two go together, three do not
			pair = [3]plugin.Manifest{cycle("x", "y"), cycle("y", "z"), cycle("z", "x")}
		}
		// The clients' requests go to the three cores by chance.
		var errs [3]error
		var g sync.WaitGroup
		for i := range pair {
			g.Go(func() { _, errs[i] = w.register(pair[i], subject.Instance(fmt.Sprintf("r%d-%d", round, i))) })
		}
		g.Wait()
		admitted := 0
		for i, err := range errs {
			switch {
			case err == nil:
				admitted++
			case bus.CodeOf(err) != bus.CodeConflict:
				t.Fatalf("round %d: %d is refused with %v", round, i, err)
			}
		}
		want := 1
		if round%3 == 2 {
			want = 2
		}
		if admitted != want {
			t.Fatalf("round %d: %d are admitted, want %d: %v", round, admitted, want, errs)
		}
		for _, c := range w.cores {
			if err := check(c.view.Snapshot()); err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
		}
		for i, err := range errs {
			if err == nil {
				inst := subject.Instance(fmt.Sprintf("r%d-%d", round, i))
				is(t, plugin.Draining)(w.unregister(pair[i], inst, true))
				is(t, plugin.Gone)(w.unregister(pair[i], inst, true))
			}
		}
	}
	for _, c := range w.cores {
		natstest.Eventually(t, "all to be gone",
			func() bool { return !strings.Contains(states(c.view.Snapshot()), "active") })
	}
}

// A core that dies between a manifest and its lease leaves nothing that stays in
// the way.
func TestAManifestWithoutLeaseIsReleased(t *testing.T) {
	w := newWorld(t, 1, registrar.Config{})
	orphan := m("orphan", offers("x"))
	body, err := json.Marshal(map[string]any{
		"manifest": orphan, "hash": orphan.Hash(), "registered": "2026-01-02T03:04:05Z",
	})
	if err != nil {
		t.Fatal(err)
	}
	bucket := w.b.Bucket(journal.BucketPlugins)
	if _, err := bucket.Put(natstest.Context(t), "manifest.orphan", body, journal.Fence{}); err != nil {
		t.Fatal(err)
	}
	w.cores[0].eventually(t, "orphan:gone")
	is(t, plugin.Active)(w.register(m("a", offers("x")), "a-1"))
	is(t, plugin.Active)(w.register(m("orphan", version("2.0.0")), "o-1"))
}
