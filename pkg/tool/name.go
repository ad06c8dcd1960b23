package tool

import (
	"fmt"
	"slices"
	"strings"
)

// groups are the prefixes of the names of built-in tools, before the colon. They are
// reserved, whether or not a service that offers the tools is running.
var groups = []string{
	"camera", "capability", "email", "file_system", "http", "log", "math", "mcp", "memory", "mqtt", "notes", "plan", "python", "sandbox_fs", "shell",
	"skandha", "skills", "status", "time", "tools", "web",
}

// ReservedGroups returns the groups of the names of built-in tools, in order.
func ReservedGroups() []string { return slices.Clone(groups) }

// Reserved reports whether a name is in a group of the built-in tools, ignoring case.
func Reserved(name string) bool {
	group, _, grouped := strings.Cut(name, ":")
	return grouped && slices.Contains(groups, strings.ToLower(group))
}

// CheckName returns an error if a plugin's tool cannot have the name. A valid name is
// [group:]name, each of A-Z a-z 0-9 _ . -, and its group is not reserved. Names are compared
// without regard to case; see [FoldName].
func CheckName(name string) error {
	parts := strings.Split(name, ":")
	for _, p := range parts {
		if p == "" || len(parts) > 2 ||
			strings.Trim(p, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") != "" {
			return fmt.Errorf("%q is not a valid tool name: want [group:]name, each of A-Z a-z 0-9 _ . -, for example mail:send",
				name)
		}
	}
	if Reserved(name) {
		return fmt.Errorf("%q is reserved: the group %s is used by built-in tools; choose another one", name, parts[0])
	}
	return nil
}

// FoldName returns the form in which names of tools are compared: names that differ only in
// case are equal.
func FoldName(name string) string { return strings.ToLower(name) }
