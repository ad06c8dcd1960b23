package offline

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	contract "skandha.dev/pkg/provider"
)

// part is the rule for a message, or for a part of one.
type part struct {
	*rule
	vars  map[string]any
	after bool // its calls wait for those of the previous part
}

// maxParts bounds how many requests one message may hold.
const maxParts = 8

// match returns the rule for the message, or one for each part of it, or none. Missing
// is a tool that is required and not offered.
func (s *ruleSet) match(message string, base map[string]any, tools []string) (parts []part, missing string) {
	message = s.stripped(message)
	whole, missing := s.find(message, base, tools)
	if whole.rule != nil && missing == "" && !whole.Yields {
		return []part{whole}, ""
	}
	if parts := s.cut(message, base, tools); parts != nil {
		return parts, ""
	}
	if whole.rule == nil {
		return nil, ""
	}
	return []part{whole}, missing
}

func (s *ruleSet) stripped(message string) string {
	for {
		before := message
		for _, re := range s.Strip {
			if loc := re.FindStringIndex(message); loc != nil && loc[0] < loc[1] {
				message = strings.TrimSpace(message[:loc[0]] + message[loc[1]:])
			}
		}
		if message == before {
			return message
		}
	}
}

// find returns the first matching rule whose tools are offered, or else the
// first matching one and the tool that it lacks.
func (s *ruleSet) find(message string, base map[string]any, tools []string) (found part, missing string) {
	for _, r := range s.Rules {
		vars := r.capture(message, base)
		if vars == nil {
			continue
		}
		lack := r.lacks(tools)
		if lack == "" {
			return part{rule: r, vars: vars}, ""
		}
		if found.rule == nil {
			found, missing = part{rule: r, vars: vars}, lack
		}
	}
	return found, missing
}

// capture returns the rule's variables, or nil if the message does not match.
func (r *rule) capture(message string, base map[string]any) map[string]any {
	i := slices.IndexFunc(r.Match, func(e expression) bool { return e.MatchString(message) })
	if i < 0 {
		return nil
	}
	vars := maps.Clone(base)
	// A group of another expression of the rule is empty, not missing.
	for _, e := range r.Match {
		for _, name := range e.SubexpNames() {
			vars[name] = ""
		}
	}
	names := r.Match[i].SubexpNames()
	for j, group := range r.Match[i].FindStringSubmatch(message) {
		if group != "" { // two alternatives may have a group of one name
			vars[names[j]] = group
		}
	}
	return vars
}

// lacks names a tool that the rule needs and that is not offered, if there is one.
// A tool that the message names is not looked for: core says what is unknown.
func (r *rule) lacks(tools []string) string {
	for _, c := range r.Calls {
		if _, ok := c.tool(nil, tools); !ok {
			name, _ := c.Tool[0].render(nil)
			return name
		}
	}
	return ""
}

// tool returns the first of the call's tools that is offered, or else the first.
func (c *call) tool(vars map[string]any, tools []string) (name string, ok bool) {
	if !c.Tool[0].fixed {
		name, err := c.Tool[0].render(vars)
		return name, vars == nil || err == nil
	}
	for _, t := range c.Tool {
		if name, err := t.render(vars); err == nil && slices.Contains(tools, name) {
			return name, true
		}
	}
	name, _ = c.Tool[0].render(vars)
	return name, false
}

// cut splits the message at the separators and returns a rule for each part, or
// nil: unless every part asks for tools, the message is not a list of requests.
func (s *ruleSet) cut(message string, base map[string]any, tools []string) []part {
	type piece struct {
		text  string
		after bool
	}
	pieces := []piece{{text: message}}
	for _, sp := range s.Split {
		var next []piece
		for _, p := range pieces {
			for i, text := range sp.Match.Split(p.text, maxParts+1) {
				next = append(next, piece{text: strings.TrimSpace(text), after: i == 0 && p.after || i > 0 && sp.Order})
			}
		}
		pieces = next
	}
	if len(pieces) < 2 || len(pieces) > maxParts {
		return nil
	}
	parts := make([]part, len(pieces))
	for i, p := range pieces {
		found, missing := s.find(s.stripped(p.text), base, tools)
		if found.rule == nil || missing != "" || len(found.Calls) == 0 {
			return nil
		}
		found.after = p.after
		parts[i] = found
	}
	return parts
}

// build makes the calls; their ids begin with the prefix.
func (p *part) build(calls []call, tools []string, prefix string) ([]contract.ToolCall, error) {
	out := make([]contract.ToolCall, len(calls))
	for i, c := range calls {
		args, err := c.Args.render(p.vars)
		if err != nil {
			return nil, fmt.Errorf("rule %q: %w", p.Name, err)
		}
		name, _ := c.tool(p.vars, tools)
		out[i] = contract.ToolCall{ID: prefix + strconv.Itoa(i), Tool: name, Args: args}
	}
	return out, nil
}

// buildAll makes the calls of all parts; those of one that comes after another wait for it.
func buildAll(parts []part, tools []string) ([]contract.ToolCall, error) {
	var all []contract.ToolCall
	var before []string
	for i, p := range parts {
		calls, err := p.build(p.Calls, tools, "c"+strconv.Itoa(i)+"_")
		if err != nil {
			return nil, err
		}
		ids := make([]string, len(calls))
		for j := range calls {
			if p.after {
				calls[j].DependsOn = before
			}
			ids[j] = calls[j].ID
		}
		before, all = ids, append(all, calls...)
	}
	return all, nil
}
