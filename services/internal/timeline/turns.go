package timeline

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/turn"
)

// The outcomes of a turn, besides the codes of turn.failed.
const (
	OutcomeAnswered = "answered"
	OutcomeCommand  = "command" // a slash command
	OutcomeRunning  = "running"
	OutcomeQueued   = "queued" // behind a running turn
)

// TurnRow is a turn in a listing.
type TurnRow struct {
	Turn       string         `json:"turn"`     // t<sequence>
	Sequence   uint64         `json:"sequence"` // of the input
	After      string         `json:"after"`    // all notifications of the turn come after this id
	Text       string         `json:"text"`     // its beginning, in one line
	Writer     subject.Writer `json:"writer,omitempty"`
	Outcome    string         `json:"outcome"` // answered, command, running, queued, or a code of turn.failed
	Reason     string         `json:"reason,omitempty"`
	Started    time.Time      `json:"started,omitzero"` // when the input was stored
	DurationMS int64          `json:"duration_ms"`      // from then to its end; 0 if it has not ended
	Calls      int            `json:"calls"`            // tool calls that have a result
	Rounds     int            `json:"rounds"`
	Tokens     int64          `json:"tokens"` // in and out
}

// TurnsPage is a page of turns, the latest input first.
type TurnsPage struct {
	Turns []TurnRow `json:"turns"`
	Next  string    `json:"next,omitempty"` // the following page's Before
	Cut   string    `json:"cut,omitempty"`  // why the page is shorter than requested
}

// Walk collects turns from a session's commits, read backwards. Inputs are taken up in the
// order of the log, so turns also become complete in that order, latest first.
type Walk struct {
	limit int
	below uint64 // only inputs before this one; 0: all
	rows  map[uint64]*turnRow
	whole []TurnRow
}

type turnRow struct {
	turn.Input
	figures
	last uint64    // the last commit that mentions it
	end  time.Time // time of its terminal event; zero: none yet
}

// figures of a turn, from its terminal event or, as far as that has none, from all events.
type figures struct {
	calls, rounds int
	tokens        int64
}

// row returns the turn's row, or nil if it is outside of the page.
func (w *Walk) row(seq, commit uint64) *turnRow {
	if seq == 0 || w.below > 0 && seq >= w.below {
		return nil
	}
	r := w.rows[seq]
	if r == nil {
		r = &turnRow{Input: turn.Input{Sequence: seq}, last: commit}
		w.rows[seq] = r
	}
	return r
}

// Take processes one commit, and reports whether the page is full.
func (w *Walk) Take(c turn.Stored) bool {
	for _, e := range slices.Backward(c.Events) {
		w.event(c, e)
	}
	t := c.Header.Trigger
	if r := w.rows[t.Sequence]; r != nil && t.Sequence > 0 &&
		(t.Kind == event.ByPoison || t.Cause == subject.Input || t.Cause == subject.Command) {
		w.whole = append(w.whole, r.listed(c))
		delete(w.rows, t.Sequence)
	}
	return len(w.whole) >= w.limit
}

// listed returns the row for the page, when the commit that took up the input was read.
func (r *turnRow) listed(c turn.Stored) TurnRow {
	out := TurnRow{
		Turn: event.TurnID(r.Sequence), Sequence: r.Sequence, After: fmt.Sprintf("%d.h", c.Sequence),
		Writer: cmp.Or(r.Perceived.Writer, c.Header.Trigger.Writer), Started: c.Header.Now,
		Calls: r.calls, Rounds: r.rounds, Tokens: r.tokens,
	}
	var text, reason string
	out.Outcome, text, reason = outcomeOf(&r.Input)
	out.Text, out.Reason = line(text, 240), line(reason, 240)
	if !r.end.IsZero() {
		out.DurationMS = max(r.end.Sub(out.Started).Milliseconds(), 0) // the clocks of cores may differ
	}
	return out
}

// outcomeOf returns the outcome of an input, its text, and why it failed.
func outcomeOf(in *turn.Input) (outcome, text, reason string) {
	text = in.Perceived.Text
	switch {
	case in.Failed != nil:
		return string(in.Failed.Code), text, in.Failed.Reason
	case in.Recorded != nil && in.Recorded.Command != "":
		return OutcomeCommand, "/" + in.Recorded.Command, ""
	case in.Recorded != nil:
		return OutcomeAnswered, cmp.Or(text, in.Recorded.Input), ""
	case in.Began.IsZero() && in.Perceived.Disposition == event.Queued:
		return OutcomeQueued, text, ""
	}
	return OutcomeRunning, text, ""
}

func (w *Walk) event(c turn.Stored, e event.Event) {
	v := event.Visitor{
		Recorded:   func(p event.Recorded) { w.ended(c, p.Sequence, turn.End{Recorded: &p}) },
		TurnFailed: func(p event.TurnFailed) { w.ended(c, p.Sequence, turn.End{Failed: &p}) },
		Perceived: func(p event.Perceived) {
			if r := w.row(p.Sequence, c.Sequence); r != nil {
				r.Perceive(e, p)
			}
		},
	}
	if seq := turn.SequenceOf(e.Turn); seq != 0 && w.counts(seq) {
		w.count(&v, seq, c.Sequence)
	}
	_ = v.Visit(e) // a row lacks what cannot be read
}

// counts reports whether the figures of an input's turn come from its events. If its
// terminal event has them, the large payloads of the others need not be decoded.
func (w *Walk) counts(seq uint64) bool {
	r := w.rows[seq]
	return r == nil || r.Recorded == nil
}

// count makes the visitor add the figures of a turn's events.
func (w *Walk) count(v *event.Visitor, seq, commit uint64) {
	add := func(f func(*turnRow)) {
		if r := w.row(seq, commit); r != nil {
			f(r)
		}
	}
	v.PlanRequested = func(p event.PlanRequested) { add(func(r *turnRow) { r.rounds = max(r.rounds, p.Round) }) }
	v.PlanCompleted = func(p event.PlanCompleted) {
		add(func(r *turnRow) {
			if r.end.IsZero() && p.Response != nil {
				r.tokens += p.Response.Usage.InputTokens + p.Response.Usage.OutputTokens
			}
		})
	}
	v.ActCompleted = func(event.ActCompleted) { add(func(r *turnRow) { r.calls++ }) }
}

// ended notes how and when the turn of an input ended.
func (w *Walk) ended(c turn.Stored, seq uint64, end turn.End) {
	r := w.row(seq, c.Sequence)
	if r == nil {
		return
	}
	r.End, r.end = end, c.Header.Now
	if !c.At.IsZero() && c.Header.Trigger.Sequence == seq {
		r.end = c.At // it ended in the commit that took it up
	}
	if p := end.Recorded; p != nil {
		r.figures = figures{len(p.Actions), p.Rounds, p.Usage.InputTokens + p.Usage.OutputTokens}
	} else {
		r.tokens = end.Failed.Usage.InputTokens + end.Failed.Usage.OutputTokens
	}
}

// Page returns the turns that were found, and a cursor if the log continues before at: from
// the last commit that mentions an incomplete turn.
func (w *Walk) Page(at uint64, cut string) TurnsPage {
	out := TurnsPage{Turns: append([]TurnRow{}, w.whole...), Cut: cut}
	below := w.below
	if n := len(w.whole); n > 0 {
		below = w.whole[n-1].Sequence
	}
	if at == 0 {
		return out
	}
	if below == 0 {
		below = 1<<63 - 1
	}
	for _, r := range w.rows {
		at = max(at, r.last)
	}
	out.Next = cursor(at, below)
	return out
}

// NewWalk returns a walk that collects so many turns, and where it begins: at a commit, which is 0 for the last one.
// before is the Next of the page before; empty: the first page. ok is false if it is not one.
func NewWalk(limit int, before string) (w *Walk, at uint64, ok bool) {
	w = &Walk{limit: limit, rows: map[uint64]*turnRow{}}
	if before == "" {
		return w, 0, true
	}
	_, err := fmt.Sscanf(before, "%d-%d", &at, &w.below)
	return w, at, err == nil && at > 0 && w.below > 0 && before == cursor(at, w.below)
}

// cursor encodes where a page begins: at a commit, with the inputs before a sequence.
func cursor(at, below uint64) string { return fmt.Sprintf("%d-%d", at, below) }
