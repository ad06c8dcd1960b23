package agent

import (
	"encoding/json"
	"errors"
	"time"
)

// Kind is what a Run executes.
type Kind string

// The kinds.
const (
	Python Kind = "python" // Code, as a script whose last expression is the result
	Shell  Kind = "shell"  // Code, given to /bin/sh
	Argv   Kind = "argv"   // Argv, without a shell
)

// Run is one execution, in a fresh process. Runs of one sandbox go one after the
// other; Conn waits its turn.
type Run struct {
	Kind  Kind
	Code  string
	Argv  []string
	Stdin []byte            // empty: end of file at once
	Dir   string            // below the workspace; empty: the workspace
	Env   map[string]string // beside the sandbox's own
	// Timeout ends the run: first SIGTERM, after Grace SIGKILL to all it has started.
	Timeout time.Duration // default 30 s
	Grace   time.Duration // default 500 ms
	// MaxOutput bounds what is kept of standard output and of standard error, each,
	// in bytes; default 64 KiB, at most 8 MiB. What exceeds it is cut in the middle.
	MaxOutput int
	// Output is given what is printed while it runs, in order, never after Run has
	// returned; nil: nobody looks. What exceeds MaxOutput may be left out. Pieces end
	// where characters do, unless what is printed is no UTF-8.
	Output func(stream Stream, piece []byte)
}

// Stream is where something was printed.
type Stream string

// The streams.
const (
	Stdout Stream = "stdout"
	Stderr Stream = "stderr"
)

// Exit is how a run ended.
type Exit struct {
	Stdout, Stderr Text
	Result         json.RawMessage // of Python: the last expression's value, if it is JSON; absent: None or none
	Repr           string          // of Python: its repr, when the value is no JSON
	Code           int             // exit code; 128 + the signal if a signal ended it
	Signal         string          // "SIGKILL", …; empty: it ended by itself
	TimedOut       bool
	Stopped        bool // the context ended it
	Duration       time.Duration
	Files          []File   // new or changed below workspace/out, pictures of open figures included
	MoreFiles      int      // beyond Files, which has 64 at most
	UnseenFiles    []string // what below workspace/out was not looked at, for people
	Strays         int      // processes that it had left running, and that were ended
}

// Text is what was printed, as far as it was kept: valid UTF-8.
type Text struct {
	Text  string
	Bytes int64 // printed in all
	Cut   bool
}

// File describes a file of the sandbox.
type File struct {
	Path    string    `json:"path"` // below the workspace, e.g. "out/plot.png"
	Type    string    `json:"type"` // "file", "dir", "link", "other"
	Size    int64     `json:"size"` // bytes
	Mode    uint32    `json:"mode"` // permission bits
	ModTime time.Time `json:"mod_time"`
	Target  string    `json:"target,omitempty"` // of a link, as it is written
}

// Match is a line that grep found.
type Match struct {
	Path string `json:"path"`
	Line int    `json:"line"` // from 1
	Text string `json:"text"` // the line, cut at 500 bytes
}

// Error is a file operation that the sandbox refused, in words for the model.
type Error struct {
	Code    string // "not_found", "exists", "not_a_directory", "is_a_directory", "not_empty", "outside", "no_space", "too_large", "not_text", "no_match", "ambiguous", "denied", "invalid", "failed"
	Message string
}

func (e *Error) Error() string { return e.Message }

// Errors of a Conn.
var (
	// ErrBroken is that the sandbox has ended or makes no sense; it is of no more use.
	ErrBroken = errors.New("the sandbox is broken")
)
