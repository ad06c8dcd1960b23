package terminal

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"skandha.dev/pkg/event"
	"skandha.dev/services/internal/buildinfo"
	"skandha.dev/services/internal/follow"
	"skandha.dev/services/internal/proposal"
	"skandha.dev/services/internal/turn"
)

// model is the state of the conversation. Only [model.Update] changes it, and it has
// effects only through the commands that it returns.
type model struct {
	cfg           Config
	now           time.Time
	width, height int
	shown         int // rows of the live region when it was last drawn
	minRows       int // its minimum rows, until something is printed
	filled        bool
	high          int // its rows before it shrank
	shrunk        time.Time
	sized         time.Time // when the terminal's size became known
	widest        int       // of them
	squeezed      bool      // the terminal became smaller, and what no longer fits was erased

	editor  editor
	printer printer
	cmds    []tea.Cmd // what this update returns
	reach   func(f func(ctx context.Context) tea.Msg) tea.Cmd

	turn        *running
	state       event.AgentState
	lockedUntil time.Time // zero if until /reset
	deleted     bool      // locked until /undelete
	last        string    // statistics of the last turn
	stream      stream
	calls       []*call
	prompts     []*prompt
	typing      bool // keys go to the editor although there is a prompt
	graceEnds   time.Time
	outbox      []*outgoing
	queue       []queued
	mine        map[string]string // texts sent from this terminal, by the input's id; "" for a command
	again       string            // the last text sent from this terminal, if its turn failed
	refused     map[string]bool   // refused calls
	files       proposal.Files
	commands    map[uint64]string // sender of a command from elsewhere, by its sequence
	cancelling  bool

	away     bool      // the bus is unreachable
	fault    string    // why the bus cannot store
	armed    time.Time // until then another Ctrl-C leaves
	leaving  bool
	err      error
	ticks    int // the generation of the current tick
	interval time.Duration
}

// running is the running turn.
type running struct {
	turn.Input
	began time.Time
}

// outgoing is a typed text that core has not started on yet.
type outgoing struct {
	id, text string
	stored   bool
}

// queued is an input that waits for the running turn.
type queued struct {
	seq   uint64
	input utterance
}

// Messages in addition to those of the library.
type (
	items  []follow.Item
	closed struct{} // the session's items have ended
	tick   struct{ generation int }
	logged string
	failed struct{ err error }
	stored struct {
		id  string
		err error
	}
	answered struct {
		id  string
		err error
	}
	cancelled struct{ err error }
	described struct{ id, text string }
)

// Time limits and intervals.
const (
	sendWait = 30 * time.Second
	fastTick = 80 * time.Millisecond
	slowTick = time.Second
	armedFor = 3 * time.Second
)

func newModel(cfg Config) *model {
	m := &model{
		cfg: cfg, now: cfg.Now(), reach: bounded, mine: map[string]string{}, refused: map[string]bool{},
		commands: map[uint64]string{}, state: event.StateWaiting,
	}
	m.editor = newEditor(cfg.Commands, cfg.History)
	return m
}

// Init implements tea.Model.
func (m *model) Init() tea.Cmd {
	return tea.Batch(m.editor.focus(), m.listenLogs(), m.listenFailed())
}

// Update implements tea.Model.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	m.now, m.cmds = m.cfg.Now(), nil
	m.take(msg)
	if away := !m.cfg.Client.Connected(); away != m.away {
		m.away = away
		if away {
			m.note(yellow, "The bus is unreachable. Reconnecting; what you type is sent once it is back.")
		} else {
			m.note(green, "The bus is back.")
		}
	}
	if fault := m.cfg.Client.Fault(); fault != m.fault && !m.away {
		m.fault = fault
		if fault != "" {
			m.note(red, fault)
		} else {
			m.note(green, "The bus stores again.")
		}
	}
	m.do(m.flush())
	if m.leaving && (m.width == 0 || !m.printer.busy && len(m.printer.todo) == 0) {
		return m, tea.Quit
	}
	m.do(m.tick())
	return m, tea.Batch(m.cmds...)
}

func (m *model) do(c tea.Cmd) {
	if c != nil {
		m.cmds = append(m.cmds, c)
	}
}

func (m *model) take(msg tea.Msg) {
	if reflect.TypeOf(msg) == inserted { // the block is on the screen now
		m.minRows = 0
		return
	}
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.resize(msg.Width, msg.Height)
	case tea.KeyPressMsg:
		m.key(msg)
	case tea.PasteMsg:
		m.paste(msg)
	case items:
		for _, i := range msg {
			m.item(i)
		}
	case closed:
		m.leave(nil)
	case printed:
		m.printer.busy = false
	case tick:
		if msg.generation == m.ticks {
			m.interval = 0
			m.stream.draw(m.room())
		}
	case logged:
		m.note(dim, string(msg))
		m.do(m.listenLogs())
	case failed:
		m.leave(msg.err)
	case stored:
		m.stored(msg)
	case answered:
		m.answered(msg)
	case cancelled:
		m.cancelled(msg.err)
	case described:
		m.explain(msg)
	default:
		m.do(m.editor.update(msg))
	}
}

// resize adopts a new size of the terminal.
func (m *model) resize(w, h int) {
	// A terminal may wrap a row that has become too long into two, and terminals differ
	// in which rows a lower screen pushes out.
	first, smaller := m.width == 0, w < m.width && m.widest > w || h < m.height
	larger := m.squeezed && (w > m.width || h > m.height) // what was erased fits again
	m.width, m.height = w, h
	m.minRows = min(m.minRows, h-1)
	m.editor.resize(w, h)
	m.stream.resize(m.room())
	switch {
	case first:
		m.sized = m.now
		m.greet()
	case smaller, larger, m.shown >= h:
		m.squeezed = !larger
		m.do(m.clear(true))
	}
}

// tick schedules the next tick: soon while something moves, otherwise later.
func (m *model) tick() tea.Cmd {
	want := slowTick
	if m.turn != nil || len(m.prompts) > 0 || !m.drawable() || m.leaving || len(m.outbox) > 0 || m.stream.moves() {
		want = fastTick
	}
	if m.interval == want {
		return nil
	}
	m.interval = want
	m.ticks++
	generation := m.ticks
	return tea.Tick(want, func(time.Time) tea.Msg { return tick{generation} })
}

// send runs f within sendWait, and passes its result to Update.
func (m *model) send(f func(ctx context.Context) tea.Msg) { m.do(m.reach(f)) }

// bounded returns a command that runs f within sendWait.
func bounded(f func(ctx context.Context) tea.Msg) tea.Cmd {
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(context.Background(), sendWait)
		defer cancel()
		return f(ctx)
	}
}

// leave ends the program once everything is printed.
func (m *model) leave(err error) {
	if m.leaving {
		return
	}
	m.leaving = true
	again := fmt.Sprintf("%s chat -a %s -s %s %s", buildinfo.Command(), m.cfg.Ref.Agent, m.cfg.Ref.Session, m.cfg.Where)
	m.note(dim, "\nThe session stays open. To continue: "+strings.TrimSpace(again))
	if err != nil {
		m.err = err
	}
}

func (m *model) listenLogs() tea.Cmd {
	if m.cfg.Logs == nil {
		return nil
	}
	return func() tea.Msg {
		if line, ok := <-m.cfg.Logs; ok {
			return logged(line)
		}
		return nil
	}
}

func (m *model) listenFailed() tea.Cmd {
	if m.cfg.Failed == nil {
		return nil
	}
	return func() tea.Msg { return failed{<-m.cfg.Failed} }
}
