package openaitest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
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
	ResponseFormat      *struct {
		Type       string `json:"type"`
		JSONSchema Format `json:"json_schema"`
	} `json:"response_format"`
}

// Message is one entry of the conversation on the wire.
type Message struct {
	Role             string   `json:"role"`
	Content          *Content `json:"content"`
	ToolCalls        []Call   `json:"tool_calls"`
	ToolCallID       string   `json:"tool_call_id"`
	ReasoningContent string   `json:"reasoning_content"`
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
	if f := r.ResponseFormat; f != nil {
		if f.Type != "json_schema" {
			return fmt.Sprintf("response_format.type is %q", f.Type)
		}
		if why := f.JSONSchema.check(); why != "" {
			return why
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
		if m.Role != "user" && m.Content != nil && m.Content.Parts != nil {
			return fmt.Sprintf("messages[%d].content: parts are only for messages of the user", i)
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
	if r.ResponseFormat != nil {
		q.Schema = r.ResponseFormat.JSONSchema.Schema
	}
	var talk []contract.Message
	names := map[string]string{}
	for _, m := range r.Messages {
		if m.Role == "system" {
			q.System = m.Content.Text
			continue
		}
		if m.Role == "user" && len(talk) > 0 && talk[len(talk)-1].Role == contract.RoleTool && m.shows() {
			if err := show(talk, m.Content.Parts); err != nil {
				return q, err
			}
			continue
		}
		c, err := m.understand(names)
		if err != nil {
			return q, err
		}
		talk = append(talk, c)
	}
	return q, encode(&q, talk)
}

func encode(q *contract.Request, talk []contract.Message) error {
	for _, m := range talk {
		b, err := json.Marshal(m)
		if err != nil {
			return err
		}
		q.Messages = append(q.Messages, b)
	}
	return nil
}

func (m Message) understand(names map[string]string) (contract.Message, error) {
	c := contract.Message{Role: contract.Role(m.Role), CallID: m.ToolCallID, Tool: names[m.ToolCallID]}
	if m.Content != nil {
		var err error
		if c.Text, c.Files, err = m.Content.read("text"); err != nil {
			return c, err
		}
		c.Failed = m.Role == "tool" && strings.HasPrefix(c.Text, `{"error":`)
	}
	for _, call := range m.ToolCalls {
		names[call.ID] = toolName(call.Function.Name)
		c.ToolCalls = append(c.ToolCalls,
			contract.ToolCall{ID: call.ID, Tool: names[call.ID], Args: json.RawMessage(call.Function.Arguments)})
	}
	return c, nil
}

func toolName(wire string) string {
	if name, err := subject.Decode(wire); err == nil {
		return name
	}
	return wire
}

// belongs is the line before a file that belongs to the result of a call.
var belongs = regexp.MustCompile(`^\[file .+: belongs to the result of .+ \(call ([^)]+)\)\]$`)

// shows reports whether a message holds the files of results.
func (m Message) shows() bool {
	return m.Content != nil && len(m.Content.Parts) > 0 && belongs.MatchString(m.Content.Parts[0].Text)
}

// show adds files to the results that they belong to.
func show(talk []contract.Message, parts []Part) error {
	for i := 0; i+1 < len(parts); i += 2 {
		line := belongs.FindStringSubmatch(parts[i].Text)
		if line == nil {
			return fmt.Errorf("%q does not say what the file belongs to", parts[i].Text)
		}
		f, err := parts[i+1].file()
		if err != nil {
			return err
		}
		at := slices.IndexFunc(talk, func(m contract.Message) bool { return m.CallID == line[1] })
		if at < 0 {
			return fmt.Errorf("no result of the call %q", line[1])
		}
		talk[at].Files = append(talk[at].Files, f)
	}
	return nil
}
