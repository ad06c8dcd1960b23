package stdio

import (
	"bytes"
	"errors"
	"io"

	"skandha.dev/pkg/event"
)

// maxLine is the longest line: a text of the greatest length with every byte
// escaped, and the rest of the object.
const maxLine = 6*event.MaxTextBytes + 4096

var errLongLine = errors.New("the line is too long")

// chunk is the result of one read.
type chunk struct {
	data []byte
	err  error
}

// reader reads in a separate goroutine, one chunk per request, because
// a read of a terminal or a pipe cannot always be interrupted.
type reader struct {
	want chan struct{}
	got  chan chunk // buffered, so that a read that returns late does not block
}

func newReader(r io.Reader) *reader {
	p := &reader{want: make(chan struct{}), got: make(chan chunk, 1)}
	go func() {
		buf := make([]byte, 64<<10)
		for range p.want {
			n, err := r.Read(buf)
			p.got <- chunk{bytes.Clone(buf[:n]), err}
			if err != nil {
				return
			}
		}
	}()
	return p
}

// splitter splits the bytes that were read into lines.
type splitter struct {
	rest []byte // read and not returned yet
	skip bool   // the rest of a line that is too long
}

func (s *splitter) add(data []byte) { s.rest = append(s.rest, data...) }

// next returns the next whole line, without its terminator; false if there is none. At
// the end of the input the rest is a line, too.
func (s *splitter) next(atEnd bool) (line []byte, ok bool, err error) {
	i := bytes.IndexByte(s.rest, '\n')
	switch {
	case i >= 0:
		line, s.rest = s.rest[:i], s.rest[i+1:]
	case atEnd && len(s.rest) > 0:
		line, s.rest = s.rest, nil
	case len(s.rest) > maxLine:
		first := !s.skip
		s.rest, s.skip = nil, true
		if first {
			return nil, true, errLongLine
		}
		return nil, false, nil
	default:
		return nil, false, nil
	}
	if s.skip {
		s.skip = false // that was the end of a line that was reported
		return s.next(atEnd)
	}
	if len(line) > maxLine {
		return nil, true, errLongLine
	}
	return bytes.TrimSuffix(line, []byte("\r")), true, nil
}

// half returns how many bytes of an unfinished line are left.
func (s *splitter) half() int { return len(s.rest) - bytes.LastIndexByte(s.rest, '\n') - 1 }

// whole returns how many whole lines are left.
func (s *splitter) whole() int { return bytes.Count(s.rest, []byte("\n")) }
