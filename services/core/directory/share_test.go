package directory

import (
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
)

// At every moment the parts of all cores add up to the slots, and over time each core's
// part is proportional.
func TestPartsAreTheWhole(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		total, waiting, all := 1+r.IntN(20), make([]int, 2+r.IntN(4)), 0
		for i := range waiting {
			waiting[i] = 1 + r.IntN(50)
			all += waiting[i]
		}
		had := make([]int, len(waiting))
		const turns = 1000
		for turn := range turns {
			at, before, sum := time.Unix(int64(1_700_000_000+turn), 0), 0, 0
			for i, n := range waiting {
				p := part(total, before, n, all, at)
				if p < 0 || p > total {
					t.Fatalf("a part is %d of %d", p, total)
				}
				had[i] += p
				sum += p
				before += n
			}
			if sum != total {
				t.Fatalf("the parts are %d of %d slots", sum, total)
			}
		}
		for i, n := range waiting {
			want := float64(total) * float64(n) / float64(all)
			if got := float64(had[i]) / turns; got < want-0.05 || got > want+0.05 {
				t.Errorf("%d of %d sessions have %.3f of %d slots, want %.3f", n, all, got, total, want)
			}
		}
	}
}

// A core sends a beacon at once if many more sessions wait, but not for a few, and not if
// it is the only core.
func TestABurstIsSaidAtOnce(t *testing.T) {
	d := New(slog.New(slog.DiscardHandler))
	crowd := func(n int) bool {
		for range n {
			d.Wait(NewClaimant(func() {}), []Need{{Kind: subject.Provider}}, false)
		}
		select {
		case <-d.moved:
			return true
		default:
			return false
		}
	}
	if crowd(50) {
		t.Error("a single core sent a beacon at once")
	}
	d.Share("a", []bus.Beacon{{Instance: "a"}, {Instance: "b"}})
	for _, step := range []struct {
		more int
		want bool
	}{{1, true}, {4, false}, {130, true}} {
		if got := crowd(step.more); got != step.want {
			t.Errorf("%d more sessions wait: sent at once is %t", step.more, got)
		}
		d.Demand()
	}
	for _, s := range d.waiting.all() {
		d.Leave(s)
	}
	if !crowd(0) {
		t.Error("no beacon was sent although no session waits any more")
	}
}
