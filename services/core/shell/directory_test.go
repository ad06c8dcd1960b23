package shell

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/executor"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/coreapi"
)

// A provider that a running provider service adds or drops, because a plugin came or
// went, is known from the next announcement.
func TestProvidersOfAKnownInstanceChange(t *testing.T) {
	d := newDirectory(slog.New(slog.DiscardHandler))
	announce := func(names ...string) {
		a := executor.Announcement{Instance: "provider-1", Kind: subject.Provider, Service: "provider"}
		for _, n := range names {
			a.Providers = append(a.Providers, provider.Info{Name: n})
		}
		b, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		d.announced(&nats.Msg{Subject: subject.Announce(a.Kind, a.Instance), Data: b})
	}
	has := func(name string, want bool) {
		t.Helper()
		d.mu.Lock()
		defer d.mu.Unlock()
		if _, gone := d.lostModel[name]; d.models[name] != want || want && gone {
			t.Errorf("%s is offered: %t, want %t", name, d.models[name], want)
		}
	}
	announce("offline")
	announce("offline", "late")
	has("late", true)
	announce("offline")
	has("late", false)
	has("offline", true)
}

// Many sessions in trouble do not flood the log: those beyond the list count as one.
func TestTroublesBeyondTheListAreLoggedOnce(t *testing.T) {
	var all troubles
	logged := 0
	for range 3 {
		for i := range maxTroubles + 50 {
			if all.note(subject.Ref{Agent: "a", Session: subject.Session(fmt.Sprint("s", i))}, coreapi.TroubleNewer, "new") {
				logged++
			}
		}
	}
	if logged != maxTroubles+1 {
		t.Errorf("%d are logged, want %d", logged, maxTroubles+1)
	}
	if !all.note(subject.Ref{}, coreapi.TroubleDamaged, "the log itself") || len(all.list()) != maxTroubles+1 {
		t.Error("the log itself must be listed, however many sessions are in trouble")
	}
}
