package turn_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

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
		of("t5", event.Perceived{Sequence: 5, Disposition: event.Started}),
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

func TestAnInputIsSeenInAnyOrder(t *testing.T) {
	queued := of("", event.Perceived{Sequence: 5, Text: "later", Disposition: event.Queued})
	begun := of("t5", event.Perceived{Sequence: 5, Disposition: event.FromQueue})
	begun.Time = time.UnixMilli(7)
	ended := of("t5", event.TurnFailed{Sequence: 5, Code: event.FailDeadline})
	for _, events := range [][]event.Event{{queued, begun, ended}, {ended, begun, queued}} {
		in := turn.Input{Sequence: 5}
		for i, e := range events {
			in.See(e)
			if whole := i == 2 || events[0].Turn == ""; in.Whole() != whole {
				t.Errorf("after %d events it is whole: %t", i+1, !whole)
			}
		}
		if in.Turn != "t5" || in.Perceived.Text != "later" || !in.Began.Equal(begun.Time) || in.Failed == nil {
			t.Errorf("%+v", in)
		}
	}
}

func TestTheIDOfATurnNamesItsInput(t *testing.T) {
	for id, want := range map[string]uint64{"t5": 5, "t0": 0, "5": 0, "t05": 0, "tt5": 0, "t5-p1": 0, "": 0} {
		if got := turn.SequenceOf(id); got != want {
			t.Errorf("%q is of the input %d, want %d", id, got, want)
		}
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

func TestAnEventEndsOneInput(t *testing.T) {
	for _, c := range []struct {
		e    event.Event
		over bool
		of   uint64
	}{
		{of("t5", event.Recorded{Sequence: 5}), true, 5},
		{of("", event.TurnFailed{Sequence: 6}), true, 6},
		{of("t5", event.Perceived{Sequence: 5}), false, 0},
		{event.Event{Type: event.TypeRecorded, Data: []byte(`[]`)}, false, 0},
	} {
		if end := turn.EndOf(c.e); end.Over() != c.over || end.Sequence() != c.of {
			t.Errorf("%s ends %d: %+v", c.e.Type, end.Sequence(), end)
		}
	}
}

func TestPlansAndCallsAreOfOneTurn(t *testing.T) {
	for part, want := range map[string]bool{"t5-p1": true, "t5-p1-c0": true, "t55-p1": false, "t5": false, "": false} {
		if turn.Has("t5", part) != want {
			t.Errorf("%q is of t5: %t", part, !want)
		}
	}
	if turn.Has("", "-p1") {
		t.Error("a plan is of no turn")
	}
}
