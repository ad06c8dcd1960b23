package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"

	"skandha.dev/pkg/memory"
	index "skandha.dev/services/internal/memory"
	"skandha.dev/services/internal/memory/sqlite"
)

// The memories of B20. Embedders of this dimension are common: all-MiniLM, e5-small, bge-small.
const (
	benchVectors   = 100_000
	benchDimension = 384
	benchHits      = 10
)

// memories is B20: the nearest memories of one agent that has them all, from SQLite with
// the file in the page cache of the system, beside a scan of the same floats in memory by
// one goroutine: their dot products with the query, by a plain loop.
func memories(ctx context.Context, o Options) (rows []Row, err error) {
	dir, err := os.MkdirTemp(o.Dir, "bench-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // scratch
	s, err := sqlite.Open(ctx, sqlite.Config{Path: filepath.Join(dir, "memory.db"), Logger: quiet})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	n := o.n(benchVectors)
	floats, err := fillMemories(ctx, s, n)
	if err != nil {
		return nil, err
	}
	chance := rand.New(rand.NewPCG(3, 4))
	query := randomVector(chance)
	ours, raw, err := interleave(ctx, o.n(50),
		func(ctx context.Context) error {
			hits, err := s.Search(ctx, index.Query{Agent: "main", Vector: query, Model: "bench", Limit: benchHits})
			if err == nil && len(hits) != benchHits {
				err = fmt.Errorf("found %d memories, want %d", len(hits), benchHits)
			}
			return err
		},
		func(context.Context) error {
			if best := nearestMemory(floats, query); best < 0 {
				return errors.New("no vector is near")
			}
			query = randomVector(chance) // no answer is cached
			return nil
		})
	return []Row{ratio("B20", fmt.Sprintf("nearest of %d memories × %d, SQLite", n, benchDimension), ours, raw, 3)}, err
}

// fillMemories stores n memories and returns their vectors, one after the other.
func fillMemories(ctx context.Context, s *sqlite.Store, n int) (floats []float32, err error) {
	const batch = 1000
	chance := rand.New(rand.NewPCG(1, 2))
	for first := 0; first < n; first += batch {
		var entries []index.Entry
		for i := first; i < min(first+batch, n); i++ {
			v := randomVector(chance)
			floats = append(floats, v...)
			entries = append(entries, index.Entry{Revision: uint64(i + 1), Model: "bench", Vector: v, Memory: memory.Memory{
				ID: fmt.Sprint(i), Agent: "main", Kind: memory.Fact, Text: fmt.Sprint("memory ", i),
				Source: memory.Source{Origin: memory.FromPerson},
			}})
		}
		if err := s.Put(ctx, entries); err != nil {
			return nil, err
		}
	}
	return floats, nil
}

func randomVector(chance *rand.Rand) []float32 {
	v := make([]float32, benchDimension)
	for i := range v {
		v[i] = float32(chance.NormFloat64())
	}
	return v
}

// nearestMemory returns the number of the vector with the largest dot product.
func nearestMemory(floats, query []float32) (at int) {
	at = -1
	best := 0.0
	for i := 0; len(floats) > 0; i++ {
		d := 0.0
		for j, x := range floats[:len(query)] {
			d += float64(x) * float64(query[j])
		}
		if d > best {
			at, best = i, d
		}
		floats = floats[len(query):]
	}
	return at
}
