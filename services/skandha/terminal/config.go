package terminal

import (
	"context"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/follow"
)

// Source is what inputs and answers from here say of where they were given.
const Source = "terminal"

// Client is the way to one session. Its methods may take as long as their contexts
// allow; nothing else waits for them.
type Client interface {
	// Say stores an input and returns its sequence.
	Say(ctx context.Context, in event.Input) (uint64, error)
	// Run stores a slash command and returns its sequence.
	Run(ctx context.Context, c event.Command) (uint64, error)
	// Answer stores an answer to a confirmation request.
	Answer(ctx context.Context, a event.Confirmation) error
	// Cancel stores the wish to end the turn of the input stored at a sequence.
	Cancel(ctx context.Context, seq uint64) error
	// Describe says what a tool does, in its own words.
	Describe(ctx context.Context, tool string) (string, error)
	// Connected reports whether the bus can be reached now.
	Connected() bool
	// Fault is why the bus cannot store now, and what to do; empty if it can.
	Fault() string
}

// Command is a slash command that can be completed.
type Command struct {
	Name string // without the slash
	Args string // what may follow
	Help string
}

// Config of a conversation. Door, Ref, Items, Now and NewID are needed.
type Config struct {
	Client   Client
	Ref      subject.Ref
	Writer   subject.Writer
	Commands []Command
	About    string             // what it is connected to
	Hints    []string           // further lines of the greeting
	Past     []Past             // the latest turns that have ended, oldest first
	Backlog  []follow.Item      // what has happened in the turn that goes on
	Items    <-chan follow.Item // what happens from now on
	Logs     <-chan string      // lines that this process logs; may be nil
	Failed   <-chan error       // the system in this process has failed; may be nil
	Where    string             // flags of skandha chat that lead to the same system
	History  string             // file of what was typed; empty: it is not kept
	Yes      bool               // every confirmation request is approved
	NoColour bool               // bold, dim and italic stay
	Now      func() time.Time
	NewID    func() string // of inputs and commands
}

// Past is a turn that has ended.
type Past struct {
	Writer subject.Writer
	Source string
	Text   string
	Answer string // Markdown; of a failed turn, why
	Failed bool
}
