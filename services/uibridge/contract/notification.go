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

// Notification is a message to a UI: a JSON-RPC notification, or an SSE event of the same
// name.
type Notification struct {
	// ID is the place in the log: "<commit sequence>.<index of the event>", or "<commit
	// sequence>.h" for onCommit, which precedes its events. Empty: the notification is lossy
	// and has no place.
	ID     string
	Method string
	Params json.RawMessage // one of the types below; encoded once for all receivers
}

// The notifications. The specification defines the first four.
const (
	OnNewMessage       = "onNewMessage"       // Message
	OnToolCallRequest  = "onToolCallRequest"  // ToolCallRequest
	OnReadyForInput    = "onReadyForInput"    // About; no id if it directly follows onAttached, without history
	OnAgentStateChange = "onAgentStateChange" // StateChange

	OnInput                = "onInput"                // Input: from anybody, this UI included
	OnPlanConsidered       = "onPlanConsidered"       // PlanConsidered: core considered tools for a plan
	OnPlanRequested        = "onPlanRequested"        // PlanRequested: core asked the model
	OnPlanCompleted        = "onPlanCompleted"        // PlanCompleted: the model answered or failed
	OnToolCall             = "onToolCall"             // ToolCall: core gave the call to an executor
	OnToolResult           = "onToolResult"           // ToolResult
	OnPartialApproval      = "onPartialApproval"      // PartialApproval: one approved, and more people must
	OnConfirmationResolved = "onConfirmationResolved" // ConfirmationResolved: who answered first
	OnAudit                = "onAudit"                // Audit: what the security layer decided
	OnTurnEnd              = "onTurnEnd"              // TurnEnd
	OnSessionLocked        = "onSessionLocked"        // SessionLocked
	OnSessionReset         = "onSessionReset"         // SessionReset
	OnCommit               = "onCommit"               // Commit: for feeds with Attachment.Commits

	OnDelta      = "onDelta"      // Delta; lossy
	OnToolOutput = "onToolOutput" // ToolOutput; lossy
	OnAttached   = "onAttached"   // Attached: the first notification; no id
	OnBus        = "onBus"        // Bus: the bus was lost or cannot store, or has recovered; no id
	OnDropped    = "onDropped"    // Dropped: the last notification; no id
)

// About holds the fields that all notifications have.
type About struct {
	Agent   subject.Agent   `json:"agent"`
	Session subject.Session `json:"session"`
	Turn    string          `json:"turn,omitempty"`
	Time    time.Time       `json:"time,omitzero"` // of the decision
	Cause   string          `json:"cause,omitempty"`
}

// Of returns a itself, for any notification that embeds it.
func (a About) Of() About { return a }

// Message is text for the user.
type Message struct {
	About
	event.UIMessage
	HTML string `json:"html,omitempty"` // sanitised; for feeds with Attachment.HTML
}

// ToolCallRequest asks a person to approve a call. The specification defines the names of
// the first fields.
type ToolCallRequest struct {
	About
	ToolName        string          `json:"toolName"`
	Args            json.RawMessage `json:"args"`
	ConfirmationID  string          `json:"confirmationId"`
	SecurityWarning *hook.Warning   `json:"security_warning,omitempty"`
	Hash            string          `json:"hash"`               // what an approval is bound to: see [event.ToolCallRequest]
	ExpiresAt       time.Time       `json:"expiresAt"`          // a request without an answer by then is denied
	Always          []event.Grant   `json:"always,omitempty"`   // grants; an approval may include one of them
	Owner           string          `json:"owner,omitempty"`    // the plugin that runs the tool; empty: built in
	Answer          *event.Answered `json:"answer,omitempty"`   // what a plugin answers in place of the tool
	After           []string        `json:"after,omitempty"`    // the texts from outside that the model has seen before
	Approval        *event.Approval `json:"approval,omitempty"` // what the configuration demands of the answers
	// Approved lists who has approved so far; only in [Attached].
	Approved []string `json:"approved,omitempty"`
}

// StateChange reports what the agent is doing.
type StateChange struct {
	About
	event.UIState
}

// Input is an input from any source.
type Input struct {
	About
	event.Perceived
}

// PlanConsidered reports which tools core considered for a plan, and why.
type PlanConsidered struct {
	About
	event.PlanConsidered
}

// PlanRequested reports that core has asked the model.
type PlanRequested struct {
	About
	Plan     string           `json:"plan"`
	Round    int              `json:"round"`
	Attempt  string           `json:"attempt"`
	Attempts int              `json:"attempts"`
	Provider subject.Instance `json:"provider"`
}

// PlanCompleted is the model's answer or error.
type PlanCompleted struct {
	About
	Plan       string          `json:"plan"`
	Purpose    event.Purpose   `json:"purpose,omitempty"` // of a question by core, whose answer is not shown
	Text       string          `json:"text,omitempty"`    // also present beside calls
	HTML       string          `json:"html,omitempty"`
	Reasoning  string          `json:"reasoning,omitempty"`
	Steps      []event.Step    `json:"steps,omitempty"`
	Usage      provider.Usage  `json:"usage,omitzero"`
	Error      *provider.Error `json:"error,omitempty"`
	DurationMS int64           `json:"duration_ms,omitempty"`
}

// ToolCall reports that core gave a call to an executor.
type ToolCall struct {
	About
	Call       string           `json:"call"`
	ToolName   string           `json:"toolName"`
	Args       json.RawMessage  `json:"args"`
	Runner     subject.Instance `json:"runner"`
	Attempts   int              `json:"attempts"`
	ApprovedBy subject.Writer   `json:"approvedBy,omitempty"`
}

// ToolResult is the one result of a call.
type ToolResult struct {
	About
	Call       string      `json:"call"`
	ToolName   string      `json:"toolName"`
	Result     tool.Result `json:"result"`
	DurationMS int64       `json:"duration_ms,omitempty"`
	Note       string      `json:"note,omitempty"`
}

// ConfirmationResolved reports how a confirmation request ended, and by whom.
type ConfirmationResolved struct {
	About
	ConfirmationID string               `json:"confirmationId"`
	Outcome        event.ConfirmOutcome `json:"outcome"`
	By             subject.Writer       `json:"by"`
	From           string               `json:"from,omitempty"`
	Source         string               `json:"source,omitempty"`
	Reason         string               `json:"reason,omitempty"`
	Always         *event.Grant         `json:"always,omitempty"`
	Person         string               `json:"person,omitempty"` // who answered, by name
	Others         []string             `json:"others,omitempty"` // who approved before
	For            string               `json:"for,omitempty"`    // who delegated the answer
	Passkey        bool                 `json:"passkey,omitempty"`
}

// PartialApproval reports that a person approved a call that needs the approval of more people.
type PartialApproval struct {
	About
	ConfirmationID string         `json:"confirmationId"`
	By             subject.Writer `json:"by"`
	Person         string         `json:"person"`
	For            string         `json:"for,omitempty"`
	Source         string         `json:"source,omitempty"`
	Left           int            `json:"left"` // how many more people must approve
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

// SessionLocked reports that the circuit breaker opened.
type SessionLocked struct {
	About
	event.SessionLocked
}

// SessionReset reports that the conversation was cleared.
type SessionReset struct {
	About
	event.SessionReset
}

// Commit is one commit from the log, for the event view: what triggered it, what each hook
// did, and all its events.
type Commit struct {
	About
	Commit  uint64         `json:"commit"`
	Trigger event.Trigger  `json:"trigger"`
	Hooks   []hook.Verdict `json:"hooks,omitempty"`
	Events  []event.Event  `json:"events"` // a checkpoint is included without its state
}

// Delta is a piece of the model's answer while it is being written.
type Delta struct {
	About
	provider.Delta
	// Blocks are the changed Markdown blocks of the attempt's text so far, for feeds with
	// Attachment.HTML: block Index is now HTML.
	Blocks []Block `json:"blocks,omitempty"`
}

// Block is a block of an unfinished text, as sanitised HTML.
type Block struct {
	Index int    `json:"index"`
	HTML  string `json:"html"`
}

// ToolOutput is a piece of a tool's output.
type ToolOutput struct {
	About
	tool.Output
}

// Attached is the first notification of a feed. It describes where the feed begins.
type Attached struct {
	About
	After string           `json:"after"` // all following notifications come after this id
	Until string           `json:"until"` // notifications up to this id are history; later ones are new
	State event.AgentState `json:"state"`
	Title string           `json:"title,omitempty"`
	// Pending are the open confirmation requests. They are sent again if their place in the
	// log is after After.
	Pending []ToolCallRequest `json:"pending,omitempty"`
}

// Bus reports whether the bridge is connected to the bus. While it is not, no notifications
// are sent, but none are lost: they are sent after it has reconnected.
type Bus struct {
	About
	Connected bool   `json:"connected"`
	Fault     string `json:"fault,omitempty"` // why the bus cannot store, and what to do; empty if it can
}

// Dropped reports why the feed ends.
type Dropped struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
	After   string `json:"after"` // continue after this id; "0" if the log no longer contains what was sent
}
