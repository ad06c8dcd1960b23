package contract

import (
	"context"
	"fmt"
	"unicode"
	"unicode/utf8"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
)

// Listener turns messages from one source outside into inputs.
type Listener interface {
	// Name is unique among the listeners; it is the writer in the subjects of its
	// inputs.
	Name() subject.Writer
	// OnStart begins to listen and returns at once, even if the bus is unavailable;
	// slow work continues in the background. The listener runs until OnStop, even if
	// ctx ends before. It is called once.
	OnStart(ctx context.Context, e Emitter) error
	// OnStop accepts nothing new and returns when every accepted input is
	// acknowledged. When ctx ends first, it gives up and returns an error that wraps
	// [ErrNotTaken] and names what was not. It may be called more than once, and
	// without OnStart.
	OnStop(ctx context.Context) error
}

// Finite is a [Listener] that can end by itself: because its source has ended, or
// because it cannot read it any more.
type Finite interface {
	Listener
	// Done is closed when it has ended and every input that it accepted is acknowledged.
	Done() <-chan struct{}
	// Err returns, once Done is closed, why it ended or what it could not accept; nil
	// if the source simply ended.
	Err() error
}

// Emitter stores inputs for an agent.
type Emitter interface {
	// EmitInput stores the input and returns when the log has acknowledged it, never
	// before. While the bus is unavailable it waits, as long as ctx allows (without a
	// deadline for about two minutes). The errors are [ErrInvalid], [ErrRefused] and
	// [ErrUnavailable].
	EmitInput(ctx context.Context, in Input) (Receipt, error)
}

// Input is one message that a listener has received.
type Input struct {
	Agent   subject.Agent
	Session subject.Session
	// Text is what the agent perceives: 1 byte to [event.MaxTextBytes] of UTF-8.
	Text string
	// ID is the sender's name for this input, of at most [event.MaxInputIDBytes]
	// bytes; emitting it again under this id is the same input. Empty: a random one.
	ID string
	// Source names where it came from, for people and hooks, e.g. "webhook:github".
	Source string
	// Mode is what happens when the agent is busy; default queue.
	Mode event.InputMode
	// Origin is where the text comes from, unless it is the words of a user.
	Origin event.Origin
	// Files are artifacts of the session that belong to the text.
	Files []provider.File
	// From is the person who sent it, as the listener has authenticated them, e.g. an account
	// name; never a name that people can choose. For policy, the principal is the listener's
	// name, a slash, and From.
	From string
	// ReplyTo is where the listener wants the answer delivered, in its own words; see [Gateway].
	ReplyTo string
}

// Event returns the input as it is stored.
func (in Input) Event() event.Input {
	return event.Input{
		Text: in.Text, ID: in.ID, Source: in.Source, Mode: in.Mode, Files: in.Files, Origin: in.Origin, From: in.From,
		ReplyTo: in.ReplyTo,
	}
}

// Receipt confirms that an input is stored.
type Receipt struct {
	ID       string `json:"id"`       // of the input, also if it was generated
	Sequence uint64 `json:"sequence"` // its position in the log
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
	if err := in.Event().Check(); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return nil
}

// CheckID verifies the id of an input; an empty one is allowed and means none.
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
