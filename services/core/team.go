package core

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/internal/text"
)

// Bounds of teams.
const (
	defaultDepth, maxDepth       = 1, 8
	defaultChildren, maxChildren = 8, 32
	maxAbout                     = 500 // bytes of a description
)

// team checks the team of an agent; nil: it has none.
func (c Config) team(name string) (*decide.Team, error) {
	t := c.Agents[name].Team
	if t == nil {
		return nil, nil
	}
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("agents."+name+".team"+format, args...))
	}
	out := &decide.Team{Depth: defaultDepth, Children: defaultChildren, About: map[subject.Agent]string{}}
	if len(t.Agents) == 0 {
		bad(".agents is empty, want the names of agents that may be given tasks")
	}
	for i, other := range t.Agents {
		if _, known := c.Agents[other]; !known || slices.Contains(t.Agents[:i], other) {
			bad(".agents[%d] is %q, want the name of an agent in agents, without duplicates", i, other)
		}
		out.Agents = append(out.Agents, subject.Agent(other))
		out.About[subject.Agent(other)] = text.Cut(strings.Join(strings.Fields(c.Agents[other].Description), " "), maxAbout)
	}
	set(&out.Depth, t.Depth)
	set(&out.Children, t.Children)
	if out.Depth < 1 || out.Depth > maxDepth {
		bad(".depth is %d, want 1 to %d", out.Depth, maxDepth)
	}
	if out.Children < 1 || out.Children > maxChildren {
		bad(".children is %d, want 1 to %d", out.Children, maxChildren)
	}
	return out, errors.Join(errs...)
}
