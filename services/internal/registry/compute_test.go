package registry_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/registry"
)

// world builds the content of a bucket, write by write.
type world struct {
	testing.TB
	c   *registry.Content
	seq uint64
}

func newWorld(t testing.TB) *world { return &world{t, registry.NewContent(), 0} }

func (w *world) write(key string, v any) *world {
	w.Helper()
	w.seq++
	e := journal.Entry{Key: key, Revision: w.seq, Deleted: v == nil}
	if v != nil {
		var err error
		if e.Value, err = json.Marshal(v); err != nil {
			w.Fatal(err)
		}
	}
	if _, err := w.c.Apply(e, time.Now()); err != nil {
		w.Fatal(err)
	}
	return w
}

var born = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func record(m plugin.Manifest, change ...func(*registry.Record)) registry.Record {
	r := registry.Record{Manifest: m, Hash: m.Hash(), Registered: born}
	for _, f := range change {
		f(&r)
	}
	return r
}

func (w *world) manifest(m plugin.Manifest, change ...func(*registry.Record)) *world {
	w.Helper()
	return w.write(subject.ManifestKey(m.Name), record(m, change...))
}

func (w *world) lease(m plugin.Manifest, i subject.Instance) *world {
	w.Helper()
	return w.write(subject.LeaseKey(m.Name, i), registry.LeaseRecord{Instance: i, Hash: m.Hash(), Since: born})
}

// plugin registers one replica.
func (w *world) plugin(m plugin.Manifest, change ...func(*registry.Record)) *world {
	w.Helper()
	return w.manifest(m, change...).lease(m, "i1")
}

func suspended(by registry.By) func(*registry.Record) {
	return func(r *registry.Record) {
		r.Suspended = &registry.SuspendRecord{Suspension: registry.Suspension{By: by, Reason: "it fails", At: born}}
	}
}

func draining(i ...subject.Instance) func(*registry.Record) {
	return func(r *registry.Record) {
		for _, one := range i {
			r.Draining = append(r.Draining, registry.Drain{Instance: one, Reason: "restart", At: born})
		}
	}
}

// states is "name:state" of all plugins, in their order.
func states(s *registry.Snapshot) string {
	var out []string
	for _, p := range s.Plugins() {
		out = append(out, fmt.Sprintf("%s:%s", p.Name(), p.State))
	}
	return strings.Join(out, " ")
}

func TestStatesFollowFromTheContent(t *testing.T) {
	a, b, c := m("a"), m("b", needs("a")), m("c", needs("b"))
	for about, x := range map[string]struct {
		build func(*world)
		want  string
	}{
		"nothing":                           {func(*world) {}, ""},
		"a manifest alone is half a plugin": {func(w *world) { w.manifest(a) }, "a:gone"},
		"so is a lease alone":               {func(w *world) { w.lease(a, "i1") }, ""},
		"both are one":                      {func(w *world) { w.plugin(a) }, "a:active"},
		"a lease of another manifest counts for nothing": {func(w *world) {
			w.manifest(a).lease(m("a", priority(1)), "i1")
		}, "a:gone"},
		"without its lease it is gone": {func(w *world) { w.plugin(a).write("lease.a.i1", nil) }, "a:gone"},
		"a released one with a lease is there": {func(w *world) {
			w.plugin(a, func(r *registry.Record) { r.Released = born })
		}, "a:active"},
		"forgotten": {
			func(w *world) { w.plugin(a).write("lease.a.i1", nil).write("manifest.a", nil) }, "",
		},
		"dependencies are there":  {func(w *world) { w.plugin(a).plugin(b).plugin(c) }, "a:active b:active c:active"},
		"a dependency is missing": {func(w *world) { w.plugin(b) }, "b:waiting"},
		"a dependency waits":      {func(w *world) { w.plugin(b).plugin(c) }, "b:waiting c:waiting"},
		"a dependency is gone":    {func(w *world) { w.manifest(a).plugin(b) }, "b:waiting a:gone"},
		"a dependency drains":     {func(w *world) { w.plugin(a, draining("i1")).plugin(b) }, "a:draining b:waiting"},
		"a suspended dependency is there": {
			func(w *world) { w.plugin(a, suspended(registry.ByCore)).plugin(b) }, "a:suspended b:active",
		},
		"suspended comes before waiting": {func(w *world) { w.plugin(b, suspended(registry.ByOperator)) }, "b:suspended"},
		"a suspended one that is gone":   {func(w *world) { w.manifest(a, suspended(registry.ByOperator)) }, "a:gone"},
		"one of two replicas drains":     {func(w *world) { w.plugin(a, draining("i1")).lease(a, "i2") }, "a:active"},
		"both replicas drain": {
			func(w *world) { w.plugin(a, draining("i1", "i2")).lease(a, "i2") }, "a:draining",
		},
		"gone ones come last, by name": {func(w *world) {
			w.manifest(m("y")).manifest(m("x")).plugin(m("z")).plugin(m("w", after("z")))
		}, "z:active w:active x:gone y:gone"},
		"a cycle that somebody wrote has one plugin wait": {func(w *world) {
			w.plugin(m("a", after("b"))).plugin(m("b", after("a"))).plugin(c).plugin(m("d", needs("a")))
		}, "b:active c:active d:waiting a:waiting"},
	} {
		t.Run(about, func(t *testing.T) {
			w := newWorld(t)
			x.build(w)
			s := registry.Compute(w.c)
			if got := states(s); got != x.want {
				t.Errorf("got %s, want %s", got, x.want)
			}
			if s.Revision != w.seq {
				t.Errorf("revision %d after %d writes", s.Revision, w.seq)
			}
			for _, p := range s.Plugins() {
				if has := p.Reason != ""; has != (p.State == plugin.Waiting || p.State == plugin.Suspended ||
					p.State == plugin.Draining) {
					t.Errorf("%s is %s with the reason %q", p.Name(), p.State, p.Reason)
				}
				if s.Get(p.Name()) != p || s.Active(p.Name()) != (p.State == plugin.Active) {
					t.Errorf("%s is looked up as %v", p.Name(), s.Get(p.Name()))
				}
			}
		})
	}
}

func TestReasonsAndReplicas(t *testing.T) {
	b := m("b", needs("a", "x"))
	s := registry.Compute(newWorld(t).plugin(m("a"), draining("i1")).plugin(b).lease(b, "i0").
		plugin(m("s"), suspended(registry.ByCore)).c)
	if got, want := s.Get("b").Reason, "plugin a is draining; plugin x is not registered"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := s.Get("s").Reason, "suspended by core: it fails"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if p := s.Get("s"); p.Suspended == nil || p.Suspended.By != registry.ByCore || !p.Suspended.At.Equal(born) ||
		!p.Registered.Equal(born) {
		t.Errorf("%+v", p)
	}
	var got []subject.Instance
	for _, l := range s.Get("b").Instances {
		got = append(got, l.Instance)
	}
	if !slices.Equal(got, []subject.Instance{"i0", "i1"}) {
		t.Errorf("replicas %v", got)
	}
	if l := s.Get("a").Instances[0]; !l.Draining || l.Reason != "restart" || s.Get("a").Reason != "restart" {
		t.Errorf("%+v", l)
	}
	if s.Get("nobody") != nil || s.Active("nobody") {
		t.Error("nobody is there")
	}
}

func TestToolsAreThoseOfActivePlugins(t *testing.T) {
	withTool := func(name string) func(*plugin.Manifest) {
		return func(m *plugin.Manifest) {
			m.Tools = append(m.Tools, tool.Spec{Name: name, Description: name, Args: json.RawMessage(`{"type":"object"}`)})
		}
	}
	a, b := m("a", withTool("a:one"), withTool("a:two")), m("b", withTool("b:one"), needs("x"))
	s := registry.Compute(newWorld(t).plugin(a).plugin(b).plugin(m("s", withTool("s:one")), suspended(registry.ByCore)).c)
	if p, spec, ok := s.Tool("a:two"); !ok || p.Name() != "a" || spec.Description != "a:two" {
		t.Errorf("%v %+v %t", p, spec, ok)
	}
	for _, name := range []string{"b:one", "s:one", "none"} {
		if p, _, ok := s.Tool(name); ok || p != nil {
			t.Errorf("%s is offered by %v", name, p)
		}
	}
}

func TestWhatCannotBeReadIsNotThere(t *testing.T) {
	w := newWorld(t).plugin(m("a")).plugin(m("b"))
	for i, e := range []journal.Entry{
		{Key: "manifest.a", Value: []byte(`{`)},
		{Key: "manifest.b", Value: []byte(`{"manifest":{"name":"a"},"hash":"x"}`)},
		{Key: "manifest.c", Value: []byte(`{"manifest":{"name":"c"}}`)},
		{Key: "lease.a.i9", Value: []byte(`{"instance":"other"}`)},
		{Key: "lease.a.i8", Value: []byte(`[]`)},
		{Key: "manifest"},
		{Key: "x.y"},
		{Key: "lease.a"},
		{Key: "lease.a.b.c"},
		{Key: "manifest.a b"},
	} {
		e.Revision = w.seq + 1 + uint64(i)
		if _, err := w.c.Apply(e, time.Now()); err == nil {
			t.Errorf("%s %s is accepted", e.Key, e.Value)
		}
	}
	if s := registry.Compute(w.c); states(s) != "" || s.Revision != w.seq+10 {
		t.Errorf("%s at %d", states(s), s.Revision)
	}
}

func TestOwnershipEndsWithTheReleaseAndTheLastLease(t *testing.T) {
	a := m("a")
	released := func(r *registry.Record) { r.Released = born }
	for about, x := range map[string]struct {
		build func(*world)
		want  bool
	}{
		"nobody":                          {func(*world) {}, false},
		"its manifest is there":           {func(w *world) { w.manifest(a) }, true},
		"it has a lease":                  {func(w *world) { w.plugin(a) }, true},
		"it is released":                  {func(w *world) { w.manifest(a, released) }, false},
		"a lease came before the release": {func(w *world) { w.plugin(a).manifest(a, released) }, true},
		"and has gone": {
			func(w *world) { w.plugin(a).manifest(a, released).write("lease.a.i1", nil) }, false,
		},
		"a lease of another manifest only": {
			func(w *world) { w.manifest(a, released).lease(m("a", priority(1)), "i") }, false,
		},
	} {
		w := newWorld(t)
		if x.build(w); w.c.Owns("a") != x.want {
			t.Errorf("%s: owned %t", about, !x.want)
		}
	}
}

func TestTheFenceIsTheLastChangeOfAnyManifest(t *testing.T) {
	w := newWorld(t).manifest(m("a")).manifest(m("b")).lease(m("b"), "i1").lease(m("a"), "i1")
	if w.c.ManifestRevision != 2 || w.c.Revision != 4 {
		t.Errorf("%d of %d", w.c.ManifestRevision, w.c.Revision)
	}
	if w.write("manifest.b", nil); w.c.ManifestRevision != 5 {
		t.Errorf("%d after a deletion at 5", w.c.ManifestRevision)
	}
	n := w.c.Clone()
	w.write("lease.a.i1", nil).manifest(m("c"))
	if n.Revision != 5 || len(n.Live("a")) != 1 || n.Records["c"] != nil || len(w.c.Live("a")) != 0 {
		t.Error("a clone changes with the original")
	}
}
