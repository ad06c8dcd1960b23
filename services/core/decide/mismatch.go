package decide

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
)

// Damage is why a session is locked whose log cannot be folded to its end. /repair
// goes on with what was saved, /reset starts over.
type Damage struct {
	Why   string `json:"why"`
	Rev   uint64 `json:"rev,omitempty"` // the commit up to which the state was saved; 0 if nothing was
	Turns int    `json:"turns,omitempty"`
}

// Wreck is a session whose log cannot be folded to its end: a commit contradicts the
// one before, is not a commit, is missing or cannot be read (rule 15).
type Wreck struct {
	Ref    subject.Ref
	Last   uint64    // sequence of the last readable commit, valid or not
	Cursor uint64    // the largest that any commit claims
	Open   []uint64  // accepted inputs without a terminal event
	Saved  *State    // the latest state that verifies; nil if none
	Latest time.Time // time of the latest known commit
	Why    string
}

// OnMismatch ends a wreck: its open inputs fail, and the session goes on from a
// checkpoint that holds what was saved, locked until /repair or /reset. The earlier
// log is kept, as far as it can be read.
func OnMismatch(w Wreck, env *Env) *Decision {
	s := New(w.Ref)
	s.Rev, s.Cursor = w.Last, w.Cursor
	if !w.Latest.IsZero() {
		// Later than all commits before it.
		s.Now = w.Latest.UTC().Truncate(time.Millisecond).Add(time.Millisecond)
	}
	b := start(s, 0, event.Trigger{Kind: event.ByPoison}, env.Now, env)
	locked := w.locked()
	b.emit(event.Checkpoint{State: encode(locked), Reason: w.Why})
	for _, seq := range w.Open {
		b.emit(event.TurnFailed{Sequence: seq, Code: event.FailStateMismatch, Reason: locked.Locked})
	}
	b.emit(event.SessionLocked{Reason: locked.Locked})
	return b.done()
}

// State is the latest known state.
func (w Wreck) State() *State {
	if w.Saved != nil {
		return w.Saved
	}
	return New(w.Ref)
}

// locked is the state from which the session goes on. It keeps the conversation and
// the list of accepted inputs, and drops grants and work in progress.
func (w Wreck) locked() *State {
	s, d := New(w.Ref), &Damage{Why: cut(w.Why, maxReason)}
	saved := "nothing of it could be saved"
	if w.Saved != nil && w.Saved.Rev > 0 {
		s = w.Saved.clone()
		d.Rev, d.Turns = s.Rev, s.Turns
		saved = fmt.Sprintf("/repair goes on with what was saved, %s", count(s.Turns, "turn"))
		if s.Turn != nil {
			s.Failed++
			s.abandon()
		}
	}
	s.Rev, s.Prev, s.Digest, s.Cursor, s.Driver, s.Delivery = 0, 0, "", w.Cursor, 0, 0
	s.Queue, s.Leases, s.Grants, s.GrantChain, s.Breaker, s.Begun = nil, nil, nil, "", Breaker{}, nil
	s.Locked = "its log is damaged: " + d.Why + "; " + saved
	s.UI, s.Damage = event.StateLocked, d
	return s
}

// repair opens a session that was locked because its log is damaged.
func (x *causeDecider) repair([]string) string {
	d := x.s.Damage
	if d == nil {
		if x.s.Locked != "" {
			return "The log of this session is sound; /reset opens the session again."
		}
		return "Nothing is to be repaired: the log of this session is sound."
	}
	open := x.s.clone()
	open.Locked, open.Damage = "", nil
	x.emit(event.Checkpoint{State: encode(open), Reason: "/repair by " + string(x.c.Writer)})
	if d.Rev == 0 {
		return "The session is open again, and empty: nothing of it could be saved."
	}
	return fmt.Sprintf("The session is open again, as it was at commit %d, after %s. What came later is lost (%s).",
		d.Rev, count(d.Turns, "turn"), onOneLine(d.Why))
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
	if !n.chained() {
		return errors.New("checkpoint: its window, inputs seen or grants do not give the chains")
	}
	n.Rev, n.Now, n.Commits, n.version = s.Rev, s.Now, 0, s.version
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
