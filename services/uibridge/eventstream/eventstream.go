// Package eventstream writes server-sent events for doors whose stream belongs to one
// request: a peer that takes nothing is cut off, and what waits long is kept alive.
package eventstream

import (
	"bytes"
	"fmt"
	"net/http"
	"time"
)

// Writer writes a response of server-sent events. One goroutine uses it.
type Writer struct {
	w     http.ResponseWriter
	rc    *http.ResponseController
	wait  time.Duration
	begun bool
}

// New makes one. A peer may take wait for an event.
func New(w http.ResponseWriter, wait time.Duration) *Writer {
	return &Writer{w: w, rc: http.NewResponseController(w), wait: wait}
}

// Begun reports whether the response has begun, so that its status is sent.
func (s *Writer) Begun() bool { return s.begun }

// Data sends an event with this data and no name.
func (s *Writer) Data(data []byte) error {
	var b bytes.Buffer
	for line := range bytes.SplitSeq(data, []byte("\n")) {
		b.WriteString("data: ")
		b.Write(bytes.ReplaceAll(line, []byte("\r"), nil))
		b.WriteByte('\n')
	}
	b.WriteByte('\n')
	return s.send(b.Bytes())
}

// KeepAlive sends a comment, which readers leave out.
func (s *Writer) KeepAlive() error { return s.send([]byte(": still here\n\n")) }

func (s *Writer) send(b []byte) error {
	if !s.begun {
		s.begin()
	}
	// A server that cannot do this has a WriteTimeout of its own.
	_ = s.rc.SetWriteDeadline(time.Now().Add(s.wait))
	if _, err := s.w.Write(b); err != nil {
		return fmt.Errorf("writing an event: %w", err)
	}
	if err := s.rc.Flush(); err != nil {
		return fmt.Errorf("flushing an event: %w", err)
	}
	return nil
}

func (s *Writer) begin() {
	s.begun = true
	_ = s.rc.SetReadDeadline(time.Time{}) // the stream lasts longer than a server waits for requests
	h := s.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Accel-Buffering", "no") // of a proxy
	s.w.WriteHeader(http.StatusOK)
}
