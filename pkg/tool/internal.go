package tool

import (
	"encoding/json"

	"skandha.dev/pkg/subject"
)

// InternalCall is the request to service.core.call: to run an internal tool outside of a
// turn's plan, for a service or a plugin. The answer is a [Result].
type InternalCall struct {
	Agent   subject.Agent   `json:"agent"`
	Session subject.Session `json:"session"`
	Turn    string          `json:"turn,omitempty"`
	Caller  subject.Writer  `json:"caller"` // a plugin or a service; the policy's principal is "internal:" and this
	Tool    string          `json:"tool"`
	Args    json.RawMessage `json:"args,omitempty"` // default {}
}
