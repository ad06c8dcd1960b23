// Package hook defines the protocol of hooks: the points at which plugins are called, the
// payloads, the replies, and how the replies are combined into one decision.
package hook

import (
	"encoding/json"
	"time"

	"skandha.dev/pkg/subject"
)

// Point is a place in the agent loop where plugins are called.
type Point string

// The hook points.
const (
	OnAgentStart  Point = "on_agent_start"
	BeforeSense   Point = "before_sense"
	AfterSense    Point = "after_sense"
	BeforePlan    Point = "before_plan"
	AfterPlan     Point = "after_plan"
	BeforeAct     Point = "before_act"
	AfterAct      Point = "after_act"
	BeforeReflect Point = "before_reflect"
	AfterReflect  Point = "after_reflect"
	OnError       Point = "on_error"
	OnAgentStop   Point = "on_agent_stop"
)

// Points lists the hook points in the order of the loop.
func Points() []Point {
	return []Point{
		OnAgentStart, BeforeSense, AfterSense, BeforePlan, AfterPlan, BeforeAct, AfterAct,
		BeforeReflect, AfterReflect, OnError, OnAgentStop,
	}
}

// Mode is how several plugins are called at one point.
type Mode string

// The modes.
const (
	Chain    Mode = "chain"    // one after another; each receives the previous one's output
	Parallel Mode = "parallel" // all at once; their replies are combined in registration order
)

// DefaultMode returns the point's mode unless configuration sets another.
func (p Point) DefaultMode() Mode {
	switch p {
	case BeforeSense, BeforePlan, AfterPlan, BeforeAct, BeforeReflect:
		return Chain
	}
	return Parallel
}

// OnErrorRule is how a plugin counts that fails, is late or sends an invalid reply.
type OnErrorRule string

// The rules.
const (
	Allow OnErrorRule = "allow" // as continue
	Deny  OnErrorRule = "deny"  // as deny
)

// DefaultOnError returns [Deny] at before_act, where policies decide, and [Allow] elsewhere.
func (p Point) DefaultOnError() OnErrorRule {
	if p == BeforeAct {
		return Deny
	}
	return Allow
}

// DefaultDeadline is how long one plugin may take to reply by default.
const DefaultDeadline = 2 * time.Second

// Envelope is the request to a plugin.
type Envelope struct {
	// InvocationID identifies the request. The same request may arrive more than once, and must
	// get the same reply.
	InvocationID string          `json:"invocation_id"`
	Point        Point           `json:"point"`
	Plugin       subject.Plugin  `json:"plugin"`
	Agent        subject.Agent   `json:"agent"`
	Session      subject.Session `json:"session,omitempty"` // empty at on_agent_start and on_agent_stop
	Turn         string          `json:"turn,omitempty"`
	Cause        uint64          `json:"cause,omitempty"`
	// the call; at before_act, after_act, and on_error if a call failed
	Step     string          `json:"step,omitempty"`
	Deadline time.Time       `json:"deadline"`
	Data     json.RawMessage `json:"data"` // the point's payload
}

// Verb is the kind of a reply.
type Verb string

// The verbs.
const (
	Continue  Verb = "continue" // continue with unchanged data; an empty reply means the same
	Replace   Verb = "replace"  // continue with Data
	Stop      Verb = "stop"     // end the chain here, keep the data
	DenyVerb  Verb = "deny"     // deny, with Reason
	Confirm   Verb = "confirm"  // before_act: ask a person for approval, with Warning
	AnswerFor Verb = "answer"   // before_act: skip the tool; Data is its result
)

// Reply is a plugin's reply to an [Envelope].
type Reply struct {
	Verb    Verb            `json:"verb"`
	Data    json.RawMessage `json:"data,omitempty"`
	Reason  string          `json:"reason,omitempty"`
	Warning *Warning        `json:"warning,omitempty"`
}

// Level is the severity of a warning.
type Level string

// The levels.
const (
	LevelInfo     Level = "info"
	LevelWarn     Level = "warn"
	LevelCritical Level = "critical"
)

// Warning tells a person why a call needs approval.
type Warning struct {
	Level   Level  `json:"level"`
	Message string `json:"message"`
}

// Verdict is what one plugin replied at one point, as recorded in the commit.
type Verdict struct {
	Point     Point          `json:"point"`
	Plugin    subject.Plugin `json:"plugin"`
	Step      string         `json:"step,omitempty"`
	Verb      Verb           `json:"verb"`
	Reason    string         `json:"reason,omitempty"`
	LatencyUS int64          `json:"latency_us"`
	Error     string         `json:"error,omitempty"` // why the on_error rule was applied
}

// Decision is the combined result of all replies at one point.
type Decision struct {
	Verb       Verb            // Continue, Replace, DenyVerb, Confirm or AnswerFor
	Data       json.RawMessage // the changed payload; nil if it was not changed
	Reason     string          // with DenyVerb
	Warning    *Warning        // with Confirm; with AnswerFor if another plugin replied confirm
	Answer     json.RawMessage // with AnswerFor
	AnsweredBy subject.Plugin  // with AnswerFor
	Seen       []Seen          // at before_act: which plugins were asked, and about which call
	Verdicts   []Verdict
	Notices    []string // for the user: changes of the hooks themselves
}
