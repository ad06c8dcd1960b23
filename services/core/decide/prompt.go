package decide

import (
	"encoding/json"
	"slices"
	"strings"

	"skandha.dev/pkg/provider"
	"skandha.dev/services/core/planner"
)

// Prompt is what the model is asked with, for the plan that is under way: the
// guide, the latest turns, and the tools that the plan offers.
func Prompt(s *State, agent *Agent, tools Catalog) provider.Request {
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
	for _, name := range p.Tools {
		if spec, ok := tools.Lookup(name); ok {
			r.Tools = append(r.Tools, provider.ToolSpec{Name: spec.Name, Description: spec.Description, Args: spec.Args})
		} else if name == planner.ExecuteName {
			x := planner.ExecuteSpec()
			r.Tools = append(r.Tools, provider.ToolSpec{Name: x.Name, Description: x.Description, Args: x.Args})
		}
	}
	return r
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
