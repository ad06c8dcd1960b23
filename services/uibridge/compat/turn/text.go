package turn

import (
	"strings"

	"skandha.dev/services/uibridge/contract"
)

// Text decides which parts of a plan's text can be passed on while the model writes it, so
// that in the end the parts that were passed on equal the text in the log. Deltas are lossy
// and an attempt may be restarted: after a gap nothing more is passed on until the whole
// text is available. The zero value is ready for a turn.
type Text struct {
	// Restarts means that the caller can discard what was passed on when a text is begun
	// again. Without it the new text is held back until it is complete.
	Restarts bool

	plan, attempt string
	over          map[string]bool // that have ended
	next          int             // number of the next delta
	held          bool            // until the text is complete
	passed        strings.Builder
	early         []*contract.Delta // of an attempt that the log has not announced yet
}

// maxEarly limits the deltas that are kept before the log announces their attempt.
const maxEarly = 4096

// Begin notes that core has asked the model. It reports whether a text that was passed on
// in part begins again, and returns the deltas that arrived before.
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

// Delta returns the part of a delta that can be passed on. Deltas can arrive before the
// log's events: one whose attempt has not begun yet is kept for Begin.
func (t *Text) Delta(d *contract.Delta) (text string, known bool) {
	switch {
	case t.over[d.Plan] || t.over[d.Attempt]:
		return "", false // too late
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

// Complete returns the part of the plan's text in the log that was not passed on. It
// returns false if something else was passed on.
func (t *Text) Complete(plan, text string) (rest string, ok bool) {
	if t.over == nil {
		t.over = map[string]bool{}
	}
	t.over[plan] = true
	if plan != t.plan { // its beginning was not seen
		return text, true
	}
	return strings.CutPrefix(text, t.passed.String())
}
