package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"

	"skandha.dev/pkg/telemetry"
)

// logFile receives the log of a process that draws on its terminal.
type logFile struct {
	*os.File
	wrote atomic.Bool
}

// defaultLog is the default of --log.
const defaultLog = "warn"

// maxLogFile is the size in bytes above which a log file is started over.
const maxLogFile = 4 << 20

// openLogFile opens the terminal's log in a data directory for appending.
func openLogFile(data string) (*logFile, error) {
	if err := os.MkdirAll(data, 0o700); err != nil {
		return nil, fmt.Errorf("creating the data directory: %w", err)
	}
	name, flags := filepath.Join(data, "chat.log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND
	if info, err := os.Stat(name); err == nil && info.Size() > maxLogFile {
		flags |= os.O_TRUNC
	}
	f, err := os.OpenFile(name, flags, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the log: %w", err)
	}
	return &logFile{File: f}, nil
}

// Write implements [io.Writer].
func (f *logFile) Write(b []byte) (int, error) {
	f.wrote.Store(true)
	return f.File.Write(b)
}

// end closes the file, and prints its name if it is not empty.
func (f *logFile) end() {
	if f.wrote.Load() {
		fmt.Printf("warnings are in %s\n", f.Name())
	}
	_ = f.Close() // writes are not buffered
}

// logger logs to standard error or, while the terminal is drawn on, to the log file;
// errors go to both.
func (g *globals) logger() *slog.Logger {
	if g.logFile == nil {
		return newLogger(os.Stderr, g.Log)
	}
	return slog.New(slog.NewMultiHandler(newLogger(g.logFile, g.Log).Handler(), newLogger(os.Stderr, "error").Handler()))
}

func newLogger(w io.Writer, level string) *slog.Logger {
	log, err := telemetry.NewLogger(w, "", telemetry.LogConfig{Level: level})
	if err != nil {
		panic(err) // the flag accepts only known levels
	}
	return log
}
