package decide

import (
	"encoding/json"
	"slices"
	"strings"

	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/planner"
)

// Prompt is what the model is asked with, for the plan that is under way: the
// guide and the latest turns. The tools are those that the plan offers; see
// [Describe].
func Prompt(s *State, agent *Agent) provider.Request {
	p := s.Turn.Plan
	r := provider.Request{System: p.System}
	limit := DefaultLimits().WindowTurns
	if agent != nil {
		if r.System == "" {
			r.System = agent.Guide.System()
		}
		r.Model, r.Temperature = agent.Model, agent.Guide.Temperature
		if agent.Limits.WindowTurns > 0 {
			limit = agent.Limits.WindowTurns
		}
	}
	if len(p.Notes) > 0 {
		r.System = strings.TrimSpace(r.System + "\n\n" + strings.Join(p.Notes, "\n"))
	}
	r.Messages = window(s.Window, limit)
	return r
}

// Describe is what the model is told of the tools it is offered.
func Describe(offered []string, lookup func(name string) (tool.Spec, bool)) []provider.ToolSpec {
	out := make([]provider.ToolSpec, 0, len(offered))
	for _, name := range offered {
		if spec, ok := lookup(name); ok {
			out = append(out, provider.ToolSpec{Name: spec.Name, Description: spec.Description, Args: spec.Args})
		} else if name == planner.ExecuteName {
			x := planner.ExecuteSpec()
			out = append(out, provider.ToolSpec{Name: x.Name, Description: x.Description, Args: x.Args})
		}
	}
	return out
}

// window is the messages of the latest turns, whole turns only.
func window(entries []Entry, turns int) []json.RawMessage {
	from, last := len(entries), ""
	for i, e := range slices.Backward(entries) {
		if e.Turn != last {
			if turns == 0 {
				break
			}
			turns--
			last = e.Turn
		}
		from = i
	}
	out := make([]json.RawMessage, 0, len(entries)-from)
	for _, e := range entries[from:] {
		out = append(out, e.Msg)
	}
	return out
}
