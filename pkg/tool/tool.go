// Package tool defines the protocol of tools: how a tool is described, how it is called and
// what it returns.
package tool

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	"skandha.dev/pkg/provider"
)

// Risk is how much harm a wrong call can do.
type Risk string

// The classes of risk.
const (
	RiskLow    Risk = "low"    // reads, or makes changes that are easy to undo (default)
	RiskMedium Risk = "medium" // makes changes inside the agent's workspace
	RiskHigh   Risk = "high"   // irreversible, or affects other machines: requires approval
)

// Scenarios returns the situations that tools may be tagged with.
func Scenarios() []string {
	return []string{
		"information_retrieval", "communication", "task_execution",
		"data_analysis", "creative_work", "file_management",
	}
}

// DefaultTimeout is the timeout of tools that declare none.
const DefaultTimeout = 60 * time.Second

// MaxTimeout is the maximum time that a call may run.
const MaxTimeout = 2 * time.Hour

// Spec describes a tool to core, to models and to people.
type Spec struct {
	Name        string          `json:"name"` // e.g. "file_system:read_file"; any UTF-8, at most 64 bytes when encoded
	Description string          `json:"description"`
	Args        json.RawMessage `json:"args"`                 // JSON Schema of the arguments, an object schema
	Idempotent  bool            `json:"idempotent,omitempty"` // running a call twice has the same effect as once
	// it can find out what became of an earlier attempt; see [Call.Probe]
	Probe bool `json:"probe,omitempty"`
	// for services and plugins, by service.core.call; never offered to a model
	Internal    bool     `json:"internal,omitempty"`
	Permissions []string `json:"permissions,omitempty"` // e.g. "network.request", "fs.write"
	// the arguments that identify what it acts on, e.g. "path": an approval for the session is
	// bound to them
	Scope        []string `json:"scope,omitempty"`
	Risk         Risk     `json:"risk,omitempty"`          // default low
	ScenarioTags []string `json:"scenario_tags,omitempty"` // of Scenarios()
	TimeoutMS    int64    `json:"timeout_ms,omitempty"`    // default 60 000
	Pool         string   `json:"pool,omitempty"`          // the slots it competes for; default "default"
	// keeps state for the session: its calls go to the instance that ran the pool's last one,
	// while it lives
	Sticky bool `json:"sticky,omitempty"`
	// the plugin that runs it; set by the tool runner, never in a manifest
	Plugin string `json:"plugin,omitempty"`

	digest string // see Sealed
}

// Digest identifies the tool beyond its name: by the plugin that runs it and by all fields of
// the spec. It is the first half of the SHA-256 of the spec's JSON, as 32 hexadecimal digits.
func (s Spec) Digest() string {
	if s.digest != "" {
		return s.digest
	}
	b, err := json.Marshal(s)
	if err != nil {
		return "" // its schema is not JSON: such a spec is always rejected
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:16])
}

// Sealed returns the spec with its digest computed. Later changes do not affect the digest.
func (s Spec) Sealed() Spec {
	s.digest = ""
	s.digest = s.Digest()
	return s
}

// Timeout returns how long a call may run.
func (s Spec) Timeout() time.Duration {
	if s.TimeoutMS <= 0 {
		return DefaultTimeout
	}
	return time.Duration(min(s.TimeoutMS, MaxTimeout.Milliseconds())) * time.Millisecond
}

// MetadataAfter is the key of a result's metadata that lists the labels of the texts from outside that
// the result holds, such as "web" or "email:alice@example.org", at most [MaxAfter]. They count as those
// of the tool itself do: rules with after match them. A tool can only add labels by it.
const MetadataAfter = "after"

// MaxAfter is how many labels a call or a result has at most.
const MaxAfter = 16

// Result is the result of a tool call.
type Result struct {
	Success  bool            `json:"success"`
	Data     json.RawMessage `json:"data,omitempty"`  // any JSON value
	Error    *Error          `json:"error,omitempty"` // if not Success
	Metadata map[string]any  `json:"metadata,omitempty"`
	// Files are artifacts of the session that the model may look at, such as a plot; at most 16.
	Files []provider.File `json:"files,omitempty"`
}

// Error is why a call failed, in a form that a model and a program can act on.
type Error struct {
	Code    Code     `json:"code"`
	Message string   `json:"message"`
	Details []string `json:"details,omitempty"` // e.g. every validation error, with its path
}

func (e *Error) Error() string { return string(e.Code) + ": " + e.Message }

// Output is a part of the output of a running tool. It may be lost. The call's result
// replaces it.
type Output struct {
	Call    string `json:"call"`
	Attempt string `json:"attempt"`
	N       int    `json:"n"`      // counts from 0 within an attempt
	Stream  string `json:"stream"` // "stdout" or "stderr"
	Text    string `json:"text"`
}

// Code is the closed set of reasons why a call failed.
type Code string

// The codes.
const (
	CodeFailed         Code = "tool_failed"       // the tool itself reported it
	CodeInvalidArgs    Code = "invalid_arguments" // the arguments do not fit the schema; it did not run
	CodeUnknownTool    Code = "unknown_tool"      // not offered to the model; it did not run
	CodeDenied         Code = "denied"            // by policy, a hook or a person; it did not run
	CodeExpired        Code = "confirmation_expired"
	CodeTimeout        Code = "timeout"          // it reached its time limit
	CodeCancelled      Code = "cancelled"        // it certainly did not run
	CodeNotRun         Code = "not_run"          // no executor accepted it; it certainly did not run
	CodeSkipped        Code = "skipped"          // a step it depends on failed; it did not run
	CodeOutcomeUnknown Code = "outcome_unknown"  // it may have run; that cannot be determined
	CodeInvalidPlan    Code = "invalid_plan"     // the execution plan was rejected; the details list all reasons
	CodeInternal       Code = "internal"         // a panic in the tool, or a fault of the runner
	CodeTooLarge       Code = "result_too_large" // the result could not be stored
)

// Failure returns a result without success.
func Failure(code Code, message string, details ...string) Result {
	return Result{Error: &Error{Code: code, Message: message, Details: details}}
}

// OK returns a successful result with data, encoded as JSON.
func OK(data any) Result {
	b, err := json.Marshal(data)
	if err != nil {
		return Failure(CodeInternal, "encoding the result: "+err.Error())
	}
	return Result{Success: true, Data: b}
}
