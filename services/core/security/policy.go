package security

import (
	"slices"
	"strconv"
	"strings"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/decide"
)

// What decides where no rule does.
const (
	byRisk       = "risk"       // the tool's own, which is high
	byPermission = "permission" // one that leaves the machine or cannot be undone
	byGuide      = "guide"      // a guide that the agent requires is missing
	byGranted    = "granted"    // the agent does not have a permission that it needs
	byDefault    = "default"    // nothing speaks against it
)

// Policy is a checked list of rules. It is safe for concurrent use.
type Policy struct{ calls, answers []rule } // by action, in their order

// rule is a Rule, made ready for matching.
type rule struct {
	Rule
	name                   string // "policy[3]"
	tool, principal, agent pattern
	args                   []argument
	obligations            *event.Obligations
}

// New checks the rules. The error names each fault by its rule, from 0, and field:
// "policy[2].effect is …".
func New(rules []Rule) (*Policy, error) {
	c := checker{}
	p := &Policy{}
	for i, r := range rules {
		checked := c.rule("policy["+strconv.Itoa(i)+"]", r)
		if r.Action == event.ActionConfirmation {
			p.answers = append(p.answers, checked)
		} else {
			p.calls = append(p.calls, checked)
		}
	}
	return p, c.err()
}

// Evaluate implements decide.Policy. An action that it does not know is denied.
func (p *Policy) Evaluate(a decide.Access) decide.Ruling {
	switch a.Action {
	case event.ActionCall:
		if denied, is := barred(&a); is {
			return denied
		}
		if r := last(p.calls, &a); r != nil {
			return r.ruling(a.Resource)
		}
		return byItself(a.Resource)
	case event.ActionConfirmation:
		if r := last(p.answers, &a); r != nil {
			return r.answering(&a)
		}
		return decide.Ruling{Effect: decide.Allow, Rule: byDefault} // whoever may write answers may answer
	}
	return decide.Ruling{Effect: decide.Deny, Rule: byDefault, Reason: "policy knows no action " + strconv.Quote(a.Action)}
}

// last is the rule that wins; nil if none matches.
func last(rules []rule, a *decide.Access) *rule {
	for i := range slices.Backward(rules) {
		if rules[i].matches(a) {
			return &rules[i]
		}
	}
	return nil
}

// byItself rules where no rule does: what the tool says of itself counts. A
// person is asked about what leaves the machine or cannot be undone, also if its
// author calls that a low risk.
func byItself(spec tool.Spec) decide.Ruling {
	rule, why := byDefault, ""
	if spec.Risk == tool.RiskHigh {
		rule, why = byRisk, "It is of high risk, and no rule of the policy says otherwise."
	} else if i := slices.IndexFunc(spec.Permissions, irrevocable); i >= 0 {
		rule, why = byPermission, "It has the permission "+spec.Permissions[i]+", and no rule of the policy says otherwise."
	}
	if why == "" {
		return decide.Ruling{Effect: decide.Allow, Rule: rule}
	}
	w := warning(spec, why)
	return decide.Ruling{Effect: decide.Ask, Rule: rule, Reason: w.Message, Warning: w}
}

// irrevocable reports whether what a permission lets happen leaves the machine, or
// cannot be undone.
func irrevocable(permission string) bool {
	return strings.HasPrefix(permission, "network.") || permission == "fs.delete"
}

// matches looks at what costs least first.
func (r *rule) matches(a *decide.Access) bool {
	spec := &a.Resource
	switch {
	case r.Idempotent != nil && *r.Idempotent != spec.Idempotent,
		r.Risk != "" && r.Risk != riskOf(spec),
		r.Permission != "" && !r.permits(spec.Permissions),
		!r.tool.match(r.nameOf(spec)), !r.principal.match(string(a.Principal)), !r.agent.match(string(a.Context.Ref.Agent)):
		return false
	}
	for _, arg := range r.args {
		if !arg.match(a.Context.Args, r.Effect != decide.Allow) {
			return false
		}
	}
	return true
}

// permits reports whether the rule is about what a tool needs: to allow, about all of it,
// otherwise about any of it.
func (r *rule) permits(needs []string) bool {
	of := strings.Fields(r.Permission)
	about := func(need string) bool { return granted(of, need) }
	if r.Effect != decide.Allow {
		return slices.ContainsFunc(needs, about)
	}
	return len(needs) > 0 && !slices.ContainsFunc(needs, func(need string) bool { return !about(need) })
}

// nameOf is a tool's name as the rule's pattern has it.
func (r *rule) nameOf(spec *tool.Spec) string {
	if r.Effect == decide.Allow {
		return spec.Name
	}
	return tool.FoldName(spec.Name)
}

func riskOf(spec *tool.Spec) tool.Risk {
	if spec.Risk == "" {
		return tool.RiskLow
	}
	return spec.Risk
}

func (r *rule) ruling(spec tool.Spec) decide.Ruling {
	out := decide.Ruling{Effect: r.Effect, Rule: r.name, Reason: r.Reason, Obligations: r.obligations}
	switch r.Effect {
	case decide.Deny:
		if out.Reason == "" {
			out.Reason = "policy denies " + spec.Name
		}
	case decide.Ask:
		why := "The rule " + r.name + " of the policy asks for an approval."
		if r.Reason != "" {
			why = "The rule " + r.name + " of the policy asks for an approval: " + r.Reason + "."
		}
		out.Warning = warning(spec, why)
		out.Reason = out.Warning.Message
	}
	return out
}

// answering rules whether somebody may answer.
func (r *rule) answering(a *decide.Access) decide.Ruling {
	out := decide.Ruling{Effect: r.Effect, Rule: r.name, Reason: r.Reason}
	if out.Effect == decide.Deny && out.Reason == "" {
		out.Reason = "policy does not let " + string(a.Principal) + " answer for " + a.Resource.Name
	}
	return out
}
