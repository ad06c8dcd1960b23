// Package hook is the contract of hook points: where plugins are asked, with
// what, what they may answer, and how answers are folded into one decision.
package hook

import (
	"encoding/json"
	"time"

	"skandha.dev/pkg/subject"
)

// Point is a place in the loop where plugins are asked.
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

// Mode is how several plugins are asked at one point.
type Mode string

// The modes.
const (
	Chain    Mode = "chain"    // one after another, each gets the previous one's output
	Parallel Mode = "parallel" // all at once, composed in registration order
)

// DefaultMode is a point's mode unless configuration says otherwise.
func (p Point) DefaultMode() Mode {
	switch p {
	case BeforeSense, BeforePlan, AfterPlan, BeforeAct, BeforeReflect:
		return Chain
	}
	return Parallel
}

// OnErrorRule is what a plugin that fails, is late or talks garbage counts as.
type OnErrorRule string

// The rules.
const (
	Allow OnErrorRule = "allow" // as continue
	Deny  OnErrorRule = "deny"  // as deny
)

// DefaultOnError is deny where a policy decides, allow elsewhere.
func (p Point) DefaultOnError() OnErrorRule {
	if p == BeforeAct {
		return Deny
	}
	return Allow
}

// DefaultDeadline is how long one plugin may take to answer.
const DefaultDeadline = 2 * time.Second

// Envelope is what a plugin is asked with.
type Envelope struct {
	// InvocationID names the question: a hook may be asked the same more than once, and must answer the same.
	InvocationID string          `json:"invocation_id"`
	Point        Point           `json:"point"`
	Plugin       subject.Plugin  `json:"plugin"`
	Agent        subject.Agent   `json:"agent"`
	Session      subject.Session `json:"session,omitempty"` // empty at on_agent_start and on_agent_stop
	Turn         string          `json:"turn,omitempty"`
	Cause        uint64          `json:"cause,omitempty"`
	Step         string          `json:"step,omitempty"` // the call, at before_act, after_act, and on_error about a call
	Deadline     time.Time       `json:"deadline"`
	Data         json.RawMessage `json:"data"` // the point's own payload, a copy
}

// Verb is what a plugin answers.
type Verb string

// The verbs.
const (
	Continue  Verb = "continue" // unchanged; also the meaning of an empty answer
	Replace   Verb = "replace"  // with Data
	Stop      Verb = "stop"     // end the chain here, keep the data
	DenyVerb  Verb = "deny"     // with Reason
	Confirm   Verb = "confirm"  // ask a person, with Warning
	AnswerFor Verb = "answer"   // before_act: skip the tool, Data is its result
)

// Reply is a plugin's answer.
type Reply struct {
	Verb    Verb            `json:"verb"`
	Data    json.RawMessage `json:"data,omitempty"`
	Reason  string          `json:"reason,omitempty"`
	Warning *Warning        `json:"warning,omitempty"`
}

// Level is how serious a warning is.
type Level string

// The levels.
const (
	LevelInfo     Level = "info"
	LevelWarn     Level = "warn"
	LevelCritical Level = "critical"
)

// Warning says to a person why a call needs approval.
type Warning struct {
	Level   Level  `json:"level"`
	Message string `json:"message"`
}

// Verdict is what one plugin did at one point, as the commit records it.
type Verdict struct {
	Point     Point          `json:"point"`
	Plugin    subject.Plugin `json:"plugin"`
	Step      string         `json:"step,omitempty"`
	Verb      Verb           `json:"verb"`
	Reason    string         `json:"reason,omitempty"`
	LatencyUS int64          `json:"latency_us"`
	Error     string         `json:"error,omitempty"` // why on_error applied
}

// Decision is the fold of all answers at one point.
type Decision struct {
	Verb       Verb            // Continue, Replace, DenyVerb, Confirm or AnswerFor
	Data       json.RawMessage // what the payload was replaced by; nil if it was not
	Reason     string          // with DenyVerb
	Warning    *Warning        // with Confirm; with AnswerFor if a plugin wants a person asked, too
	Answer     json.RawMessage // with AnswerFor
	AnsweredBy subject.Plugin  // with AnswerFor
	Seen       []Seen          // at before_act: who was asked, and with which call
	Verdicts   []Verdict
	Notices    []string // for the person: what has changed about the hooks themselves
}
