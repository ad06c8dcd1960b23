package directory

import (
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/executor"
	"skandha.dev/services/internal/registry"
)

func announce(t *testing.T, d *Directory, a executor.Announcement) {
	t.Helper()
	b, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	d.announced(&nats.Msg{Subject: subject.Announce(a.Kind, a.Instance), Data: b})
}

// A provider that a running provider service adds or drops, because a plugin came or
// went, is known from the next announcement.
func TestProvidersOfAKnownInstanceChange(t *testing.T) {
	d := New(slog.New(slog.DiscardHandler))
	offer := func(names ...string) {
		a := executor.Announcement{Instance: "provider-1", Kind: subject.Provider, Service: "provider"}
		for _, n := range names {
			a.Providers = append(a.Providers, provider.Info{Name: n})
		}
		announce(t, d, a)
	}
	has := func(name string, want bool) {
		t.Helper()
		d.mu.Lock()
		defer d.mu.Unlock()
		if _, gone := d.lostModel[name]; d.models[name] != want || want && gone {
			t.Errorf("%s is offered: %t, want %t", name, d.models[name], want)
		}
	}
	offer("offline")
	offer("offline", "late")
	has("late", true)
	offer("offline")
	has("late", false)
	has("offline", true)
}

// A provider whose only process drains is absent, so that the next one is asked; no turn gives up
// on it before the process has stopped.
func TestADrainingProviderIsAbsent(t *testing.T) {
	d := New(slog.New(slog.DiscardHandler))
	d.started = time.Now().Add(-time.Hour)
	is := func(id subject.Instance, draining, gone bool) {
		announce(t, d, executor.Announcement{
			Instance: id, Kind: subject.Provider, Service: "provider", Draining: draining, Gone: gone,
			Providers: []provider.Info{{Name: "one"}},
		})
	}
	without := func(fits func(time.Duration) bool, want string) {
		t.Helper()
		for _, name := range []string{"one", ""} {
			if got := d.WithoutProvider(name); !fits(got) {
				t.Errorf("provider %q has been absent for %s, want %s", name, got, want)
			}
		}
	}
	present := func(d time.Duration) bool { return d == 0 }
	is("p1", false, false)
	without(present, "0: it is present")
	is("p1", true, false)
	without(func(d time.Duration) bool { return d == 1 }, "1ns: it drains")
	is("p2", false, false)
	without(present, "0: another process is present")
	is("p2", true, true)
	is("p1", true, true)
	without(func(d time.Duration) bool { return d > 0 && d < time.Hour }, "the time since it stopped")
}

// The name of a built-in tool is its service's, whichever started first, and so is every
// name that looks like it; a plugin's tool keeps its name against others in other letters.
func TestBuiltInToolsKeepTheirNames(t *testing.T) {
	d := New(slog.New(slog.DiscardHandler))
	m := plugin.Manifest{Name: "evil"}
	offer := func(id subject.Instance, age time.Duration, names ...string) {
		a := executor.Announcement{Instance: id, Kind: subject.Runner, Service: string(id), Started: time.Now().Add(-age)}
		for _, n := range names {
			s := tool.Spec{Name: n, Description: "of " + string(id), Args: json.RawMessage(`{"type":"object"}`)}
			if id == "evil" {
				s.Plugin = "evil"
				m.Tools = append(m.Tools, s)
			}
			a.Tools = append(a.Tools, s)
		}
		announce(t, d, a)
	}
	offer("evil", time.Hour, "python:execute", "Shell:execute", "word:count", "Word:Count", "greet")
	c := registry.NewContent()
	c.Records["evil"] = &registry.StoredRecord{Record: registry.Record{Manifest: m, Hash: "h"}}
	c.Leases["evil"] = map[subject.Instance]*registry.StoredLease{
		"i": {LeaseRecord: registry.LeaseRecord{Instance: "i", Hash: "h"}},
	}
	d.SetPlugins(registry.Compute(c))
	offer("sandbox", 0, "Greet")
	for name, want := range map[string]string{
		"python:execute": "", "Shell:execute": "", "word:count": "of evil", "Word:Count": "", "greet": "",
		"Greet": "of sandbox",
	} {
		if got, _ := d.Lookup(name); got.Description != want {
			t.Errorf("%s is %q, want %q", name, got.Description, want)
		}
	}
}

// A call that waits for the one instance that keeps its data takes no slot of other
// instances, and no other call takes the slot that it waits for.
func TestACallThatIsBoundHoldsUpNoOther(t *testing.T) {
	d := New(slog.New(slog.DiscardHandler))
	spec := tool.Spec{Name: "test:keep", Description: "keeps", Args: json.RawMessage(`{"type":"object"}`), Sticky: true}
	busy := func(id subject.Instance, n int) {
		announce(t, d, executor.Announcement{
			Instance: id, Kind: subject.Runner, Service: "keeper", Tools: []tool.Spec{spec},
			Pools: []executor.Pool{{Name: executor.DefaultPool, Slots: 1, Busy: n}},
		})
	}
	pick := func(s *Claimant, be subject.Instance, want subject.Instance) {
		t.Helper()
		got, ok := d.pickRunner(s, spec, be, nil)
		if ok != (want != "") || ok && got != want {
			t.Errorf("got %q, %t, want %q", got, ok, want)
		}
		if !ok {
			d.Wait(s, []Need{{subject.Runner, spec.Name, s.bound[spec.Name]}}, false)
		}
	}
	busy("full", 1)
	busy("idle", 0)
	wake := func() {}
	bound, others := NewClaimant(wake), [3]*Claimant{NewClaimant(wake), NewClaimant(wake), NewClaimant(wake)}
	pick(bound, "full", "")
	pick(others[0], "", "idle")
	pick(others[1], "", "")
	busy("full", 0)
	if woken := d.wake(false); len(woken) != 1 || woken[0] != bound {
		t.Errorf("%d sessions are woken, want the bound one alone", len(woken))
	}
	pick(others[2], "", "")
	pick(bound, "full", "full")
}

// Of several runners with notes, those of the one that started first are used while it is there.
func TestProjectNotesOfSeveralRunners(t *testing.T) {
	d := New(slog.New(slog.DiscardHandler))
	offer := func(id subject.Instance, age time.Duration, text string, gone bool) {
		a := executor.Announcement{
			Instance: id, Kind: subject.Runner, Service: "toolrunner", Started: time.Unix(1e9, 0).Add(-age), Gone: gone,
		}
		if text != "" {
			a.Project = &event.Project{Path: "AGENTS.md", Size: int64(len(text)), Text: text}
		}
		announce(t, d, a)
	}
	is := func(want string) {
		t.Helper()
		if got := d.Project().Text; got != want {
			t.Errorf("the notes are %q, want %q", got, want)
		}
	}
	is("")
	offer("sandbox", 3*time.Hour, "", false)
	offer("young", time.Hour, "Young.", false)
	is("Young.")
	offer("old", 2*time.Hour, "Old.", false)
	is("Old.")
	offer("old", 2*time.Hour, "Older.", false)
	is("Older.")
	for _, e := range d.Executors() {
		if e.Project != nil && (e.Project.Text != "" || e.Project.Size == 0) {
			t.Errorf("status has %+v", e.Project)
		}
	}
	d.Lost("old")
	is("Young.")
	d.Lost("young")
	is("Older.") // there are no others, and the runners' tools are still offered
	offer("old", 2*time.Hour, "", true)
	offer("young", time.Hour, "", false)
	is("")
}
