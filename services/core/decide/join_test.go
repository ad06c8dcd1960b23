package decide_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/decide"
)

// joined checks that an input that waited, and was to steer the open turn, becomes part of it.
func (o *observer) joined(e event.Event, p event.Perceived) error {
	var in event.Input
	switch {
	case !slices.Contains(o.waiting, p.Sequence):
		return fmt.Errorf("input %d did not wait", p.Sequence)
	case event.DecodeCause([]byte(o.causes[p.Sequence].body), &in) != nil || in.Mode != event.ModeSteer:
		return fmt.Errorf("input %d does not steer", p.Sequence)
	case o.causes[p.Sequence].Writer != o.causes[o.inputs[o.open]].Writer:
		return errors.New("it is somebody else's turn")
	}
	if o.joins == nil {
		o.joins = map[uint64]uint64{}
	}
	o.joins[p.Sequence] = o.inputs[o.open]
	return o.inTurn(e, o.open)
}

// steer stores an input that is to join the running turn.
func (w *world) steer(by subject.Writer, text string) decide.Cause {
	w.t.Helper()
	c := w.cause(subject.Input, by, string(mustJSON(event.Input{Text: text, Mode: event.ModeSteer, ID: text})))
	w.process(c, nil)
	return c
}

func TestAnInputThatSteersJoinsTheTurnBeforeItsNextStep(t *testing.T) {
	w := newWorld(t)
	first := w.say("first")
	w.calls("read", `{}`)
	more := w.steer("web", "rather this")
	if w.ends(more.Sequence, ""); strings.Contains(string(mustJSON(w.state.Window)), "rather this") {
		t.Error("the model sees it in the middle of a step")
	}
	w.succeed("c0", `1`)
	w.ends(more.Sequence, "recorded")
	said := string(mustJSON(decide.Prompt(w.state, w.agent).Messages))
	if i, j := strings.Index(said, `"call_id"`), strings.Index(said, "rather this"); i < 0 || j < i {
		t.Errorf("the model sees %s", said)
	}
	if rec := events[event.Recorded](w); len(rec) != 1 || rec[0].Joined != decide.TurnID(first.Sequence) || rec[0].Answer != "" {
		t.Errorf("%+v", rec)
	}
	w.final("done")
	w.ends(first.Sequence, "recorded")
}

func TestAnInputThatComesTooLateToSteerBeginsItsTurn(t *testing.T) {
	w := newWorld(t)
	w.say("first")
	late := w.steer("web", "late")
	w.final("done")
	if w.state.Turn == nil || w.state.Turn.Sequence != late.Sequence {
		t.Fatalf("%+v", w.state.Turn)
	}
	w.final("that, too")
	w.ends(late.Sequence, "recorded")
	now := w.steer("web", "alone")
	w.final("yes")
	w.ends(now.Sequence, "recorded")
}

// What one person asks for never runs with the rights of another.
func TestNobodySteersTheTurnOfSomebodyElse(t *testing.T) {
	w := newWorld(t)
	w.say("first")
	w.calls("read", `{}`)
	other := w.steer("mail", "do this")
	w.succeed("c0", `1`)
	w.ends(other.Sequence, "")
	w.final("done")
	if w.state.Turn == nil || w.state.Turn.Sequence != other.Sequence {
		t.Fatalf("%+v", w.state.Turn)
	}
}

func TestACancelOfWhatHasJoinedEndsTheTurn(t *testing.T) {
	w := newWorld(t)
	first := w.say("first")
	w.calls("read", `{}`)
	more := w.steer("web", "more")
	w.succeed("c0", `1`)
	w.process(w.cause(subject.Cancel, "web", `{"input_id":"more"}`), nil)
	w.ends(first.Sequence, "cancelled")
	w.ends(more.Sequence, "recorded")
	again := w.steer("web", "more")
	w.ends(again.Sequence, "duplicate_of")
}

func TestAPausedSessionKeepsWhatSteers(t *testing.T) {
	w := newWorld(t)
	w.say("first")
	w.calls("read", `{}`)
	w.order("pause", "recorded")
	more := w.steer("web", "more")
	w.succeed("c0", `1`)
	w.ends(more.Sequence, "")
	w.order("resume", "recorded")
	w.ends(more.Sequence, "recorded")
}
