package embed

import (
	"math"
	"slices"
	"testing"
)

func TestVectorsCrossTheBusUnchanged(t *testing.T) {
	v := []float32{3, -4, 0}
	if err := Normalise(v); err != nil || !slices.Equal(v, []float32{.6, -.8, 0}) {
		t.Fatalf("%v, %v", v, err)
	}
	got, err := decode(Encode(v), 3)
	if err != nil || !slices.Equal(got, v) {
		t.Errorf("%v, %v", got, err)
	}
	huge := []float32{math.MaxFloat32, math.MaxFloat32}
	if Normalise(huge) != nil || math.Abs(float64(huge[0])-math.Sqrt2/2) > 1e-6 {
		t.Errorf("%v", huge)
	}
}

func TestVectorsThatCannotBeUsed(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(-1))
	for _, v := range [][]float32{nil, {}, {0, 0}, {1, nan}, {inf, 1}, make([]float32, MaxDimension+1)} {
		if err := Normalise(v); err == nil {
			t.Errorf("%d numbers are accepted", len(v))
		}
		if _, err := decode(Encode(v), len(v)); err == nil {
			t.Errorf("%d numbers are accepted from the bus", len(v))
		}
	}
	for _, dimension := range []int{-1, 0, 1, 3, math.MaxInt} {
		if _, err := decode(Encode([]float32{1, 1}), dimension); err == nil {
			t.Errorf("2 numbers are a vector of dimension %d", dimension)
		}
	}
}
