package bench

import (
	"context"
	"testing"
)

// brief makes quick runs shorter still: enough to see that there are figures.
func brief(t *testing.T) {
	quick = 100
	t.Cleanup(func() { quick = 10 })
}

// TestEveryRowIsMeasured runs each measurement that needs no second process,
// briefly. It checks that there are figures, not what they are.
func TestEveryRowIsMeasured(t *testing.T) {
	brief(t)
	seen := map[string]bool{}
	ids := []string{"B3", "B4", "B6", "B14", "B15", "B20", "B22"}
	rows, err := Run(t.Context(), Options{Quick: true, Dir: t.TempDir(), Only: ids})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		seen[r.ID] = true
		if r.Ours <= 0 || r.Budget == "" {
			t.Errorf("%+v", r)
		}
		t.Logf("%-4s %-45s %10.3f %10.3f %-8s %6.2f %s %v", r.ID, r.What, r.Ours, r.Raw, r.Unit, r.Ratio, r.Budget, r.OK)
	}
	for _, id := range ids {
		if !seen[id] {
			t.Errorf("no row %s", id)
		}
	}
}

// BenchmarkTurn is B4: ours and the raw turn over the same server.
func BenchmarkTurn(b *testing.B) {
	for _, m := range modes {
		err := withRig(b.Context(), Options{Dir: b.TempDir()}, m.sync, func(r *rig) error {
			ours, raw, err := r.pair(b.Context(), "one")
			if err != nil {
				return err
			}
			for name, f := range map[string]func(context.Context) error{"ours": ours, "raw": raw} {
				b.Run(string(m.sync)+"/"+name, func(b *testing.B) {
					for b.Loop() {
						if err := f(b.Context()); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}
