package terminal

import (
	"reflect"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
)

// block is something that is printed once, above what lives. It is kept for a
// while, so that it can be printed again at another width.
type block func(width int) []string

// maxKept is how many blocks can be printed again.
const maxKept = 200

// printer puts blocks above the live region, in order and in pieces that leave it
// room: more at once would push it out of the screen.
type printer struct {
	kept []block
	todo []string // rows
	busy bool     // a piece is on its way
}

// printed says that a piece has been printed.
type printed struct{}

// print adds a block.
func (m *model) print(b block) {
	m.printer.kept = append(m.printer.kept, b)
	if n := len(m.printer.kept) - maxKept; n > 0 {
		m.printer.kept = m.printer.kept[n:]
	}
	m.printer.todo = append(m.printer.todo, b(m.room())...)
}

// room is the width of what is printed: a row that fills the last column would be
// wrapped by some terminals.
func (m *model) room() int { return max(m.width-1, 10) }

// flush prints the next piece, if none is on its way.
func (m *model) flush() tea.Cmd {
	p := &m.printer
	if p.busy || !m.drawable() {
		return nil
	}
	if len(p.todo) == 0 {
		if !m.filled {
			return nil
		}
		p.busy = true
		return tea.Sequence(tea.Println(nothing), func() tea.Msg { return printed{} })
	}
	n := min(len(p.todo), m.pieceRows())
	piece := strings.Join(p.todo[:n], "\n")
	p.todo = p.todo[n:]
	p.busy = true
	piece = m.coloured(piece)
	if piece == "" {
		piece = " " // nothing at all would not be printed
	}
	return tea.Sequence(tea.Println(piece), func() tea.Msg { return printed{} })
}

// The renderer finds the top of a live region that becomes lower from where the cursor
// is, and takes a cursor below the new bottom to be at it: it would leave rows of the
// higher one behind. What is printed takes the cursor to the top, so the region becomes
// lower only then.

// inserted is the type of the message that bubbletea has printed.
var inserted = reflect.TypeOf(tea.Println("")())

// nothing is printed when there is nothing to print: it takes back the row that was
// inserted for it, and leaves the cursor where the line's end leads it to the top.
const nothing = "\x1b[M\x1b[A\x1b[999C"

// coloured is text as it goes to the terminal.
func (m *model) coloured(text string) string {
	if m.cfg.NoColour {
		return noColour(text)
	}
	return text
}

// drawable reports whether the live region has been drawn for the first time: until
// then nobody knows what above it means.
func (m *model) drawable() bool { return m.width > 0 && m.now.Sub(m.sized) >= redrawn }

// Frames are drawn 60 times a second, on a machine that is not busy.
const (
	redrawn = 100 * time.Millisecond // by then the first one is on the screen
	shrinks = 2 * time.Second        // by then a lower one is, for sure: until then it counts as high as it was
)

// pieceRows is how many rows fit above the live region, which may still be as high
// as it was.
func (m *model) pieceRows() int {
	high := m.shown
	if m.now.Sub(m.shrunk) < shrinks {
		high = max(high, m.high)
	}
	return max(m.height-high-1, 1)
}

// home moves to the top of the screen and erases all of it.
const home = "\x1b[H\x1b[J"

// clear empties the screen and, if again is set, prints the latest blocks again:
// what a terminal has made of the live region when it became narrower is gone then.
func (m *model) clear(again bool) tea.Cmd {
	p := &m.printer
	var rows []string
	if again {
		for i := len(p.kept) - 1; i >= 0 && len(rows) < m.height; i-- {
			rows = append(p.kept[i](m.room()), rows...)
		}
		if n := len(rows) - m.pieceRows() + 1; n > 0 {
			rows = rows[n:]
		}
		p.todo = nil // they are among the latest
	}
	p.busy = true
	cmds := []tea.Cmd{tea.Println(home), tea.ClearScreen}
	if len(rows) > 0 {
		cmds = append(cmds, tea.Println(m.coloured(strings.Join(rows, "\n"))))
	}
	return tea.Sequence(append(cmds, func() tea.Msg { return printed{} })...)
}
