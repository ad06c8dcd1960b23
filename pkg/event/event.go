package event

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"skandha.dev/pkg/strictjson"
	"skandha.dev/pkg/subject"
)

// SpecVersion is the version of CloudEvents that the envelope follows.
const SpecVersion = "1.0"

// Errors of decoding. Both are wrapped with the reason.
var (
	// ErrMalformed means that the bytes are not an envelope, or that an attribute is invalid.
	ErrMalformed = errors.New("malformed event")
	// ErrUnknownType means that the envelope is valid, but its type or version is unknown.
	ErrUnknownType = errors.New("unknown event type")
)

// Event is a CloudEvents 1.0 envelope with the extensions agent, session, turn and cause.
type Event struct {
	SpecVersion string          `json:"specversion"`
	ID          string          `json:"id"`
	Source      string          `json:"source"`
	Type        Type            `json:"type"`
	Time        time.Time       `json:"time,omitzero"`
	Agent       subject.Agent   `json:"agent,omitempty"`
	Session     subject.Session `json:"session,omitempty"`
	Turn        string          `json:"turn,omitempty"`  // t<sequence of the input>; empty outside a turn
	Cause       string          `json:"cause,omitempty"` // stream sequence of the cause, decimal
	Data        json.RawMessage `json:"data"`
}

// Ref returns the session that the event belongs to.
func (e Event) Ref() subject.Ref { return subject.Ref{Agent: e.Agent, Session: e.Session} }

// Live returns the subject of the event's live copy.
func (e Event) Live() string { return e.Ref().Live(e.Type.Phase(), e.Type.Name()) }

// Payload is the typed body of an event. EventType returns the type of that event.
type Payload interface{ EventType() Type }

// DataAs decodes the body into p. The error wraps [ErrMalformed], or [ErrUnknownType] if
// the event has another type than p.
func (e Event) DataAs(p Payload) error {
	if e.Type != p.EventType() {
		return fmt.Errorf("%w: %q, want %q", ErrUnknownType, e.Type, p.EventType())
	}
	if err := json.Unmarshal(e.Data, p); err != nil {
		return fmt.Errorf("%w: data of %s: %s", ErrMalformed, e.Type, strictjson.Explain(err))
	}
	return nil
}

// Decode decodes one structured-mode event and checks its required attributes.
func Decode(b []byte) (Event, error) {
	e, ok := parse(b)
	if !ok {
		if err := json.Unmarshal(b, &e); err != nil {
			return Event{}, fmt.Errorf("%w: %s", ErrMalformed, strictjson.Explain(err))
		}
	}
	return e, e.Check()
}

// Check validates the attributes that CloudEvents requires, and the ids.
func (e Event) Check() error {
	switch {
	case e.SpecVersion != SpecVersion:
		return fmt.Errorf("%w: specversion is %q, want %q", ErrMalformed, e.SpecVersion, SpecVersion)
	case e.ID == "":
		return fmt.Errorf("%w: id is empty", ErrMalformed)
	case e.Source == "":
		return fmt.Errorf("%w: source is empty", ErrMalformed)
	case e.Type == "":
		return fmt.Errorf("%w: type is empty", ErrMalformed)
	case len(e.Data) == 0:
		return fmt.Errorf("%w: data is missing", ErrMalformed)
	}
	if e.Agent != "" && !subject.Valid(e.Agent) {
		return fmt.Errorf("%w: agent: %w", ErrMalformed, subject.ErrInvalidID)
	}
	if e.Session != "" && !subject.Valid(e.Session) {
		return fmt.Errorf("%w: session: %w", ErrMalformed, subject.ErrInvalidID)
	}
	return checkTime("time", e.Time)
}

// checkTime rejects times without an RFC 3339 form in UTC, in which they are encoded.
func checkTime(field string, t time.Time) error {
	if y := t.UTC().Year(); y < 0 || y > 9999 {
		return fmt.Errorf("%w: %s: year %d is outside 0 to 9999", ErrMalformed, field, y)
	}
	return nil
}

// New returns an event with the payload. It panics if the payload cannot be encoded, which
// is a programming error: payloads are plain data.
func New(ref subject.Ref, id, source string, p Payload) Event {
	data, err := json.Marshal(p)
	if err != nil {
		panic(fmt.Sprintf("event: encoding %T: %v", p, err))
	}
	return Event{
		SpecVersion: SpecVersion, ID: id, Source: source, Type: p.EventType(),
		Agent: ref.Agent, Session: ref.Session, Data: data,
	}
}
