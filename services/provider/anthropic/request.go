package anthropic

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	sdk "github.com/anthropics/anthropic-sdk-go"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/services/provider/adapter"
	"skandha.dev/services/provider/httpapi"
)

// question is a request as the API wants it.
type question struct {
	model    string
	body     []byte
	thoughts bool              // it has thinking blocks
	tools    map[string]string // the offered ones, by their name on the wire
}

// body is the JSON of a request; the SDK adds that the answer is to be a stream.
type body struct {
	Model       string    `json:"model"`
	MaxTokens   int       `json:"max_tokens"`
	Temperature *float64  `json:"temperature,omitempty"`
	Thinking    *thinking `json:"thinking,omitempty"`
	Tools       []tool    `json:"tools,omitempty"`
	ToolChoice  *choice   `json:"tool_choice,omitempty"`
	System      []*block  `json:"system,omitempty"`
	Messages    []message `json:"messages"`
	Output      *output   `json:"output_config,omitempty"`
}

// output is what the answer's text must be like.
type output struct {
	Format format `json:"format"`
}

type format struct {
	Type   string          `json:"type"`
	Schema json.RawMessage `json:"schema"`
}

type tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	InputSchema json.RawMessage `json:"input_schema"`
	Cache       *cacheControl   `json:"cache_control,omitempty"`
}

type choice struct {
	Type string `json:"type"`
}

type message struct {
	Role    string `json:"role"`
	Content []any  `json:"content"` // each a *block, or the JSON of one that was kept
}

// block is a content block of any type.
type block struct {
	Type      string          `json:"type"`
	Text      string          `json:"text,omitempty"`
	ID        string          `json:"id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Input     json.RawMessage `json:"input,omitempty"`
	ToolUseID string          `json:"tool_use_id,omitempty"`
	Content   []any           `json:"content,omitempty"`
	IsError   bool            `json:"is_error,omitempty"`
	Title     string          `json:"title,omitempty"`
	Source    *source         `json:"source,omitempty"`
	Cache     *cacheControl   `json:"cache_control,omitempty"`
}

// textBlocks returns text as a block. The API refuses one that is blank.
func textBlocks(text string) []any {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	return []any{&block{Type: typeText, Text: text}}
}

// question turns a request of the contract into the API's.
func (a *Adapter) question(req contract.Request, keep keeping) (*question, error) {
	talk, err := req.Conversation()
	if err != nil {
		return nil, adapter.Errorf(contract.ErrBadRequest, "messages: %v", err)
	}
	q := &question{model: cmp.Or(req.Model, a.cfg.Model), tools: map[string]string{}}
	c, err := newConversation(q.model, talk, keep)
	if err != nil {
		return nil, err
	}
	b := body{
		Model: q.model, MaxTokens: cmp.Or(max(req.MaxTokens, 0), a.cfg.MaxTokens),
		Tools: q.declare(req.Tools), Messages: c.finish(),
	}
	if len(b.Tools) == 0 && len(c.called) > 0 {
		b.Tools, b.ToolChoice = forbidden(c.called), &choice{"none"}
	}
	if strings.TrimSpace(req.System) != "" {
		b.System = []*block{{Type: typeText, Text: req.System}}
	}
	if b.Output, err = outputOf(req.Schema); err != nil {
		return nil, err
	}
	b.Thinking = a.think(q.model, b.MaxTokens, c)
	if t := req.Temperature; t != nil && b.Thinking == nil && budgeted(q.model) {
		limited := min(max(*t, 0), 1) // other APIs go up to 2
		b.Temperature = &limited
	}
	b.mark()
	q.thoughts = c.thoughts
	if q.body = encode(b); q.body == nil {
		return nil, adapter.Errorf(contract.ErrBadRequest, "the schema of a tool is not JSON")
	}
	return q, nil
}

// outputOf asks for text that matches a schema. The API accepts only some keywords; the SDK
// turns others into descriptions.
func outputOf(schema json.RawMessage) (*output, error) {
	if len(schema) == 0 {
		return nil, nil
	}
	var fields map[string]any
	if json.Unmarshal(schema, &fields) != nil || fields == nil {
		return nil, adapter.Errorf(contract.ErrBadRequest, "schema: want a JSON Schema that is an object")
	}
	if fit, _ := sdk.BetaJSONSchemaOutputFormat(fields).Schema.(map[string]any); fit != nil {
		schema = encode(fit)
	}
	return &output{format{"json_schema", schema}}, nil
}

// declare returns the tools by name, so that their order is always the same.
func (q *question) declare(tools []contract.ToolSpec) []tool {
	var out []tool
	for _, t := range tools {
		name := httpapi.WireName(t.Name)
		if _, twice := q.tools[name]; twice {
			continue // the API would refuse all of them
		}
		q.tools[name] = t.Name
		out = append(out, tool{Name: name, Description: t.Description, InputSchema: inputSchema(t.Args)})
	}
	slices.SortFunc(out, func(a, b tool) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// forbidden declares tools that were called and are offered no more: the API wants to know
// them.
func forbidden(called []string) []tool {
	called = slices.Clone(called)
	slices.Sort(called)
	var out []tool
	for _, name := range slices.Compact(called) {
		out = append(out, tool{Name: name, InputSchema: inputSchema(nil)})
	}
	return out
}

// inputSchema returns a tool's schema as the API accepts it: of an object, without
// alternatives at the top. Core checks arguments against the whole schema.
func inputSchema(args json.RawMessage) json.RawMessage {
	var fields map[string]json.RawMessage
	if json.Unmarshal(args, &fields) != nil || fields == nil {
		return json.RawMessage(`{"type":"object"}`)
	}
	n := len(fields)
	for _, alternative := range []string{"oneOf", "anyOf", "allOf"} {
		delete(fields, alternative)
	}
	if string(fields["type"]) == `"object"` && len(fields) == n {
		return args
	}
	fields["type"] = json.RawMessage(`"object"`)
	return encode(fields)
}
