package security

import (
	"strings"

	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/tool"
)

// consequences says in a person's words what a call with a permission could do.
var consequences = map[string]string{
	"network.request": "sends data to another machine, which cannot be taken back",
	"fs.delete":       "deletes files, which cannot be brought back",
	"fs.write":        "changes files",
	"code.execute":    "runs code that the model wrote",
}

// warning tells a person what could happen, and why they are asked.
func warning(spec tool.Spec, why string) *hook.Warning {
	var could []string
	for _, p := range spec.Permissions {
		if c, known := consequences[p]; known {
			could = append(could, c)
		} else {
			could = append(could, "uses the permission "+p)
		}
	}
	high := spec.Risk == tool.RiskHigh
	switch {
	case len(could) > 0:
	case high:
		could = []string{"does something that cannot be undone or leaves this machine"}
	default:
		could = []string{"does what its arguments say"}
	}
	level := hook.LevelWarn
	if high {
		level = hook.LevelCritical
	}
	return &hook.Warning{Level: level, Message: spec.Name + " " + strings.Join(could, ", and ") + ". " + why}
}
