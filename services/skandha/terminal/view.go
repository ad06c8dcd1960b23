package terminal

import (
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"skandha.dev/pkg/event"
	"skandha.dev/services/internal/safetext"
)

// View implements tea.Model: it draws the live region. From top to bottom: the answer
// that is being generated, running calls, a prompt, waiting inputs, the state, the
// editor, completions. If not everything fits, what the user must act on is kept.
func (m *model) View() tea.View {
	if m.width == 0 {
		return tea.NewView("")
	}
	if m.leaving { // only the printed output remains
		rows := m.fill(nil)
		m.drawn(max(len(rows), 1))
		return tea.NewView(strings.Join(rows, "\n"))
	}
	w := m.room()
	edit := strings.Split(strings.TrimRight(m.editor.area.View(), "\n"), "\n")
	list := m.editor.list(w)
	left := max(m.height-1-len(edit)-1, 1) // one row is kept for output above, one is the state's
	list = list[:min(len(list), left)]
	left -= len(list)

	var prompt []string
	if b := m.front(); b != nil && left > 0 {
		prompt = b.rows(m, w, left)
		if len(prompt) > left { // so low a screen shows the choices
			prompt = prompt[len(prompt)-left:]
		}
		left -= len(prompt)
	}
	waits := m.waits(w)
	waits = waits[:min(len(waits), left)]
	left -= len(waits)
	var calls []string
	for _, c := range m.calls {
		calls = append(calls, c.live(m.now, w)...)
	}
	calls = calls[max(len(calls)-left, 0):]
	left -= len(calls)
	tail := m.tail(min(left-1, max(m.height/2, 3)))

	status := []string{m.status(w)}
	if left > len(tail) && len(prompt) == 0 {
		status = []string{"", status[0]}
	}
	above := slices.Concat(tail, calls, prompt, waits, status)
	rows := m.fill(slices.Concat(above, edit, list))
	m.drawn(len(rows))
	m.widest = 0
	for _, r := range rows {
		m.widest = max(m.widest, cells(strings.TrimRight(r, " ")))
	}
	v := tea.NewView(m.coloured(strings.Join(rows, "\n")))
	if c := m.editor.area.Cursor(); c != nil && !m.promptActive() {
		c.Y += len(above)
		v.Cursor = c
	}
	return v
}

// fill pads the live region with empty rows to its previous height, until something is
// printed above it: see nothing.
func (m *model) fill(rows []string) []string {
	m.filled = len(rows) < m.minRows
	m.minRows = max(m.minRows, len(rows))
	return append(rows, make([]string, m.minRows-len(rows))...)
}

// drawn records the height of the live region.
func (m *model) drawn(rows int) {
	if rows < m.shown {
		if m.now.Sub(m.shrunk) >= shrinks {
			m.high = 0
		}
		m.high, m.shrunk = max(m.high, m.shown), m.now
	}
	m.shown = rows
}

// tail returns the end of the answer that is being generated, in at most n rows.
func (m *model) tail(n int) []string {
	rows := m.stream.rows
	switch more := len(rows) + 1 - n; {
	case len(rows) == 0 || n <= 0:
		return nil
	case n == 1:
		return rows[len(rows)-1:]
	case more <= 0:
		return append([]string{""}, rows...)
	default:
		return append([]string{dim.of(fmt.Sprintf("… %d lines above", more))}, rows[more:]...)
	}
}

// waitRows is how many waiting inputs are shown.
const waitRows = 3

// waits lists the inputs that have not had their turn yet.
func (m *model) waits(w int) []string {
	var out []string
	for _, o := range m.outbox {
		what := "sending"
		if o.stored {
			what = "sent"
		}
		out = append(out, fit(dim.of(what+" › "+safetext.Line(o.text)), w))
	}
	for _, q := range m.queue {
		who := ""
		if !q.input.mine {
			who = " by " + safetext.Line(q.input.who)
		}
		out = append(out, fit(dim.of("waits"+who+" › "+safetext.Line(q.input.text)), w))
	}
	if more := len(out) - waitRows; more > 0 {
		out = append(out[:waitRows], dim.of(fmt.Sprintf("… and %d more wait", more)))
	}
	return out
}

// lockedStatus shows how long the session stays locked, if that is known.
func (m *model) lockedStatus() string {
	switch {
	case m.deleted:
		return red.of("deleted") + dim.of(" · /undelete brings the session back")
	case m.lockedUntil.IsZero():
		return red.of("locked") + dim.of(" · /reset opens the session again")
	case m.now.Before(m.lockedUntil):
		return red.of("locked until "+m.lockedUntil.Local().Format(time.TimeOnly)) +
			dim.of(" · /reset opens the session at once")
	}
	return yellow.of("no longer locked") + dim.of(" · the next input is accepted")
}

// status shows the current state.
func (m *model) status(w int) string {
	var s string
	switch {
	case m.now.Before(m.armed) && m.turn == nil:
		s = yellow.of("Ctrl-C again leaves")
	case m.away:
		s = yellow.of(spinner(m.now) + " the bus is unreachable")
	case m.fault != "":
		s = red.of("the bus cannot store")
	case m.turn == nil && m.state == event.StateLocked:
		s = m.lockedStatus()
	case m.state == event.StatePaused:
		s = yellow.of("paused") + dim.of(" · /resume continues the session")
	case m.turn == nil:
		s = dim.of(m.last)
	default:
		what := "waiting for your answer"
		if m.front() == nil {
			what = stateText(m.state)
		}
		s = spinner(m.now) + " " + what + dim.of(" · "+seconds(m.now.Sub(m.turn.began)))
		switch {
		case m.cancelling && m.now.Before(m.armed):
			s += yellow.of(" · cancelling; Ctrl-C again leaves")
		case m.cancelling:
			s += yellow.of(" · cancelling")
		default:
			s += dim.of(" · Ctrl-C cancels")
		}
	}
	return fit(s, w)
}

func stateText(s event.AgentState) string {
	switch s {
	case event.StateSensing:
		return "listening"
	case event.StateConfirming:
		return "waiting for an answer"
	case event.StateExecuting:
		return "working"
	case event.StateReflecting:
		return "reflecting"
	}
	return "thinking"
}

var frames = []string{"⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"}

func spinner(now time.Time) string {
	return blue.of(frames[int(now.UnixMilli()/fastTick.Milliseconds())%len(frames)])
}
