package natsserver

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	"github.com/nats-io/nats-server/v2/server"
)

// logger passes the server's log lines to slog.
type logger struct {
	log    *slog.Logger
	healer *healer // nil: write errors are not repaired
	rights bool    // core logs who is refused, and why

	mu   sync.Mutex
	last string // the last error or fatal line: why it did not start
	dead bool   // there was a fatal line
}

func (l *logger) Noticef(format string, v ...any) { l.log.Debug(fmt.Sprintf(format, v...)) }
func (l *logger) Debugf(string, ...any)           {}
func (l *logger) Tracef(string, ...any)           {}

func (l *logger) Warnf(format string, v ...any) {
	line := fmt.Sprintf(format, v...)
	l.healer.saw(line)
	l.log.Warn(line)
}

func (l *logger) Errorf(format string, v ...any) {
	line := fmt.Sprintf(format, v...)
	if l.rights && strings.Contains(line, server.ErrAuthentication.Error()) {
		l.log.Debug(line)
		return
	}
	l.note(line)
	l.healer.saw(line)
	l.log.Error(line)
}

// Fatalf does not exit: only main may.
func (l *logger) Fatalf(format string, v ...any) {
	line := fmt.Sprintf(format, v...)
	l.note(line)
	l.mu.Lock()
	l.dead = true
	l.mu.Unlock()
	l.log.Error(line, "fatal", true)
}

func (l *logger) failed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead
}

func (l *logger) note(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = line
}

func (l *logger) reason() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last == "" {
		return errors.New("it did not become ready in time")
	}
	return errors.New(l.last)
}
