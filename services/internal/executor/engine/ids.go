package engine

import (
	"crypto/sha256"
	"encoding/binary"

	"skandha.dev/services/internal/executor"
)

// key names an attempt.
type key struct{ call, attempt string }

// verdict is the outcome that is kept of a past attempt, in one byte.
type verdict byte

const (
	noVerdict verdict = iota
	wasNever
	wasStopped
	wasUnknown
	wasRefusedFull
	wasRefusedDraining
	wasRefusedLate
	wasRefusedUnknown
	wasRefusedBad
)

var refusals = map[executor.RefusedReason]verdict{
	executor.RefusedFull:     wasRefusedFull,
	executor.RefusedDraining: wasRefusedDraining,
	executor.RefusedLate:     wasRefusedLate,
	executor.RefusedUnknown:  wasRefusedUnknown,
	executor.RefusedBad:      wasRefusedBad,
}

func verdictOf(s executor.State, r executor.RefusedReason) verdict {
	switch s {
	case executor.Never:
		return wasNever
	case executor.Stopped:
		return wasStopped
	case executor.Refused:
		return refusals[r]
	default:
		return wasUnknown // it ran, and its result was dropped
	}
}

func (v verdict) state() (executor.State, executor.RefusedReason) {
	switch v {
	case wasNever:
		return executor.Never, ""
	case wasStopped:
		return executor.Stopped, ""
	case wasUnknown, noVerdict:
		return executor.Unknown, ""
	}
	for r, w := range refusals {
		if w == v {
			return executor.Refused, r
		}
	}
	return executor.Unknown, ""
}

// ids holds verdicts for the life of the instance. It keeps 16 bytes of each id's hash;
// collisions are too unlikely to matter.
type ids map[[16]byte]verdict

func digest(k key) [16]byte {
	b := make([]byte, 0, 128)
	b = binary.AppendUvarint(b, uint64(len(k.call)))
	b = append(b, k.call...)
	b = append(b, k.attempt...)
	sum := sha256.Sum256(b)
	return [16]byte(sum[:16])
}

func (m ids) put(k key, v verdict) { m[digest(k)] = v }

func (m ids) get(k key) verdict { return m[digest(k)] }
