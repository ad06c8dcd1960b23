package anthropictest

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// Bounds of the API.
const (
	maxMarks    = 4
	maxImage    = 5 << 20 // bytes of base64
	leastBudget = 1024
)

var (
	toolNames = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)
	callIDs   = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)
)

// check is what the real API would refuse, in words; empty if nothing.
func (s *Server) check(r Request) string {
	for _, why := range []string{
		r.checkParameters(), r.checkThinking(), r.checkTools(), r.checkOutput(), checkBlocks("system", r.System),
		r.checkMarks(), r.checkRoles(),
	} {
		if why != "" {
			return why
		}
	}
	ids := map[string]bool{}
	for i := range r.Messages {
		if why := r.checkMessage(i, ids); why != "" {
			return why
		}
	}
	return s.checkThoughts(r)
}

func (r Request) checkParameters() string {
	switch {
	case r.Model == "":
		return "model: Field required"
	case r.MaxTokens == nil:
		return "max_tokens: Field required"
	case *r.MaxTokens < 1:
		return "max_tokens: Input should be greater than or equal to 1"
	case !r.Stream:
		return "this server wants a stream"
	case r.Temperature == nil:
		return ""
	case *r.Temperature < 0 || *r.Temperature > 1:
		return "temperature: range: 0..1"
	case *r.Temperature != 1 && (r.Thinking != nil || r.isNew()):
		return "`temperature` may only be set to 1 when thinking is enabled."
	}
	return ""
}

func (r Request) checkThinking() string {
	t := r.Thinking
	switch {
	case t == nil:
		return ""
	case t.Type == "adaptive" && r.isNew() && t.Budget == 0:
		return ""
	case t.Type != "enabled" || r.isNew():
		return fmt.Sprintf("\"thinking.type.%s\" is not supported for this model.", t.Type)
	case t.Budget < leastBudget:
		return "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024"
	case t.Budget >= *r.MaxTokens:
		return "`max_tokens` must be greater than `thinking.budget_tokens`."
	}
	return ""
}

func (r Request) checkTools() string {
	names := map[string]bool{}
	for i, t := range r.Tools {
		var schema map[string]any
		switch {
		case !toolNames.MatchString(t.Name):
			return fmt.Sprintf("tools.%d.custom.name: String should match pattern", i)
		case names[t.Name]:
			return "tools: Tool names must be unique."
		case json.Unmarshal(t.InputSchema, &schema) != nil || schema["type"] != "object":
			return fmt.Sprintf("tools.%d.custom.input_schema.type: Input should be 'object'", i)
		case schema["oneOf"] != nil || schema["anyOf"] != nil || schema["allOf"] != nil:
			return fmt.Sprintf("tools.%d.custom.input_schema: does not support oneOf, allOf, or anyOf at the top level", i)
		}
		names[t.Name] = true
	}
	called := slices.ContainsFunc(r.Messages, func(m Message) bool {
		return slices.ContainsFunc(m.Content, func(b Block) bool { return b.Type == "tool_use" })
	})
	if called && len(r.Tools) == 0 {
		return "Requests which include `tool_use` or `tool_result` blocks must define tools"
	}
	return ""
}

func (r Request) checkOutput() string {
	if r.Output == nil {
		return ""
	}
	var schema map[string]any
	if f := r.Output.Format; f == nil || f.Type != "json_schema" || json.Unmarshal(f.Schema, &schema) != nil {
		return "output_config.format: Input should be a JSON schema"
	}
	return checkSchema(schema)
}

// checkSchema wants closed objects, and knows no bounds.
func checkSchema(v any) string {
	fields, _ := v.(map[string]any)
	if fields["type"] == "object" && fields["additionalProperties"] != false {
		return "output_config.format.schema: For 'object' type, 'additionalProperties' must be explicitly set to false"
	}
	for _, unknown := range []string{"minimum", "maxLength", "oneOf"} {
		if fields[unknown] != nil {
			return "output_config.format.schema: property '" + unknown + "' is not supported"
		}
	}
	properties, _ := fields["properties"].(map[string]any)
	for _, p := range properties {
		if why := checkSchema(p); why != "" {
			return why
		}
	}
	return ""
}

// checkSource wants content that is what it is called.
func (b Block) checkSource() string {
	if b.Source == nil || b.Source.Type != "base64" {
		return ".source: Field required"
	}
	data, err := base64.StdEncoding.DecodeString(b.Source.Data)
	is := http.DetectContentType(data)
	switch {
	case err != nil || len(data) == 0:
		return ".source.base64.data: Invalid base64 data"
	case len(b.Source.Data) > maxImage && b.Type == "image":
		return ".source.base64: image exceeds 5 MB maximum"
	case is != b.Source.MediaType || b.Type == "image" != strings.HasPrefix(is, "image/"):
		return ".source.base64: the media type is " + b.Source.MediaType + ", but the content appears to be " + is
	}
	return ""
}

func (r Request) checkMarks() string {
	n := 0
	for _, t := range r.Tools {
		n += marked(t.Cache)
	}
	for _, b := range r.System {
		n += marked(b.Cache)
	}
	for _, m := range r.Messages {
		for _, b := range m.Content {
			n += marked(b.Cache)
		}
	}
	if n > maxMarks {
		return fmt.Sprintf("A maximum of 4 blocks with cache_control may be provided. Found %d.", n)
	}
	return ""
}

func marked(cache json.RawMessage) int {
	if len(cache) > 0 {
		return 1
	}
	return 0
}

func (r Request) checkRoles() string {
	for i, m := range r.Messages {
		want := []string{"user", "assistant"}[i%2]
		if m.Role != want {
			return fmt.Sprintf("messages.%d.role: %q, the roles must alternate, and begin with the user", i, m.Role)
		}
	}
	if len(r.Messages)%2 == 0 {
		return "messages: at least one message is required, and the conversation must end with a user message"
	}
	return ""
}

// checkMessage checks a message; ids are those of the calls before.
func (r Request) checkMessage(i int, ids map[string]bool) string {
	m := r.Messages[i]
	at := fmt.Sprintf("messages.%d", i)
	if len(m.Content) == 0 {
		return at + ".content: must not be empty"
	}
	if why := checkBlocks(at, m.Content); why != "" {
		return why
	}
	if m.Content[len(m.Content)-1].isThought() {
		return at + ": The final block in an assistant message cannot be `thinking`."
	}
	var calls []string
	for _, b := range m.Content {
		switch {
		case m.Role == "user" && (b.isThought() || b.Type == "tool_use"),
			m.Role == "assistant" && !b.isThought() && b.Type != "tool_use" && b.Type != "text":
			return fmt.Sprintf("%s: a %s may not contain %s", at, m.Role, b.Type)
		case b.Type == "tool_use" && ids[b.ID]:
			return "messages: `tool_use` ids must be unique"
		case b.Type == "tool_use":
			ids[b.ID] = true
			calls = append(calls, b.ID)
		}
	}
	if m.Role == "user" {
		return ""
	}
	return checkResults(i+1, calls, r.Messages[i+1].Content) // a user message ends the conversation
}

// checkResults wants one result of each call, before anything else.
func checkResults(i int, calls []string, content []Block) string {
	n := 0
	for n < len(content) && content[n].Type == "tool_result" {
		if !slices.Contains(calls, content[n].ToolUseID) {
			return fmt.Sprintf("messages.%d.content.%d: unexpected `tool_use_id` found in `tool_result` blocks: %s", i, n,
				content[n].ToolUseID)
		}
		calls = slices.DeleteFunc(calls, func(id string) bool { return id == content[n].ToolUseID })
		n++
	}
	late := slices.ContainsFunc(content[n:], func(b Block) bool { return b.Type == "tool_result" })
	if len(calls) > 0 || late {
		return fmt.Sprintf("messages.%d: `tool_use` ids were found without `tool_result` blocks immediately after: %s.", i,
			strings.Join(calls, ", "))
	}
	return ""
}

func checkBlocks(at string, blocks []Block) string {
	for k, b := range blocks {
		where := fmt.Sprintf("%s.content.%d", at, k)
		var input map[string]any
		switch {
		case b.Type == "text" && (b.Text == nil || strings.TrimSpace(*b.Text) == ""):
			return where + ": text content blocks must contain non-whitespace text"
		case b.Type == "tool_use" && (!callIDs.MatchString(b.ID) || !toolNames.MatchString(b.Name)):
			return where + ".tool_use: String should match pattern '^[a-zA-Z0-9_-]+$'"
		case b.Type == "tool_use" && (json.Unmarshal(b.Input, &input) != nil || input == nil):
			return where + ".tool_use.input: Input should be an object"
		case b.isThought() && len(b.Cache) > 0:
			return where + ": cache_control: Extra inputs are not permitted"
		case b.IsError && slices.ContainsFunc(b.Content, func(b Block) bool { return b.Type != "text" }):
			return where + ".tool_result: all content must be type `text` if `is_error` is true"
		case (b.Type == "image" || b.Type == "document") && b.checkSource() != "":
			return where + b.checkSource()
		case !slices.Contains([]string{
			"text", "tool_use", "tool_result", "thinking", "redacted_thinking", "image", "document",
		}, b.Type):
			return where + ".type: Input tag '" + b.Type + "' found using 'type' does not match"
		}
		if why := checkBlocks(where, b.Content); why != "" {
			return why
		}
	}
	return ""
}

// checkThoughts refuses a thought that was changed, or is in another conversation than its
// own. With a budget, the open tool loop must begin with one.
func (s *Server) checkThoughts(r Request) string {
	for i, m := range r.Messages {
		for k, b := range m.Content {
			if !b.isThought() {
				continue
			}
			t, ok := s.issued(b.Signature + b.Data)
			if !ok || b.Type == "thinking" && compact(b.Thinking) != compact(json.RawMessage(t.block)) || t.model != r.Model {
				return fmt.Sprintf("messages.%d.content.%d: Invalid `signature` in `thinking` block", i, k)
			}
			if r.isNew() && t.before != r.before(i) {
				return fmt.Sprintf("messages.%d.content.%d: Invalid `signature` in `thinking` block. "+
					"The block is bound to a different conversation.", i, k)
			}
		}
	}
	if r.Thinking == nil || r.isNew() {
		return ""
	}
	i := len(r.Messages) - 1
	for r.Messages[i].Content[0].Type == "tool_result" {
		i -= 2
	}
	if i+1 < len(r.Messages) && !r.Messages[i+1].Content[0].isThought() {
		return fmt.Sprintf("messages.%d.content.0.type: Expected `thinking` or `redacted_thinking`, but found `%s`. When "+
			"`thinking` is enabled, a final `assistant` message must start with a thinking block", i+1,
			r.Messages[i+1].Content[0].Type)
	}
	return ""
}
