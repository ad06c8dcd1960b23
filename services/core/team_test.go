package core

import (
	"strings"
	"testing"
)

func TestTeamsAreChecked(t *testing.T) {
	n := func(i int) *int { return &i }
	agents := func(team *TeamConfig) Config {
		return Config{Agents: map[string]AgentConfig{"main": {Team: team}, "helper": {}}}
	}
	good := agents(&TeamConfig{Agents: []string{"helper", "main"}, Depth: n(2)})
	all, _, err := good.Build()
	if err != nil {
		t.Fatal(err)
	}
	if team := all["main"].Team; team.Depth != 2 || team.Children != defaultChildren || len(team.Agents) != 2 || all["helper"].Team != nil {
		t.Errorf("%+v", team)
	}
	for want, team := range map[string]*TeamConfig{
		"agents.main.team.agents is empty":             {},
		`agents.main.team.agents[1] is "other"`:        {Agents: []string{"helper", "other"}},
		`agents.main.team.agents[1] is "helper"`:       {Agents: []string{"helper", "helper"}},
		"agents.main.team.depth is 9, want 1 to 8":     {Agents: []string{"helper"}, Depth: n(9)},
		"agents.main.team.children is 0, want 1 to 32": {Agents: []string{"helper"}, Children: n(0)},
	} {
		if _, _, err := agents(team).Build(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
