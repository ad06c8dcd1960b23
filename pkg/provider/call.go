package provider

import (
	"time"

	"skandha.dev/pkg/subject"
)

// Call is the request to a provider plugin on llm.<plugin>.generate. Model calls are
// idempotent: the plugin may send a repeated one to the model again.
type Call struct {
	Plan     string          `json:"plan"`    // unique in the log
	Attempt  string          `json:"attempt"` // nonce of this attempt
	Agent    subject.Agent   `json:"agent"`
	Session  subject.Session `json:"session"`
	Provider string          `json:"provider,omitempty"` // one of the plugin's providers; empty: its first
	Deadline time.Time       `json:"deadline"`
	Request  Request         `json:"request"`
}

// Reply is the reply to a [Call]: either a response or an error.
type Reply struct {
	Response *Response `json:"response,omitempty"`
	Error    *Error    `json:"error,omitempty"`
}
