package turn_test

import (
	"context"
	"errors"
	"io"
	"testing"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/follow"
	"skandha.dev/services/internal/turn"
)

var ref = subject.Ref{Agent: "main", Session: "s"}

// of makes an event of a turn, or of none.
func of(turn string, p event.Payload) event.Event {
	e := event.New(ref, "e", "test", p)
	e.Turn = turn
	return e
}

func TestAnInputIsFollowedToItsOwnEnd(t *testing.T) {
	items := make(chan follow.Item, 10)
	for _, e := range []event.Event{
		of("t4", event.Recorded{Sequence: 4, Answer: "another one's"}),
		of("t5", event.Perceived{Sequence: 5}),
		{Type: event.TypeRecorded, Turn: "t5", Data: []byte(`[]`)},
		of("", event.TurnFailed{Sequence: 6}),
		of("t5", event.Recorded{Sequence: 5, Answer: "yes"}),
		of("t7", event.Perceived{Sequence: 7}),
	} {
		items <- follow.Item{Event: e}
	}
	in, owned := turn.Input{Sequence: 5}, 0
	end, err := in.Follow(turn.Items(t.Context(), items), func(i follow.Item) error {
		if in.Owns(i.Event) {
			owned++
		}
		return nil
	})
	if err != nil || end.Failed != nil || end.Recorded == nil || end.Recorded.Answer != "yes" {
		t.Errorf("%+v, %v", end, err)
	}
	if owned != 3 || len(items) != 1 || in.Turn != "t5" {
		t.Errorf("%d events are its own, %d are left, its turn is %q", owned, len(items), in.Turn)
	}
}

func TestAnAnswerOutsideOfTurnsBelongsToItsCause(t *testing.T) {
	in := turn.Input{Sequence: 5}
	e := of("", event.UIMessage{})
	if in.Owns(e) {
		t.Error("an event without turn and cause is its own")
	}
	if e.Cause = "5"; !in.Owns(e) {
		t.Error("what it caused is not its own")
	}
}

func TestFollowingEndsWithAnError(t *testing.T) {
	items := make(chan follow.Item, 1)
	items <- follow.Item{}
	in, full := turn.Input{Sequence: 5}, errors.New("full")
	if _, err := in.Follow(turn.Items(t.Context(), items),
		func(follow.Item) error { return full }); !errors.Is(err, full) {
		t.Errorf("of each: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := in.Follow(turn.Items(ctx, items), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("of the context: %v", err)
	}
	close(items)
	if _, err := in.Follow(turn.Items(t.Context(), items), nil); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("of the items: %v", err)
	}
}
