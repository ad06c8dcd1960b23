// Package eventstream writes server-sent events for transports whose stream belongs to one
// request. It cuts off a peer that does not read, and keeps an idle stream alive.
package eventstream

import (
	"bytes"
	"fmt"
	"net/http"
	"time"
)

// Writer writes a response of server-sent events. It is not safe for concurrent use.
type Writer struct {
	w     http.ResponseWriter
	rc    *http.ResponseController
	wait  time.Duration
	begun bool
}

// New returns a Writer. A write fails if the peer does not read an event within wait.
func New(w http.ResponseWriter, wait time.Duration) *Writer {
	return &Writer{w: w, rc: http.NewResponseController(w), wait: wait}
}

// Begun reports whether the response has begun, so that its status has been sent.
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

// KeepAlive sends a comment, which readers ignore.
func (s *Writer) KeepAlive() error { return s.send([]byte(": still here\n\n")) }

func (s *Writer) send(b []byte) error {
	if !s.begun {
		s.begin()
	}
	// A server that does not support this has its own WriteTimeout.
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
	_ = s.rc.SetReadDeadline(time.Time{}) // the stream outlives a server's timeout for requests
	h := s.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Accel-Buffering", "no") // stops a proxy from buffering
	s.w.WriteHeader(http.StatusOK)
}
