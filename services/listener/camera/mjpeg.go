package camera

import (
	"bufio"
	"errors"
	"fmt"
	"io"
)

// maxSkipped is how much of a stream may be no picture, in bytes.
const maxSkipped = 8 << 20

// errNoPictures: a stream has no pictures in it.
var errNoPictures = errors.New("the stream has no pictures")

// splitter reads pictures from a stream of JPEGs, one after the other.
type splitter struct {
	r       *bufio.Reader
	most    int // bytes of a picture
	buf     []byte
	skipped int // bytes since the last picture
	dropped int // pictures that were too large or damaged
}

func newSplitter(r io.Reader, most int) *splitter {
	return &splitter{r: bufio.NewReaderSize(r, 64<<10), most: most}
}

// errDamaged: what began like a picture is none.
var errDamaged = errors.New("damaged")

// next returns the next picture, which is valid until the next call.
func (s *splitter) next() ([]byte, error) {
	for {
		if err := s.start(); err != nil {
			return nil, err
		}
		err := s.picture()
		if err == nil {
			s.skipped = 0
			return s.buf, nil
		}
		if !errors.Is(err, errDamaged) {
			return nil, err
		}
		s.dropped++
		if s.skipped += len(s.buf); s.skipped > maxSkipped {
			return nil, fmt.Errorf("%w in %d MiB", errNoPictures, maxSkipped>>20)
		}
	}
}

// start reads up to the beginning of a picture.
func (s *splitter) start() error {
	var last byte
	for {
		b, err := s.r.ReadByte()
		if err != nil {
			return err
		}
		if last == 0xff && b == 0xd8 {
			s.buf = append(s.buf[:0], 0xff, 0xd8)
			return nil
		}
		last = b
		if s.skipped++; s.skipped > maxSkipped {
			return fmt.Errorf("%w in %d MiB", errNoPictures, maxSkipped>>20)
		}
	}
}

// picture reads the segments of a picture up to its end.
func (s *splitter) picture() error {
	marker, err := s.marker()
	for err == nil {
		switch {
		case marker == 0xd9:
			return nil
		case marker == 0xd8 || marker == 0:
			return errDamaged
		case marker == 1 || marker >= 0xd0 && marker <= 0xd7: // without a segment
			marker, err = s.marker()
			continue
		}
		if err = s.segment(); err != nil {
			break
		}
		if marker == 0xda {
			marker, err = s.scan()
		} else {
			marker, err = s.marker()
		}
	}
	return err
}

func (s *splitter) byte() (byte, error) {
	if len(s.buf) >= s.most {
		return 0, errDamaged
	}
	b, err := s.r.ReadByte()
	if err == nil {
		s.buf = append(s.buf, b)
	}
	return b, err
}

// marker reads a marker, and the fill bytes before it.
func (s *splitter) marker() (byte, error) {
	b, err := s.byte()
	if err == nil && b != 0xff {
		return 0, errDamaged
	}
	for err == nil && b == 0xff {
		b, err = s.byte()
	}
	return b, err
}

// segment reads the length of a segment and its content.
func (s *splitter) segment() error {
	hi, err := s.byte()
	if err != nil {
		return err
	}
	lo, err := s.byte()
	if err != nil {
		return err
	}
	n := int(hi)<<8 | int(lo)
	if n < 2 || len(s.buf)+n-2 > s.most {
		return errDamaged
	}
	at := len(s.buf)
	s.buf = append(s.buf, make([]byte, n-2)...)
	_, err = io.ReadFull(s.r, s.buf[at:])
	return err
}

// scan reads entropy-coded data up to the next marker, which it returns.
func (s *splitter) scan() (byte, error) {
	for {
		b, err := s.byte()
		for err == nil && b == 0xff {
			if b, err = s.byte(); err == nil && b != 0 && b != 0xff && (b < 0xd0 || b > 0xd7) {
				return b, nil
			}
		}
		if err != nil {
			return 0, err
		}
	}
}
