package docker

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
)

// stdout extracts the standard output from the engine's stream, in which each piece has a
// header: its kind, three zeros and its length, big endian. Only the reader buffers data.
type stdout struct {
	r    *bufio.Reader
	left uint32 // of the piece
}

// Kinds of pieces.
const (
	kindStdout = 1
	kindStderr = 2
	kindSystem = 3 // a message of the engine
)

func (s *stdout) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for s.left == 0 {
		if err := s.next(); err != nil {
			return 0, err
		}
	}
	n, err := s.r.Read(p[:min(len(p), int(s.left))])
	s.left -= uint32(n) //nolint:gosec // n is at most left
	if n > 0 {
		return n, nil
	}
	return n, err
}

// next skips to the next piece of standard output.
func (s *stdout) next() error {
	var header [8]byte
	if _, err := io.ReadFull(s.r, header[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(header[4:])
	switch header[0] {
	case kindStdout:
		s.left = n
		return nil
	case kindStderr:
		_, err := io.CopyN(io.Discard, s.r, int64(n))
		return err
	case kindSystem:
		text, err := io.ReadAll(io.LimitReader(s.r, int64(min(n, 4096))))
		if err != nil {
			return err
		}
		return fmt.Errorf("the Docker engine reports: %s", text)
	default:
		return fmt.Errorf("invalid stream of the Docker engine: a piece of kind %d", header[0])
	}
}
