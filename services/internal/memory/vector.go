package memory

import (
	"encoding/binary"
	"fmt"
	"math"

	"gonum.org/v1/gonum/blas/blas32"
)

// Dot returns the sum of products of two vectors of the same dimension: their cosine
// similarity, if their length is 1.
func Dot(a, b []float32) float64 {
	return float64(blas32.Dot(blas32.Vector{N: len(a), Inc: 1, Data: a}, blas32.Vector{N: len(a), Inc: 1, Data: b}))
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
