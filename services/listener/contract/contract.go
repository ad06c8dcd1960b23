package contract

import (
	"context"
	"fmt"
	"unicode"
	"unicode/utf8"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
)

// Listener hears one part of the world.
type Listener interface {
	// Name is unique among the listeners; it is the writer in the subjects of its
	// inputs.
	Name() subject.Writer
	// OnStart begins to listen and returns at once, also when the bus is away: what
	// takes time goes on behind it. The listener listens until OnStop, whatever
	// becomes of ctx. It is called once.
	OnStart(ctx context.Context, e Emitter) error
	// OnStop takes nothing new and returns when everything that was taken is
	// acknowledged. When ctx ends first, it gives up and returns an error that wraps
	// [ErrNotTaken] and says what was not. It may be called more than once, and
	// without OnStart.
	OnStop(ctx context.Context) error
}

// Finite is a [Listener] that can end by itself: its part of the world has ended,
// or it cannot hear any more.
type Finite interface {
	Listener
	// Done is closed when it has ended, with everything acknowledged that it took.
	Done() <-chan struct{}
	// Err says, once Done is closed, why it ended, or what it could not take; nil if
	// the world simply ended.
	Err() error
}

// Emitter hands what was heard to an agent.
type Emitter interface {
	// EmitInput stores the input and returns when the log has acknowledged it, never
	// before. It waits while the bus is away, as long as ctx allows (without a
	// deadline for about two minutes). The errors are [ErrInvalid], [ErrRefused] and
	// [ErrUnavailable].
	EmitInput(ctx context.Context, in Input) (Receipt, error)
}

// Input is what a listener has heard.
type Input struct {
	Agent   subject.Agent
	Session subject.Session
	// Text is what the agent perceives: 1 byte to [event.MaxTextBytes] of UTF-8.
	Text string
	// ID is the sender's name for this input, of at most [event.MaxInputIDBytes]
	// bytes; what is emitted again under it is the same input. Empty: a random one.
	ID string
	// Source says where it was heard, for people and hooks, e.g. "webhook:github".
	Source string
	// Mode says what to do when the agent is busy; default queue.
	Mode event.InputMode
}

// Receipt says that an input is stored.
type Receipt struct {
	ID       string `json:"id"`       // the input's, also when it was made up
	Sequence uint64 `json:"sequence"` // its place in the log
}

// Check verifies the fields; the error wraps [ErrInvalid] and names the field.
func (in Input) Check() error {
	if _, err := subject.ParseRef(string(in.Agent), string(in.Session)); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if err := CheckID(in.ID); err != nil {
		return err
	}
	if !utf8.ValidString(in.Text) {
		return fmt.Errorf("%w: text is not valid UTF-8; send UTF-8", ErrInvalid)
	}
	if err := (event.Input{Text: in.Text, ID: in.ID, Mode: in.Mode}).Check(); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return nil
}

// CheckID verifies the id of an input; empty is none, which is allowed.
func CheckID(id string) error {
	if len(id) > event.MaxInputIDBytes {
		return fmt.Errorf("%w: id has %d bytes, at most %d", ErrInvalid, len(id), event.MaxInputIDBytes)
	}
	if !utf8.ValidString(id) {
		return fmt.Errorf("%w: id is not valid UTF-8; send UTF-8", ErrInvalid)
	}
	for _, r := range id {
		if unicode.IsControl(r) {
			return fmt.Errorf("%w: id has the control character %U; use printable ones", ErrInvalid, r)
		}
	}
	return nil
}
