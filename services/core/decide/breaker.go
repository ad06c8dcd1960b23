package decide

import (
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/tool"
)

// Breaker counts the failures of tools, per session.
type Breaker struct {
	Hash        string `json:"hash,omitempty"` // of the last failed call
	Same        int    `json:"same"`           // how often in a row exactly that call failed
	Consecutive int    `json:"consecutive"`    // failures in a row
	Recent      []bool `json:"recent,omitempty"`
}

// errStreak is how many failures in a row make core ask a person.
const errStreak = 5

// lockAt of the last breakerHistory calls failed: the session locks.
const lockAt = 8

// sameFailures of exactly the same call make core tell the model.
const sameFailures = 3

// blameless reports whether a result without success is nobody's failure.
func (s *State) blameless(r tool.Result) bool {
	if r.Success || r.Error == nil {
		return false
	}
	switch r.Error.Code {
	case tool.CodeDenied, tool.CodeExpired, tool.CodeCancelled, tool.CodeSkipped:
		return true
	case tool.CodeOutcomeUnknown:
		return s.by != event.ByReply // its turn was ended: nobody waited for what its runner would say
	}
	return false
}

func (b *Breaker) count(hash string, r tool.Result) {
	b.Recent = append(b.Recent, r.Success)
	if len(b.Recent) > breakerHistory {
		b.Recent = b.Recent[1:]
	}
	if r.Success {
		b.Same, b.Consecutive, b.Hash = 0, 0, ""
		return
	}
	b.Consecutive++
	if b.Hash != hash {
		b.Hash, b.Same = hash, 0
	}
	b.Same++
}

func (b *Breaker) failures() int {
	n := 0
	for _, ok := range b.Recent {
		if !ok {
			n++
		}
	}
	return n
}
