package turn

import (
	"cmp"
	"context"
	"io"
	"strconv"
	"strings"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/services/internal/follow"
)

// End is how an input ended. One of the two is set; neither if it has not ended.
type End struct {
	Recorded *event.Recorded
	Failed   *event.TurnFailed
}

// EndOf returns the end that an event is. It is not over if the event ends nothing, or
// cannot be read.
func EndOf(e event.Event) (end End) {
	_ = event.Visitor{
		Recorded:   func(p event.Recorded) { end.Recorded = &p },
		TurnFailed: func(p event.TurnFailed) { end.Failed = &p },
	}.Visit(e)
	return end
}

// Sequence returns that of the input that has ended; 0 if none has.
func (e End) Sequence() uint64 {
	switch {
	case e.Recorded != nil:
		return e.Recorded.Sequence
	case e.Failed != nil:
		return e.Failed.Sequence
	}
	return 0
}

// Over reports whether the input has ended.
func (e End) Over() bool { return e.Recorded != nil || e.Failed != nil }

// SequenceOf returns the sequence of the input whose turn has the id; 0 if no turn has it.
func SequenceOf(id string) uint64 {
	n, err := strconv.ParseUint(strings.TrimPrefix(id, "t"), 10, 64)
	if err != nil || id != event.TurnID(n) {
		return 0
	}
	return n
}

// Has reports whether a plan or a call is one of the turn with the id: their ids begin with
// it, as in t5-p1-c0.
func Has(turn, part string) bool { return turn != "" && strings.HasPrefix(part, turn+"-") }

// Input is one input, as far as its session's events have been seen, in whatever order.
type Input struct {
	Sequence  uint64
	Turn      string          // once its turn has begun
	Perceived event.Perceived // with its text, even if it was queued; zero: not seen
	Began     time.Time       // its turn; zero: it has not
	Joined    bool            // Turn was begun by another input, which it has joined
	End
}

// See takes an event of the session. Those of others are of no concern to the input.
func (i *Input) See(e event.Event) {
	_ = event.Visitor{Perceived: func(p event.Perceived) { i.Perceive(e, p) }}.Visit(e) // or it says nothing
	switch end := EndOf(e); {
	case !end.Over(), end.Recorded != nil && end.Recorded.Joined != "":
	case i.Joined && e.Turn == i.Turn, !i.Joined && end.Sequence() == i.Sequence:
		i.End = end
	}
}

// Perceive takes an event whose payload is decoded.
func (i *Input) Perceive(e event.Event, p event.Perceived) {
	if p.Sequence != i.Sequence {
		return
	}
	switch p.Disposition {
	case event.Started, event.FromQueue, event.Joined:
		i.Turn, i.Began, i.Joined = e.Turn, e.Time, p.Disposition == event.Joined
	case event.Queued, event.EndedAtOnce:
	}
	if !late(p.Disposition) || i.Perceived.Sequence == 0 {
		i.Perceived = p
	}
}

// Whole reports whether the input was seen with its text.
func (i *Input) Whole() bool {
	return i.Perceived.Sequence != 0 && !late(i.Perceived.Disposition)
}

// late reports whether an input was perceived before, with its text.
func late(d event.Disposition) bool { return d == event.FromQueue || d == event.Joined }

// Owns reports whether an event belongs to the input's turn, or was caused by the input.
func (i *Input) Owns(e event.Event) bool {
	return e.Turn != "" && e.Turn == i.Turn || e.Cause == strconv.FormatUint(i.Sequence, 10)
}

// Follow hands the items that next returns to each, which may be nil, until one has ended the
// input: that is the last one. Each item has been seen by then.
func (i *Input) Follow(next func() (follow.Item, error), each func(follow.Item) error) (End, error) {
	for !i.End.Over() {
		item, err := next()
		if err != nil {
			return End{}, err
		}
		i.See(item.Event)
		if each == nil {
			continue
		}
		if err := each(item); err != nil {
			return End{}, err
		}
	}
	return i.End, nil
}

// Items returns a function that receives the next item of a session, for [Input.Follow].
func Items(ctx context.Context, items <-chan follow.Item) func() (follow.Item, error) {
	return func() (follow.Item, error) {
		select {
		case <-ctx.Done():
			return follow.Item{}, ctx.Err()
		case i, ok := <-items:
			if !ok {
				return i, cmp.Or(ctx.Err(), io.ErrUnexpectedEOF)
			}
			return i, nil
		}
	}
}
