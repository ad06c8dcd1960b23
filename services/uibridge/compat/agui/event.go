package agui

import "encoding/json"

// EventType is the type of an AG-UI event.
type EventType string

// The event types that are sent.
const (
	RunStarted              EventType = "RUN_STARTED"
	RunFinished             EventType = "RUN_FINISHED"
	RunError                EventType = "RUN_ERROR"
	StepStarted             EventType = "STEP_STARTED"
	StepFinished            EventType = "STEP_FINISHED"
	TextMessageStart        EventType = "TEXT_MESSAGE_START"
	TextMessageContent      EventType = "TEXT_MESSAGE_CONTENT"
	TextMessageEnd          EventType = "TEXT_MESSAGE_END"
	ReasoningStart          EventType = "REASONING_START"
	ReasoningMessageStart   EventType = "REASONING_MESSAGE_START"
	ReasoningMessageContent EventType = "REASONING_MESSAGE_CONTENT"
	ReasoningMessageEnd     EventType = "REASONING_MESSAGE_END"
	ReasoningEnd            EventType = "REASONING_END"
	ToolCallStart           EventType = "TOOL_CALL_START"
	ToolCallArgs            EventType = "TOOL_CALL_ARGS"
	ToolCallEnd             EventType = "TOOL_CALL_END"
	ToolCallResult          EventType = "TOOL_CALL_RESULT"
	StateSnapshot           EventType = "STATE_SNAPSHOT"
	StateDelta              EventType = "STATE_DELTA"
	MessagesSnapshot        EventType = "MESSAGES_SNAPSHOT"
	Custom                  EventType = "CUSTOM"
)

// Event is an AG-UI event; its type determines its fields.
type Event struct {
	Type      EventType `json:"type"`
	Timestamp int64     `json:"timestamp,omitempty"` // milliseconds since 1970

	ThreadID    string `json:"threadId,omitempty"`
	RunID       string `json:"runId,omitempty"`
	ParentRunID string `json:"parentRunId,omitempty"`

	StepName        string `json:"stepName,omitempty"`
	MessageID       string `json:"messageId,omitempty"`
	Role            string `json:"role,omitempty"`
	ToolCallID      string `json:"toolCallId,omitempty"`
	ToolCallName    string `json:"toolCallName,omitempty"`
	ParentMessageID string `json:"parentMessageId,omitempty"`
	Content         string `json:"content,omitempty"`

	Delta    any               `json:"delta,omitempty"` // text, or []Patch
	Snapshot any               `json:"snapshot,omitempty"`
	Messages []json.RawMessage `json:"messages,omitempty"`
	Name     string            `json:"name,omitempty"`
	Value    any               `json:"value,omitempty"`

	Message string   `json:"message,omitempty"`
	Code    string   `json:"code,omitempty"`
	Result  *Result  `json:"result,omitempty"`
	Outcome *Outcome `json:"outcome,omitempty"`
	Usage   []Usage  `json:"usage,omitempty"`
}

// Patch is one operation of RFC 6902.
type Patch struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// Result is the result of a run.
type Result struct {
	Text     string `json:"text"`
	Turn     string `json:"turn,omitempty"`
	Sequence uint64 `json:"sequence"` // of the input
}

// Usage is the token usage of a run.
type Usage struct {
	InputTokens  int64 `json:"inputTokens"`
	OutputTokens int64 `json:"outputTokens"`
	TotalTokens  int64 `json:"totalTokens"`
}

// Outcome tells how a run finished.
type Outcome struct {
	Type       string      `json:"type"` // success or interrupt
	Interrupts []Interrupt `json:"interrupts,omitempty"`
}

// Interrupt asks a person for a decision. It ends the run until the run is resumed.
type Interrupt struct {
	ID             string         `json:"id"`
	Reason         string         `json:"reason"`
	Message        string         `json:"message,omitempty"`
	ToolCallID     string         `json:"toolCallId,omitempty"`
	ResponseSchema map[string]any `json:"responseSchema,omitempty"`
	ExpiresAt      string         `json:"expiresAt,omitempty"`
	Metadata       map[string]any `json:"metadata,omitempty"`
}

// The names of custom events.
const (
	CustomConfirmation         = "skandha.confirmation"
	CustomConfirmationResolved = "skandha.confirmation_resolved"
	CustomToolOutput           = "skandha.tool_output"
	CustomAudit                = "skandha.audit"
)
