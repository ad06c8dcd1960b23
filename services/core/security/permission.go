package security

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"skandha.dev/services/core/decide"
)

// DefaultPermissions returns the permissions of an agent without configured ones: those of
// the built-in tools, for which policy requires a confirmation where they cannot be undone.
// A plugin's tool that needs another permission, such as mail.send, is denied until the
// configuration grants it.
func DefaultPermissions() []string {
	return []string{"fs.*", "network.*", "code.execute", "schedule.*", "camera.*", "mcp.*"}
}

// granted reports whether one of the patterns matches the permission: exactly, "group.*"
// for all of a group, or "*" for all.
func granted(patterns []string, permission string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		group, all := strings.CutSuffix(p, "*")
		return p == permission || all && strings.HasPrefix(permission, group)
	})
}

// CheckPermissions reports what is wrong with patterns of permissions.
func CheckPermissions(at string, patterns []string) error {
	var errs []error
	for i, p := range patterns {
		group, _ := strings.CutSuffix(p, "*")
		if p == "" || strings.ContainsFunc(p, unicode.IsSpace) || strings.Contains(group, "*") ||
			group != p && group != "" && !strings.HasSuffix(group, ".") {
			errs = append(errs,
				fmt.Errorf("%s[%d] is %q, want a permission such as mail.send, all of a group such as fs.*, or *", at, i, p))
		}
	}
	return errors.Join(errs...)
}

// barred denies a call if a required guide of the agent is missing, because the guide may
// restrict what is granted, or if the tool needs a permission that the agent lacks. It
// takes precedence over all rules.
func barred(a *decide.Access) (decide.Ruling, bool) {
	if a.Unguided != "" {
		return decide.Ruling{Effect: decide.Deny, Rule: byGuide, Reason: a.Unguided}, true
	}
	for _, need := range a.Resource.Permissions {
		for _, patterns := range a.Granted {
			if !granted(patterns, need) {
				agent := a.Context.Ref.Agent
				return decide.Ruling{Effect: decide.Deny, Rule: byGranted, Reason: fmt.Sprintf(
					"%s needs the permission %s, which agent %s lacks; see agents.%s.permissions and the agent's guides",
					a.Resource.Name, need, agent, agent)}, true
			}
		}
	}
	return decide.Ruling{}, false
}
