package storetest

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"skandha.dev/services/internal/store"
)

// Bench measures the hot path: snapshots of 1, 10 and 100 KiB, saved and loaded
// over 64 sessions.
func Bench(b *testing.B, open func(b *testing.B) store.Store) {
	for _, kib := range []int{1, 10, 100} {
		snap := sample(1)
		snap.Data = make([]byte, kib<<10)
		rand.NewChaCha8([32]byte{}).Read(snap.Data)
		b.Run(fmt.Sprintf("SaveSnapshot/%dKiB", kib), func(b *testing.B) {
			s := open(b)
			b.SetBytes(int64(len(snap.Data)))
			b.ReportAllocs()
			for b.Loop() {
				save(b, s, &snap)
			}
		})
		b.Run(fmt.Sprintf("LoadSnapshot/%dKiB", kib), func(b *testing.B) {
			s := open(b)
			for range sessions {
				save(b, s, &snap)
			}
			b.SetBytes(int64(len(snap.Data)))
			b.ReportAllocs()
			n := uint64(0)
			for b.Loop() {
				n++
				if _, err := s.LoadSnapshot(b.Context(), sessionOf(n)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("RecordTools", func(b *testing.B) {
		s := open(b)
		rev := uint64(0)
		for b.Loop() {
			rev++
			if _, err := s.RecordTools(b.Context(), []store.ToolRecord{{
				Key: sessionOf(rev), Rev: rev, Deltas: []store.ToolDelta{{Tool: "x", Used: 1, LatencyMS: 5, At: epoch}},
			}}); err != nil {
				b.Fatal(err)
			}
		}
	})
}

const sessions = 64

func sessionOf(n uint64) store.Key {
	return store.Key{Agent: "guide", Session: fmt.Sprint("session-", n%sessions)}
}

// save saves the next revision.
func save(b *testing.B, s store.Store, snap *store.Snapshot) {
	b.Helper()
	snap.Rev++
	snap.Updated = snap.Updated.Add(1000)
	if err := s.SaveSnapshot(b.Context(), sessionOf(snap.Rev), *snap); err != nil {
		b.Fatal(err)
	}
}
