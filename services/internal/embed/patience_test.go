package embed_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"skandha.dev/services/internal/embed"
)

// However many embeddings are waited for, all waits together are as long as the patience.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, began := embed.NewPatience(3*time.Second), time.Now()
		for i, want := range []time.Duration{2 * time.Second, time.Second, 0, 0} {
			at := time.Now()
			p.Within(t.Context(), 2*time.Second, func(ctx context.Context) { <-ctx.Done() })
			if got := time.Since(at); got != want {
				t.Errorf("wait %d took %s, want %s", i+1, got, want)
			}
		}
		if got := time.Since(began); got != 3*time.Second {
			t.Errorf("all waits took %s, want 3s", got)
		}
	})
}
