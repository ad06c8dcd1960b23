package directory

import (
	"log/slog"
	"testing"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/executor"
)

// lender is a directory of core a with one provider of 8 slots, for which sessions of
// core a and of core b wait.
func lender(t *testing.T, a, b int) (d *Directory, n Need, busy func(int)) {
	d = New(slog.New(slog.DiscardHandler))
	n = Need{Kind: subject.Provider}
	busy = func(slots int) {
		announce(t, d, executor.Announcement{
			Instance: "provider-1", Kind: subject.Provider, Service: "provider", Providers: []provider.Info{{Name: "one"}},
			Pools: []executor.Pool{{Name: executor.DefaultPool, Slots: 8, Busy: slots}},
		})
	}
	busy(0)
	d.Share("a", []bus.Beacon{
		{Instance: "a", Waiting: []bus.Waiting{{Kind: subject.Provider, Sessions: a}}},
		{Instance: "b", Waiting: []bus.Waiting{{Kind: subject.Provider, Sessions: b}}},
	})
	return d, n, busy
}

// turn counts the use of slots as at one turn, and returns how many this core may use.
func (d *Directory) turn(n Need) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.countUse()
	return d.left(n) + d.reserved["provider-1"][executor.DefaultPool]
}

// Slots that another core claims and does not use are lent, until it uses them.
func TestAnUnusedShareIsLent(t *testing.T) {
	d, n, busy := lender(t, 10, 1_000_000)
	for range lendAfter - 1 {
		if may := d.turn(n); may > 1 {
			t.Fatalf("%d slots are lent too early", may)
		}
	}
	if may := d.turn(n); may != 8 {
		t.Fatalf("this core may use %d of 8 unused slots", may)
	}
	d.add("provider-1", executor.DefaultPool, 8)
	busy(8)
	d.add("provider-1", executor.DefaultPool, -8) // its attempts end; the provider has not said so yet
	if may := d.turn(n); may != 8 {
		t.Errorf("this core's own attempts count as the other's: it may use %d slots", may)
	}
	busy(0)
	d.turn(n)
	busy(3)
	if may := d.turn(n); may != 5 {
		t.Errorf("the other core uses 3 of 8 slots, and this one may use %d", may)
	}
}

// A core that uses its share keeps it: sessions are served in proportion.
func TestAUsedShareIsNotLent(t *testing.T) {
	d, n, busy := lender(t, 1, 240)
	busy(8)
	for range 2 * lendAfter {
		if may := d.turn(n); may > 1 {
			t.Fatalf("one of 241 sessions may use %d of 8 slots", may)
		}
	}
}

// However much a core claims, the others keep a share.
func TestAClaimCountsForSoMuch(t *testing.T) {
	for _, c := range []struct{ a, b, wantA, wantB int }{
		{1, 240, 1, 240},
		{1, 1_000_000, 1, maxRatio},
		{100, 1_000_000, 100, maxSessions},
	} {
		d, n, _ := lender(t, c.a, c.b)
		of, most := d.claimed(n)
		if a, b := min(of["a"], most), min(of["b"], most); a != c.wantA || b != c.wantB {
			t.Errorf("%d and %d sessions count as %d and %d, want %d and %d", c.a, c.b, a, b, c.wantA, c.wantB)
		}
	}
}
