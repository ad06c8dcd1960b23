package planner_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/planner"
	"skandha.dev/services/internal/toolschema"
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		name, args string
		want       []planner.Step
		err        error
	}{
		{
			"numbers and strings are the same ids",
			`{"steps":[{"id":1,"tool":"a"},{"id":"2","tool":"b","depends_on":["1"]},{"id":3,"tool":"c","depends_on":[1,2]}]}`,
			[]planner.Step{
				{ID: "1", Tool: "a"},
				{ID: "2", Tool: "b", DependsOn: []string{"1"}},
				{ID: "3", Tool: "c", DependsOn: []string{"1", "2"}},
			},
			nil,
		},
		{
			"positions are ids where none is given", `{"steps":[{"tool":"a"},{"tool":"b","depends_on":[0]}]}`,
			[]planner.Step{{ID: "0", Tool: "a"}, {ID: "1", Tool: "b", DependsOn: []string{"0"}}},
			nil,
		},
		{"a position taken by an id", `{"steps":[{"id":1,"tool":"a"},{"tool":"b"}]}`, nil, planner.ErrDuplicateID},
		{"null ids are none", `{"steps":[{"id":null,"tool":"a"}]}`, []planner.Step{{ID: "0", Tool: "a"}}, nil},
		{
			"references are dependencies, once",
			`{"steps":[{"id":"a","tool":"a"},{"id":"b","tool":"b","depends_on":["a"],"params":{"x":"${a.y} ${a} ${HOME}"}}]}`,
			[]planner.Step{
				{ID: "a", Tool: "a"},
				{ID: "b", Tool: "b", DependsOn: []string{"a"}, Params: json.RawMessage(`{"x":"${a.y} ${a} ${HOME}"}`)},
			},
			nil,
		},
		{"a reference to itself", `{"steps":[{"id":"a","tool":"a","params":{"x":"${a}"}}]}`, nil, planner.ErrSelfDependency},
		{
			"references in a circle",
			`{"steps":[{"id":"a","tool":"a","params":{"x":"${b}"}},{"id":"b","tool":"a","params":{"x":"${a}"}}]}`, nil,
			planner.ErrCycle,
		},
		{"no steps", `{}`, nil, planner.ErrEmptyPlan},
		{"an unknown dependency", `{"steps":[{"tool":"a","depends_on":[7]}]}`, nil, planner.ErrUnknownDependency},
		{
			"too many steps", `{"steps":[` + strings.TrimSuffix(strings.Repeat(`{"tool":"a"},`, 65), ",") + `]}`, nil,
			planner.ErrTooManySteps,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := planner.Parse(json.RawMessage(c.args))
			if !errors.Is(err, c.err) || c.err == nil && err != nil {
				t.Fatalf("%v, want %v", err, c.err)
			}
			if err != nil {
				return
			}
			if len(p.Steps) != len(c.want) {
				t.Fatalf("%+v", p.Steps)
			}
			for i, want := range c.want {
				got := p.Steps[i]
				if want.Params == nil {
					want.Params = json.RawMessage(`{}`)
				}
				if got.ID != want.ID || got.Tool != want.Tool || string(got.Params) != string(want.Params) ||
					!slices.Equal(got.DependsOn, want.DependsOn) {
					t.Errorf("step %d is %+v, want %+v", i, got, want)
				}
			}
		})
	}
	for _, args := range []string{
		``, `null`, `[]`, `7`, `"x"`, `{"steps":{}}`, `{"steps":[7]}`, `{"steps":[{"id":{}}]}`, `{"steps":[{"id":true}]}`,
		`{"steps":[{"tool":1}]}`,
	} {
		if _, err := planner.Parse(json.RawMessage(args)); err == nil {
			t.Errorf("%s is accepted as a plan", args)
		}
	}
}

func TestAPlanHoldsNoPlan(t *testing.T) {
	_, err := planner.Parse(json.RawMessage(`{"steps":[{"id":"a","tool":"plan:execute"},{"id":"a","tool":"x"}]}`))
	if err == nil || !strings.Contains(err.Error(), "cannot contain plan:execute") ||
		!errors.Is(err, planner.ErrDuplicateID) {
		t.Fatal(err)
	}
}

func TestStopOnFailureIsRead(t *testing.T) {
	p, err := planner.Parse(json.RawMessage(`{"steps":[{"tool":"a"}],"stop_on_failure":true}`))
	if err != nil || !p.StopOnFailure || !p.Has("0") || p.Has("1") {
		t.Fatalf("%+v, %v", p, err)
	}
}

// The schema for models describes what Parse accepts.
func TestTheSpecsSchemaIsSound(t *testing.T) {
	spec := planner.ExecuteSpec()
	v, err := toolschema.Compile(spec)
	if err != nil {
		t.Fatal(err)
	}
	if spec.Internal || spec.Timeout() != tool.MaxTimeout {
		t.Fatalf("%+v", spec)
	}
	good := json.RawMessage(`{"steps":[{"id":1,"tool":"a","params":{"x":1}},{"tool":"b","depends_on":[1,"1"]}],"stop_on_failure":true}`)
	if _, errs := v.Validate(good); len(errs) > 0 {
		t.Fatal(errs)
	}
	for _, bad := range []string{
		`{}`, `{"steps":[]}`, `{"steps":[{}]}`, `{"steps":[{"tool":"a","id":1.5}]}`, `{"steps":[{"tool":"a"}],"x":1}`,
	} {
		if _, errs := v.Validate(json.RawMessage(bad)); len(errs) == 0 {
			t.Errorf("%s matches the schema", bad)
		}
	}
}
