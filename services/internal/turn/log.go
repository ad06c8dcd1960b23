package turn

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
)

// ErrOther means that a message of the log is not a commit of the session.
var ErrOther = errors.New("not a commit of this session")

// Log is the part of the bus that this package reads; *journal.Journal implements it.
type Log interface {
	LastCommit(ctx context.Context, ref subject.Ref) (bus.StoredMsg, error)
	Message(ctx context.Context, seq uint64) (bus.StoredMsg, error)
}

// Stored is a commit with its metadata from the log.
type Stored struct {
	event.Commit
	Sequence uint64
	At       time.Time // when the log stored it, by the bus's clock; may be zero
	Bytes    int
}

// Decode decodes a commit of the session.
func Decode(ref subject.Ref, m bus.StoredMsg) (Stored, error) {
	c, err := event.DecodeCommit(ref, m.Data)
	if err != nil {
		return Stored{}, fmt.Errorf("reading commit %d of %s: %w", m.Seq, ref, err)
	}
	return Stored{c, m.Seq, m.Time, len(m.Data)}, nil
}

// Back yields the session's commits backwards: from the one at the sequence or, for 0, from
// the last. An error, such as [bus.ErrNotFound] where the log was purged, is the last item.
func Back(ctx context.Context, log Log, ref subject.Ref, at uint64) iter.Seq2[Stored, error] {
	return func(yield func(Stored, error) bool) {
		for next := at; ; {
			c, err := commitAt(ctx, log, ref, next)
			if !yield(c, err) || err != nil || c.Header.Prev == 0 || c.Header.Prev >= c.Sequence {
				return
			}
			next = c.Header.Prev
		}
	}
}

func commitAt(ctx context.Context, log Log, ref subject.Ref, at uint64) (Stored, error) {
	read := func() (bus.StoredMsg, error) { return log.Message(ctx, at) }
	if at == 0 {
		read = func() (bus.StoredMsg, error) { return log.LastCommit(ctx, ref) }
	}
	m, err := read()
	if err == nil && m.Subject != ref.Commit() {
		err = ErrOther
	}
	if err != nil {
		return Stored{}, err
	}
	return Decode(ref, m)
}
