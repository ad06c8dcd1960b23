// Package eventstream writes server-sent events. It cuts off a peer that does not read, and
// keeps an idle stream alive.
package eventstream

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// ErrSlow reports that the peer did not read an event in time.
var ErrSlow = errors.New("write timed out")

// Writer writes a response of server-sent events. It is not safe for concurrent use.
type Writer struct {
	w     http.ResponseWriter
	rc    *http.ResponseController
	wait  time.Duration
	begun bool
	buf   []byte
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

// keepBuffer is the largest buffer that a Writer keeps, in bytes.
const keepBuffer = 64 << 10

// Event sends a named event with a JSON value as its data. With an empty id it has none.
func (s *Writer) Event(id, name string, data json.RawMessage) error {
	b := s.buf[:0]
	if id != "" {
		b = append(append(append(b, "id: "...), id...), '\n')
	}
	b = append(append(append(b, "event: "...), name...), "\ndata: "...)
	if bytes.ContainsAny(data, "\r\n") { // JSON only allows these between values
		var line bytes.Buffer
		if err := json.Compact(&line, data); err != nil {
			return err
		}
		data = line.Bytes()
	}
	b = append(append(b, data...), "\n\n"...)
	if s.buf = b; cap(b) > keepBuffer {
		s.buf = nil
	}
	return s.send(b)
}

// Retry tells browsers how long to wait before they reconnect.
func (s *Writer) Retry(wait time.Duration) error {
	return s.send(fmt.Appendf(nil, "retry: %d\n\n", wait.Milliseconds()))
}

// KeepAlive sends a comment, which readers ignore.
func (s *Writer) KeepAlive() error { return s.send([]byte(": still here\n\n")) }

func (s *Writer) send(b []byte) error {
	if !s.begun {
		s.begin()
	}
	deadline := time.Now().Add(s.wait)
	_ = s.rc.SetWriteDeadline(deadline) // a server that does not support this has its own WriteTimeout
	_, err := s.w.Write(b)
	if err == nil {
		err = s.rc.Flush()
	}
	switch {
	case err == nil:
		return nil
	case !time.Now().Before(deadline):
		return fmt.Errorf("%w: %w", ErrSlow, err)
	}
	return fmt.Errorf("writing an event: %w", err)
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
