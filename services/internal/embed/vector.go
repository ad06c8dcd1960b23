package embed

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// MaxDimension is the most numbers that a vector may have.
const MaxDimension = 8192

// Normalise scales a vector to length 1. It fails if that is not possible: the vector is empty,
// too long, of length 0, or holds a number that is not finite.
func Normalise(v []float32) error {
	if len(v) == 0 || len(v) > MaxDimension {
		return fmt.Errorf("a vector has %d numbers, want 1 to %d", len(v), MaxDimension)
	}
	var sum float64
	for _, x := range v {
		sum += float64(x) * float64(x)
	}
	switch length := math.Sqrt(sum); {
	case math.IsNaN(length) || math.IsInf(length, 0):
		return errors.New("a vector holds a number that is not finite")
	case length == 0:
		return errors.New("a vector has the length 0")
	default:
		for i, x := range v {
			v[i] = float32(float64(x) / length)
		}
	}
	return nil
}

// Encode returns a vector as it is sent over the bus: its numbers as little-endian float32.
func Encode(v []float32) []byte {
	out := make([]byte, 0, 4*len(v))
	for _, x := range v {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(x))
	}
	return out
}

// decode reads what [Encode] wrote, and checks it.
func decode(b []byte, dimension int) ([]float32, error) {
	if dimension < 1 || dimension > MaxDimension || len(b) != 4*dimension {
		return nil, fmt.Errorf("a vector of dimension %d has %d bytes", dimension, len(b))
	}
	v := make([]float32, dimension)
	for i := range v {
		v[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return v, Normalise(v)
}
