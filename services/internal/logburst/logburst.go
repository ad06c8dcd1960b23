// Package logburst logs lines that may repeat very fast, such as refusals under overload,
// without flooding the log.
package logburst

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Window is how often a reason is logged at most.
const Window = 5 * time.Second

// Log logs each reason once in a [Window]: its first line at once, and at the window's
// end the latest one, with how many others were suppressed. Reasons must come from a
// closed set. It is safe for concurrent use.
type Log struct {
	log *slog.Logger

	mu   sync.Mutex
	open map[string]*burst // by reason, those whose window has not ended
}

// burst holds the suppressed lines of a reason in its window.
type burst struct {
	count  int
	latest func(extra ...any)
}

// New returns a Log that writes to a logger.
func New(log *slog.Logger) *Log { return &Log{log: log, open: map[string]*burst{}} }

// Log logs a line, now or, if its reason was logged within the window, perhaps later.
func (l *Log) Log(level slog.Level, reason, msg string, args ...any) {
	line := func(extra ...any) {
		l.log.Log(context.Background(), level, msg, append(args[:len(args):len(args)], extra...)...)
	}
	l.mu.Lock()
	if b := l.open[reason]; b != nil {
		b.count++
		b.latest = line
		l.mu.Unlock()
		return
	}
	l.open[reason] = &burst{}
	l.mu.Unlock()
	time.AfterFunc(Window, func() { l.end(reason) })
	line()
}

// end ends a window, and begins the next one if something was suppressed.
func (l *Log) end(reason string) {
	l.mu.Lock()
	b := l.open[reason]
	if b.count == 0 {
		delete(l.open, reason)
		l.mu.Unlock()
		return
	}
	l.open[reason] = &burst{}
	l.mu.Unlock()
	time.AfterFunc(Window, func() { l.end(reason) })
	b.latest("suppressed", b.count-1)
}
