package provider

import (
	"time"

	"skandha.dev/pkg/subject"
)

// Call is the request to a provider plugin on llm.<plugin>.generate. Model
// calls are idempotent: a repeated one may simply be asked again.
type Call struct {
	Plan     string          `json:"plan"`    // unique in the log
	Attempt  string          `json:"attempt"` // nonce of this attempt
	Agent    subject.Agent   `json:"agent"`
	Session  subject.Session `json:"session"`
	Provider string          `json:"provider,omitempty"` // which of the plugin's providers; empty: its first
	Deadline time.Time       `json:"deadline"`
	Request  Request         `json:"request"`
}

// Reply is the answer to a [Call]: a response or an error, never both.
type Reply struct {
	Response *Response `json:"response,omitempty"`
	Error    *Error    `json:"error,omitempty"`
}
