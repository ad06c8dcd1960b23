package planner

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/tool"
)

// ExecuteName is the tool with which a model submits a whole plan. Core itself runs it:
// its steps pass through hooks, policy and executors like any other call.
const ExecuteName = "plan:execute"

// ExecuteSpec describes plan:execute to a model.
func ExecuteSpec() tool.Spec {
	return tool.Spec{
		Name: ExecuteName,
		Description: "Runs several tools as one plan. Steps without unfinished dependencies run at the same time. " +
			"An argument may refer to an earlier step's result as ${id.field}, which also makes it a dependency. " +
			"A step whose dependency failed is skipped. The result holds every step's result by id.",
		Args:         json.RawMessage(executeArgs),
		ScenarioTags: []string{"task_execution"},
		TimeoutMS:    tool.MaxTimeout.Milliseconds(),
	}
}

const executeArgs = `{"type":"object","required":["steps"],"additionalProperties":false,"properties":{
"steps":{"type":"array","minItems":1,"maxItems":64,"items":{"type":"object","required":["tool"],"additionalProperties":false,"properties":{
"id":{"type":["string","integer"],"description":"Name of the step; its position, from 0, if absent."},
"tool":{"type":"string","description":"Name of the tool."},
"params":{"type":"object","description":"Arguments of the tool."},
"depends_on":{"type":"array","items":{"type":["string","integer"]},"description":"Ids of steps that must succeed before."}}}},
"stop_on_failure":{"type":"boolean","default":false,"description":"Skip everything that has not begun once a step has failed."}}}`

// Step is one step of a plan as the model wrote it, with its id normalized and with the
// steps that its arguments refer to among its dependencies.
type Step struct {
	ID        string
	Tool      string
	Params    json.RawMessage
	DependsOn []string
}

// Plan is the argument of plan:execute.
type Plan struct {
	Steps         []Step
	StopOnFailure bool
}

// Parse reads and checks a plan. The error joins all reasons.
func Parse(args json.RawMessage) (Plan, error) {
	var raw struct {
		Steps []struct {
			ID        *provider.ID    `json:"id"`
			Tool      string          `json:"tool"`
			Params    json.RawMessage `json:"params"`
			DependsOn []provider.ID   `json:"depends_on"`
		} `json:"steps"`
		StopOnFailure bool `json:"stop_on_failure"`
	}
	if err := json.Unmarshal(args, &raw); err != nil {
		return Plan{}, fmt.Errorf("plan is malformed: %w", err)
	}
	if len(raw.Steps) == 0 {
		return Plan{}, ErrEmptyPlan
	}
	p := Plan{StopOnFailure: raw.StopOnFailure, Steps: make([]Step, len(raw.Steps))}
	var errs []error
	for i, r := range raw.Steps {
		s := Step{ID: strconv.Itoa(i), Tool: r.Tool, Params: r.Params}
		if r.ID != nil {
			s.ID = string(*r.ID)
		}
		if len(s.Params) == 0 {
			s.Params = json.RawMessage("{}")
		}
		if r.Tool == ExecuteName {
			errs = append(errs, fmt.Errorf("step %q: a plan cannot contain %s", s.ID, ExecuteName))
		}
		for _, d := range r.DependsOn {
			s.DependsOn = append(s.DependsOn, string(d))
		}
		p.Steps[i] = s
	}
	p.link()
	errs = append(errs, Check(p.nodes()))
	return p, errors.Join(errs...)
}

// Has reports whether a step of the plan has the id.
func (p Plan) Has(id string) bool {
	return slices.ContainsFunc(p.Steps, func(s Step) bool { return s.ID == id })
}

func (p Plan) link() {
	known := make(map[string]bool, len(p.Steps))
	for _, s := range p.Steps {
		known[s.ID] = true
	}
	for i := range p.Steps {
		s := &p.Steps[i]
		s.DependsOn = Link(s.DependsOn, s.Params, func(id string) bool { return known[id] })
	}
}

// Link returns deps and the steps that args refer to, without duplicates.
func Link(deps []string, args json.RawMessage, known func(id string) bool) []string {
	seen := make(map[string]bool, len(deps))
	var out []string
	for _, d := range append(append([]string{}, deps...), References(args, known)...) {
		if !seen[d] {
			seen[d] = true
			out = append(out, d)
		}
	}
	return out
}

func (p Plan) nodes() []Node {
	nodes := make([]Node, len(p.Steps))
	for i, s := range p.Steps {
		nodes[i] = Node{s.ID, s.DependsOn}
	}
	return nodes
}
