package decide

import (
	"encoding/json"
	"slices"
	"strings"

	"skandha.dev/pkg/guide"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/planner"
)

// Prompt returns the request to the model for the plan in progress: the guide and the
// latest turns. [Describe] adds the tools that the plan offers.
func Prompt(s *State, agent *Agent) provider.Request {
	p := s.Turn.Plan
	if p.Question != nil {
		r := s.prompt(p.Question)
		r.Model = p.Model
		if agent != nil {
			r.MaxCostMicroUSD = s.affordable(agent.Limits.within(s.Terms))
		}
		return r
	}
	r := provider.Request{System: p.System, Model: p.Model}
	policy, limit := guide.SlidingWindow, DefaultLimits().WindowTurns
	if agent != nil {
		if r.System == "" {
			r.System = agent.Guide.System()
		}
		r.Temperature = agent.Guide.Temperature
		r.MaxCostMicroUSD = s.affordable(agent.Limits.within(s.Terms))
		policy = agent.Guide.MemoryPolicy
		if agent.Limits.WindowTurns > 0 {
			limit = agent.Limits.WindowTurns
		}
	}
	team := ""
	if agent != nil {
		team = agent.within(s.Terms, nil).introduction()
	}
	for _, more := range []string{team, notes(s.Project), s.Turn.Recalled.reminder(), strings.Join(p.Notes, "\n")} {
		if more != "" {
			r.System = strings.TrimSpace(r.System + "\n\n" + more)
		}
	}
	r.Messages = s.conversation(policy, limit)
	return r
}

// conversation returns what the model sees of the conversation, under a memory policy.
func (s *State) conversation(policy guide.MemoryPolicy, turns int) []json.RawMessage {
	switch policy {
	case guide.None:
		return window(s.Window, 1)
	case guide.Summary:
		turns = len(s.Window)
	}
	messages := window(s.Window, turns)
	if s.Summary != nil {
		messages = slices.Insert(messages, 0, s.Summary.message())
	}
	return messages
}

// affordable returns what the next answer may cost at most; nil if there is no limit.
func (s *State) affordable(l Limits) *int64 {
	held := s.reserved().CostMicroUSD
	var least *int64
	for _, x := range []struct{ limit, spent int64 }{
		{l.CostMicroUSD, s.Turn.Usage.CostMicroUSD}, {l.SessionCostMicroUSD, s.Usage.CostMicroUSD},
	} {
		if left := max(x.limit-x.spent-held, 0); x.limit > 0 && (least == nil || left < *least) {
			least = &left
		}
	}
	return least
}

// Describe returns the descriptions of the tools that are offered to the model.
func Describe(offered []string, lookup func(name string) (tool.Spec, bool)) []provider.ToolSpec {
	out := make([]provider.ToolSpec, 0, len(offered))
	for _, name := range offered {
		if spec, ok := lookup(name); ok {
			out = append(out, provider.ToolSpec{Name: spec.Name, Description: spec.Description, Args: spec.Args})
		} else if x, own := planner.Own(name); own {
			out = append(out, provider.ToolSpec{Name: x.Name, Description: x.Description, Args: x.Args})
		}
	}
	return out
}

// window returns the messages of the latest turns, whole turns only.
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
