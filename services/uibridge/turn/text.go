package turn

import (
	"strings"

	"skandha.dev/services/uibridge/contract"
)

// Text says what of a plan's text can be passed on while the model writes it, so that
// what was passed on is in the end what is in the log. Deltas are lossy and an attempt
// may be begun again: after a gap nothing more is passed on until the whole text is
// there. The zero value is ready for a turn.
type Text struct {
	// Restarts says that a text that is begun anew can be: what was passed on before
	// does not count then. Without it the new text is held back until it is whole.
	Restarts bool

	plan, attempt string
	over          map[string]bool // plans and attempts that are
	next          int             // the number of the next delta
	held          bool            // until the text is whole
	passed        strings.Builder
	early         []*contract.Delta // of an attempt of which the log has not told yet
}

// maxEarly bounds what is kept of what comes before the log says what it belongs to.
const maxEarly = 4096

// Begin takes that the model is asked. It reports whether a text that was passed on in
// part is begun anew, and returns the deltas that came before this was known.
func (t *Text) Begin(plan, attempt string) (early []*contract.Delta, again bool) {
	if plan == t.plan && attempt == t.attempt {
		return nil, false
	}
	if t.over == nil {
		t.over = map[string]bool{}
	}
	if t.attempt != "" {
		t.over[t.attempt] = true
	}
	again = plan == t.plan && t.passed.Len() > 0
	t.held = again && !t.Restarts
	if !t.held {
		t.passed.Reset()
	}
	t.plan, t.attempt, t.next = plan, attempt, 0
	early, t.early = t.early, nil
	return early, again
}

// Delta takes a piece of the text, and returns what can be passed on. Deltas overtake
// the log: one whose attempt has not begun yet is kept for Begin.
func (t *Text) Delta(d *contract.Delta) (text string, known bool) {
	switch {
	case t.over[d.Plan] || t.over[d.Attempt]:
		return "", false // it is late
	case d.Plan != t.plan || d.Attempt != t.attempt:
		if len(t.early) < maxEarly {
			t.early = append(t.early, d)
		}
		return "", false
	}
	if d.N != t.next {
		t.held = true
	}
	t.next = d.N + 1
	if t.held {
		return "", true
	}
	t.passed.WriteString(d.Text)
	return d.Text, true
}

// Complete takes the plan's text as it is in the log, and returns what of it was not
// passed on. It is false if something else was passed on.
func (t *Text) Complete(plan, text string) (rest string, ok bool) {
	if t.over == nil {
		t.over = map[string]bool{}
	}
	t.over[plan] = true
	if plan != t.plan { // its beginning was not told
		return text, true
	}
	return strings.CutPrefix(text, t.passed.String())
}
