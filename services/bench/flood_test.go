package bench

import "testing"

// BenchmarkFlood is B6 without its raw side.
func BenchmarkFlood(b *testing.B) {
	for _, m := range modes {
		b.Run(string(m.sync), func(b *testing.B) {
			err := withRig(b.Context(), Options{Dir: b.TempDir()}, m.sync, func(r *rig) error {
				ours, err := r.talkers(b.Context(), sessions)
				if err != nil {
					return err
				}
				each := max(b.N/sessions, 1)
				b.ResetTimer()
				_, err = perSecond(each, func(i int) error { return ours[i].turn(b.Context()) })
				return err
			})
			if err != nil {
				b.Fatal(err)
			}
		})
	}
}
