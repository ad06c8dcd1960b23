package tool

import (
	"encoding/json"
	"time"

	"skandha.dev/pkg/subject"
)

// Call is the request to a tool plugin on tool.<plugin>.<encoded name>. The
// answer is a [Result], as JSON, on the reply subject of the request.
//
// It may come more than once with the same Call and Attempt: the plugin answers
// with the result it had and does not run it again.
type Call struct {
	Call     string          `json:"call"`    // unique in the log
	Attempt  string          `json:"attempt"` // nonce of this attempt
	Agent    subject.Agent   `json:"agent"`
	Session  subject.Session `json:"session"`
	Turn     string          `json:"turn,omitempty"` // empty: an internal call outside of turns
	Tool     string          `json:"tool"`           // the tool's own name, not its encoding
	Args     json.RawMessage `json:"args"`           // an object that fits the tool's schema
	Deadline time.Time       `json:"deadline"`
}
