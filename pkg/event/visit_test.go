package event_test

import (
	"errors"
	"reflect"
	"testing"

	"skandha.dev/pkg/event"
)

// payloads has a payload of every type that a commit may carry.
var payloads = []event.Payload{
	event.Perceived{Sequence: 1},
	event.Recalled{Plan: "2"},
	event.PlanConsidered{Plan: "17"},
	event.PlanRequested{Plan: "2"},
	event.PlanCompleted{Plan: "3"},
	event.ActRequested{Call: "4"},
	event.ActApproved{Call: "5a"},
	event.ActConfirmed{Call: "5"},
	event.ActCompleted{Call: "6"},
	event.Audited{Call: "7"},
	event.Recorded{Sequence: 8},
	event.TurnFailed{Sequence: 9},
	event.SessionLocked{Reason: "10"},
	event.SessionReset{By: "11"},
	event.SessionPaused{By: "11a", Paused: true},
	event.Checkpoint{Reason: "12", State: []byte("{}")},
	event.Summarized{Plan: "12"},
	event.UIMessage{Content: "13"},
	event.ToolCallRequest{ToolName: "14"},
	event.UIReady{},
	event.UIState{State: "16"},
}

// recorder returns a visitor that hands every payload to f.
func recorder(f func(event.Payload)) (v event.Visitor) {
	all := reflect.ValueOf(&v).Elem()
	for i := range all.NumField() {
		of := all.Field(i).Type()
		all.Field(i).Set(reflect.MakeFunc(of, func(args []reflect.Value) []reflect.Value {
			f(args[0].Interface().(event.Payload))
			return nil
		}))
	}
	return v
}

func TestAVisitorHasAFunctionForEveryTypeOfACommit(t *testing.T) {
	if n := reflect.TypeFor[event.Visitor]().NumField(); n != len(event.CommitTypes()) {
		t.Errorf("it has %d functions for %d types", n, len(event.CommitTypes()))
	}
	for i, typ := range event.CommitTypes() {
		e := event.New(ref, "1", "x", payloads[i])
		if e.Type != typ {
			t.Fatalf("payload %d is of %s, want %s", i, e.Type, typ)
		}
		var got []event.Payload
		if err := recorder(func(p event.Payload) { got = append(got, p) }).Visit(e); err != nil || len(got) != 1 {
			t.Fatalf("%s: %d calls, %v", typ, len(got), err)
		}
		if encode(t, got[0]) != encode(t, payloads[i]) || got[0].EventType() != typ {
			t.Errorf("%s: got %T %+v", typ, got[0], got[0])
		}
	}
}

func TestAVisitorReportsWhatItCannotRead(t *testing.T) {
	all := recorder(func(p event.Payload) { t.Errorf("called with %T", p) })
	for _, typ := range event.CommitTypes() {
		e := event.Event{Type: typ, Data: []byte(`[]`)}
		if err := all.Visit(e); !errors.Is(err, event.ErrMalformed) {
			t.Errorf("%s without a payload: %v", typ, err)
		}
		if err := (event.Visitor{}).Visit(e); err != nil { // nobody needs its data
			t.Errorf("%s that is passed over: %v", typ, err)
		}
	}
	for _, typ := range []event.Type{"", event.TypeCommit, event.TypeInput, event.TypeDelta, "skandha.ui.state.v2"} {
		for _, v := range []event.Visitor{all, {}} {
			if err := v.Visit(event.Event{Type: typ, Data: []byte(`{}`)}); !errors.Is(err, event.ErrUnknownType) {
				t.Errorf("type %q: %v, want ErrUnknownType", typ, err)
			}
		}
	}
}
