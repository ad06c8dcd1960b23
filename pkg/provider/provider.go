// Package provider defines the protocol of language models: requests, responses and token
// deltas. It contains no types of any vendor.
package provider

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Role is the author of a message.
type Role string

// The roles.
const (
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
	RoleTool      Role = "tool"
)

// Message is one entry of the conversation.
type Message struct {
	Role      Role       `json:"role"`
	Text      string     `json:"text,omitempty"`
	ToolCalls []ToolCall `json:"tool_calls,omitempty"` // assistant
	CallID    string     `json:"call_id,omitempty"`    // tool: the call it answers
	Tool      string     `json:"tool,omitempty"`       // tool: its name
	Failed    bool       `json:"failed,omitempty"`     // tool: the call failed
	// ProviderState is returned unchanged to the provider that wrote it.
	ProviderState json.RawMessage `json:"provider_state,omitempty"`
}

// ToolCall is a model's request to run a tool.
type ToolCall struct {
	ID   string `json:"id"`   // unique in its response
	Tool string `json:"tool"` // the tool's name, not encoded
	// as the model wrote them; text that is not JSON is kept as a JSON string
	Args      json.RawMessage `json:"args"`
	DependsOn []string        `json:"depends_on,omitempty"` // ids of calls in the same response
}

// UnmarshalJSON implements json.Unmarshaler. It also accepts numbers as ids, because models
// and people write both.
func (c *ToolCall) UnmarshalJSON(b []byte) error {
	var raw struct {
		ID        ID              `json:"id"`
		Tool      string          `json:"tool"`
		Args      json.RawMessage `json:"args"`
		DependsOn []ID            `json:"depends_on"`
	}
	if err := json.Unmarshal(b, &raw); err != nil {
		return err
	}
	*c = ToolCall{ID: string(raw.ID), Tool: raw.Tool, Args: raw.Args}
	for _, d := range raw.DependsOn {
		c.DependsOn = append(c.DependsOn, string(d))
	}
	return nil
}

// ID is a step's or a call's id: a JSON string or number, normalised to a string.
type ID string

// UnmarshalJSON implements json.Unmarshaler. It accepts a string or a number.
func (i *ID) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		return json.Unmarshal(b, (*string)(i))
	}
	var n json.Number
	if err := json.Unmarshal(b, &n); err != nil {
		return errors.New("an id must be a string or a number")
	}
	*i = ID(n.String())
	return nil
}

// Request is a request for the next message of the conversation.
type Request struct {
	System      string            `json:"system,omitempty"`
	Messages    []json.RawMessage `json:"messages,omitempty"` // each a Message, oldest first
	Tools       []ToolSpec        `json:"tools,omitempty"`
	Model       string            `json:"model,omitempty"`       // empty: the provider's default
	Temperature *float64          `json:"temperature,omitempty"` // absent: not sent
	MaxTokens   int               `json:"max_tokens,omitempty"`  // 0: the provider's default
}

// ToolSpec describes a tool to a model.
type ToolSpec struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Args        json.RawMessage `json:"args"`
}

// Conversation decodes the messages.
func (r Request) Conversation() ([]Message, error) {
	out := make([]Message, len(r.Messages))
	for i, m := range r.Messages {
		if err := json.Unmarshal(m, &out[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// StopReason is why the model stopped.
type StopReason string

// The reasons.
const (
	StopEnd       StopReason = "end"        // the answer is complete
	StopToolCalls StopReason = "tool_calls" // the model waits for the results of its calls
	StopLength    StopReason = "length"     // the answer reached the token limit
	StopFilter    StopReason = "filter"     // the vendor's filter cut the answer
	StopOther     StopReason = "other"
)

// Response is the model's answer. If it contains both calls and text, the calls run and the
// text is commentary. If it contains neither, it is an error.
type Response struct {
	IsFinal       bool            `json:"is_final"`
	TextContent   string          `json:"text_content,omitempty"`
	ToolCalls     []ToolCall      `json:"tool_calls,omitempty"`
	StopReason    StopReason      `json:"stop_reason,omitempty"`
	Model         string          `json:"model,omitempty"` // the model that answered
	Usage         Usage           `json:"usage"`
	ProviderState json.RawMessage `json:"provider_state,omitempty"`
}

// The limits of a [Response], independent of the limits of the agent.
const (
	MaxCalls      = 256
	MaxCallsBytes = 512 << 10 // of the calls and ProviderState together
)

// Usable returns an error if the response cannot be used: it has neither text nor calls, or
// more than [MaxCalls] or [MaxCallsBytes]. The error continues a sentence: "has …".
func (r *Response) Usable() error {
	size := len(r.ProviderState)
	for _, c := range r.ToolCalls {
		size += len(c.Args) + len(c.ID) + len(c.Tool)
		for _, d := range c.DependsOn {
			size += len(d)
		}
	}
	switch {
	case len(r.ToolCalls) == 0 && strings.TrimSpace(r.TextContent) == "":
		return errors.New("has neither text nor calls")
	case len(r.ToolCalls) > MaxCalls:
		return fmt.Errorf("has %d calls, at most %d", len(r.ToolCalls), MaxCalls)
	case size > MaxCallsBytes:
		return fmt.Errorf("has calls of %d bytes, at most %d", size, MaxCallsBytes)
	}
	return nil
}

// Usage is the cost of a response.
type Usage struct {
	InputTokens  int64 `json:"input_tokens"`
	OutputTokens int64 `json:"output_tokens"`
	CostMicroUSD int64 `json:"cost_micro_usd,omitempty"` // millionths of a US dollar
}

// Add returns the sum of two usages.
func (u Usage) Add(v Usage) Usage {
	return Usage{u.InputTokens + v.InputTokens, u.OutputTokens + v.OutputTokens, u.CostMicroUSD + v.CostMicroUSD}
}

// Delta is a part of an answer, sent while the model writes it. Deltas may be lost. A new
// attempt starts the text again, and the committed text replaces it.
type Delta struct {
	Plan      string `json:"plan"`
	Attempt   string `json:"attempt"`
	N         int    `json:"n"` // counts from 0 within an attempt
	Text      string `json:"text,omitempty"`
	Reasoning string `json:"reasoning,omitempty"`
}

// Info describes a provider.
type Info struct {
	Name  string `json:"name"`  // e.g. "openai", "offline"
	Model string `json:"model"` // its default model
	Note  string `json:"note,omitempty"`
}

// ErrorCode is the closed set of reasons why a provider returned no answer.
type ErrorCode string

// The codes.
const (
	ErrAuth        ErrorCode = "auth"         // the key is missing or refused; not retryable
	ErrRateLimited ErrorCode = "rate_limited" // retryable
	ErrUnavailable ErrorCode = "unavailable"  // the API can't be reached or is overloaded; retryable
	ErrTimeout     ErrorCode = "timeout"      // retryable
	ErrBadRequest  ErrorCode = "bad_request"  // the API rejected the request; not retryable
	ErrGarbage     ErrorCode = "garbage"      // the answer could not be read; retryable
	ErrTooLong     ErrorCode = "too_long"     // the answer never ended, or the context is full; not retryable
	ErrInternal    ErrorCode = "internal"     // a fault of the adapter; not retryable
)

// Error is a provider's failure.
type Error struct {
	Code      ErrorCode `json:"code"`
	Message   string    `json:"message"`
	Retryable bool      `json:"retryable"`
	RetryInMS int64     `json:"retry_in_ms,omitempty"` // the delay that the API requested
}

func (e *Error) Error() string { return "provider: " + string(e.Code) + ": " + e.Message }
