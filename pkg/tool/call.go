package tool

import (
	"encoding/json"
	"time"

	"skandha.dev/pkg/subject"
)

// Call is the request to a tool plugin on tool.<plugin>.<encoded name>. The reply is a
// [Result], as JSON, on the reply subject of the request.
//
// A request may arrive more than once with the same Call and Attempt: the plugin replies with
// the earlier result and does not run the tool again.
type Call struct {
	Call     string          `json:"call"`    // unique in the log
	Attempt  string          `json:"attempt"` // nonce of this attempt
	Agent    subject.Agent   `json:"agent"`
	Session  subject.Session `json:"session"`
	Turn     string          `json:"turn,omitempty"` // empty: an internal call outside of turns
	Tool     string          `json:"tool"`           // the tool's name, not encoded
	Args     json.RawMessage `json:"args"`           // an object that fits the tool's schema
	Deadline time.Time       `json:"deadline"`
}
