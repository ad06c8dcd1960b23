package security

import (
	"strings"

	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/tool"
)

// consequences describes, in plain words, what a call with a permission could do.
var consequences = map[string]string{
	"email.send":       "sends an e-mail to people, which cannot be undone",
	"mcp.call":         "gives its arguments to an MCP server, a program of others",
	"mcp.read":         "asks an MCP server for what it has",
	"network.email":    "connects to the mail server",
	"network.request":  "sends data to another machine, which cannot be undone",
	"network.search":   "sends its query to a search engine",
	"network.fetch":    "reads a page of another machine, and its URL can carry data there",
	"fs.delete":        "deletes files, which cannot be undone",
	"fs.write":         "changes files",
	"fs.read":          "reads files",
	"code.execute":     "runs code that the model wrote",
	"camera.look":      "takes a picture of what is before a camera",
	"schedule.create":  "wakes the agent later, without a message of a user",
	"schedule.watch":   "reads a page at intervals and wakes the agent when it changes, without a message of a user",
	"schedule.webhook": "lets another system wake the agent, without a message of a user",
}

// warning describes what could happen, and why a person is asked.
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
