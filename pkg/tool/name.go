package tool

import (
	"fmt"
	"slices"
	"strings"
)

// groups are what the names of built-in tools begin with, before the colon. They are
// reserved, whether or not a service that offers them is up.
var groups = []string{
	"file_system", "http", "log", "math", "memory", "notes", "plan", "python", "sandbox_fs", "shell", "skandha", "status", "time",
}

// Reserved reports whether a name belongs to the built-in tools, in upper or lower case.
func Reserved(name string) bool {
	group, _, grouped := strings.Cut(name, ":")
	return grouped && slices.Contains(groups, strings.ToLower(group))
}

// CheckName says what is wrong with the name of a plugin's tool: it has to be
// [group:]name, each of A-Z a-z 0-9 _ . -, and its group must not be reserved. Names
// are compared without regard to case; see [FoldName].
func CheckName(name string) error {
	parts := strings.Split(name, ":")
	for _, p := range parts {
		if p == "" || len(parts) > 2 || strings.Trim(p, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") != "" {
			return fmt.Errorf("%q is no tool name: want [group:]name, each of A-Z a-z 0-9 _ . -, for example mail:send", name)
		}
	}
	if Reserved(name) {
		return fmt.Errorf("%q is reserved: the group %s belongs to built-in tools; choose another one", name, parts[0])
	}
	return nil
}

// FoldName is the form in which names of tools are compared: two names that differ in
// case alone are one.
func FoldName(name string) string { return strings.ToLower(name) }
