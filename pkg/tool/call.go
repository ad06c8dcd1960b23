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
	// Key names the call towards other systems: an idempotency key. It is the same in all
	// attempts at the call, unguessable, and of the form [a-z0-9]{8,64}.
	Key string `json:"key"`
	// Probe asks what became of an earlier attempt at the call, whose outcome is unknown. It is
	// sent only to tools whose spec has probe, and the tool does not run. The result is that of
	// the earlier attempt, or a failure with [CodeNotRun] if that had no effect and never will,
	// or one with [CodeOutcomeUnknown]. Where the other system recognizes a repeated key, the
	// tool may repeat what the earlier attempt did.
	Probe *Probe `json:"probe,omitempty"`
}

// Probe says which attempt a probe is about.
type Probe struct {
	// NotAfter is when the last of the earlier attempts has certainly ended.
	NotAfter time.Time `json:"not_after"`
}

// Begun is what is known about an attempt whose result is unknown, and which had begun to have its
// effect.
type Begun struct {
	At    time.Time // when it was about to begin
	Until time.Time // when it has certainly ended, even if its process was only frozen
	// Attempt is the attempt that began; empty if that is not known.
	Attempt string
}
