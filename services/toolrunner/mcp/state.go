package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/toolrunner/tools"
)

// StateTool is the internal tool that lists the servers; its data is []State.
const StateTool = "mcp:servers"

// State is how the connection to a server is.
type State struct {
	Name      string   `json:"name"`
	Transport string   `json:"transport"` // http or stdio
	Isolation string   `json:"isolation,omitempty"`
	Added     bool     `json:"added,omitempty"` // while the system ran
	Connected bool     `json:"connected"`
	Protocol  string   `json:"protocol,omitempty"`
	Server    string   `json:"server,omitempty"` // what it calls itself
	Tools     []string `json:"tools,omitempty"`
	LeftOut   []string `json:"left_out,omitempty"` // what is not offered, and why
	Error     string   `json:"error,omitempty"`    // why there is no connection
	// Warnings say what of the connection was skipped.
	Warnings []string `json:"warnings,omitempty"`
}

// States lists the servers, by name.
func (g *Group) States() []State {
	g.mu.Lock()
	links := slices.Collect(maps.Values(g.links))
	offered := maps.Clone(g.tools)
	g.mu.Unlock()
	out := make([]State, 0, len(links))
	for _, l := range links {
		s := l.state()
		for _, t := range offered {
			if t.link == l {
				s.Tools = append(s.Tools, t.Spec.Name)
			}
		}
		slices.Sort(s.Tools)
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b State) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

func (l *link) state() State {
	known := l.secrets()
	l.mu.Lock()
	defer l.mu.Unlock()
	s := State{Name: l.name, Transport: l.server.transport(), Added: l.added, Connected: l.session != nil, LeftOut: l.catalog.out}
	if l.server.URL == "" {
		s.Isolation = string(cmp.Or(l.server.Isolation, Sandbox))
	}
	if l.session != nil {
		s.Protocol, s.Server, s.Warnings = l.session.protocol(), l.session.implementation(), l.session.warnings()
	}
	if l.err != nil {
		s.Error = brief(errors.New(known.Hide(l.err.Error())))
	}
	return s
}

// Query returns the tool that lists the servers, for people who run the system.
func Query(g func() *Group) tools.Tool {
	return tools.New(tool.Spec{
		Name: StateTool, Description: "Lists the MCP servers, and how the connections to them are.",
		Args:       json.RawMessage(`{"type":"object","properties":{},"additionalProperties":false}`),
		Idempotent: true, Internal: true, Risk: tool.RiskLow,
	}, func(_ context.Context, _ tools.Call, _ struct{}) tool.Result { return tool.OK(g().States()) })
}
