package geminitest

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

// Request is a streamGenerateContent request as received.
type Request struct {
	Header            http.Header `json:"-"`
	Path              string      `json:"-"`
	Contents          []Content   `json:"contents"`
	SystemInstruction *Content    `json:"systemInstruction"`
	Tools             []struct {
		FunctionDeclarations []Declaration `json:"functionDeclarations"`
	} `json:"tools"`
	GenerationConfig struct {
		Temperature     *float64 `json:"temperature"`
		MaxOutputTokens *int     `json:"maxOutputTokens"`
	} `json:"generationConfig"`
}

// Content is one entry of the conversation on the wire.
type Content struct {
	Role  string            `json:"role"`
	Parts []json.RawMessage `json:"parts"`
}

// Declaration is a function that is offered.
type Declaration struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parametersJsonSchema"`
}

// part is any part.
type part struct {
	Text             *string `json:"text"`
	Thought          bool    `json:"thought"`
	ThoughtSignature string  `json:"thoughtSignature"`
	FunctionCall     *struct {
		ID   string          `json:"id"`
		Name string          `json:"name"`
		Args json.RawMessage `json:"args"`
	} `json:"functionCall"`
	FunctionResponse *struct {
		ID       string                     `json:"id"`
		Name     string                     `json:"name"`
		Response map[string]json.RawMessage `json:"response"`
	} `json:"functionResponse"`
}

var functionName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}$`)

// check is what the real API would refuse, in words; empty if nothing.
func (s *Server) check(r Request) string {
	if len(r.Contents) == 0 {
		return "* GenerateContentRequest.contents: contents is not specified"
	}
	for _, t := range r.Tools {
		for i, d := range t.FunctionDeclarations {
			var schema map[string]any
			if !functionName.MatchString(d.Name) {
				return fmt.Sprintf("function_declarations[%d].name: Invalid function name %q", i, d.Name)
			}
			if len(d.Parameters) > 0 && json.Unmarshal(d.Parameters, &schema) != nil {
				return fmt.Sprintf("function_declarations[%d].parameters_json_schema is no object", i)
			}
		}
	}
	return s.checkContents(r.Contents)
}

func (s *Server) checkContents(all []Content) string {
	open := lastText(all)
	for i, c := range all {
		parts, err := c.parts()
		switch {
		case err != nil:
			return fmt.Sprintf("contents[%d]: %v", i, err)
		case c.Role != "user" && c.Role != "model":
			return "Please use a valid role: user, model."
		case len(parts) == 0:
			return fmt.Sprintf("contents[%d].parts must not be empty", i)
		}
		if why := s.checkSignatures(i, c, parts, i > open); why != "" {
			return why
		}
		if calls := callsOf(parts); len(calls) > 0 && (i+1 == len(all) || !slices.Equal(responsesOf(all[i+1]), calls)) {
			return "Please ensure that the number of function response parts is equal to the number of function call parts of the function call turn, with their ids."
		}
	}
	return ""
}

// checkSignatures refuses a signature at another part than its own. As with Gemini 3, the
// first call of each step of the open turn must have one.
func (s *Server) checkSignatures(i int, c Content, parts []part, open bool) string {
	first := true
	for k, p := range parts {
		if p.ThoughtSignature != "" && s.issued(p.ThoughtSignature) != compact(c.Parts[k]) {
			return "Thought signature is not valid for this part"
		}
		if p.FunctionCall == nil {
			continue
		}
		if first && open && p.ThoughtSignature == "" {
			return fmt.Sprintf("Function call `%s` in the `%d.` content block is missing a `thought_signature`.",
				p.FunctionCall.Name, i)
		}
		first = false
	}
	return ""
}

func (c Content) parts() ([]part, error) {
	out := make([]part, len(c.Parts))
	for i, raw := range c.Parts {
		if err := json.Unmarshal(raw, &out[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// callsOf are the ids of the calls; an id may be empty.
func callsOf(parts []part) (ids []string) {
	for _, p := range parts {
		if p.FunctionCall != nil {
			ids = append(ids, p.FunctionCall.ID)
		}
	}
	return ids
}

// responsesOf are the ids of the calls that the responses name.
func responsesOf(c Content) (ids []string) {
	parts, _ := c.parts()
	for _, p := range parts {
		if p.FunctionResponse != nil {
			ids = append(ids, p.FunctionResponse.ID)
		}
	}
	return ids
}

// lastText is the index of the last entry of a user with text.
func lastText(all []Content) int {
	for i := len(all) - 1; i >= 0; i-- {
		if parts, _ := all[i].parts(); all[i].Role == "user" && len(parts) > 0 && parts[0].Text != nil {
			return i
		}
	}
	return -1
}

// question is the request as the obedient model understands it.
func (r Request) question() (contract.Request, error) {
	var q contract.Request
	ids, step := []string{}, 0
	for _, c := range r.Contents {
		parts, err := c.parts()
		if err != nil {
			return q, err
		}
		m := contract.Message{Role: contract.RoleUser}
		if c.Role == "model" {
			m.Role, ids, step = contract.RoleAssistant, nil, step+1
		}
		var results []contract.Message
		for _, p := range parts {
			switch {
			case p.Thought:
			case p.Text != nil:
				m.Text += *p.Text
			case p.FunctionCall != nil:
				id := fmt.Sprintf("s%d_%d", step, len(ids))
				ids = append(ids, id)
				m.ToolCalls = append(m.ToolCalls,
					contract.ToolCall{ID: id, Tool: toolName(p.FunctionCall.Name), Args: p.FunctionCall.Args})
			case p.FunctionResponse != nil && len(results) < len(ids):
				results = append(results, resultOf(p, ids[len(results)]))
			}
		}
		if len(results) == 0 || m.Text != "" {
			results = append(results, m)
		}
		for _, m := range results {
			b, err := json.Marshal(m)
			if err != nil {
				return q, err
			}
			q.Messages = append(q.Messages, b)
		}
	}
	return q, nil
}

func resultOf(p part, id string) contract.Message {
	m := contract.Message{Role: contract.RoleTool, CallID: id, Tool: toolName(p.FunctionResponse.Name)}
	text := p.FunctionResponse.Response["output"]
	if failure, ok := p.FunctionResponse.Response["error"]; ok {
		m.Failed, text = true, failure
	}
	if json.Unmarshal(text, &m.Text) != nil {
		m.Text = string(text)
	}
	return m
}

func toolName(wire string) string {
	if name, err := subject.Decode(strings.TrimPrefix(wire, "_")); err == nil {
		return name
	}
	return wire
}
