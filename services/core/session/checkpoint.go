package session

import (
	"context"
	"fmt"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/decide"
)

// checkpointMail asks for a checkpoint; the answer is its sequence, 0 if there is none.
type checkpointMail struct {
	most   int64 // bytes of the state
	until  time.Time
	answer chan uint64 // holds one
}

// betweenTurns is how long a checkpoint waits for a moment without a turn. A session that is always at work has many.
const betweenTurns = 2 * time.Second

// Checkpoint stores a commit with the whole state of the session, and returns its sequence: 0 if the session does
// or awaits something for longer than [betweenTurns], its state has more bytes than most, or its log cannot be read
// now.
func (s *Set) Checkpoint(ctx context.Context, ref subject.Ref, most int64) (uint64, error) {
	m := checkpointMail{most, time.Now().Add(betweenTurns), make(chan uint64, 1)}
	s.mu.Lock()
	if s.stopping {
		s.mu.Unlock()
		return 0, nil
	}
	s.session(ref).mailbox.put(m)
	s.mu.Unlock()
	select {
	case seq := <-m.answer:
		return seq, nil
	case <-ctx.Done():
		return 0, fmt.Errorf("waiting for a checkpoint of %s: %w", ref, ctx.Err())
	case <-s.ctx.Done():
		return 0, nil
	}
}

// besideState is what a commit with a checkpoint holds at most besides the state, in bytes.
const besideState = 16 << 10

// checkpoint stores a checkpoint that was asked for, once the session is between two turns.
func (s *session) checkpoint() {
	m := s.asked
	if m == nil {
		return
	}
	late := time.Now().After(m.until)
	if s.state == nil && !s.load() && !late {
		return
	}
	stored, done := uint64(0), late
	defer func() {
		if done {
			s.asked = nil
			m.answer <- stored
		}
	}()
	if s.state == nil || s.state.Turn != nil || len(s.state.Queue) > 0 {
		return
	}
	done = true
	d := decide.OnRetention(s.state, s.env(0))
	if d == nil {
		return
	}
	size := int64(0)
	for i := range d.Commit.Events {
		size += int64(len(d.Commit.Events[i].Data))
	}
	if size > m.most {
		return
	}
	if limit := s.Bus.MaxPayload(); size+besideState > limit {
		s.Log.WarnContext(s.ctx, "the state of a session is too large for a checkpoint; its log keeps growing", "session", s.ref,
			"bytes", size, "max_payload", limit)
		return
	}
	if s.commit(d) == committed {
		stored = s.state.Rev
	}
}
