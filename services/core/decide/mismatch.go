package decide

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/commands"
	"skandha.dev/services/internal/text"
)

// Damage describes why a session is locked whose log cannot be folded to its end.
// /repair continues with what could be recovered, /reset starts over.
type Damage struct {
	Why   string `json:"why"`
	Rev   uint64 `json:"rev,omitempty"` // the commit up to which the state was recovered; 0 if nothing was
	Turns int    `json:"turns,omitempty"`
}

// Wreck is a session whose log cannot be folded to its end: a commit contradicts the
// previous one, is not a commit, is missing or cannot be read (rule 15).
type Wreck struct {
	Ref     subject.Ref
	Last    uint64                    // sequence of the last readable commit, valid or not
	Cursor  uint64                    // the largest that any commit claims
	Open    []uint64                  // accepted inputs without a terminal event
	Writers map[uint64]subject.Writer // of the open inputs
	Saved   *State                    // the latest state that verifies; nil if none
	Latest  time.Time                 // time of the latest known commit
	Why     string
}

// OnMismatch ends a wreck: its open inputs fail, and the session continues from a
// checkpoint with the recovered state, locked until /repair or /reset. The earlier log
// is kept, as far as it can be read.
func OnMismatch(w Wreck, env *Env) *Decision {
	s := New(w.Ref)
	s.Rev, s.Cursor = w.Last, w.Cursor
	if !w.Latest.IsZero() {
		// Later than all commits before it.
		s.Now = w.Latest.UTC().Truncate(time.Millisecond).Add(time.Millisecond)
	}
	b := start(s, 0, event.Trigger{Kind: event.ByPoison}, env.Now, env)
	b.wrecked = w.Writers
	locked := w.locked()
	b.emit(event.Checkpoint{State: encode(locked), Reason: w.Why})
	for _, seq := range w.Open {
		b.emit(event.TurnFailed{Sequence: seq, Code: event.FailStateMismatch, Reason: locked.Locked})
	}
	b.emit(event.SessionLocked{Reason: locked.Locked})
	return b.done()
}

// State returns the latest known state.
func (w Wreck) State() *State {
	if w.Saved != nil {
		return w.Saved
	}
	return New(w.Ref)
}

// locked returns the state from which the session continues. It keeps the conversation
// and the list of accepted inputs, and drops grants and work in progress.
func (w Wreck) locked() *State {
	s, d := New(w.Ref), &Damage{Why: text.Cut(w.Why, maxReason)}
	saved := "nothing could be recovered"
	if w.Saved != nil && w.Saved.Rev > 0 {
		s = w.Saved.clone()
		d.Rev, d.Turns = s.Rev, s.Turns
		saved = commands.Repairable(s.Turns)
		if s.Turn != nil {
			s.Failed++
			s.abandon()
		}
	}
	s.Rev, s.Prev, s.Digest, s.Cursor, s.Driver, s.Delivery = 0, 0, "", w.Cursor, 0, 0
	s.Queue, s.Leases, s.Grants, s.GrantChain, s.Breaker = nil, nil, nil, "", Breaker{}
	s.Begun, s.Driven = nil, nil
	s.Locked = "its log is damaged: " + d.Why + "; " + saved
	s.UI, s.Damage = event.StateLocked, d
	return s
}

// firstCounting is the first fold version in which a checkpoint keeps the number of commits, which the view compares
// with the log.
const firstCounting = 13

// onCheckpoint replaces the whole state. The revision remains that of the log.
func (s *State) onCheckpoint(p event.Checkpoint) error {
	n := New(s.Ref)
	if err := json.Unmarshal(p.State, n); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	if n.Ref != s.Ref {
		return fmt.Errorf("checkpoint belongs to %s, not to %s", n.Ref, s.Ref)
	}
	if !n.chained() {
		return errors.New("checkpoint: window, seen inputs or grants do not match their chains")
	}
	n.Rev, n.Now, n.version = s.Rev, s.Now, s.version
	if n.version < firstCounting {
		n.Commits = 0
	}
	*s = *n
	return nil
}

// IsCheckpoint reports whether a commit begins with a checkpoint, and can therefore be
// folded without earlier commits.
func IsCheckpoint(c event.Commit) bool {
	return len(c.Events) > 0 && c.Events[0].Type == event.TypeCheckpoint
}

// IsTombstone reports whether a commit keeps of a session only that it was deleted.
func IsTombstone(c event.Commit) bool {
	if !IsCheckpoint(c) || c.Header.Trigger.Kind != event.ByRetention {
		return false
	}
	var p event.Checkpoint
	return c.Events[0].DataAs(&p) == nil && p.Reason == DeletedReason
}

// At returns an empty state at a revision, onto which a checkpoint can be folded.
func At(ref subject.Ref, rev uint64) *State {
	s := New(ref)
	s.Rev = rev
	return s
}
