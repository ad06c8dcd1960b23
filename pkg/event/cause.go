package event

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/strictjson"
)

// Limits of a cause.
const (
	// MaxTextBytes is the maximum length of an input's text, in bytes.
	MaxTextBytes = 256 << 10
	// MaxInputIDBytes is the maximum length of the id that a sender gives an input, in bytes.
	MaxInputIDBytes = 128
	// MaxInputFiles is the maximum number of files of an input.
	MaxInputFiles = 16
)

// InputMode is what happens to an input when the agent is busy.
type InputMode string

// The modes of an input.
const (
	ModeQueue     InputMode = "queue"     // wait for the running turn (default)
	ModeInterrupt InputMode = "interrupt" // end the running turn with turn.failed {interrupted}, then start
	ModeSteer     InputMode = "steer"     // join the running turn before its next step, if the same person began it; otherwise queue
)

// InputModes lists every mode.
func InputModes() []InputMode { return []InputMode{ModeQueue, ModeInterrupt, ModeSteer} }

// Known reports whether the mode is empty or one of [InputModes].
func (m InputMode) Known() bool { return m == "" || slices.Contains(InputModes(), m) }

// Input is a perception. Only the text is required: {"text": "…"}.
type Input struct {
	Text   string    `json:"text"`
	ID     string    `json:"id,omitempty"`     // the sender's id; an input with a repeated one ends as duplicate_of
	Source string    `json:"source,omitempty"` // where it was perceived, e.g. "stdin"
	Mode   InputMode `json:"mode,omitempty"`   // default queue
	// Files are artifacts of the session that belong to the input, at most [MaxInputFiles].
	Files []provider.File `json:"files,omitempty"`
	// Origin is where the text comes from, if it is not the words of a user. The model sees it as data.
	Origin Origin `json:"origin,omitempty"`
	// From is the person who sent it, as the writer has authenticated them; at most [MaxFrom]
	// bytes. For policy, the principal is the writer, a slash, and From.
	From string `json:"from,omitempty"`
	// ReplyTo is where the writer wants the answer delivered, in words that only the writer
	// understands; at most [MaxReplyTo] bytes. Empty: it wants no delivery.
	ReplyTo string `json:"reply_to,omitempty"`
	// By is set if another session has sent it. Only core may set it.
	By *FromAgent `json:"by,omitempty"`
}

// MaxFrom is the maximum length of [Input.From], in bytes.
const MaxFrom = 128

// MaxReplyTo is the maximum length of [Input.ReplyTo], in bytes.
const MaxReplyTo = 1 << 10

// Origin is where a text from outside comes from: a kind, such as "email", and possibly a colon
// and a detail, such as "email:alice@example.org". Empty: a user.
type Origin string

// OriginSchedule is the kind of origin of a text that the agent has scheduled itself; the detail is
// the schedule's name.
const OriginSchedule = "schedule"

// OriginAgent is the kind of origin of a message of a session that works for the one that gets it; the
// detail is that session.
const OriginAgent = "agent"

// MaxOrigin is the maximum length of an [Origin], in bytes.
const MaxOrigin = 256

// Kind returns the part before the first colon.
func (o Origin) Kind() string {
	kind, _, _ := strings.Cut(string(o), ":")
	return kind
}

// Check returns why the origin is invalid. The kind has the form [a-z][a-z0-9_-]{0,31}, and the
// detail has no control characters.
func (o Origin) Check() error {
	switch {
	case o == "":
		return nil
	case len(o) > MaxOrigin:
		return fmt.Errorf("origin has %d bytes, at most %d", len(o), MaxOrigin)
	case !originKind.MatchString(o.Kind()):
		return fmt.Errorf("origin %q: the part before the colon must be 1 to 32 of a-z, 0-9, _ and -, such as email:alice@example.org", string(o))
	case strings.ContainsFunc(string(o), unicode.IsControl):
		return fmt.Errorf("origin %q has a control character", string(o))
	}
	return nil
}

// Outside returns where an input with the origin and the source comes from, if it is not the words
// of a user: its origin, or "webhook:NAME" for the listener of webhooks.
func Outside(origin Origin, source string) string {
	if strings.HasPrefix(source, "webhook:") {
		return source
	}
	return string(origin)
}

var originKind = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,31}$`)

// Confirmation answers a confirmation request. It has no effect unless both the id and the
// hash of the shown arguments match the pending request.
type Confirmation struct {
	ConfirmationID string `json:"confirmation_id"`
	Hash           string `json:"hash"`
	Approved       bool   `json:"approved"`
	Reason         string `json:"reason,omitempty"`
	Source         string `json:"source,omitempty"` // the UI in which the user answered
	From           string `json:"from,omitempty"`   // the person who answered, as in [Input.From]
	Always         *Grant `json:"always,omitempty"` // with Approved: one of the grants that the request offered
	// Passkey says that the UI bridge has verified a passkey of the person for this very request. Only
	// the bridge's word counts.
	Passkey bool `json:"passkey,omitempty"`
}

// Cancel stops the turn of an input, or ends the input if it is still queued. It identifies
// the input by the stream sequence of its acknowledgement, or by the id that the same writer
// gave it. It never affects another input.
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

// Timer reports that a time has been reached. Only core writes it.
type Timer struct {
	ID string `json:"id"` // the confirmation request that expires
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

// DecodeCause decodes the body of a cause into p. The body is either a CloudEvents envelope
// of p's type, or p's JSON object itself. Unknown fields of a body without an envelope are
// ignored, so that listeners can send additional data. Text that is not UTF-8 is an error.
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
		return fmt.Errorf("%w: %s", ErrMalformed, strictjson.Explain(err))
	}
	if probe.SpecVersion == nil {
		if err := strictjson.Unmarshal(body, p); err != nil {
			return fmt.Errorf("%w: %s", ErrMalformed, strictjson.Explain(err))
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
	switch p := p.(type) { // a repeated envelope means a repeated cause
	case *Input:
		p.ID = cmp.Or(p.ID, e.ID)
	case *Command:
		p.ID = cmp.Or(p.ID, e.ID)
	}
	return nil
}

// Check validates the input's fields; the error names the field.
func (in Input) Check() error {
	switch {
	case in.Text == "":
		return fmt.Errorf("%w: text is empty", ErrMalformed)
	case len(in.Text) > MaxTextBytes:
		return fmt.Errorf("%w: text has %d bytes, at most %d", ErrMalformed, len(in.Text), MaxTextBytes)
	case len(in.ID) > MaxInputIDBytes:
		return fmt.Errorf("%w: id has %d bytes, at most %d", ErrMalformed, len(in.ID), MaxInputIDBytes)
	case !in.Mode.Known():
		return fmt.Errorf("%w: mode is %q, want one of %q", ErrMalformed, in.Mode, InputModes())
	case len(in.Files) > MaxInputFiles:
		return fmt.Errorf("%w: files has %d entries, at most %d", ErrMalformed, len(in.Files), MaxInputFiles)
	case len(in.ReplyTo) > MaxReplyTo:
		return fmt.Errorf("%w: reply_to has %d bytes, at most %d", ErrMalformed, len(in.ReplyTo), MaxReplyTo)
	}
	if err := cmp.Or(in.Origin.Check(), checkFrom(in.From)); err != nil {
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	for i, f := range in.Files {
		if err := f.Check(); err != nil {
			return fmt.Errorf("%w: files[%d].%w", ErrMalformed, i, err)
		}
	}
	return nil
}

// Check validates the answer's fields; the error names the field.
func (c Confirmation) Check() error {
	if err := checkFrom(c.From); err != nil {
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return nil
}

func checkFrom(from string) error {
	switch {
	case len(from) > MaxFrom:
		return fmt.Errorf("from has %d bytes, at most %d", len(from), MaxFrom)
	case strings.ContainsFunc(from, unicode.IsControl):
		return fmt.Errorf("from %q has a control character", from)
	}
	return nil
}
