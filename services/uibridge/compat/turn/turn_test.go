package turn_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/test/transporttest"
	"skandha.dev/services/uibridge/compat/turn"
	"skandha.dev/services/uibridge/contract"
)

var ref = transporttest.Main("s")

func begin(t *testing.T, b contract.Backend, id string) *turn.Turn {
	t.Helper()
	ctx := natstest.Context(t)
	tn, err := turn.Attach(ctx, b, transporttest.Principal(), ref, "", "test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tn.Close)
	if err := tn.Submit(ctx, contract.Submission{Text: "x", ID: id}); err != nil {
		t.Fatal(err)
	}
	return tn
}

func about(id string) contract.About {
	return contract.About{Agent: ref.Agent, Session: ref.Session, Turn: id}
}

func input(id string, seq uint64, writer subject.Writer) contract.Input {
	return contract.Input{
		About: about(event.TurnID(seq)), Perceived: event.Perceived{Sequence: seq, InputID: id, Writer: writer},
	}
}

func ended(seq uint64, answer string) contract.TurnEnd {
	return contract.TurnEnd{About: about(event.TurnID(seq)), Recorded: &event.Recorded{Sequence: seq, Answer: answer}}
}

// rest returns the names of the notifications to the end.
func rest(t *testing.T, tn *turn.Turn) string {
	t.Helper()
	var names []string
	for {
		v, _, err := tn.Next(natstest.Context(t))
		if errors.Is(err, io.EOF) {
			return strings.Join(names, " ")
		}
		if err != nil {
			t.Fatalf("after %v: %v", names, err)
		}
		name := strings.TrimPrefix(fmt.Sprintf("%T", v), "*contract.")
		if e, ok := v.(*contract.TurnEnd); ok && e.Recorded != nil {
			name += ":" + e.Recorded.Answer
		}
		names = append(names, name)
	}
}

func TestWhatBelongsToOthersIsLeftOut(t *testing.T) {
	b := transporttest.New()
	tn := begin(t, b, "mine")
	b.Tell(ref, contract.OnInput, input("mine", 1, "ui-ann"))
	b.Tell(ref, contract.OnPlanRequested, contract.PlanRequested{About: about("t9"), Plan: "other"})
	b.Tell(ref, contract.OnTurnEnd, ended(9, "other"))
	b.Tell(ref, contract.OnNewMessage, contract.Message{About: contract.About{Cause: "1"}})
	b.Tell(ref, contract.OnPlanRequested, contract.PlanRequested{About: about("t1"), Plan: "mine"})
	b.Tell(ref, contract.OnCommit, contract.Commit{About: about("t1")})
	b.Tell(ref, contract.OnTurnEnd, ended(1, "mine"))
	if got, want := rest(t, tn), "Input PlanRequested TurnEnd:mine"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if _, _, err := tn.Next(natstest.Context(t)); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v", err)
	}
}

// An input whose id was taken before is refused by core; the earlier turn is replayed.
func TestAnInputThatWasTakenBeforeHasTheTurnOfThen(t *testing.T) {
	b := transporttest.New()
	b.Tell(ref, contract.OnInput, input("same", 99, "ui-bob")) // another one's may be called alike
	b.Tell(ref, contract.OnTurnEnd, ended(99, "bob's"))
	first := begin(t, b, "same")
	b.Tell(ref, contract.OnInput, input("same", 1, "ui-ann"))
	b.Tell(ref, contract.OnTurnEnd, ended(1, "first"))
	if got := rest(t, first); !strings.HasSuffix(got, "TurnEnd:first") {
		t.Fatalf("got %s", got)
	}
	for range 5 { // a later place in the log than the first one's
		b.Cancel(natstest.Context(t), transporttest.Principal(), contract.Cancellation{Ref: ref}) //nolint:errcheck,gosec // it always stores
	}
	again := begin(t, b, "same")
	b.Tell(ref, contract.OnTurnEnd,
		contract.TurnEnd{
			About:  about(""),
			Failed: &event.TurnFailed{Sequence: again.Receipt.Sequence, InputID: "same", Code: event.FailDuplicate},
		})
	if got, want := rest(t, again), "Attached Input TurnEnd:first"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// If the log no longer contains the earlier turn, the refusal is returned.
func TestAnInputThatWasTakenLongBeforeIsRefused(t *testing.T) {
	b := transporttest.New()
	tn := begin(t, b, "same")
	b.Tell(ref, contract.OnTurnEnd,
		contract.TurnEnd{
			About: about(""), Failed: &event.TurnFailed{Sequence: 1, InputID: "same", Code: event.FailDuplicate},
		})
	if got, want := rest(t, tn), "Attached TurnEnd"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestAFeedThatWasTooSlowGoesOn(t *testing.T) {
	b := transporttest.New()
	tn := begin(t, b, "")
	b.Tell(ref, contract.OnPlanRequested, contract.PlanRequested{About: about("t1")})
	if _, _, err := tn.Next(natstest.Context(t)); err != nil {
		t.Fatal(err)
	}
	b.Tell(ref, contract.OnPlanCompleted, contract.PlanCompleted{About: about("t1")})
	b.Break(ref, &contract.Error{Code: contract.CodeSlow})
	b.Tell(ref, contract.OnTurnEnd, ended(1, "x"))
	if got, want := rest(t, tn), "PlanCompleted TurnEnd:x"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	other := begin(t, b, "")
	gone := &contract.Error{Code: contract.CodeUnavailable, Message: "x"}
	b.Break(ref, gone)
	if _, _, err := other.Next(natstest.Context(t)); !errors.Is(err, gone) {
		t.Errorf("got %v", err)
	}
}

func TestEach(t *testing.T) {
	b := transporttest.New()
	tn := begin(t, b, "")
	idle, seen := 0, 0
	err := tn.Each(natstest.Context(t), time.Millisecond, func(any, string) error { seen++; return nil }, func() error {
		if idle++; idle == 2 {
			b.Tell(ref, contract.OnTurnEnd, ended(1, "x"))
		}
		return nil
	})
	if err != nil || idle < 2 || seen != 1 {
		t.Errorf("%v, idle %d times, seen %d", err, idle, seen)
	}
	stop := errors.New("stop")
	other := begin(t, b, "")
	if err := other.Each(natstest.Context(t), time.Millisecond, nil, func() error { return stop }); !errors.Is(err, stop) {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancelCause(natstest.Context(t))
	cancel(stop)
	if err := other.Each(ctx, time.Hour, nil, nil); !errors.Is(err, stop) {
		t.Errorf("got %v", err)
	}
}

func TestTextIsPassedOnUpToAGap(t *testing.T) {
	d := func(plan, attempt string, n int, text string) *contract.Delta {
		return &contract.Delta{Delta: provider.Delta{Plan: plan, Attempt: attempt, N: n, Text: text}}
	}
	for _, restarts := range []bool{false, true} {
		x := turn.Text{Restarts: restarts}
		x.Begin("p", "a")
		pass := func(v *contract.Delta, want string) {
			t.Helper()
			if got, _ := x.Delta(v); got != want {
				t.Errorf("restarts %t: %q is passed on, want %q", restarts, got, want)
			}
		}
		pass(d("p", "a", 0, "one "), "one ")
		pass(d("q", "z", 0, "early"), "")
		pass(d("p", "a", 2, "three"), "")
		early, again := x.Begin("p", "b")
		if !again || len(early) != 1 {
			t.Errorf("begun again: %t, early: %v", again, early)
		}
		pass(d("p", "a", 3, "late"), "")
		want := ""
		if restarts {
			want = "ONE "
		}
		pass(d("p", "b", 0, "ONE "), want)
		got, ok := x.Complete("p", "ONE two")
		if restarts && (got != "two" || !ok) || !restarts && ok {
			t.Errorf("restarts %t: the rest is %q, %t", restarts, got, ok)
		}
		pass(d("p", "b", 1, "late"), "")
		if got, ok := x.Complete("r", "whole"); got != "whole" || !ok {
			t.Errorf("of a plan whose beginning was not seen the rest is %q, %t", got, ok)
		}
	}
}
