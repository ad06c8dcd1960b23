package offline

import (
	"bytes"
	"fmt"
	"strings"
)

// succeeded reports whether all results were successes.
func (t *tail) succeeded() bool {
	for _, r := range t.results {
		if !r.ok {
			return false
		}
	}
	return true
}

// last returns the results of the last round.
func (t *tail) last() []result {
	for i := len(t.results) - 1; i > 0; i-- {
		if !bytes.Equal(t.results[i-1].calls, t.results[i].calls) {
			return t.results[i:]
		}
	}
	return t.results
}

func (t *tail) vars() []map[string]any {
	out := make([]map[string]any, len(t.results))
	for i, r := range t.results {
		out[i] = r.vars(nil)
	}
	return out
}

// tell phrases the results of the tools: by the rule's own answer, or each by
// the phrase of its tool.
func (s *ruleSet) tell(m *matched, t *tail) (string, error) {
	if r := m.only(); r != nil && r.answer != nil && t.succeeded() {
		vars := m.parts[0].vars
		vars["results"] = t.vars()
		text, err := r.answer.render(vars)
		if err != nil {
			return "", fmt.Errorf("rule %q: %w", r.name, err)
		}
		return strings.TrimSpace(text), nil
	}
	results := t.results
	if r := m.only(); r != nil && len(r.otherwise) > 0 {
		results = t.last()
	}
	lines := make([]string, 0, len(results))
	for _, r := range results {
		line, err := s.phraseOf(r)
		if err != nil {
			return "", fmt.Errorf("results.%s: %w", r.tool, err)
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n\n"), nil
}

func (s *ruleSet) phraseOf(r result) (string, error) {
	p := s.results[r.tool]
	own, general := p.success, s.phrase.success
	if !r.ok {
		own, general = p.failure, s.phrase.failure
	}
	if own != nil {
		// A result in another shape than its tool's phrase expects gets the default phrase.
		if text, err := own.render(r.vars(own)); err == nil {
			return strings.TrimSpace(text), nil
		}
	}
	text, err := general.render(r.vars(general))
	return strings.TrimSpace(text), err
}
