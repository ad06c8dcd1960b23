package terminal

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/follow"
	"skandha.dev/services/internal/proposal"
	"skandha.dev/services/internal/safetext"
	"skandha.dev/services/internal/turn"
)

// item handles an item of the session.
func (m *model) item(i follow.Item) {
	switch {
	case i.Delta != nil:
		if m.turn != nil && turn.Has(m.turn.Turn, i.Delta.Plan) {
			m.stream.delta(*i.Delta, m.room())
		}
		return
	case i.Output != nil:
		if c := m.call(i.Output.Call); c != nil {
			c.output(*i.Output)
		}
		return
	}
	m.event(i.Event)
}

// event handles an event of the session; what cannot be read is not shown.
func (m *model) event(e event.Event) {
	_ = event.Visitor{
		Perceived:       m.perceived,
		PlanCompleted:   m.planCompleted,
		UIMessage:       func(p event.UIMessage) { m.print(message(p.Content, p.Format)) },
		ActRequested:    m.actRequested,
		ActCompleted:    m.actCompleted,
		ToolCallRequest: m.ask,
		ActApproved:     m.approved,
		ActConfirmed:    m.confirmed,
		Audited:         m.audited,
		UIState:         func(p event.UIState) { m.state = p.State },
		Recorded:        m.recorded,
		TurnFailed:      m.turnFailed,
		SessionLocked:   m.sessionLocked,
		SessionReset:    func(event.SessionReset) { m.queue, m.files = nil, proposal.Files{} },
	}.Visit(e)
}

func (m *model) sessionLocked(p event.SessionLocked) {
	m.lockedUntil, m.deleted = p.Until, p.Deleted != nil
	how := "/reset opens it again."
	switch {
	case m.deleted:
		m.note(red, safetext.Line(p.Reason)+".")
		return
	case !p.Until.IsZero():
		how = "It accepts inputs again from " + p.Until.Local().Format(time.TimeOnly) + " on; /reset opens it at once."
	}
	m.note(red, "The session is locked: "+safetext.Line(p.Reason)+". "+how)
}

func (m *model) perceived(p event.Perceived) {
	_, mine := m.mine[p.InputID]
	mine = mine && p.Writer == m.cfg.Writer
	s := utterance{who: string(p.Writer), source: p.Source, text: p.Text, mine: mine}
	if mine {
		if sent := m.sent(p.InputID); sent != nil {
			s.text = sent.text // as typed
		}
	}
	switch p.Disposition {
	case event.Queued:
		m.queue = append(m.queue, queued{p.Sequence, s})
	case event.EndedAtOnce:
		if mine {
			m.print(s.block)
		} else {
			m.commands[p.Sequence] = string(p.Writer)
		}
	default:
		if q := m.unqueue(p.Sequence); q != nil {
			s = q.input
		}
		m.print(s.block)
		m.turn = &running{turn.Input{Sequence: p.Sequence, Turn: event.TurnID(p.Sequence)}, m.now}
		m.cancelling = false
	}
}

// sent removes an input of this terminal from the outbox and returns it.
func (m *model) sent(id string) *outgoing {
	i := slices.IndexFunc(m.outbox, func(o *outgoing) bool { return o.id == id })
	if i < 0 {
		return nil
	}
	o := m.outbox[i]
	m.outbox = slices.Delete(m.outbox, i, i+1)
	return o
}

func (m *model) unqueue(seq uint64) *queued {
	i := slices.IndexFunc(m.queue, func(q queued) bool { return q.seq == seq })
	if i < 0 {
		return nil
	}
	q := m.queue[i]
	m.queue = slices.Delete(m.queue, i, i+1)
	return &q
}

func (m *model) planCompleted(p event.PlanCompleted) {
	m.stream.finish(p.Plan)
	if p.Error != nil && p.Purpose == "" {
		m.note(yellow, "The model failed: "+safetext.Line(p.Error.Error()))
	}
}

func (m *model) recorded(p event.Recorded) {
	if p.Command != "" {
		if who := m.commands[p.Sequence]; who != "" {
			m.note(dim, fmt.Sprintf("— /%s by %s", safetext.Line(p.Command), safetext.Line(who)))
			delete(m.commands, p.Sequence)
		}
		m.sent(p.InputID)
		return
	}
	if m.mine[p.InputID] != "" {
		m.again = ""
	}
	m.last = strings.Join([]string{
		duration(time.Duration(p.DurationMS) * time.Millisecond), count(p.Rounds, "round"), count(len(p.Actions), "call"),
		count(p.Usage.InputTokens+p.Usage.OutputTokens, "token"),
	}, " · ")
	m.end(p.Sequence)
}

func (m *model) turnFailed(p event.TurnFailed) {
	style, text := red, fmt.Sprintf("Failed (%s): %s", p.Code, safetext.Line(p.Reason))
	switch p.Code {
	case event.FailCancelled, event.FailInterrupted, event.FailReset, event.FailUnknownCommand:
		style, text = yellow, capital(safetext.Line(p.Reason))
	}
	if q := m.unqueue(p.Sequence); q != nil {
		m.print(q.input.block) // it was queued and never had a turn
	} else if sent := m.sent(p.InputID); sent != nil {
		m.print(utterance{text: sent.text, mine: true}.block)
	}
	if said := m.mine[p.InputID]; said != "" {
		m.again = said
		if style == red {
			text += " (/retry or Ctrl-R sends it again)"
		}
	}
	m.note(style, text)
	m.end(p.Sequence)
}

// capital returns s with a capital first letter.
func capital(s string) string {
	r, n := utf8.DecodeRuneInString(s)
	if n == 0 {
		return s
	}
	return string(unicode.ToUpper(r)) + s[n:]
}

// end closes the turn of an input, if that is the running one.
func (m *model) end(seq uint64) {
	if m.turn == nil || m.turn.Sequence != seq {
		return
	}
	m.turn, m.calls, m.prompts, m.cancelling, m.typing = nil, nil, nil, false, false
	clear(m.refused)
	m.editor.plain()
	m.stream.finish(m.stream.plan)
}

// audited shows a rejected answer: its sender may believe that it was accepted.
func (m *model) audited(p event.Audited) {
	if p.Action != "confirmation" || p.Effect != event.EffectDeny {
		return
	}
	who := "An answer by " + safetext.Line(string(p.Principal))
	if p.Principal == m.cfg.Writer {
		who = "Your answer"
	}
	m.note(yellow, who+" was not accepted: "+safetext.Line(p.Reason))
	for _, b := range m.prompts {
		if b.q.ConfirmationID == p.Call {
			b.sending = false
		}
	}
}

// cancel requests that the turn be cancelled.
func (m *model) cancel() {
	m.cancelling = true
	seq := m.turn.Sequence
	m.send(func(ctx context.Context) tea.Msg { return cancelled{m.cfg.Client.Cancel(ctx, seq)} })
}

func (m *model) cancelled(err error) {
	if err != nil {
		m.cancelling = false
		m.note(red, "Could not cancel: "+safetext.Line(err.Error()))
	}
}

// call is a running tool call.
type call struct {
	event.ActRequested
	began time.Time
	tail  []string // the last lines of its output
	open  bool     // the last of them is incomplete
}

// tailLines is how many lines of a running tool's output are shown.
const tailLines = 4

func (m *model) call(id string) *call {
	for _, c := range m.calls {
		if c.Call == id {
			return c
		}
	}
	return nil
}

func (m *model) actRequested(p event.ActRequested) {
	if c := m.call(p.Call); c != nil { // another attempt
		*c = call{ActRequested: p, began: c.began}
		return
	}
	m.calls = append(m.calls, &call{ActRequested: p, began: m.now})
}

func (c *call) output(o tool.Output) {
	if o.Attempt != "" && o.Attempt != c.Attempt {
		return
	}
	text := o.Text
	if n := len(text) - 8<<10; n > 0 {
		text = strings.ToValidUTF8(text[n:], "")
	}
	for line := range strings.Lines(text) {
		whole := strings.HasSuffix(line, "\n")
		line = safetext.Clean(strings.TrimRight(line, "\r\n"))
		if c.open && len(c.tail) > 0 {
			last := &c.tail[len(c.tail)-1]
			if len(*last) < 4<<10 {
				*last += line
			}
		} else {
			c.tail = append(c.tail, line)
		}
		c.open = !whole
	}
	c.tail = c.tail[max(len(c.tail)-tailLines, 0):]
}

func (m *model) actCompleted(p event.ActCompleted) {
	c := m.call(p.Call)
	m.calls = slices.DeleteFunc(m.calls, func(o *call) bool { return o.Call == p.Call })
	if c != nil {
		m.files.Learn(p, c.Args)
	} else {
		m.files.Learn(p, nil)
	}
	if m.refused[p.Call] && c == nil {
		delete(m.refused, p.Call)
		return
	}
	m.print(func(width int) []string { return result(p, c, width) })
}
