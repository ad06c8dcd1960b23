package loader

import (
	"bytes"
	"encoding/json"
	"fmt"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/decide"
)

// Replay folds a session from its first commit, which may be in the archive. Unlike [Loader], it begins at no
// checkpoint: it compares those of retention with what was folded.
type Replay struct {
	ref   subject.Ref
	state *decide.State
	last  uint64
}

// NewReplay returns a replay of the session's whole past.
func NewReplay(ref subject.Ref) *Replay { return &Replay{ref: ref, state: decide.New(ref)} }

// State returns the state after the last commit.
func (r *Replay) State() *decide.State { return r.state }

// Last returns the sequence of the last message.
func (r *Replay) Last() uint64 { return r.last }

// Add takes the session's next message. It returns an error that wraps [decide.ErrMismatch] if a commit does not
// follow, or a checkpoint holds another state than the commits before it lead to.
func (r *Replay) Add(m bus.StoredMsg) error {
	r.last = m.Seq
	if m.Subject != r.ref.Commit() {
		return nil
	}
	c, err := event.DecodeCommit(r.ref, m.Data)
	if err != nil {
		return fmt.Errorf("commit %d: %w", m.Seq, err)
	}
	if c.Header.Trigger.Kind == event.ByRetention && len(c.Events) > 0 {
		if err := r.compare(c.Events[0]); err != nil {
			return fmt.Errorf("commit %d: %w", m.Seq, err)
		}
	}
	next, err := r.state.Apply(c, m.Seq)
	if err != nil {
		return fmt.Errorf("commit %d: %w", m.Seq, err)
	}
	r.state = next
	return nil
}

// compare compares the state that a checkpoint holds with the one that was folded. Only if both were folded by the same
// version must they be equal.
func (r *Replay) compare(e event.Event) error {
	var p event.Checkpoint
	if err := e.DataAs(&p); err != nil {
		return err
	}
	if p.Reason != decide.RetentionReason {
		return nil // what it leaves out was deleted
	}
	have, err := r.state.Snapshot()
	if err != nil {
		return err
	}
	var want bytes.Buffer
	if err := json.Compact(&want, p.State); err != nil {
		return err
	}
	if !bytes.Equal(have, want.Bytes()) {
		return fmt.Errorf("%w: the checkpoint holds another state than the commits before it lead to", decide.ErrMismatch)
	}
	return nil
}
