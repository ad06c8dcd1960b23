package memory

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Dot returns the sum of products of two vectors of the same dimension: their cosine
// similarity, if their length is 1.
func Dot(a, b []float32) float64 {
	b = b[:len(a)]
	var sums [4]float32
	for len(a) >= 4 && len(b) >= 4 {
		sums[0] += a[0] * b[0]
		sums[1] += a[1] * b[1]
		sums[2] += a[2] * b[2]
		sums[3] += a[3] * b[3]
		a, b = a[4:], b[4:]
	}
	for i, x := range a {
		sums[0] += x * b[i]
	}
	return float64(sums[0]) + float64(sums[1]) + float64(sums[2]) + float64(sums[3])
}

// EncodeVector returns the numbers as IEEE 754, 4 bytes each, little-endian.
func EncodeVector(v []float32) []byte {
	b := make([]byte, 0, 4*len(v))
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}

// DecodeVector is the inverse of EncodeVector.
func DecodeVector(b []byte) ([]float32, error) {
	if len(b) == 0 || len(b)%4 != 0 {
		return nil, fmt.Errorf("a vector has %d bytes", len(b))
	}
	v := make([]float32, len(b)/4)
	for i := range v {
		v[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return v, nil
}
