// Package security decides who may do what: {principal, action, resource,
// context} → allow, deny or confirm, with a reason.
//
// Rules are read in order and the last match wins, so a narrow rule follows the
// broad one it is an exception of. Without a matching rule the tool's own risk
// decides: high means that a person is asked. Nothing here talks to the bus.
package security

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/decide"
)

// Rule is one line of the policy.
type Rule struct {
	Tool       string        `json:"tool" koanf:"tool"`             // pattern as of path.Match, e.g. "file_system:*", but * stands for slashes too; empty: any
	Permission string        `json:"permission" koanf:"permission"` // a permission the tool declares; empty: any
	Principal  string        `json:"principal" koanf:"principal"`   // pattern on the writer; empty: any
	Effect     decide.Effect `json:"effect" koanf:"effect"`         // allow, deny or confirm
	Reason     string        `json:"reason" koanf:"reason"`
}

// Policy is a checked list of rules.
type Policy struct{ rules []Rule }

// New checks the rules; the error names the rule, from 0, and the field.
func New(rules []Rule) (*Policy, error) {
	for i, r := range rules {
		switch r.Effect {
		case decide.Allow, decide.Deny, decide.Ask:
		default:
			return nil, fmt.Errorf("policy rule %d: effect is %q, want allow, deny or confirm", i, r.Effect)
		}
		for field, pattern := range map[string]string{"tool": r.Tool, "principal": r.Principal} {
			if _, err := path.Match(noSlash(pattern), ""); err != nil {
				return nil, fmt.Errorf("policy rule %d: %s %q is no pattern: %w", i, field, pattern, err)
			}
		}
	}
	return &Policy{slices.Clone(rules)}, nil
}

// Evaluate implements decide.Policy.
func (p *Policy) Evaluate(a decide.Access) decide.Ruling {
	for _, r := range slices.Backward(p.rules) {
		if r.matches(a) {
			return ruling(r.Effect, r.Reason, a.Resource)
		}
	}
	if a.Resource.Risk == tool.RiskHigh {
		return ruling(decide.Ask, "", a.Resource)
	}
	return decide.Ruling{Effect: decide.Allow}
}

func (r Rule) matches(a decide.Access) bool {
	return match(r.Tool, a.Resource.Name) && match(r.Principal, string(a.Principal)) &&
		(r.Permission == "" || slices.Contains(a.Resource.Permissions, r.Permission))
}

// match lets * and ? stand for slashes too: a tool's name is no path, and a rule
// that denies "mcp:*" means "mcp:files/delete".
func match(pattern, s string) bool {
	if pattern == "" {
		return true
	}
	ok, err := path.Match(noSlash(pattern), noSlash(s))
	return err == nil && ok
}

func noSlash(s string) string { return strings.ReplaceAll(s, "/", "\x00") }

func ruling(e decide.Effect, reason string, spec tool.Spec) decide.Ruling {
	out := decide.Ruling{Effect: e, Reason: reason}
	switch e {
	case decide.Deny:
		if reason == "" {
			out.Reason = "policy denies " + spec.Name
		}
	case decide.Ask:
		level, why := hook.LevelWarn, "policy asks for approval of "+spec.Name
		if spec.Risk == tool.RiskHigh {
			level, why = hook.LevelCritical, spec.Name+" is irreversible or leaves this machine"
		}
		if reason == "" {
			reason = why
		}
		out.Reason, out.Warning = reason, &hook.Warning{Level: level, Message: reason}
	}
	return out
}
