package terminal

import (
	"context"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"skandha.dev/pkg/event"
	"skandha.dev/services/internal/client"
	"skandha.dev/services/internal/safetext"
)

// key handles a pressed key.
func (m *model) key(k tea.KeyPressMsg) {
	name := k.String()
	if name == "ctrl+c" {
		m.interrupt()
		return
	}
	m.armed = time.Time{}
	switch {
	case name == "ctrl+l":
		m.do(m.clear(false))
	case name == "ctrl+z":
		m.do(tea.Suspend)
	case name == "ctrl+d" && m.editor.value() == "" && !m.editor.asking:
		m.leave(nil)
	case m.promptActive() && (name == "esc" || !m.inGrace(m.front())):
		m.promptKey(k, name)
	case m.promptActive():
		m.graceEnds = m.now.Add(grace)
		m.editorKey(k, name)
		m.typing = m.editor.value() != ""
	default:
		m.graceEnds = m.now.Add(grace)
		m.editorKey(k, name)
	}
}

// interrupt handles Ctrl-C: it cancels the turn, or clears the typed text; twice, it
// leaves.
func (m *model) interrupt() {
	if m.now.Before(m.armed) {
		m.leave(nil)
		return
	}
	m.armed = m.now.Add(armedFor)
	switch {
	case m.editor.asking:
		m.back()
	case m.turn != nil && !m.cancelling:
		m.cancel()
	default:
		m.editor.set("")
	}
}

// back handles Esc while a reason is typed.
func (m *model) back() {
	m.editor.plain()
	if b := m.front(); b != nil {
		b.mode, m.typing, m.graceEnds = choosing, false, time.Time{}
	}
}

func (m *model) editorKey(k tea.KeyPressMsg, name string) {
	e := &m.editor
	listed := len(e.completions()) > 0
	switch {
	case name == "esc":
		m.escape(listed)
	case name == "tab":
		e.complete(1)
	case name == "shift+tab":
		e.complete(-1)
	case name == "enter":
		m.enter()
	case name == "ctrl+r" && !e.asking:
		m.retry()
	case name == "up" && listed:
		e.choose(-1)
	case name == "down" && listed:
		e.choose(1)
	case (name == "up" || name == "ctrl+p") && e.first() && !e.asking:
		if text, ok := e.past.back(e.value()); ok {
			e.recall(text)
		}
	case (name == "down" || name == "ctrl+n") && e.last() && !e.asking:
		if text, ok := e.past.forth(); ok {
			e.recall(text)
		}
	default:
		m.do(e.update(k))
	}
}

func (m *model) escape(listed bool) {
	switch {
	case m.editor.asking:
		m.back()
	case listed:
		m.editor.closed = true
	case len(m.prompts) > 0:
		m.typing = false
		m.prompts[0].since, m.graceEnds = m.now, time.Time{}
	}
}

// paste inserts pasted text: it never answers a prompt.
func (m *model) paste(p tea.PasteMsg) {
	if m.promptActive() {
		m.editor.insert(m.front().unchoose())
		m.typing = true
	}
	m.editor.insert(p.Content)
}

// enter sends the typed text.
func (m *model) enter() {
	e := &m.editor
	if e.asking {
		m.refuse(e.value())
		return
	}
	if c, ok := e.chosen(); ok {
		e.accept(c)
		if c.Args != "" {
			return
		}
	}
	text := e.value()
	trimmed := strings.TrimSpace(text)
	if trimmed == "" {
		return
	}
	if err := e.past.add(strings.TrimRight(text, " \n")); err != nil {
		m.note(yellow, safetext.Line(err.Error()))
	}
	e.set("")
	m.typing = false
	if b := m.front(); b != nil {
		b.since = m.now
	}
	switch strings.TrimRight(text, " \n") {
	case "/quit":
		m.leave(nil)
	case "/retry":
		m.retry()
	default:
		m.submit(trimmed, text)
	}
}

// retry sends the input of the failed turn again.
func (m *model) retry() {
	if m.again == "" {
		m.note(yellow, "Nothing to retry: no turn of yours has failed here.")
		return
	}
	text := m.again
	m.again = ""
	m.say(text, text)
}

// submit sends typed text as an input or a slash command. Text that begins with a
// space, or with two slashes, is always an input.
func (m *model) submit(shown, text string) {
	say, command := client.Typed(text)
	if command == nil {
		m.say(shown, strings.TrimSpace(say))
		return
	}
	command.ID = m.sending(shown, "")
	m.send(func(ctx context.Context) tea.Msg {
		_, err := m.cfg.Client.Run(ctx, *command)
		return stored{command.ID, err}
	})
}

// say sends an input.
func (m *model) say(shown, text string) {
	id := m.sending(shown, text)
	m.send(func(ctx context.Context) tea.Msg {
		_, err := m.cfg.Client.Say(ctx, event.Input{ID: id, Text: text, Source: Source})
		return stored{id, err}
	})
}

// sending adds a text to the outbox and returns its id.
func (m *model) sending(shown, said string) (id string) {
	id = m.cfg.NewID()
	m.mine[id] = said
	m.outbox = append(m.outbox, &outgoing{id: id, text: shown})
	return id
}

// stored handles the result of sending.
func (m *model) stored(s stored) {
	if s.err == nil {
		for _, o := range m.outbox {
			if o.id == s.id {
				o.stored = true
			}
		}
		return
	}
	if o := m.sent(s.id); o != nil {
		m.print(utterance{text: o.text, mine: true}.block)
		m.note(red, "Not sent: "+safetext.Line(s.err.Error())+". Up brings it back.")
	}
}
