// Package tool is the contract between the agent and what it can do: how a tool
// describes itself, how it is called and what it answers.
package tool

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"
)

// Risk is how bad a wrong call can be.
type Risk string

// The classes of risk.
const (
	RiskLow    Risk = "low"    // reads, or changes what is easily changed back (default)
	RiskMedium Risk = "medium" // changes things inside the agent's own workspace
	RiskHigh   Risk = "high"   // irreversible, or leaves the machine: a person is asked
)

// Scenarios are the situations that tools may be tagged with.
func Scenarios() []string {
	return []string{
		"information_retrieval", "communication", "task_execution",
		"data_analysis", "creative_work", "file_management",
	}
}

// DefaultTimeout bounds a call of a tool that declares no timeout.
const DefaultTimeout = 60 * time.Second

// MaxTimeout is the longest a call may run.
const MaxTimeout = 2 * time.Hour

// Spec describes a tool to the core, to models and to people.
type Spec struct {
	Name         string          `json:"name"` // e.g. "file_system:read_file"; any UTF-8, at most 64 bytes when encoded
	Description  string          `json:"description"`
	Args         json.RawMessage `json:"args"`                    // JSON Schema of the arguments, an object schema
	Idempotent   bool            `json:"idempotent,omitempty"`    // running it twice is the same as once
	Internal     bool            `json:"internal,omitempty"`      // for services and plugins, by service.core.call; never offered to a model
	Permissions  []string        `json:"permissions,omitempty"`   // e.g. "network.request", "fs.write"
	Scope        []string        `json:"scope,omitempty"`         // the arguments that say on what it acts, e.g. "path": what an approval for the session binds
	Risk         Risk            `json:"risk,omitempty"`          // default low
	ScenarioTags []string        `json:"scenario_tags,omitempty"` // of Scenarios()
	TimeoutMS    int64           `json:"timeout_ms,omitempty"`    // default 60 000
	Pool         string          `json:"pool,omitempty"`          // the slots it competes for; default "default"
	Sticky       bool            `json:"sticky,omitempty"`        // keeps something for the session: its calls go to the instance that had the last one of the pool, while that lives
	Plugin       string          `json:"plugin,omitempty"`        // the plugin that runs it; its runner says so, a manifest does not

	digest string // see Sealed
}

// Digest identifies the tool beyond its name: who runs it, and all that it declares. It
// is the SHA-256 of the spec's JSON, as 32 hexadecimal digits of its first half.
func (s Spec) Digest() string {
	if s.digest != "" {
		return s.digest
	}
	b, err := json.Marshal(s)
	if err != nil {
		return "" // its schema is no JSON: nothing admits such a spec
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:16])
}

// Sealed is the spec with its digest computed. What is changed afterwards is not in it.
func (s Spec) Sealed() Spec {
	s.digest = ""
	s.digest = s.Digest()
	return s
}

// Timeout is how long a call may run.
func (s Spec) Timeout() time.Duration {
	if s.TimeoutMS <= 0 {
		return DefaultTimeout
	}
	return time.Duration(min(s.TimeoutMS, MaxTimeout.Milliseconds())) * time.Millisecond
}

// Result is a tool's answer.
type Result struct {
	Success  bool            `json:"success"`
	Data     json.RawMessage `json:"data,omitempty"`  // any JSON value
	Error    *Error          `json:"error,omitempty"` // when not Success
	Metadata map[string]any  `json:"metadata,omitempty"`
}

// Error says why a call failed, in a form that a model and a program can act on.
type Error struct {
	Code    Code     `json:"code"`
	Message string   `json:"message"`
	Details []string `json:"details,omitempty"` // e.g. every validation error, with its path
}

func (e *Error) Error() string { return string(e.Code) + ": " + e.Message }

// Output is a piece of what a tool prints while it runs: lossy by design. The
// call's result replaces it.
type Output struct {
	Call    string `json:"call"`
	Attempt string `json:"attempt"`
	N       int    `json:"n"`      // counts from 0 within an attempt
	Stream  string `json:"stream"` // "stdout" or "stderr"
	Text    string `json:"text"`
}

// Code is the closed set of reasons for a call without success.
type Code string

// The codes.
const (
	CodeFailed         Code = "tool_failed"       // the tool itself reported it
	CodeInvalidArgs    Code = "invalid_arguments" // the arguments do not fit the schema; it did not run
	CodeUnknownTool    Code = "unknown_tool"      // not offered to the model; it did not run
	CodeDenied         Code = "denied"            // policy, hook or person said no; it did not run
	CodeExpired        Code = "confirmation_expired"
	CodeTimeout        Code = "timeout"          // ran out of time
	CodeCancelled      Code = "cancelled"        // it certainly did not run
	CodeNotRun         Code = "not_run"          // no executor took it; it certainly did not run
	CodeSkipped        Code = "skipped"          // a step it depends on failed; it did not run
	CodeOutcomeUnknown Code = "outcome_unknown"  // it may have run; nobody can know
	CodeInvalidPlan    Code = "invalid_plan"     // the execution plan was refused with all reasons
	CodeInternal       Code = "internal"         // a panic in the tool, or a fault of the runner
	CodeTooLarge       Code = "result_too_large" // the result could not be stored
)

// Failure is a result without success.
func Failure(code Code, message string, details ...string) Result {
	return Result{Error: &Error{Code: code, Message: message, Details: details}}
}

// OK is a result with data, which must encode to JSON.
func OK(data any) Result {
	b, err := json.Marshal(data)
	if err != nil {
		return Failure(CodeInternal, "encoding the result: "+err.Error())
	}
	return Result{Success: true, Data: b}
}
