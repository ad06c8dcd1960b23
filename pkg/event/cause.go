package event

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"skandha.dev/pkg/strictjson"
)

// Limits of a cause.
const (
	// MaxTextBytes is the longest text of an input, in bytes.
	MaxTextBytes = 256 << 10
	// MaxInputIDBytes is the longest id a sender may give an input.
	MaxInputIDBytes = 128
)

// InputMode says what to do when the agent is busy.
type InputMode string

// The modes of an input.
const (
	ModeQueue     InputMode = "queue"     // wait for the running turn (default)
	ModeInterrupt InputMode = "interrupt" // end the running turn with turn.failed {interrupted}, then start
)

// Input is a perception. The least a listener may send is {"text": "…"}.
type Input struct {
	Text   string    `json:"text"`
	ID     string    `json:"id,omitempty"`     // sender's own id; a repeated one ends as duplicate_of
	Source string    `json:"source,omitempty"` // where it was perceived, e.g. "stdin"
	Mode   InputMode `json:"mode,omitempty"`   // default queue
}

// Confirmation answers a confirmation request. Both the id and the hash of the
// arguments that were shown must match what is pending, or it has no effect.
type Confirmation struct {
	ConfirmationID string `json:"confirmation_id"`
	Hash           string `json:"hash"`
	Approved       bool   `json:"approved"`
	Reason         string `json:"reason,omitempty"`
	Source         string `json:"source,omitempty"` // the UI that it was answered in
	Always         *Grant `json:"always,omitempty"` // with Approved: one of those that the request offered
}

// Cancel stops the turn of the input it names, or ends that input while it is
// still queued. It names the input by the stream sequence of its
// acknowledgement, or by the id that the same writer gave it; it never hits another.
type Cancel struct {
	Sequence uint64 `json:"sequence,omitempty"`
	InputID  string `json:"input_id,omitempty"`
	Reason   string `json:"reason,omitempty"`
}

// Command is a slash command, which bypasses the model.
type Command struct {
	Name string   `json:"name"`
	Args []string `json:"args,omitempty"`
	ID   string   `json:"id,omitempty"`
}

// Timer says that a time has come. Only core writes it.
type Timer struct {
	ID string `json:"id"` // the confirmation it expires
}

// EventType implements Payload.
func (Input) EventType() Type { return TypeInput }

// EventType implements Payload.
func (Confirmation) EventType() Type { return TypeConfirmation }

// EventType implements Payload.
func (Cancel) EventType() Type { return TypeCancel }

// EventType implements Payload.
func (Command) EventType() Type { return TypeCommand }

// EventType implements Payload.
func (Timer) EventType() Type { return TypeTimer }

// DecodeCause reads the body of a cause into p: a CloudEvents envelope of p's
// type, or p's bare JSON object. Unknown fields of a bare body are ignored,
// so that a listener may send what it has. Text that is no UTF-8 is refused.
func DecodeCause(body []byte, p Payload) error {
	if !utf8.Valid(body) {
		return fmt.Errorf("%w: body is not valid UTF-8", ErrMalformed)
	}
	trimmed := bytes.TrimLeft(body, " \t\r\n")
	if len(trimmed) == 0 || trimmed[0] != '{' {
		return fmt.Errorf("%w: body is not a JSON object", ErrMalformed)
	}
	var probe struct {
		SpecVersion *string `json:"specversion"`
	}
	if err := json.Unmarshal(body, &probe); err != nil {
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if probe.SpecVersion == nil {
		if err := strictjson.Unmarshal(body, p); err != nil {
			return fmt.Errorf("%w: %w", ErrMalformed, err)
		}
		return nil
	}
	if err := strictjson.Names(body, &Event{}); err != nil {
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	e, err := Decode(body)
	if err != nil {
		return err
	}
	if err := strictjson.Names(e.Data, p); err != nil {
		return fmt.Errorf("%w: data: %w", ErrMalformed, err)
	}
	if err := e.DataAs(p); err != nil {
		return err
	}
	switch p := p.(type) { // a repeated envelope is a repeated cause
	case *Input:
		p.ID = cmp.Or(p.ID, e.ID)
	case *Command:
		p.ID = cmp.Or(p.ID, e.ID)
	}
	return nil
}

// Check verifies an input's fields; the error names the field.
func (in Input) Check() error {
	switch {
	case in.Text == "":
		return fmt.Errorf("%w: text is empty", ErrMalformed)
	case len(in.Text) > MaxTextBytes:
		return fmt.Errorf("%w: text has %d bytes, at most %d", ErrMalformed, len(in.Text), MaxTextBytes)
	case len(in.ID) > MaxInputIDBytes:
		return fmt.Errorf("%w: id has %d bytes, at most %d", ErrMalformed, len(in.ID), MaxInputIDBytes)
	case in.Mode != "" && in.Mode != ModeQueue && in.Mode != ModeInterrupt:
		return fmt.Errorf("%w: mode is %q, want %q or %q", ErrMalformed, in.Mode, ModeQueue, ModeInterrupt)
	}
	return nil
}
