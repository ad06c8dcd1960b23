package terminal

import (
	"context"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/follow"
)

// Source is the source of inputs and answers from the terminal.
const Source = "terminal"

// Client gives access to one session. Its methods may take as long as their contexts
// allow; nothing else waits for them.
type Client interface {
	// Say stores an input and returns its sequence.
	Say(ctx context.Context, in event.Input) (uint64, error)
	// Run stores a slash command and returns its sequence.
	Run(ctx context.Context, c event.Command) (uint64, error)
	// Answer stores an answer to a confirmation request.
	Answer(ctx context.Context, a event.Confirmation) error
	// Cancel stores a request to cancel the turn of the input at a sequence.
	Cancel(ctx context.Context, seq uint64) error
	// Describe returns a tool's description of itself.
	Describe(ctx context.Context, tool string) (string, error)
	// Connected reports whether the bus is reachable.
	Connected() bool
	// Fault returns why the bus cannot store, and what to do; it is empty if the bus can.
	Fault() string
}

// Command is a slash command that can be completed.
type Command struct {
	Name string // without the slash
	Args string // placeholder of the arguments
	Help string
}

// Config of a conversation. Client, Ref, Items, Now and NewID are required.
type Config struct {
	Client   Client
	Ref      subject.Ref
	Writer   subject.Writer
	Commands []Command
	About    string             // what it is connected to
	Hints    []string           // further lines of the greeting
	Past     []Past             // the latest turns that have ended, oldest first
	Backlog  []follow.Item      // what has happened in the running turn
	Items    <-chan follow.Item // what happens from now on
	Logs     <-chan string      // lines that this process logs; may be nil
	Failed   <-chan error       // the system in this process has failed; may be nil
	Where    string             // flags with which skandha chat finds the same system
	History  string             // file of the input history; empty: it is not kept
	Yes      bool               // approve every confirmation request
	NoColour bool               // no colours; bold, dim and italic are kept
	Now      func() time.Time
	NewID    func() string // of inputs and commands
}

// Past is a turn that has ended.
type Past struct {
	Writer subject.Writer
	Source string
	Text   string
	Answer string // Markdown; the reason if the turn failed
	Failed bool
}
