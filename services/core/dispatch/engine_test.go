package dispatch_test

import (
	"encoding/json"
	"sync"
	"testing"

	"skandha.dev/pkg/hook"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/core/dispatch"
)

var _ decide.Hooks = (*dispatch.Engine)(nil)

var envelope = hook.Envelope{Point: hook.BeforeAct, Agent: "a", Session: "s", Step: "t1-p1-c0", Data: json.RawMessage(`{"call":"t1-p1-c0"}`)}

// engines without a plugin at before_act: nothing was ever registered, and
// something was, elsewhere.
func idle() map[string]*dispatch.Engine {
	elsewhere := &dispatch.Engine{}
	elsewhere.Set(map[hook.Point]dispatch.Runner{hook.AfterSense: func(hook.Envelope) hook.Decision { panic("asked") }})
	cleared := &dispatch.Engine{}
	cleared.Set(map[hook.Point]dispatch.Runner{hook.BeforeAct: func(hook.Envelope) hook.Decision { panic("asked") }})
	cleared.Set(nil)
	return map[string]*dispatch.Engine{"new": {}, "registered elsewhere": elsewhere, "cleared": cleared}
}

// Budget B3: a hook point without plugins costs nothing that leaves the process,
// nor any memory.
func TestAPointWithoutPluginsAllocatesNothing(t *testing.T) {
	for name, e := range idle() {
		t.Run(name, func(t *testing.T) {
			if n := testing.AllocsPerRun(1000, func() {
				if e.Any(hook.BeforeAct) {
					t.Fatal("a plugin is there")
				}
				if d := e.Run(envelope); d.Verb != hook.Continue || d.Verdicts != nil {
					t.Fatalf("%+v", d)
				}
			}); n != 0 {
				t.Fatalf("%g allocations", n)
			}
		})
	}
}

func TestTheRunnerOfThePointIsAsked(t *testing.T) {
	var e dispatch.Engine
	points := map[hook.Point]dispatch.Runner{
		hook.BeforeAct: func(env hook.Envelope) hook.Decision {
			return hook.Decision{Verb: hook.DenyVerb, Reason: env.Step}
		},
		hook.AfterAct: nil, // no plugin
	}
	e.Set(points)
	delete(points, hook.BeforeAct) // the engine keeps its own
	if d := e.Run(envelope); d.Verb != hook.DenyVerb || d.Reason != envelope.Step {
		t.Fatalf("%+v", d)
	}
	if !e.Any(hook.BeforeAct) || e.Any(hook.AfterAct) || e.Any(hook.BeforeSense) {
		t.Fatal("Any is wrong")
	}
	if d := e.Run(hook.Envelope{Point: hook.AfterAct}); d.Verb != hook.Continue {
		t.Fatalf("%+v", d)
	}
}

// Registering while hooks run: every run sees one whole table.
func TestSetWhileRunning(t *testing.T) {
	var e dispatch.Engine
	both := func(v hook.Verb) map[hook.Point]dispatch.Runner {
		run := func(hook.Envelope) hook.Decision { return hook.Decision{Verb: v} }
		return map[hook.Point]dispatch.Runner{hook.BeforeAct: run, hook.AfterAct: run}
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 2000 {
				switch v := e.Run(envelope).Verb; v {
				case hook.Continue, hook.DenyVerb, hook.Confirm:
				default:
					t.Errorf("verb %q", v)
				}
			}
		})
	}
	for range 500 {
		e.Set(both(hook.DenyVerb))
		e.Set(both(hook.Confirm))
		e.Set(nil)
	}
	wg.Wait()
}

func BenchmarkNoHook(b *testing.B) {
	for name, e := range idle() {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if e.Any(hook.BeforeAct) {
					b.Fatal("a plugin is there")
				}
			}
		})
	}
}
