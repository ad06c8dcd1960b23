package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// lineReader reads typed lines. A caller may stop waiting for a line; the next caller
// then receives it.
type lineReader struct {
	in    *bufio.Reader
	out   chan typedLine // nil before the first call of next
	ahead []typedLine
}

// typedLine is a line and when it was read.
type typedLine struct {
	text string // with its line end, if it has one
	err  error  // such as io.EOF; the text is empty
	at   time.Time
}

func newLineReader(in io.Reader) *lineReader { return &lineReader{in: bufio.NewReader(in)} }

// next returns the channel of lines. Reading starts with the first call; from then on
// each line is read when it is typed, so that its time is known.
func (l *lineReader) next() <-chan typedLine {
	if l.out == nil {
		l.out = make(chan typedLine, 64)
		go func() { // runs until the process exits: a read from a terminal cannot be cancelled
			for {
				text, err := l.in.ReadString('\n')
				if text != "" {
					err = nil
				}
				l.out <- typedLine{text, err, time.Now()}
			}
		}()
	}
	return l.out
}

// keep stores a line that was not an answer; kept returns it.
func (l *lineReader) keep(t typedLine) { l.ahead = append(l.ahead, t) }

// kept removes and returns the first stored line.
func (l *lineReader) kept() (t typedLine, ok bool) {
	if len(l.ahead) == 0 {
		return t, false
	}
	t, l.ahead = l.ahead[0], l.ahead[1:]
	return t, true
}

// agreed asks a question at the terminal and reports whether the answer is yes.
func agreed(ctx context.Context, question string) (bool, error) {
	_, _ = fmt.Fprint(os.Stderr, question+" [y/N] ")
	select {
	case <-ctx.Done():
		return false, ctx.Err()
	case l := <-newLineReader(os.Stdin).next():
		answer := strings.ToLower(strings.TrimSpace(l.text))
		return answer == "y" || answer == "yes", nil
	}
}
