package anthropictest

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
)

// Request is a request as received.
type Request struct {
	Header      http.Header   `json:"-"`
	Raw         string        `json:"-"` // the body
	Model       string        `json:"model"`
	MaxTokens   *int          `json:"max_tokens"`
	Stream      bool          `json:"stream"`
	Temperature *float64      `json:"temperature"`
	Thinking    *Thinking     `json:"thinking"`
	Tools       []Tool        `json:"tools"`
	System      []Block       `json:"system"`
	Messages    []Message     `json:"messages"`
	Output      *OutputConfig `json:"output_config"`
	ToolChoice  *struct {
		Type string `json:"type"`
	} `json:"tool_choice"`
}

// Thinking is how the model is to think.
type Thinking struct {
	Type    string `json:"type"`
	Budget  int    `json:"budget_tokens"`
	Display string `json:"display"`
}

// OutputConfig is what the answer is to look like.
type OutputConfig struct {
	Format *struct {
		Type   string          `json:"type"`
		Schema json.RawMessage `json:"schema"`
	} `json:"format"`
}

// Tool is a tool that is offered.
type Tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	InputSchema json.RawMessage `json:"input_schema"`
	Cache       json.RawMessage `json:"cache_control"`
}

// Message is one entry of the conversation on the wire.
type Message struct {
	Role    string  `json:"role"`
	Content []Block `json:"content"`
}

// Block is a content block of any type.
type Block struct {
	Type      string          `json:"type"`
	Text      *string         `json:"text"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id"`
	Content   []Block         `json:"content"`
	IsError   bool            `json:"is_error"`
	Thinking  json.RawMessage `json:"thinking"`
	Signature string          `json:"signature"`
	Data      string          `json:"data"`
	Title     string          `json:"title"`
	Source    *Source         `json:"source"`
	Cache     json.RawMessage `json:"cache_control"`
}

// Source is the content of an image or a document.
type Source struct {
	Type      string `json:"type"`
	MediaType string `json:"media_type"`
	Data      string `json:"data"`
}

// decode reads a request. Like the API, it refuses fields that it does not know.
func decode(body []byte) (Request, error) {
	r := Request{Raw: string(body)}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return r, fmt.Errorf("%w: Extra inputs are not permitted", err)
	}
	return r, nil
}

// isNew reports whether the model is a recent one.
func (r Request) isNew() bool { return r.Model == Model }

// thinks reports whether an answer begins with a thought. With a budget, a model thinks once
// a turn.
func (r Request) thinks() bool {
	if r.isNew() {
		return true
	}
	last := r.Messages[len(r.Messages)-1].Content
	return r.Thinking != nil && last[0].Type != "tool_result"
}

// before is what comes before a message, thoughts and marks aside: what a thought in that
// message belongs to.
func (r Request) before(message int) string {
	var b strings.Builder
	for _, t := range r.Tools {
		fmt.Fprintf(&b, "%s %s %s\n", t.Name, t.Description, compact(t.InputSchema))
	}
	write(&b, r.System)
	for _, m := range r.Messages[:message] {
		fmt.Fprintln(&b, m.Role)
		write(&b, m.Content)
	}
	return b.String()
}

func write(b *strings.Builder, blocks []Block) {
	for _, c := range blocks {
		if c.isThought() {
			continue
		}
		c.Cache, c.Input = nil, json.RawMessage(compact(c.Input))
		_ = json.NewEncoder(b).Encode(c) // it was decoded
	}
}

func (b Block) isThought() bool { return b.Type == "thinking" || b.Type == "redacted_thinking" }

// compact is JSON without the freedom that it leaves: white space, escapes, order.
func compact(raw json.RawMessage) string {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return "null"
	}
	b, err := json.Marshal(v)
	if err != nil {
		return "null"
	}
	return string(b)
}

// question is the request as the obedient model understands it.
func (r Request) question() (contract.Request, error) {
	var q contract.Request
	if r.Output != nil && r.Output.Format != nil {
		q.Schema = r.Output.Format.Schema
	}
	tools := map[string]string{}
	for _, m := range r.Messages {
		for _, said := range m.said(tools) {
			b, err := json.Marshal(said)
			if err != nil {
				return q, err
			}
			q.Messages = append(q.Messages, b)
		}
	}
	return q, nil
}

// said is a message as one of the contract, after the results that it begins with. Tools
// collects the names of those that were called, by the call.
func (m Message) said(tools map[string]string) []contract.Message {
	var out []contract.Message
	rest := contract.Message{Role: contract.Role(m.Role)}
	for _, b := range m.Content {
		switch b.Type {
		case "text":
			rest.Text += *b.Text
		case "image", "document":
			rest.Files = append(rest.Files, filesOf([]Block{b})...)
		case "tool_use":
			tools[b.ID] = toolName(b.Name)
			rest.ToolCalls = append(rest.ToolCalls, contract.ToolCall{ID: b.ID, Tool: tools[b.ID], Args: b.Input})
		case "tool_result":
			out = append(out, contract.Message{
				Role: contract.RoleTool, CallID: b.ToolUseID, Tool: tools[b.ToolUseID], Text: b.text(), Failed: b.IsError,
				Files: filesOf(b.Content),
			})
		}
	}
	if rest.Text != "" || len(rest.ToolCalls) > 0 || len(rest.Files) > 0 {
		out = append(out, rest)
	}
	return out
}

// filesOf are the pictures and documents among blocks.
func filesOf(blocks []Block) (out []contract.File) {
	for _, b := range blocks {
		if b.Source == nil {
			continue
		}
		data, err := base64.StdEncoding.DecodeString(b.Source.Data)
		if err != nil {
			continue // check has refused it
		}
		out = append(out, contract.File{Ref: "wire", MediaType: b.Source.MediaType, Bytes: int64(len(data)), Data: data})
	}
	return out
}

// text is the text of a result.
func (b Block) text() string {
	var out strings.Builder
	for _, c := range b.Content {
		if c.Text != nil {
			out.WriteString(*c.Text)
		}
	}
	return out.String()
}

func toolName(wire string) string {
	if name, err := subject.Decode(wire); err == nil {
		return name
	}
	return wire
}
