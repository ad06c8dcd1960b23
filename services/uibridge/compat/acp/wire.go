package acp

import (
	"encoding/json"

	"skandha.dev/pkg/subject"
)

// version is the protocol version that is served.
const version = 1

// The methods of the client.
const (
	onUpdate      = "session/update"
	askPermission = "session/request_permission"
	onCancel      = "$/cancel_request"
)

type initializeRequest struct {
	ProtocolVersion    *int `json:"protocolVersion"`
	ClientCapabilities struct {
		Session struct {
			Notices json.RawMessage `json:"notices"`
		} `json:"session"`
	} `json:"clientCapabilities"`
}

type initializeResponse struct {
	ProtocolVersion   int               `json:"protocolVersion"`
	AgentInfo         implementation    `json:"agentInfo"`
	AgentCapabilities agentCapabilities `json:"agentCapabilities"`
	AuthMethods       []struct{}        `json:"authMethods"`
}

type implementation struct {
	Name    string `json:"name"`
	Title   string `json:"title"`
	Version string `json:"version"`
}

type agentCapabilities struct {
	LoadSession  bool `json:"loadSession"`
	Capabilities struct {
		Image           bool `json:"image"`
		Audio           bool `json:"audio"`
		EmbeddedContext bool `json:"embeddedContext"`
	} `json:"promptCapabilities"`
	MCP struct {
		HTTP bool `json:"http"`
		SSE  bool `json:"sse"`
	} `json:"mcpCapabilities"`
	Session struct {
		List   struct{} `json:"list"`
		Resume struct{} `json:"resume"`
		Close  struct{} `json:"close"`
	} `json:"sessionCapabilities"`
}

// openRequest is that of session/new, session/load and session/resume.
type openRequest struct {
	SessionID  string `json:"sessionId"`
	Cwd        string `json:"cwd"`
	MCPServers []struct {
		Name string `json:"name"`
	} `json:"mcpServers"`
	AdditionalDirectories []string `json:"additionalDirectories"`
}

type openResponse struct {
	SessionID subject.Session `json:"sessionId,omitempty"`
	Meta      map[string]any  `json:"_meta,omitempty"`
}

type sessionRequest struct {
	SessionID string `json:"sessionId"`
}

type listRequest struct {
	Cwd    string `json:"cwd"`
	Cursor string `json:"cursor"`
}

type listResponse struct {
	Sessions   []sessionInfo `json:"sessions"`
	NextCursor string        `json:"nextCursor,omitempty"`
}

type sessionInfo struct {
	SessionID subject.Session `json:"sessionId"`
	Cwd       string          `json:"cwd"`
	Title     string          `json:"title,omitempty"`
	UpdatedAt string          `json:"updatedAt,omitempty"`
}

type promptRequest struct {
	SessionID string  `json:"sessionId"`
	Prompt    []block `json:"prompt"`
}

type promptResponse struct {
	StopReason stopReason     `json:"stopReason"`
	Meta       map[string]any `json:"_meta,omitempty"`
}

type stopReason string

const (
	endTurn         stopReason = "end_turn"
	maxTokens       stopReason = "max_tokens"
	maxTurnRequests stopReason = "max_turn_requests"
	refusal         stopReason = "refusal"
	cancelled       stopReason = "cancelled"
)

// block is a content block.
type block struct {
	Type     string    `json:"type"`
	Text     string    `json:"text,omitempty"`
	Data     []byte    `json:"data,omitempty"` // base64
	MimeType string    `json:"mimeType,omitempty"`
	URI      string    `json:"uri,omitempty"`
	Name     string    `json:"name,omitempty"`
	Resource *resource `json:"resource,omitempty"`
}

type resource struct {
	URI      string  `json:"uri"`
	MimeType string  `json:"mimeType"`
	Text     *string `json:"text"`
	Blob     []byte  `json:"blob"`
}

func textBlock(s string) *block { return &block{Type: "text", Text: s} }

// sessionUpdate is a session/update.
type sessionUpdate struct {
	SessionID subject.Session `json:"sessionId"`
	Update    update          `json:"update"`
}

// update has the fields of all kinds of updates.
type update struct {
	Kind string `json:"sessionUpdate"`

	MessageID string `json:"messageId,omitempty"`
	Content   any    `json:"content,omitempty"` // of a message: *block; of a call: []callContent

	*toolCall

	Entries  []planEntry `json:"entries,omitempty"`
	Commands []command   `json:"availableCommands,omitempty"`

	Title       string `json:"title,omitempty"`
	UpdatedAt   string `json:"updatedAt,omitempty"`
	Severity    string `json:"severity,omitempty"`
	Description string `json:"description,omitempty"`
}

// The kinds of updates.
const (
	userMessage     = "user_message_chunk"
	agentMessage    = "agent_message_chunk"
	agentThought    = "agent_thought_chunk"
	newToolCall     = "tool_call"
	toolCallUpdate  = "tool_call_update"
	planUpdate      = "plan"
	commandsUpdate  = "available_commands_update"
	sessionInfoSent = "session_info_update"
	notice          = "notice"
)

// toolCall has the fields of a call other than its title and its content.
type toolCall struct {
	ToolCallID string          `json:"toolCallId"`
	Name       string          `json:"name,omitempty"`
	Kind       string          `json:"kind,omitempty"`
	Status     string          `json:"status,omitempty"`
	Locations  []location      `json:"locations,omitempty"`
	RawInput   json.RawMessage `json:"rawInput,omitempty"`
	RawOutput  json.RawMessage `json:"rawOutput,omitempty"`
}

// The states of a call.
const (
	pending    = "pending"
	inProgress = "in_progress"
	completed  = "completed"
	failed     = "failed"
)

type location struct {
	Path string `json:"path"`
}

type callContent struct {
	Type    string  `json:"type"` // content or diff
	Content *block  `json:"content,omitempty"`
	Path    string  `json:"path,omitempty"`
	OldText *string `json:"oldText,omitempty"` // nil: a new file, or what it replaces is not known
	NewText *string `json:"newText,omitempty"`
}

type planEntry struct {
	Content  string `json:"content"`
	Priority string `json:"priority"`
	Status   string `json:"status"`
}

type command struct {
	Name        string        `json:"name"`
	Description string        `json:"description"`
	Input       *commandInput `json:"input,omitempty"`
}

type commandInput struct {
	Hint string `json:"hint"`
}

type permissionRequest struct {
	SessionID subject.Session    `json:"sessionId"`
	ToolCall  permissionCall     `json:"toolCall"`
	Options   []permissionOption `json:"options"`
}

type permissionCall struct {
	*toolCall
	Title   string        `json:"title"`
	Content []callContent `json:"content,omitempty"`
}

type permissionOption struct {
	OptionID string `json:"optionId"`
	Name     string `json:"name"`
	Kind     string `json:"kind"`
}

type permissionResponse struct {
	Outcome struct {
		Outcome  string `json:"outcome"`
		OptionID string `json:"optionId"`
	} `json:"outcome"`
}
