package turn_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/turn"
)

// messages is a log in memory, by sequence. The last one is at 0, too.
type messages map[uint64]bus.StoredMsg

func (m messages) LastCommit(ctx context.Context, _ subject.Ref) (bus.StoredMsg, error) {
	return m.Message(ctx, 0)
}

func (m messages) Message(_ context.Context, seq uint64) (bus.StoredMsg, error) {
	s, ok := m[seq]
	if !ok {
		return s, bus.ErrNotFound
	}
	return s, nil
}

// after makes a commit at a sequence that follows another one.
func after(t *testing.T, prev, seq uint64) bus.StoredMsg {
	t.Helper()
	b, err := event.Commit{Ref: ref, Header: event.Header{CommitID: "c", Prev: prev}}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return bus.StoredMsg{Subject: ref.Commit(), Seq: seq, Data: b}
}

func TestTheLogIsReadBackwards(t *testing.T) {
	other := after(t, 3, 7)
	other.Subject = subject.Ref{Agent: "main", Session: "other"}.Commit()
	for name, c := range map[string]struct {
		log  messages
		at   uint64
		want []uint64
		err  error
	}{
		"to its beginning":      {messages{0: after(t, 4, 9), 4: after(t, 2, 4), 2: after(t, 0, 2)}, 0, []uint64{9, 4, 2}, nil},
		"from a commit":         {messages{0: after(t, 4, 9), 4: after(t, 2, 4), 2: after(t, 0, 2)}, 4, []uint64{4, 2}, nil},
		"to where it is purged": {messages{0: after(t, 4, 9)}, 0, []uint64{9}, bus.ErrNotFound},
		"without a commit":      {messages{}, 0, nil, bus.ErrNotFound},
		"of another session":    {messages{0: after(t, 7, 9), 7: other}, 0, []uint64{9}, turn.ErrOther},
		"that cannot be read":   {messages{0: {Subject: ref.Commit(), Data: []byte(`{}`)}}, 0, nil, event.ErrMalformed},
		"that turns round":      {messages{0: after(t, 9, 9)}, 0, []uint64{9}, nil},
	} {
		var got []uint64
		var failed error
		for s, err := range turn.Back(t.Context(), c.log, ref, c.at) {
			if failed = err; err == nil {
				got = append(got, s.Sequence)
			}
		}
		if !slices.Equal(got, c.want) || !errors.Is(failed, c.err) {
			t.Errorf("%s: got %v, %v", name, got, failed)
		}
	}
}
