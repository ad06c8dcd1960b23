package tool

import (
	"encoding/json"

	"skandha.dev/pkg/subject"
)

// InternalCall is the request on service.core.call, with which a service or a plugin runs an
// internal tool outside of a turn's plan. The reply is a [Result].
type InternalCall struct {
	Agent   subject.Agent   `json:"agent"`
	Session subject.Session `json:"session"`
	Turn    string          `json:"turn,omitempty"`
	// a plugin or a service; the principal for policy is "internal:" followed by it
	Caller subject.Writer  `json:"caller"`
	Tool   string          `json:"tool"`
	Args   json.RawMessage `json:"args,omitempty"` // default {}
}
