package mcp

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"
)

// writer cuts off a client that does not read, and keeps an idle stream alive. Its methods may be
// called at the same time.
type writer struct {
	http.ResponseWriter
	rc   *http.ResponseController
	wait time.Duration
	idle time.Duration

	mu     sync.Mutex
	timer  *time.Timer
	stream bool // the response is a stream of events
	closed bool
}

func newWriter(w http.ResponseWriter, wait, idle time.Duration) *writer {
	out := &writer{ResponseWriter: w, rc: http.NewResponseController(w), wait: wait, idle: idle}
	out.mu.Lock()
	defer out.mu.Unlock()
	out.timer = time.AfterFunc(idle, out.keepAlive)
	return out
}

// Unwrap is for [http.ResponseController].
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Write implements [http.ResponseWriter]. The library writes an event at once.
func (w *writer) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return 0, http.ErrHandlerTimeout
	}
	w.stream = strings.HasPrefix(w.Header().Get("Content-Type"), eventStream)
	w.timer.Reset(w.idle)
	w.deadline()
	return w.ResponseWriter.Write(b)
}

const eventStream = "text/event-stream"

// streams notes that the headers of a stream are set, though nothing has been sent.
func (w *writer) streams() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stream = true
}

// Flush implements [http.Flusher].
func (w *writer) Flush() { _ = w.FlushError() }

// FlushError is for [http.ResponseController].
func (w *writer) FlushError() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return http.ErrHandlerTimeout
	}
	w.deadline()
	return w.rc.Flush()
}

// deadline bounds the next write. Not every writer supports deadlines.
func (w *writer) deadline() { _ = w.rc.SetWriteDeadline(time.Now().Add(w.wait)) }

// keepAlive sends a comment, which readers ignore.
func (w *writer) keepAlive() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	w.timer.Reset(w.idle)
	if !w.stream {
		return
	}
	w.deadline()
	if _, err := w.ResponseWriter.Write([]byte(": still here\n\n")); err == nil {
		_ = w.rc.Flush() // the request's context ends if the client has gone
	}
}

// close ends the use of the writer, whose handler returns.
func (w *writer) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	w.timer.Stop()
}

// quiet logs what the library says at the level of details: most of it is what clients did wrong.
type quiet struct{ slog.Handler }

// Enabled implements [slog.Handler].
func (q quiet) Enabled(ctx context.Context, _ slog.Level) bool {
	return q.Handler.Enabled(ctx, slog.LevelDebug)
}

// Handle implements [slog.Handler].
func (q quiet) Handle(ctx context.Context, r slog.Record) error {
	r.Level = slog.LevelDebug
	return q.Handler.Handle(ctx, r)
}

// WithAttrs implements [slog.Handler].
func (q quiet) WithAttrs(attrs []slog.Attr) slog.Handler { return quiet{q.Handler.WithAttrs(attrs)} }

// WithGroup implements [slog.Handler].
func (q quiet) WithGroup(name string) slog.Handler { return quiet{q.Handler.WithGroup(name)} }
