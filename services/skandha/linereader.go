package main

import (
	"bufio"
	"io"
	"time"
)

// lineReader gives what a person types, line by line. Whoever waits for a line may stop
// waiting; the line that then comes is the next one's who does.
type lineReader struct {
	in    *bufio.Reader
	out   chan typed // nil until somebody has waited
	ahead []typed
}

// typed is a line.
type typed struct {
	text string // with its end, if it has one
	err  error  // io.EOF and the like; then there is no text
	at   time.Time
}

func newLineReader(in io.Reader) *lineReader { return &lineReader{in: bufio.NewReader(in)} }

// next is where the next line comes. Nothing is read before somebody has asked; from
// then on lines are read when they are typed, so that it is known when that was.
func (l *lineReader) next() <-chan typed {
	if l.out == nil {
		l.out = make(chan typed, 64)
		go func() { // as long as the process; a read of a terminal cannot be ended
			for {
				text, err := l.in.ReadString('\n')
				if text != "" {
					err = nil
				}
				l.out <- typed{text, err, time.Now()}
			}
		}()
	}
	return l.out
}

// keep keeps a line that was no answer for who waits for any line.
func (l *lineReader) keep(t typed) { l.ahead = append(l.ahead, t) }

// kept is the first line that was kept.
func (l *lineReader) kept() (t typed, ok bool) {
	if len(l.ahead) == 0 {
		return t, false
	}
	t, l.ahead = l.ahead[0], l.ahead[1:]
	return t, true
}
