package offline

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	contract "skandha.dev/pkg/provider"
)

// matched is the interpretation of a message: one rule, or a rule for each part of it.
type matched struct {
	parts   []part
	missing string // a required tool that is not offered
	vars    map[string]any
}

type part struct {
	rule  *rule
	vars  map[string]any
	after bool // its calls wait for those of the previous part
}

// maxParts bounds how many requests one message may hold.
const maxParts = 8

func (s *ruleSet) match(message string, tools []contract.ToolSpec) matched {
	m := matched{vars: map[string]any{"message": message, "tools": names(tools)}}
	stripped := s.stripped(message)
	p, missing := s.find(stripped, m.vars, tools)
	if p.rule != nil && missing == "" && !p.rule.yields {
		m.parts = []part{p}
		return m
	}
	if parts := s.cut(stripped, m.vars, tools); parts != nil {
		m.parts = parts
		return m
	}
	if p.rule != nil {
		m.parts, m.missing = []part{p}, missing
	}
	return m
}

func (s *ruleSet) stripped(message string) string {
	for {
		before := message
		for _, re := range s.strip {
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
func (s *ruleSet) find(message string, base map[string]any, tools []contract.ToolSpec) (part, string) {
	var lacking part
	var missing string
	for _, r := range s.rules {
		vars := r.capture(message, base)
		if vars == nil {
			continue
		}
		lack := ""
		if s.offeredOnly {
			lack = r.lacks(tools)
		}
		if lack == "" {
			return part{rule: r, vars: vars}, ""
		}
		if lacking.rule == nil {
			lacking, missing = part{rule: r, vars: vars}, lack
		}
	}
	return lacking, missing
}

// capture returns the rule's variables, or nil if the message does not match.
func (r *rule) capture(message string, base map[string]any) map[string]any {
	for _, re := range r.match {
		groups := re.FindStringSubmatchIndex(message)
		if groups == nil {
			continue
		}
		vars := make(map[string]any, len(base)+re.NumSubexp())
		for k, v := range base {
			vars[k] = v
		}
		// A group of another expression of the rule is empty, not missing.
		for _, other := range r.match {
			for _, name := range other.SubexpNames() {
				if name != "" {
					vars[name] = ""
				}
			}
		}
		for i, name := range re.SubexpNames() {
			if name != "" && groups[2*i] >= 0 {
				vars[name] = message[groups[2*i]:groups[2*i+1]]
			}
		}
		return vars
	}
	return nil
}

// lacks names a tool that the rule needs and that is not offered, if there is one.
func (r *rule) lacks(tools []contract.ToolSpec) string {
	for _, calls := range r.rounds {
		for i := range calls {
			if c := &calls[i]; c.toolTmpl == nil && c.offered(tools) == "" {
				return c.tools[0]
			}
		}
	}
	return ""
}

// offered returns the first of the call's tools that is offered, or "".
func (c *call) offered(tools []contract.ToolSpec) string {
	for _, name := range c.tools {
		if slices.ContainsFunc(tools, func(t contract.ToolSpec) bool { return t.Name == name }) {
			return name
		}
	}
	return ""
}

// cut splits the message at the separators and returns a rule for each part, or
// nil: unless every part asks for tools, the message is not a list of requests.
func (s *ruleSet) cut(message string, base map[string]any, tools []contract.ToolSpec) []part {
	pieces := []piece{{text: message}}
	for _, sp := range s.split {
		var next []piece
		for _, p := range pieces {
			for i, text := range sp.re.Split(p.text, maxParts+1) {
				next = append(next, piece{text: strings.TrimSpace(text), after: i == 0 && p.after || i > 0 && sp.order})
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
		if found.rule == nil || missing != "" || found.rule.alone || len(found.rule.rounds) == 0 {
			return nil
		}
		found.after = p.after
		parts[i] = found
	}
	return parts
}

type piece struct {
	text  string
	after bool
}

// only returns the rule of a message that was matched as a whole.
func (m *matched) only() *rule {
	if len(m.parts) == 1 {
		return m.parts[0].rule
	}
	return nil
}

// next returns the model's next message: calls, or the text after them.
func (m *matched) next(s *ruleSet, t *tail) (string, []contract.ToolCall, error) {
	switch {
	case len(m.parts) == 0:
		text, err := s.fallback.render(m.vars)
		return text, nil, err
	case m.missing != "":
		vars := map[string]any{"tool": m.missing}
		for k, v := range m.vars {
			vars[k] = v
		}
		text, err := s.missing.render(vars)
		return text, nil, err
	}
	if r := m.only(); r != nil {
		round := t.rounds
		if r.loop {
			round = 0
		}
		text := ""
		if t.rounds == 0 {
			var err error
			if text, err = r.text.render(m.parts[0].vars); err != nil || len(r.rounds) == 0 {
				return text, nil, err
			}
		}
		if round < len(r.rounds) && (round == 0 || t.succeeded()) {
			calls, err := m.parts[0].calls(s, t, r.rounds[round], "c"+strconv.Itoa(t.rounds)+"_")
			return text, calls, err
		}
		if t.rounds == 1 && !t.succeeded() && m.parts[0].offersElse() {
			calls, err := m.parts[0].calls(s, t, r.otherwise, "c1_")
			return "", calls, err
		}
	} else if t.rounds == 0 {
		calls, err := m.allCalls(s, t)
		return "", calls, err
	}
	text, err := s.tell(m, t)
	return text, nil, err
}

// offersElse reports whether the rule has else calls whose tools are offered.
func (p *part) offersElse() bool {
	tools, ok := p.vars["tools"].([]string)
	for _, c := range p.rule.otherwise {
		if ok && !slices.ContainsFunc(c.tools, func(name string) bool { return slices.Contains(tools, name) }) {
			return false
		}
	}
	return len(p.rule.otherwise) > 0
}

func (m *matched) allCalls(s *ruleSet, t *tail) ([]contract.ToolCall, error) {
	var all []contract.ToolCall
	var before []string
	for i := range m.parts {
		calls, err := m.parts[i].calls(s, t, m.parts[i].rule.rounds[0], "c"+strconv.Itoa(i)+"_")
		if err != nil {
			return nil, err
		}
		ids := make([]string, len(calls))
		for j := range calls {
			if m.parts[i].after {
				calls[j].DependsOn = before
			}
			ids[j] = calls[j].ID
		}
		before = ids
		all = append(all, calls...)
	}
	return all, nil
}

func (p *part) calls(s *ruleSet, t *tail, calls []call, prefix string) ([]contract.ToolCall, error) {
	vars := p.vars
	if t.rounds > 0 {
		vars["results"] = t.vars()
	}
	times := int64(1)
	if p.rule.repeat != nil {
		var n numbers
		if times = n.of(p.rule.repeat, vars); n.err != nil {
			return nil, fmt.Errorf("rule %q: %w", p.rule.name, n.err)
		}
	}
	out := make([]contract.ToolCall, 0, len(calls)*int(min(times, 1024)))
	for range times {
		for i := range calls {
			c, err := calls[i].build(vars)
			if err != nil {
				return nil, fmt.Errorf("rule %q: %w", p.rule.name, err)
			}
			if c.ID == "" {
				c.ID = prefix + strconv.Itoa(len(out))
			}
			if tools, ok := vars["tools"].([]string); ok && s.offeredOnly && len(calls[i].tools) > 1 {
				c.Tool = firstOf(calls[i].tools, tools)
			}
			out = append(out, c)
		}
	}
	return out, nil
}

func firstOf(wanted, have []string) string {
	for _, w := range wanted {
		if slices.Contains(have, w) {
			return w
		}
	}
	return wanted[0]
}

func (c *call) build(vars map[string]any) (contract.ToolCall, error) {
	out := contract.ToolCall{ID: c.id, Tool: c.tools[0], DependsOn: c.dependsOn, Args: json.RawMessage("{}")}
	var err error
	if c.toolTmpl != nil {
		if out.Tool, err = c.toolTmpl.render(vars); err != nil {
			return out, err
		}
	}
	switch {
	case c.argsJSON != nil:
		var text string
		if text, err = c.argsJSON.render(vars); err != nil {
			return out, err
		}
		if out.Args = json.RawMessage(text); !json.Valid(out.Args) {
			out.Args, err = json.Marshal(text) // like broken JSON of a model
		}
	case c.args != nil:
		out.Args, err = c.args.appendJSON(nil, vars)
	}
	return out, err
}

func names(tools []contract.ToolSpec) []string {
	out := make([]string, len(tools))
	for i := range tools {
		out[i] = tools[i].Name
	}
	return out
}
