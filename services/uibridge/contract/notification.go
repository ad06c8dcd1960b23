package contract

import (
	"encoding/json"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
)

// Notification is something that a UI is told: a JSON-RPC notification, or an SSE
// event of the same name.
type Notification struct {
	// ID is the place in the log, "<commit sequence>.<index of the event>", or
	// "<commit sequence>.h" for onCommit, which comes before its events. Empty: it is
	// lossy and has no place.
	ID     string
	Method string
	Params json.RawMessage // one of the types below; encoded once for all who are told
}

// What UIs are told. The first four are the specification's.
const (
	OnNewMessage       = "onNewMessage"       // Message
	OnToolCallRequest  = "onToolCallRequest"  // ToolCallRequest
	OnReadyForInput    = "onReadyForInput"    // About; without an id right after onAttached, in a feed without a past
	OnAgentStateChange = "onAgentStateChange" // StateChange

	OnInput                = "onInput"                // Input: somebody's, this UI's own too
	OnPlanRequested        = "onPlanRequested"        // PlanRequested: the model is asked
	OnPlanCompleted        = "onPlanCompleted"        // PlanCompleted: it has answered, or failed
	OnToolCall             = "onToolCall"             // ToolCall: it was given to an executor
	OnToolResult           = "onToolResult"           // ToolResult
	OnConfirmationResolved = "onConfirmationResolved" // ConfirmationResolved: who answered first
	OnAudit                = "onAudit"                // Audit: what the security layer decided
	OnTurnEnd              = "onTurnEnd"              // TurnEnd
	OnSessionLocked        = "onSessionLocked"        // SessionLocked
	OnSessionReset         = "onSessionReset"         // SessionReset
	OnCommit               = "onCommit"               // Commit: for those who asked for commits

	OnDelta      = "onDelta"      // Delta; lossy
	OnToolOutput = "onToolOutput" // ToolOutput; lossy
	OnAttached   = "onAttached"   // Attached: the first one; it has no id
	OnBus        = "onBus"        // Bus: the bus is lost or cannot store, or that is over; it has no id
	OnDropped    = "onDropped"    // Dropped: the last one; it has no id
)

// About is what all notifications say beside their own.
type About struct {
	Agent   subject.Agent   `json:"agent"`
	Session subject.Session `json:"session"`
	Turn    string          `json:"turn,omitempty"`
	Time    time.Time       `json:"time,omitzero"` // of the decision
	Cause   string          `json:"cause,omitempty"`
}

// Of is what a notification is about.
func (a About) Of() About { return a }

// Message is text for the person.
type Message struct {
	About
	event.UIMessage
	HTML string `json:"html,omitempty"` // sanitised; for those who asked for HTML
}

// ToolCallRequest asks a person to approve a call. The names of its first fields are
// the specification's.
type ToolCallRequest struct {
	About
	ToolName        string          `json:"toolName"`
	Args            json.RawMessage `json:"args"`
	ConfirmationID  string          `json:"confirmationId"`
	SecurityWarning *hook.Warning   `json:"security_warning,omitempty"`
	Hash            string          `json:"hash"`             // what an approval is bound to: see [event.ToolCallRequest]
	ExpiresAt       time.Time       `json:"expiresAt"`        // no answer until then means denied
	Always          []event.Grant   `json:"always,omitempty"` // one of them may go with an approval
	Owner           string          `json:"owner,omitempty"`  // the plugin that runs the tool; empty: built in
	Answer          *event.Answered `json:"answer,omitempty"` // what a plugin answers instead of the tool
}

// StateChange says what the agent is doing.
type StateChange struct {
	About
	event.UIState
}

// Input is a perception of anybody.
type Input struct {
	About
	event.Perceived
}

// PlanRequested says that the model is asked.
type PlanRequested struct {
	About
	Plan     string           `json:"plan"`
	Round    int              `json:"round"`
	Attempt  string           `json:"attempt"`
	Attempts int              `json:"attempts"`
	Provider subject.Instance `json:"provider"`
}

// PlanCompleted is what the model has answered.
type PlanCompleted struct {
	About
	Plan       string          `json:"plan"`
	Text       string          `json:"text,omitempty"` // beside calls too
	HTML       string          `json:"html,omitempty"`
	Reasoning  string          `json:"reasoning,omitempty"`
	Steps      []event.Step    `json:"steps,omitempty"`
	Usage      provider.Usage  `json:"usage,omitzero"`
	Error      *provider.Error `json:"error,omitempty"`
	DurationMS int64           `json:"duration_ms,omitempty"`
}

// ToolCall says that a call was given to an executor.
type ToolCall struct {
	About
	Call       string           `json:"call"`
	ToolName   string           `json:"toolName"`
	Args       json.RawMessage  `json:"args"`
	Runner     subject.Instance `json:"runner"`
	Attempts   int              `json:"attempts"`
	ApprovedBy subject.Writer   `json:"approvedBy,omitempty"`
}

// ToolResult is a call's one result.
type ToolResult struct {
	About
	Call       string      `json:"call"`
	ToolName   string      `json:"toolName"`
	Result     tool.Result `json:"result"`
	DurationMS int64       `json:"duration_ms,omitempty"`
	Note       string      `json:"note,omitempty"`
}

// ConfirmationResolved says how a request ended, and by whom.
type ConfirmationResolved struct {
	About
	ConfirmationID string               `json:"confirmationId"`
	Outcome        event.ConfirmOutcome `json:"outcome"`
	By             subject.Writer       `json:"by"`
	Source         string               `json:"source,omitempty"`
	Reason         string               `json:"reason,omitempty"`
	Always         *event.Grant         `json:"always,omitempty"`
}

// Audit is a decision of the security layer.
type Audit struct {
	About
	event.Audited
}

// TurnEnd is the terminal event of an input: exactly one of Recorded and Failed.
type TurnEnd struct {
	About
	Recorded *event.Recorded   `json:"recorded,omitempty"`
	Failed   *event.TurnFailed `json:"failed,omitempty"`
}

// SessionLocked says that the circuit breaker opened.
type SessionLocked struct {
	About
	event.SessionLocked
}

// SessionReset says that the conversation was cleared.
type SessionReset struct {
	About
	event.SessionReset
}

// Commit is one decision as it stands in the log, for the event view: what made core
// decide, what each hook did, and every event.
type Commit struct {
	About
	Commit  uint64         `json:"commit"`
	Trigger event.Trigger  `json:"trigger"`
	Hooks   []hook.Verdict `json:"hooks,omitempty"`
	Events  []event.Event  `json:"events"` // a checkpoint comes without its state
}

// Delta is a piece of the model's answer while it is being written.
type Delta struct {
	About
	provider.Delta
	// Blocks are the Markdown blocks of the attempt's text so far that have changed,
	// for those who asked for HTML: block Index is now HTML.
	Blocks []Block `json:"blocks,omitempty"`
}

// Block is a block of a text that is being written, as sanitised HTML.
type Block struct {
	Index int    `json:"index"`
	HTML  string `json:"html"`
}

// ToolOutput is a piece of what a tool prints.
type ToolOutput struct {
	About
	tool.Output
}

// Attached is the first thing that is told: where one is.
type Attached struct {
	About
	After string           `json:"after"` // what follows comes after this id
	Until string           `json:"until"` // what follows up to this id has happened before; what comes after it is news
	State event.AgentState `json:"state"`
	Title string           `json:"title,omitempty"`
	// Pending are the confirmation requests that wait now. They are told again if
	// their place in the log is after After.
	Pending []ToolCallRequest `json:"pending,omitempty"`
}

// Bus says whether the bridge reaches the bus. While it does not, nothing is told, and
// nothing that was is lost: what happens meanwhile is told once it does again.
type Bus struct {
	About
	Connected bool   `json:"connected"`
	Fault     string `json:"fault,omitempty"` // why the bus cannot store, and what to do; empty if it can
}

// Dropped says why nothing more will come.
type Dropped struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
	After   string `json:"after"` // go on after this id; "0" if the log no longer holds what was told
}
