package terminal

import (
	"reflect"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
)

// block is output that is printed once, above the live region. It is kept for a while,
// so that it can be printed again at another width.
type block func(width int) []string

// maxKept is how many blocks can be printed again.
const maxKept = 200

// printer prints blocks above the live region, in order and in pieces that leave room
// for it: more at once would push it off the screen.
type printer struct {
	kept []block
	todo []string // rows
	busy bool     // a piece is being printed
}

// printed is the message that a piece has been printed.
type printed struct{}

// print adds a block.
func (m *model) print(b block) {
	m.printer.kept = append(m.printer.kept, b)
	if n := len(m.printer.kept) - maxKept; n > 0 {
		m.printer.kept = m.printer.kept[n:]
	}
	m.printer.todo = append(m.printer.todo, b(m.room())...)
}

// room returns the width for output: some terminals would wrap a row that fills the
// last column.
func (m *model) room() int { return max(m.width-1, 10) }

// flush prints the next piece, unless one is being printed.
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
		piece = " " // an empty string would not be printed
	}
	return tea.Sequence(tea.Println(piece), func() tea.Msg { return printed{} })
}

// When the live region becomes lower, the renderer computes its top from the cursor,
// and assumes that a cursor below the new bottom is at the bottom: rows of the higher
// region would remain. Printing moves the cursor to the top, so the region becomes
// lower only then.

// inserted is the type of bubbletea's message that it has printed.
var inserted = reflect.TypeOf(tea.Println("")())

// nothing is printed when there is nothing to print: it removes the row inserted for
// it, and leaves the cursor where the end of the line moves it to the top.
const nothing = "\x1b[M\x1b[A\x1b[999C"

// coloured returns text as it is sent to the terminal, without colours if they are off.
func (m *model) coloured(text string) string {
	if m.cfg.NoColour {
		return noColour(text)
	}
	return text
}

// drawable reports whether the live region has been drawn for the first time: before
// that, there is no position above it.
func (m *model) drawable() bool { return m.width > 0 && m.now.Sub(m.sized) >= redrawn }

// Frames are drawn 60 times a second, on a machine that is not busy.
const (
	redrawn = 100 * time.Millisecond // by then the first frame is on the screen
	shrinks = 2 * time.Second        // by then a lower region certainly is; until then it counts as high as before
)

// pieceRows returns how many rows fit above the live region, which may still be as high
// as before.
func (m *model) pieceRows() int {
	high := m.shown
	if m.now.Sub(m.shrunk) < shrinks {
		high = max(high, m.high)
	}
	return max(m.height-high-1, 1)
}

// home moves to the top of the screen and erases all of it.
const home = "\x1b[H\x1b[J"

// clear erases the screen and, if again is set, prints the latest blocks again. It
// removes what a terminal that became narrower has made of the live region.
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
		p.todo = nil // they are among the latest blocks
	}
	p.busy = true
	cmds := []tea.Cmd{tea.Println(home), tea.ClearScreen}
	if len(rows) > 0 {
		cmds = append(cmds, tea.Println(m.coloured(strings.Join(rows, "\n"))))
	}
	return tea.Sequence(append(cmds, func() tea.Msg { return printed{} })...)
}
