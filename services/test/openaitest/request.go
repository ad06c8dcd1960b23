package openaitest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
)

// Request is a chat completion request as received.
type Request struct {
	Header              http.Header     `json:"-"`
	Model               string          `json:"model"`
	Stream              bool            `json:"stream"`
	StreamOptions       map[string]bool `json:"stream_options"`
	Messages            []Message       `json:"messages"`
	Tools               []Tool          `json:"tools"`
	Temperature         *float64        `json:"temperature"`
	MaxTokens           *int            `json:"max_tokens"`
	MaxCompletionTokens *int            `json:"max_completion_tokens"`
}

// Message is one entry of the conversation on the wire.
type Message struct {
	Role             string  `json:"role"`
	Content          *string `json:"content"`
	ToolCalls        []Call  `json:"tool_calls"`
	ToolCallID       string  `json:"tool_call_id"`
	ReasoningContent string  `json:"reasoning_content"`
}

// Call is a tool call in the history.
type Call struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

// Tool is a function that is offered.
type Tool struct {
	Type     string `json:"type"`
	Function struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
	} `json:"function"`
}

var functionName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// check is what the real API would refuse, in words; empty if nothing.
func (r Request) check() string {
	switch {
	case r.Model == "":
		return "you must provide a model parameter"
	case !r.Stream || !r.StreamOptions["include_usage"]:
		return "this server wants stream and stream_options.include_usage"
	case len(r.Messages) == 0:
		return "[] is too short - 'messages'"
	}
	for i, t := range r.Tools {
		var schema map[string]any
		if t.Type != "function" || !functionName.MatchString(t.Function.Name) {
			return fmt.Sprintf("tools[%d].function.name: %q does not match pattern", i, t.Function.Name)
		}
		if len(t.Function.Parameters) > 0 && json.Unmarshal(t.Function.Parameters, &schema) != nil {
			return fmt.Sprintf("tools[%d].function.parameters is no object", i)
		}
	}
	return r.checkMessages()
}

func (r Request) checkMessages() string {
	waiting := map[string]bool{} // calls without a result
	for i, m := range r.Messages {
		if m.Role != "tool" && len(waiting) > 0 {
			return "an assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'"
		}
		switch m.Role {
		case "system", "user":
			if m.Content == nil {
				return fmt.Sprintf("messages[%d].content is missing", i)
			}
		case "assistant":
			if m.Content == nil && len(m.ToolCalls) == 0 {
				return fmt.Sprintf("messages[%d]: content is required without tool_calls", i)
			}
			for _, c := range m.ToolCalls {
				var args map[string]any
				if c.Type != "function" || len(c.ID) == 0 || len(c.ID) > 40 || !functionName.MatchString(c.Function.Name) ||
					json.Unmarshal([]byte(c.Function.Arguments), &args) != nil {
					return fmt.Sprintf("messages[%d]: malformed tool call %+v", i, c)
				}
				waiting[c.ID] = true
			}
		case "tool":
			if !waiting[m.ToolCallID] || m.Content == nil {
				return fmt.Sprintf("messages[%d]: no call waits for %q", i, m.ToolCallID)
			}
			delete(waiting, m.ToolCallID)
		default:
			return fmt.Sprintf("messages[%d]: invalid role %q", i, m.Role)
		}
	}
	return ""
}

// question is the request as the obedient model understands it.
func (r Request) question() (contract.Request, error) {
	q := contract.Request{Model: r.Model}
	names := map[string]string{}
	for _, m := range r.Messages {
		if m.Role == "system" {
			q.System = *m.Content
			continue
		}
		c := contract.Message{Role: contract.Role(m.Role), CallID: m.ToolCallID, Tool: names[m.ToolCallID]}
		if m.Content != nil {
			c.Text = *m.Content
			c.Failed = m.Role == "tool" && strings.HasPrefix(c.Text, `{"error":`)
		}
		for _, call := range m.ToolCalls {
			name, err := subject.Decode(call.Function.Name)
			if err != nil {
				name = call.Function.Name
			}
			names[call.ID] = name
			c.ToolCalls = append(c.ToolCalls,
				contract.ToolCall{ID: call.ID, Tool: name, Args: json.RawMessage(call.Function.Arguments)})
		}
		b, err := json.Marshal(c)
		if err != nil {
			return q, err
		}
		q.Messages = append(q.Messages, b)
	}
	return q, nil
}
