package security

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/decide"
)

// Names of what decides if no rule does.
const (
	byRisk       = "risk"             // the tool's risk is high
	byPermission = "permission"       // the tool's effect leaves the machine, cannot be undone, or happens later
	byPackages   = "packages"         // the call names packages after a text from outside was read
	byStranger   = "stranger"         // the tool reads files, and the answer goes to somebody outside
	byGuide      = "guide"            // a required guide of the agent is missing
	byGranted    = decide.RuleGranted // the agent lacks a permission that the tool needs
	byDefault    = "default"          // nothing requires another decision
)

// Policy is a checked list of rules. It is safe for concurrent use.
type Policy struct{ calls, answers []rule } // by action, in their order

// rule is a Rule, prepared for matching.
type rule struct {
	Rule
	name                   string // "policy[3]"
	tool, principal, agent pattern
	after                  pattern
	args                   []argument
	obligations            *event.Obligations
}

// New checks the rules. The error lists each mistake with its rule, counted from 0, and
// its field: "policy[2].effect is …".
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

// Evaluate implements decide.Policy. It denies unknown actions.
func (p *Policy) Evaluate(a decide.Access) decide.Ruling {
	switch a.Action {
	case event.ActionCall:
		if denied, is := barred(&a); is {
			return denied
		}
		if r := last(p.calls, &a); r != nil {
			return r.ruling(a.Resource)
		}
		return byItself(&a)
	case event.ActionConfirmation:
		if r := last(p.answers, &a); r != nil {
			return r.answering(&a)
		}
		return decide.Ruling{Effect: decide.Allow, Rule: byDefault} // any client that can write answers may answer
	}
	return decide.Ruling{Effect: decide.Deny, Rule: byDefault, Reason: "unknown action " + strconv.Quote(a.Action)}
}

// last returns the last rule that matches, which wins; nil if none does.
func last(rules []rule, a *decide.Access) *rule {
	for i := range slices.Backward(rules) {
		if rules[i].matches(a) {
			return &rules[i]
		}
	}
	return nil
}

// byItself decides by the tool's declaration if no rule matches. A person is asked about
// effects that leave the machine or cannot be undone, and before the agent wakes itself later,
// even if the tool's author declares a low risk; about reading files if the answer goes to
// somebody outside; and about packages that code names after a text from outside was read.
func byItself(a *decide.Access) decide.Ruling {
	spec, rule, why := a.Resource, byDefault, ""
	if spec.Risk == tool.RiskHigh {
		rule, why = byRisk, "It is of high risk, and no policy rule overrides this."
	} else if i := slices.IndexFunc(spec.Permissions, asks); i >= 0 {
		rule, why = byPermission, "It has the permission "+spec.Permissions[i]+", and no policy rule overrides this."
	} else if to := a.Context.Stranger; to != "" && reads(spec) {
		rule, why = byStranger, "The answer may say what it reads, and goes to the sender of the input, "+to+"."
	}
	if why == "" && len(a.Context.After) > 0 && installs(a) {
		rule, why = byPackages, "It names packages, and the package index sees the names."
	}
	if why == "" {
		return decide.Ruling{Effect: decide.Allow, Rule: rule}
	}
	w := warning(spec, why)
	return decide.Ruling{Effect: decide.Ask, Rule: rule, Reason: w.Message, Warning: w}
}

// asks reports whether the effects that a permission allows leave the machine, cannot be undone,
// or happen later, when nobody may watch.
func asks(permission string) bool {
	return strings.HasPrefix(permission, "network.") || permission == "fs.delete" ||
		permission == "schedule.create" || permission == "schedule.webhook" || permission == "schedule.watch"
}

// installs reports whether a call that runs code names packages to install.
func installs(a *decide.Access) bool {
	var args struct {
		Dependencies []string `json:"dependencies"`
		Requirements []string `json:"requirements"`
	}
	return slices.Contains(a.Resource.Permissions, "code.execute") &&
		(json.Unmarshal(a.Context.Args, &args) != nil || len(args.Dependencies)+len(args.Requirements) > 0)
}

// reads reports whether a tool reads what is kept for all sessions. A skill is instructions, and a
// sandbox holds the files of its session alone.
func reads(spec tool.Spec) bool {
	return slices.Contains(spec.Permissions, "fs.read") && !spec.Sticky && !strings.HasPrefix(spec.Name, "skills:")
}

// matches reports whether all conditions hold. It checks the cheapest first.
func (r *rule) matches(a *decide.Access) bool {
	spec := &a.Resource
	switch {
	case r.Idempotent != nil && *r.Idempotent != spec.Idempotent,
		r.Risk != "" && r.Risk != riskOf(spec),
		r.Permission != "" && !r.permits(spec.Permissions),
		!r.tool.match(r.nameOf(spec)), !r.matchesPrincipal(a), !r.agent.match(string(a.Context.Ref.Agent)),
		!r.follows(a.Context.After):
		return false
	}
	for _, arg := range r.args {
		if !arg.match(a.Context.Args, r.Effect != decide.Allow) {
			return false
		}
	}
	return true
}

// follows reports whether the model has seen a text from outside that the rule is about.
func (r *rule) follows(labels []string) bool {
	switch r.After {
	case "":
		return true
	case Untrusted:
		return len(labels) > 0
	}
	return slices.ContainsFunc(labels, r.after.match)
}

// matchesPrincipal reports whether the rule is about the principal: by its writer, or, if the
// pattern has a slash, by the writer and the person.
func (r *rule) matchesPrincipal(a *decide.Access) bool {
	if strings.Contains(r.Principal, "/") {
		return r.principal.match(a.Name())
	}
	return r.principal.match(string(a.Principal))
}

// permits reports whether the rule's permissions match those that a tool needs: all of
// them to allow, otherwise any of them.
func (r *rule) permits(needs []string) bool {
	of := strings.Fields(r.Permission)
	about := func(need string) bool { return granted(of, need) }
	if r.Effect != decide.Allow {
		return slices.ContainsFunc(needs, about)
	}
	return len(needs) > 0 && !slices.ContainsFunc(needs, func(need string) bool { return !about(need) })
}

// nameOf returns a tool's name in the form that the rule's pattern matches.
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
	out := decide.Ruling{Effect: r.Effect, Rule: r.name, Reason: r.Reason, Obligations: r.obligations, Ungrantable: r.After != ""}
	switch r.Effect {
	case decide.Deny:
		if out.Reason == "" {
			out.Reason = "policy denies " + spec.Name
		}
	case decide.Ask:
		why := "Rule " + r.name + " requires approval."
		if r.Reason != "" {
			why = "Rule " + r.name + " requires approval: " + r.Reason + "."
		}
		out.Warning = warning(spec, why)
		out.Reason = out.Warning.Message
	}
	return out
}

// answering decides whether the principal may answer.
func (r *rule) answering(a *decide.Access) decide.Ruling {
	out := decide.Ruling{Effect: r.Effect, Rule: r.name, Reason: r.Reason}
	if out.Effect == decide.Deny && out.Reason == "" {
		out.Reason = "policy does not allow " + a.Name() + " to answer for " + a.Resource.Name
	}
	return out
}
