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
)

// model is the conversation as it stands. [model.Update] is the only one that
// changes it, and reaches the world through the commands that it returns alone.
type model struct {
	cfg           Config
	now           time.Time
	width, height int
	shown         int // rows of the live region, as it was last drawn
	floor         int // rows that it has at least, until something is printed
	filled        bool
	high          int // the same before it shrank
	shrunk        time.Time
	sized         time.Time // the terminal's size became known
	widest        int       // of them
	squeezed      bool      // the terminal became smaller, and what did not fit any more was erased

	editor  editor
	printer printer
	cmds    []tea.Cmd // what this update asks for
	reach   func(f func(ctx context.Context) tea.Msg) tea.Cmd

	turn        *turn
	state       event.AgentState
	lockedUntil time.Time // zero if until /reset
	last        string    // figures of the last turn
	stream      stream
	calls       []*call
	boxes       []*box
	typing      bool // a box is there, and what is typed goes to the editor all the same
	graceEnds   time.Time
	outbox      []*outgoing
	queue       []queued
	mine        map[string]string // what was said from here, by the input's id; "" of a command
	again       string            // what was said from here last, if its turn failed
	refused     map[string]bool   // refused calls
	files       files
	commands    map[uint64]string // sender of a command from elsewhere, by its sequence
	cancelling  bool

	away     bool      // the bus cannot be reached
	fault    string    // why the bus cannot store
	armed    time.Time // until when another Ctrl-C leaves
	leaving  bool
	err      error
	ticks    int // the generation of the tick that counts
	interval time.Duration
}

// turn is the one that goes on.
type turn struct {
	id    string
	seq   uint64
	began time.Time
}

// outgoing is what was typed and has not been taken up yet.
type outgoing struct {
	id, text string
	stored   bool
}

// queued waits for the running turn.
type queued struct {
	seq  uint64
	said said
}

// Messages beside those of the library.
type (
	items  []follow.Item
	closed struct{} // nothing more will be heard
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

// How long the world may take.
const (
	sendWait = 30 * time.Second
	fastTick = 80 * time.Millisecond
	slowTick = time.Second
	armedFor = 3 * time.Second
)

func newModel(cfg Config) *model {
	m := &model{
		cfg: cfg, now: cfg.Now(), reach: bounded, mine: map[string]string{}, refused: map[string]bool{}, commands: map[uint64]string{}, state: event.StateWaiting,
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
			m.note(yellow, "The bus is away. It is being called again; what you type is sent when it is back.")
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
	if m.leaving && !m.printer.busy && len(m.printer.todo) == 0 {
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
	if reflect.TypeOf(msg) == inserted { // it is on the screen now
		m.floor = 0
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

// resize takes over another size of the terminal.
func (m *model) resize(w, h int) {
	// A row that has become too long is two now, where the terminal wraps it, and what
	// a lower screen has pushed out differs from one terminal to the next.
	first, smaller := m.width == 0, w < m.width && m.widest > w || h < m.height
	larger := m.squeezed && (w > m.width || h > m.height) // there is room again for what was erased
	m.width, m.height = w, h
	m.floor = min(m.floor, h-1)
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

// tick asks for the next one: often while something moves, else seldom.
func (m *model) tick() tea.Cmd {
	want := slowTick
	if m.turn != nil || len(m.boxes) > 0 || !m.drawable() || m.leaving || len(m.outbox) > 0 || m.stream.moves() {
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

// send reaches the world, and has its answer taken in.
func (m *model) send(f func(ctx context.Context) tea.Msg) { m.do(m.reach(f)) }

// bounded reaches the world within sendWait.
func bounded(f func(ctx context.Context) tea.Msg) tea.Cmd {
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(context.Background(), sendWait)
		defer cancel()
		return f(ctx)
	}
}

// leave ends the program when all has been printed.
func (m *model) leave(err error) {
	if m.leaving {
		return
	}
	m.leaving = true
	again := fmt.Sprintf("%s chat -a %s -s %s %s", buildinfo.Command(), m.cfg.Ref.Agent, m.cfg.Ref.Session, m.cfg.Where)
	m.note(dim, "\nThe session stays: "+strings.TrimSpace(again))
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
