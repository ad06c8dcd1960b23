package agent

import (
	"encoding/json"
	"errors"
	"time"
)

// Kind is what a Run executes.
type Kind string

// The kinds of runs.
const (
	Python Kind = "python" // Code, as a script whose last expression is the result
	Shell  Kind = "shell"  // Code, run by /bin/sh
	Argv   Kind = "argv"   // Argv, without a shell
)

// Run is one execution, in a fresh process. Runs of one sandbox are sequential; Conn waits
// its turn.
type Run struct {
	Kind  Kind
	Code  string
	Argv  []string
	Stdin []byte            // empty: immediate end of file
	Dir   string            // below the workspace; empty: the workspace
	Env   map[string]string // in addition to the sandbox's own
	// Timeout ends the run: SIGTERM first, and after Grace SIGKILL to everything it started.
	Timeout time.Duration // default 30 s
	Grace   time.Duration // default 500 ms
	// MaxOutput bounds what is kept of standard output and of standard error, each, in
	// bytes; default 64 KiB, at most 8 MiB. Longer output is cut in the middle.
	MaxOutput int
	// Output receives the output while the run prints it, in order, never after Run has
	// returned; it may be nil. Output beyond MaxOutput may be dropped. Pieces end on
	// character boundaries, unless the output is not UTF-8.
	Output func(stream Stream, piece []byte)
}

// Stream is an output stream of a run.
type Stream string

// The streams.
const (
	Stdout Stream = "stdout"
	Stderr Stream = "stderr"
)

// Exit is how a run ended.
type Exit struct {
	Stdout, Stderr Text
	Result         json.RawMessage // Python: the last expression's value, if it is JSON; absent: None, or no expression
	Repr           string          // Python: the value's repr, if it is not JSON
	Code           int             // exit code; 128 + the signal if a signal ended it
	Signal         string          // "SIGKILL", …; empty: no signal ended it
	TimedOut       bool
	Stopped        bool // the context ended it
	Duration       time.Duration
	Files          []File   // new or changed below workspace/out, including pictures of open figures
	MoreFiles      int      // number of files beyond Files, which has at most 64
	UnseenFiles    []string // what below workspace/out was not examined, for people
	Strays         int      // processes that the run left running, and that were ended
}

// Text is the kept part of a stream's output: valid UTF-8.
type Text struct {
	Text  string
	Bytes int64 // total printed
	Cut   bool
}

// File describes a file of the sandbox.
type File struct {
	Path    string    `json:"path"` // below the workspace, e.g. "out/plot.png"
	Type    string    `json:"type"` // "file", "dir", "link", "other"
	Size    int64     `json:"size"` // bytes
	Mode    uint32    `json:"mode"` // permission bits
	ModTime time.Time `json:"mod_time"`
	Target  string    `json:"target,omitempty"` // of a link, verbatim
}

// Match is a line that grep found.
type Match struct {
	Path string `json:"path"`
	Line int    `json:"line"` // from 1
	Text string `json:"text"` // the line, cut at 500 bytes
}

// Error is a file operation that the sandbox refused, with a text for the model.
type Error struct {
	// "not_found", "exists", "not_a_directory", "is_a_directory", "not_empty", "outside",
	// "no_space", "too_large", "not_text", "no_match", "ambiguous", "denied", "invalid", "failed"
	Code    string
	Message string
}

func (e *Error) Error() string { return e.Message }

// Errors of a Conn.
var (
	// ErrBroken reports that the sandbox has ended or sends invalid data; it can no longer
	// be used.
	ErrBroken = errors.New("the sandbox is broken")
)
