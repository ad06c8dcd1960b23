package embedtest_test

import (
	"math"
	"testing"

	"skandha.dev/services/test/embedtest"
)

func near(a, b []float32) float64 {
	var dot, aa, bb float64
	for i := range a {
		dot, aa, bb = dot+float64(a[i]*b[i]), aa+float64(a[i]*a[i]), bb+float64(b[i]*b[i])
	}
	return dot / math.Sqrt(aa*bb)
}

func TestTextsOfOneConceptAreNear(t *testing.T) {
	m := embedtest.Model{Concepts: map[string][]string{
		"weather": {"forecast", "rain", "天氣"}, "money": {"invoice", "paid"},
	}}
	v := m.Embed([]string{"Will it RAIN tomorrow?", "the forecast for Oslo", "明天天氣如何", "who has paid", "something else", "who has paid"})
	for _, c := range []struct {
		a, b      int
		low, high float64
	}{{0, 1, .8, 1}, {0, 2, .8, 1}, {0, 3, -.4, .4}, {1, 4, -.4, .4}, {3, 5, .9999, 1.0001}} {
		if got := near(v[c.a], v[c.b]); got < c.low || got > c.high {
			t.Errorf("texts %d and %d: %f, want %f to %f", c.a, c.b, got, c.low, c.high)
		}
	}
}
