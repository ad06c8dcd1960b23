package turn_test

import (
	"slices"
	"testing"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/turn"
)

func TestAVerdictIsAboutOnePart(t *testing.T) {
	none := turn.Part{}
	asked := func(points ...hook.Point) (list []hook.Verdict) {
		for _, p := range points {
			list = append(list, hook.Verdict{Plugin: "kit", Point: p, Verb: hook.Continue})
		}
		return list
	}
	for name, c := range map[string]struct {
		trigger event.Trigger
		hooks   []hook.Verdict
		events  []event.Event
		want    []turn.Part
	}{
		"an input is taken up": {
			event.Trigger{Sequence: 5},
			asked(hook.BeforeSense, hook.AfterSense, hook.BeforePlan),
			[]event.Event{of("t5", event.Perceived{Sequence: 5}), of("t5", event.PlanRequested{Plan: "t5-p1", Attempts: 1})},
			[]turn.Part{turn.Sense(5), turn.Sense(5), turn.Work("t5-p1")},
		},
		"an input interrupts": {
			event.Trigger{Sequence: 6},
			asked(hook.BeforeSense, hook.OnError, hook.BeforePlan),
			[]event.Event{
				of("t5", event.TurnFailed{Sequence: 5, Code: event.FailInterrupted}), of("t6", event.Perceived{Sequence: 6}),
				of("t6", event.PlanRequested{Plan: "t6-p1"}),
			},
			[]turn.Part{turn.Sense(6), turn.Ending(5), turn.Work("t6-p1")},
		},
		"one turn ends, and the next is denied": {
			event.Trigger{Call: "t5-p2"},
			asked(hook.AfterPlan, hook.BeforeReflect, hook.AfterReflect, hook.BeforePlan, hook.OnError),
			[]event.Event{
				of("t5", event.Recorded{Sequence: 5}), of("t6", event.TurnFailed{Sequence: 6, Code: event.FailDenied}),
			},
			[]turn.Part{turn.Work("t5-p2"), turn.Ending(5), turn.Ending(5), turn.Ending(6), turn.Ending(6)},
		},
		"two turns are denied, one after the other": {
			event.Trigger{Sequence: 9},
			asked(hook.BeforePlan, hook.BeforePlan, hook.BeforePlan),
			[]event.Event{
				of("t5", event.TurnFailed{Sequence: 5, Code: event.FailDenied}),
				of("t6", event.TurnFailed{Sequence: 6, Code: event.FailDenied}),
				of("t7", event.PlanRequested{Plan: "t7-p1", Attempts: 1}),
			},
			[]turn.Part{turn.Ending(5), turn.Ending(6), turn.Work("t7-p1")},
		},
		"a plan is denied, and then the next turn": {
			event.Trigger{Call: "t5-p1"},
			[]hook.Verdict{
				{Plugin: "kit", Point: hook.AfterPlan, Verb: hook.DenyVerb},
				{Plugin: "kit", Point: hook.BeforePlan, Verb: hook.DenyVerb},
			},
			[]event.Event{
				of("t5", event.TurnFailed{Sequence: 5, Code: event.FailDenied}),
				of("t6", event.TurnFailed{Sequence: 6, Code: event.FailDenied}),
			},
			[]turn.Part{turn.Work("t5-p1"), turn.Ending(6)},
		},
		"a call": {
			event.Trigger{Call: "t5-p1-c0"},
			[]hook.Verdict{
				{Point: hook.BeforeAct, Step: "t5-p1-c1"},
				{Point: hook.AfterAct, Step: "t5-p1-c0"},
				{Point: hook.OnError, Step: "t5-p1-c0"},
				{Point: hook.OnError},
			},
			[]event.Event{of("t5", event.TurnFailed{Sequence: 5})},
			[]turn.Part{turn.Work("t5-p1-c1"), turn.Work("t5-p1-c0"), turn.Work("t5-p1-c0"), turn.Ending(5)},
		},
		"an input that waited, and a command": {
			event.Trigger{Sequence: 7, Cause: subject.Cancel},
			asked(hook.OnError, hook.AfterReflect),
			[]event.Event{of("", event.TurnFailed{Sequence: 6}), of("", event.Recorded{Sequence: 8, Command: "help"})},
			[]turn.Part{none, none},
		},
		"what cannot be read": {
			event.Trigger{},
			asked(hook.BeforePlan),
			[]event.Event{{Type: event.TypePlanRequested, Data: []byte(`[]`)}},
			[]turn.Part{none},
		},
	} {
		got := turn.PartsOf(event.Commit{Header: event.Header{Trigger: c.trigger, Hooks: c.hooks}, Events: c.events})
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}
