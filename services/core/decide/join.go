package decide

import (
	"fmt"
	"slices"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
)

// join makes the inputs part of the turn that are to steer it (rule 20): it is about to ask the model.
// Each gets its terminal event with that, so that it counts once, whatever becomes of the turn. An
// input of somebody else waits for a turn with their own rights.
func (b *builder) join() {
	t := b.s.Turn
	for _, q := range slices.Clone(b.s.Queue) {
		if !q.Steer || !q.same(t.Pending) {
			continue
		}
		b.emit(event.Perceived{Sequence: q.Sequence, InputID: q.InputID, Writer: q.Writer, Disposition: event.Joined})
		b.emit(event.Recorded{Sequence: q.Sequence, InputID: q.InputID, Input: q.Text, Joined: t.ID})
		b.touched = true
	}
}

// same reports whether the same person or listener asks for both inputs.
func (in Pending) same(other Pending) bool {
	w, from, _ := in.Principal()
	x, whom, _ := other.Principal()
	return w == x && from == whom
}

// joinedBy returns who sent an input that has joined the turn; empty if it has not.
func (t *Turn) joinedBy(seq uint64) subject.Writer {
	if t != nil {
		for _, j := range t.Joined {
			if j.Sequence == seq {
				return j.Writer
			}
		}
	}
	return ""
}

// join folds that an input joins the turn.
func (s *State) join(seq uint64) error {
	i := s.queued(seq)
	if i < 0 || s.Turn == nil {
		return fmt.Errorf("input %d cannot join a turn", seq)
	}
	in := s.Queue[i]
	s.Queue = slices.Delete(s.Queue, i, i+1)
	s.Turn.Joined = append(s.Turn.Joined, JoinedInput{in.Sequence, in.InputID, in.Writer})
	s.hear(in)
	return nil
}
