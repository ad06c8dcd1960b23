package decide

import (
	"encoding/json"
	"fmt"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
)

// Wreck is a session whose log cannot be folded: a commit contradicts the one
// before, or is none at all (rule 15).
type Wreck struct {
	Ref    subject.Ref
	Last   uint64   // sequence of the last commit, whatever it says
	Cursor uint64   // the largest that any commit claims
	Open   []uint64 // inputs that were taken up and have no terminal event
	Why    string
}

// OnMismatch ends a wreck: its open inputs fail, and the session starts again
// from a checkpoint, empty and locked until /reset. What was is still in the log.
func OnMismatch(w Wreck, env *Env) *Decision {
	s := New(w.Ref)
	s.Rev, s.Cursor = w.Last, w.Cursor
	b := start(s, 0, event.Trigger{Kind: event.ByPoison}, env.Now, env)
	fresh := New(w.Ref)
	fresh.Cursor = w.Cursor
	fresh.Locked = "its log contradicts itself: " + w.Why
	fresh.UI = event.StateLocked
	state, err := json.Marshal(fresh)
	if err != nil {
		panic(fmt.Sprintf("decide: encoding state: %v", err))
	}
	b.emit(event.Checkpoint{State: state, Reason: w.Why})
	for _, seq := range w.Open {
		b.emit(event.TurnFailed{Sequence: seq, Code: event.FailStateMismatch, Reason: fresh.Locked})
	}
	b.emit(event.SessionLocked{Reason: fresh.Locked})
	return b.done()
}

// onCheckpoint takes the whole state over. The revision stays that of the log.
func (s *State) onCheckpoint(p event.Checkpoint) error {
	n := New(s.Ref)
	if err := json.Unmarshal(p.State, n); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	if n.Ref != s.Ref {
		return fmt.Errorf("checkpoint is of %s", n.Ref)
	}
	n.Rev, n.Now, n.Commits = s.Rev, s.Now, 0
	*s = *n
	return nil
}

// IsCheckpoint reports whether a commit begins with a checkpoint, so that it can
// be folded without the commits before it.
func IsCheckpoint(c event.Commit) bool {
	return len(c.Events) > 0 && c.Events[0].Type == event.TypeCheckpoint
}

// At is an empty state at a revision, to fold a checkpoint onto.
func At(ref subject.Ref, rev uint64) *State {
	s := New(ref)
	s.Rev = rev
	return s
}
