package natsserver

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/nats-io/nats-server/v2/server"

	"skandha.dev/services/internal/text"
)

// logger passes the server's log lines to slog.
type logger struct {
	log    *slog.Logger
	healer *healer // nil: write errors are not repaired
	rights bool    // core logs the clients that are refused, and why

	mu   sync.Mutex
	last string // the last error or fatal line: why it did not start
	dead bool   // there was a fatal line
}

func (l *logger) Noticef(format string, v ...any) { l.log.Debug(cut(fmt.Sprintf(format, v...))) }
func (l *logger) Debugf(string, ...any)           {}
func (l *logger) Tracef(string, ...any)           {}

func (l *logger) Warnf(format string, v ...any) {
	line := fmt.Sprintf(format, v...)
	l.healer.saw(line)
	l.log.Warn(cut(line))
}

func (l *logger) Errorf(format string, v ...any) {
	line := fmt.Sprintf(format, v...)
	if l.rights && strings.Contains(line, server.ErrAuthentication.Error()) {
		l.log.Debug(cut(line))
		return
	}
	l.note(line)
	l.healer.saw(line)
	l.log.Error(cut(line))
}

// Fatalf does not exit: only main may.
func (l *logger) Fatalf(format string, v ...any) {
	line := fmt.Sprintf(format, v...)
	l.note(line)
	l.mu.Lock()
	l.dead = true
	l.mu.Unlock()
	l.log.Error(cut(line), "fatal", true)
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
	return errors.New(cut(l.last))
}

// maxLine bounds a line of the log, in bytes: it may quote what a client sent, such as a subject.
const maxLine = 1000

// cut shortens a line, and says by how much.
func cut(line string) string {
	short := text.Cut(line, maxLine)
	if short == line {
		return line
	}
	left := utf8.RuneCountInString(line) - utf8.RuneCountInString(short) + 1 // for the ellipsis
	return fmt.Sprintf("%s (%d more characters)", short, left)
}
