// Package provider defines the protocol of language models: requests, responses and token
// deltas. It contains no types of any vendor.
package provider

import (
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"path"
	"strings"

	"skandha.dev/pkg/subject"
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
	Files     []File     `json:"files,omitempty"`      // user, tool: pictures and documents that belong to it
	// Origin is where the text of a user message comes from, if not from a user, e.g.
	// "email:alice@example.org". The text says so to the model.
	Origin string `json:"origin,omitempty"`
	// ProviderState is returned unchanged to the provider that wrote it.
	ProviderState json.RawMessage `json:"provider_state,omitempty"`
}

// File is a picture or another document that belongs to a message. The log holds the
// reference; the provider service adds the content before it asks a model.
type File struct {
	Ref       string `json:"ref"`            // of an artifact of the session: <agent>/<session>/<name>
	Name      string `json:"name,omitempty"` // for people
	MediaType string `json:"media_type"`     // e.g. "image/png"
	Bytes     int64  `json:"bytes"`
	// Data is the content, only in a request to a provider. It is empty if the artifact is
	// no longer stored, or if it is too large to be sent.
	Data []byte `json:"data,omitempty"`
}

// The limits of the fields of a [File], in bytes.
const (
	maxFileRef  = 512
	maxFileName = 256 // and the media type
)

// Check validates the file's description, outside of a request to a provider; the error
// begins with the name of the field.
func (f File) Check() error {
	kind, _, err := mime.ParseMediaType(f.MediaType)
	switch {
	case f.Ref == "" || len(f.Ref) > maxFileRef:
		return fmt.Errorf("ref has %d bytes, want 1 to %d", len(f.Ref), maxFileRef)
	case len(f.Name) > maxFileName:
		return fmt.Errorf("name has %d bytes, at most %d", len(f.Name), maxFileName)
	case len(f.MediaType) > maxFileName || err != nil || !strings.Contains(kind, "/"):
		return fmt.Errorf("media_type is %.100q, want for example image/png", f.MediaType)
	case f.Bytes < 0:
		return fmt.Errorf("bytes is %d, want 0 or more", f.Bytes)
	case f.Data != nil:
		return errors.New("data is set: store the content as an artifact, and give its ref")
	}
	return nil
}

// In reports whether the file is an artifact of the session.
func (f File) In(ref subject.Ref) bool {
	name, ok := strings.CutPrefix(f.Ref, ref.String()+"/")
	return ok && path.Clean("/"+name) == "/"+name && name != ""
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
	// Schema is a JSON Schema that the answer's text must match; absent: the text is free.
	Schema json.RawMessage `json:"schema,omitempty"`
	// MaxCostMicroUSD is what the answer may cost at most, in millionths of a US dollar;
	// absent: no limit. A provider whose worst case is higher does not ask its model and
	// fails with [ErrOverBudget].
	MaxCostMicroUSD *int64 `json:"max_cost_micro_usd,omitempty"`
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

// Usage is the cost of one response, or of several together. What a provider does not
// report is counted as unknown: it is not free.
type Usage struct {
	InputTokens  int64 `json:"input_tokens"`
	OutputTokens int64 `json:"output_tokens"`
	CachedTokens int64 `json:"cached_tokens,omitempty"` // of the input, read from the provider's cache
	// CacheWriteTokens are those of the input that the provider wrote to its cache, if it counts them.
	CacheWriteTokens int64 `json:"cache_write_tokens,omitempty"`
	ReasoningTokens  int64 `json:"reasoning_tokens,omitempty"` // of the output, not in its text
	CostMicroUSD     int64 `json:"cost_micro_usd,omitempty"`   // millionths of a US dollar
	Uncounted        int64 `json:"uncounted,omitempty"`        // responses whose tokens are unknown
	Unpriced         int64 `json:"unpriced,omitempty"`         // responses whose cost is unknown
}

// Add returns the sum of two usages.
func (u Usage) Add(v Usage) Usage {
	return Usage{
		u.InputTokens + v.InputTokens, u.OutputTokens + v.OutputTokens, u.CachedTokens + v.CachedTokens,
		u.CacheWriteTokens + v.CacheWriteTokens, u.ReasoningTokens + v.ReasoningTokens, u.CostMicroUSD + v.CostMicroUSD,
		u.Uncounted + v.Uncounted, u.Unpriced + v.Unpriced,
	}
}

// maxUsage bounds each number of a usage, so that thousands of them add up.
const maxUsage = 1e15

// Plausible reports whether no number is below zero, or above 10^15.
func (u Usage) Plausible() bool {
	for _, n := range []int64{
		u.InputTokens, u.OutputTokens, u.CachedTokens, u.CacheWriteTokens, u.ReasoningTokens, u.CostMicroUSD,
		u.Uncounted, u.Unpriced,
	} {
		if n < 0 || n > maxUsage {
			return false
		}
	}
	return true
}

// Cost returns the cost in US dollars for people: "0.0123 USD", "unknown", or "0.0123 USD
// and an unknown amount".
func (u Usage) Cost() string {
	known := USD(u.CostMicroUSD)
	switch {
	case u.Unpriced == 0:
		return known
	case u.CostMicroUSD == 0:
		return "unknown"
	}
	return known + " and an unknown amount"
}

// USD formats millionths of a US dollar for people.
func USD(micro int64) string { return fmt.Sprintf("%.4f USD", float64(micro)/1e6) }

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
	ErrOverBudget  ErrorCode = "over_budget"  // the answer could cost more than it may; not sent, not retryable
)

// Error is a provider's failure.
type Error struct {
	Code      ErrorCode `json:"code"`
	Message   string    `json:"message"`
	Retryable bool      `json:"retryable"`
	RetryInMS int64     `json:"retry_in_ms,omitempty"` // the delay that the API requested
}

func (e *Error) Error() string { return "provider: " + string(e.Code) + ": " + e.Message }
