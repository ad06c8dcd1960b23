package terminal

import (
	"strings"

	"skandha.dev/pkg/provider"
	"skandha.dev/services/internal/safetext"
)

// stream is the model's answer while it is being generated. It is lossy: the committed
// message replaces it.
type stream struct {
	plan, attempt string
	next          int
	past          map[string]bool // abandoned attempts
	done          string          // the last completed plan
	raw           string          // of the attempt
	text          *markdown
	reasoning     string
	rows          []string // as last drawn
	dirty         bool
}

// maxReasoning is how many bytes of the reasoning's end are kept.
const maxReasoning = 2000

func (s *stream) delta(d provider.Delta, width int) {
	switch {
	case d.Plan == s.done, d.Plan == s.plan && s.past[d.Attempt]:
		return // it arrived late
	case d.Plan != s.plan:
		*s = stream{plan: d.Plan, attempt: d.Attempt, past: map[string]bool{}, done: s.done, text: &markdown{width: width}}
	case d.Attempt != s.attempt:
		s.past[s.attempt] = true
		s.attempt, s.next, s.raw, s.text, s.reasoning = d.Attempt, 0, "", &markdown{width: width}, ""
	}
	if d.N < s.next {
		return
	}
	text := d.Text
	if d.N > s.next && text != "" {
		text = " … " + text // something was lost
	}
	s.next = d.N + 1
	s.raw += text
	s.text.write(text)
	s.reasoning += d.Reasoning
	if n := len(s.reasoning) - maxReasoning; n > 0 {
		s.reasoning = strings.ToValidUTF8(s.reasoning[n:], "")
	}
	s.dirty = true
}

// finish drops the plan's text: its message follows.
func (s *stream) finish(plan string) { *s = stream{done: plan} }

func (s *stream) moves() bool { return s.dirty }

// draw renders what has arrived since the last call. Only the tick calls it, so that a
// fast model does not keep the terminal busy.
func (s *stream) draw(width int) {
	if !s.dirty {
		return
	}
	s.dirty = false
	s.rows = s.text.render()
	if len(s.rows) == 0 && s.reasoning != "" {
		rows := lines(strings.TrimSpace(safetext.Clean(s.reasoning)), style{dim.on + italic.on, italic.off + dim.off}, width,
			"")
		s.rows = rows[max(len(rows)-3, 0):]
	}
}

// resize renders everything again, at another width.
func (s *stream) resize(width int) {
	if s.text == nil || s.text.width == width {
		return
	}
	s.text = &markdown{width: width}
	s.text.write(s.raw)
	s.dirty = true
}
