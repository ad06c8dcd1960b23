package hook

import (
	"encoding/json"

	"skandha.dev/pkg/memory"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
)

// The payloads of the points. A replace reply carries a payload of the same type.

// AgentData is the payload of on_agent_start and on_agent_stop.
type AgentData struct {
	Instance string `json:"instance"` // the core's
	Reason   string `json:"reason,omitempty"`
}

// SenseData is the payload of before_sense: one perception, as it was received.
type SenseData struct {
	Text   string `json:"text"`
	Source string `json:"source,omitempty"`
	Writer string `json:"writer"`
}

// PerceptionsData is the payload of after_sense.
type PerceptionsData struct {
	Perceptions []Perception `json:"perceptions"`
}

// Perception is one perception of an input. A reply may drop or annotate it.
type Perception struct {
	ID          string   `json:"id"`
	Text        string   `json:"text"`
	Source      string   `json:"source,omitempty"`
	Drop        bool     `json:"drop,omitempty"`
	Annotations []string `json:"annotations,omitempty"` // shown to the model
}

// PlanData is the payload of before_plan: the next request to the model. If the model looks for
// tools with tools:find, the plan is asked about again, with the tools that were found.
type PlanData struct {
	Plan   string   `json:"plan"`
	Round  int      `json:"round"`
	System string   `json:"system,omitempty"` // a reply may change it for this request
	Tools  []string `json:"tools"`            // a reply may only remove
	Advice []string `json:"advice,omitempty"` // decision advice, shown to the model
	// Purpose is set if core asks the model for itself; then a reply may add to
	// System, give Advice, or deny, and core goes on without the answer.
	Purpose string `json:"purpose,omitempty"`
	// Memories are what the model will be reminded of; a reply may only remove. Empty but
	// not nil: all of them were removed.
	Memories []memory.Hit `json:"memories,omitzero"`
}

// AfterPlanData is the payload of after_plan: the model's answer.
type AfterPlanData struct {
	Plan     string            `json:"plan"`
	Response provider.Response `json:"response"`
}

// ActData is the payload of before_act: one call that is about to run.
type ActData struct {
	Call string          `json:"call"`
	Tool string          `json:"tool"`
	Args json.RawMessage `json:"args"`
}

// AfterActData is the payload of after_act: the result of one call.
type AfterActData struct {
	Call   string          `json:"call"`
	Tool   string          `json:"tool"`
	Args   json.RawMessage `json:"args"`
	Result tool.Result     `json:"result"`
}

// ReflectData is the payload of before_reflect and after_reflect: the experience of a turn.
type ReflectData struct {
	Input  string   `json:"input"`
	Answer string   `json:"answer,omitempty"`
	Tools  []string `json:"tools,omitempty"`
	Rounds int      `json:"rounds"`
	// Notes are recorded with the experience; before_reflect may add some.
	Notes []string `json:"notes,omitempty"`
}

// ErrorData is the payload of on_error: a turn or an input that failed, a tool call that
// ran and failed, a hook that failed, or a plugin that was suspended for its failures.
type ErrorData struct {
	Code    string         `json:"code"` // of the turn's failure or the tool's error, or a constant below
	Message string         `json:"message"`
	Tool    string         `json:"tool,omitempty"`   // if a call failed, which is the envelope's step
	Plugin  subject.Plugin `json:"plugin,omitempty"` // with hook_failed and plugin_suspended
}

// The codes of on_error for failures of hooks and plugins.
const (
	ErrHookFailed = "hook_failed"
	ErrSuspended  = "plugin_suspended"
)
