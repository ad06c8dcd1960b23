package decide

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/planner"
)

// steps turns the calls of an answer into steps, and returns the results of those that
// are refused at once. The steps keep the answer's order; the steps of a plan follow
// their plan.
func (b *builder) steps(p Plan, r provider.Response) (steps []event.Step, refused map[string]tool.Result) {
	refused = map[string]tool.Result{}
	ids := make(map[string]string, len(r.ToolCalls)) // the model's id -> ours
	nodes := make([]planner.Node, len(r.ToolCalls))
	names := callIDs(r.ToolCalls)
	for i, c := range r.ToolCalls {
		st := event.Step{Call: fmt.Sprintf("%s-c%d", p.ID, i), CallID: names[i], Tool: c.Tool, Args: c.Args}
		if len(st.Args) == 0 {
			st.Args = json.RawMessage("{}")
		}
		ids[st.CallID] = st.Call
		nodes[i] = planner.Node{ID: st.CallID, DependsOn: c.DependsOn}
		steps = append(steps, st)
	}
	for i, st := range steps {
		own := func(string) bool { return false }
		if st.Tool == planner.ExecuteName {
			plan, _ := planner.Parse(st.Args) // refused in expand
			own = plan.Has
		}
		known := func(id string) bool { _, ok := ids[id]; return ok && !own(id) }
		nodes[i].DependsOn = planner.Link(nodes[i].DependsOn, st.Args, known)
	}
	planErr := planner.Check(nodes)
	limit := b.agent().Limits.Calls
	for i := range steps {
		st := &steps[i]
		switch {
		case limit > 0 && i >= limit:
			refused[st.Call] = tool.Failure(tool.CodeNotRun, fmt.Sprintf("more than %d calls in one answer", limit))
		case planErr != nil:
			refused[st.Call] = tool.Failure(tool.CodeInvalidPlan, "the dependencies between the calls are invalid",
				planner.Reasons(planErr)...)
		default:
			for _, d := range nodes[i].DependsOn {
				st.DependsOn = append(st.DependsOn, ids[d])
			}
			if res, bad := b.checkCall(p, st); bad {
				refused[st.Call] = res
			}
		}
	}
	return b.expand(p, steps, refused), refused
}

// callIDs returns a unique id for every call: the model's id if it is unique.
func callIDs(calls []provider.ToolCall) []string {
	given := make(map[string]bool, len(calls))
	for _, c := range calls {
		given[c.ID] = true
	}
	used := map[string]bool{"": true}
	ids := make([]string, len(calls))
	for i, c := range calls {
		id := c.ID
		for n := i; used[id]; n++ {
			if free := "call_" + strconv.Itoa(n); !given[free] {
				id = free
			}
		}
		used[id] = true
		ids[i] = id
	}
	return ids
}

// checkCall refuses tools that were not offered, and invalid arguments. Whatever it
// cannot check yet is checked before the call runs.
func (b *builder) checkCall(p Plan, st *event.Step) (tool.Result, bool) {
	if !slices.Contains(p.Tools, st.Tool) {
		if why := b.s.Turn.excludes(st.Tool); why != "" {
			return tool.Failure(tool.CodeDenied, why), true
		}
		return tool.Failure(tool.CodeUnknownTool, fmt.Sprintf("tool %q was not offered", st.Tool),
			"offered: "+strings.Join(p.Tools, ", ")), true
	}
	if _, own := planner.Own(st.Tool); own {
		return tool.Result{}, false // plan:execute is checked in expand, tools:find when it is answered
	}
	spec, known := b.env.Tools.Lookup(st.Tool)
	if !known {
		return tool.Result{}, false // its runners have stopped, and may return
	}
	st.Idempotent = spec.Idempotent
	if len(planner.References(st.Args, func(string) bool { return true })) > 0 {
		return tool.Result{}, false // the references are not resolved yet
	}
	args, errs := b.env.Tools.Validate(st.Tool, st.Args)
	if len(errs) > 0 {
		return tool.Failure(tool.CodeInvalidArgs, schemaMismatch, errs...), true
	}
	st.Args = args
	if b.checked == nil {
		b.checked = map[string]bool{}
	}
	b.checked[st.Call] = true
	return tool.Result{}, false
}

// expand inserts the steps of each plan:execute call after it.
func (b *builder) expand(p Plan, steps []event.Step, refused map[string]tool.Result) []event.Step {
	out := make([]event.Step, 0, len(steps))
	for _, st := range steps {
		if _, bad := refused[st.Call]; bad || st.Tool != planner.ExecuteName {
			out = append(out, st)
			continue
		}
		plan, err := planner.Parse(st.Args)
		subs, errs := b.substeps(p, st, plan)
		if err = errors.Join(err, errs); err != nil {
			refused[st.Call] = tool.Failure(tool.CodeInvalidPlan, "invalid plan", planner.Reasons(err)...)
			out = append(out, st)
			continue
		}
		st.StopOnFailure = plan.StopOnFailure
		out = append(append(out, st), subs...)
	}
	return out
}

func (b *builder) substeps(p Plan, parent event.Step, plan planner.Plan) ([]event.Step, error) {
	ids := make(map[string]string, len(plan.Steps))
	for i, s := range plan.Steps {
		ids[s.ID] = fmt.Sprintf("%s-s%d", parent.Call, i)
	}
	var errs []error
	subs := make([]event.Step, len(plan.Steps))
	for i, s := range plan.Steps {
		st := event.Step{Call: ids[s.ID], CallID: s.ID, Parent: parent.Call, Tool: s.Tool, Args: s.Params}
		if s.Tool != planner.ExecuteName {
			if res, bad := b.checkCall(p, &st); bad {
				for _, d := range append([]string{res.Error.Message}, res.Error.Details...) {
					errs = append(errs, fmt.Errorf("step %q: %s", s.ID, d))
				}
			}
		}
		st.DependsOn = slices.Clone(parent.DependsOn)
		for _, d := range s.DependsOn {
			st.DependsOn = append(st.DependsOn, ids[d])
		}
		subs[i] = st
	}
	return subs, errors.Join(errs...)
}
