package openaitest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	contract "skandha.dev/pkg/provider"
)

// ResponsesRequest is a request for a response as received.
type ResponsesRequest struct {
	Header          http.Header       `json:"-"`
	Model           string            `json:"model"`
	Stream          bool              `json:"stream"`
	Store           *bool             `json:"store"`
	Include         []string          `json:"include"`
	Instructions    string            `json:"instructions"`
	Input           []json.RawMessage `json:"input"`
	Temperature     *float64          `json:"temperature"`
	MaxOutputTokens *int              `json:"max_output_tokens"`
	Tools           []struct {
		Type        string          `json:"type"`
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
		Strict      *bool           `json:"strict"`
	} `json:"tools"`
	Text *struct {
		Format struct {
			Type string `json:"type"`
			Format
		} `json:"format"`
	} `json:"text"`
}

// inputItem is an entry of the input; those that the server gave out are compared as they are.
type inputItem struct {
	Type      string  `json:"type"`
	ID        string  `json:"id"`
	Role      string  `json:"role"`
	Status    string  `json:"status"`
	Phase     string  `json:"phase"`
	Content   Content `json:"content"`
	CallID    string  `json:"call_id"`
	Name      string  `json:"name"`
	Arguments string  `json:"arguments"`
	Output    Content `json:"output"`
}

// givenItem is an item that the server gave out.
type givenItem struct {
	item   string   // its canonical form
	answer []string // the ids of all items of its answer
}

// SeenResponses lists the requests for a response that came, well-formed or not.
func (s *Server) SeenResponses() []ResponsesRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]ResponsesRequest(nil), s.asked...)
}

func (s *Server) noteResponses(r ResponsesRequest) http.HandlerFunc {
	s.mu.Lock()
	s.asked = append(s.asked, r)
	s.mu.Unlock()
	return s.Take()
}

// give remembers the items of an answer.
func (s *Server) give(ids []string, items []json.RawMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, id := range ids {
		s.given[id] = givenItem{canonical(items[i]), ids}
	}
}

// canonical is JSON without the freedom that it leaves: white space, escapes, order.
func canonical(raw json.RawMessage) string {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return string(raw)
	}
	b, err := json.Marshal(v)
	if err != nil {
		return string(raw)
	}
	return string(b)
}

func (s *Server) responses(w http.ResponseWriter, r *http.Request) {
	var req ResponsesRequest
	err := decode(r, &req)
	req.Header = r.Header.Clone()
	if h := s.noteResponses(req); h != nil {
		h(w, r)
		return
	}
	if refused(w, r, err, req.check) {
		return
	}
	items, err := s.readInput(req.Input)
	if err == nil {
		err = checkPairs(items)
	}
	var q contract.Request
	if err == nil {
		q, err = req.question(items)
	}
	if err != nil {
		Refuse(w, http.StatusBadRequest, "invalid_request_error", "", err.Error())
		return
	}
	out := NewResponsesStream(w)
	resp, err := s.generate(r.Context(), w, q, out.Text)
	if err != nil {
		return
	}
	for _, c := range resp.ToolCalls {
		if r.Context().Err() != nil {
			return
		}
		out.Call(c)
	}
	s.give(out.close())
	out.Finish("completed", "", resp.Usage)
}

// check is what the real API would refuse, in words; empty if nothing.
func (r ResponsesRequest) check() string {
	switch {
	case r.Model == "":
		return "Missing required parameter: 'model'."
	case !r.Stream || r.Store == nil || *r.Store || !slices.Equal(r.Include, []string{"reasoning.encrypted_content"}):
		return "this server wants stream, store off, and the encrypted reasoning"
	case len(r.Input) == 0:
		return "Missing required parameter: 'input'."
	}
	for i, t := range r.Tools {
		var schema map[string]any
		if t.Type != "function" || !functionName.MatchString(t.Name) || t.Strict == nil || *t.Strict ||
			json.Unmarshal(t.Parameters, &schema) != nil {
			return fmt.Sprintf("Invalid 'tools[%d]': %+v", i, t)
		}
	}
	if r.Text == nil {
		return ""
	}
	if r.Text.Format.Type != "json_schema" {
		return fmt.Sprintf("Invalid value: 'text.format.type' is %q", r.Text.Format.Type)
	}
	return r.Text.Format.check()
}

// readInput decodes the input. An item with an id must be one that was given out, unchanged
// and in its place among the items of its answer.
func (s *Server) readInput(raws []json.RawMessage) ([]inputItem, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	items := make([]inputItem, len(raws))
	var rest []string // ids that must follow
	for i, raw := range raws {
		id := struct{ ID, Type string }{}
		if err := json.Unmarshal(raw, &id); err != nil {
			return nil, err
		}
		given, known := s.given[id.ID]
		switch {
		case len(rest) > 0 && id.ID != rest[0]:
			return nil, fmt.Errorf("item '%s' was provided without its following item '%s'", raws[i-1], rest[0])
		case id.ID == "":
			if err := strictly(raw, &items[i]); err != nil {
				return nil, fmt.Errorf("input[%d]: %w", i, err)
			}
			continue
		case !known:
			return nil, fmt.Errorf("item with id '%s' not found: items are not persisted when `store` is set to false", id.ID)
		case given.item != canonical(raw):
			return nil, fmt.Errorf("item '%s' was changed: it was %s, and is %s", id.ID, given.item, raw)
		case len(rest) == 0 && given.answer[0] != id.ID:
			return nil, fmt.Errorf("item '%s' of type '%s' was provided without its required item '%s'", id.ID, id.Type,
				given.answer[0])
		case len(rest) == 0:
			rest = given.answer
		}
		rest = rest[1:]
		if err := json.Unmarshal(raw, &items[i]); err != nil && id.Type != "reasoning" {
			return nil, err
		}
		items[i].Type = id.Type
	}
	if len(rest) > 0 {
		return nil, fmt.Errorf("the last item was provided without its following item '%s'", rest[0])
	}
	return items, nil
}

// checkPairs wants one result for each call, before the user speaks again.
func checkPairs(items []inputItem) error {
	waiting := map[string]bool{}
	for i, item := range append(slices.Clone(items), inputItem{Type: "message", Role: "user"}) {
		switch item.Type {
		case "message":
			if item.Role != "user" && item.Role != "assistant" {
				return fmt.Errorf("invalid value: input[%d].role is %q", i, item.Role)
			}
			if item.Role == "user" && len(waiting) > 0 {
				return fmt.Errorf("no tool output found for function calls %v", waiting)
			}
		case "function_call":
			if item.CallID == "" || len(item.CallID) > 64 || waiting[item.CallID] || !functionName.MatchString(item.Name) {
				return fmt.Errorf("input[%d]: malformed call %+v", i, item)
			}
			waiting[item.CallID] = true
		case "function_call_output":
			if !waiting[item.CallID] {
				return fmt.Errorf("no tool call found for function call output with call_id %s", item.CallID)
			}
			delete(waiting, item.CallID)
		case "reasoning":
			if item.ID == "" {
				return fmt.Errorf("input[%d].id is missing", i)
			}
		default:
			return fmt.Errorf("invalid value: input[%d].type is %q", i, item.Type)
		}
	}
	return nil
}

// question is the request as the obedient model understands it.
func (r ResponsesRequest) question(items []inputItem) (contract.Request, error) {
	q := contract.Request{Model: r.Model, System: r.Instructions}
	if r.Text != nil {
		q.Schema = r.Text.Format.Schema
	}
	var talk []contract.Message
	names := map[string]string{}
	for _, item := range items {
		m, err := item.understand(names)
		if err != nil {
			return q, err
		}
		last := len(talk) - 1
		switch {
		case m.Role == "": // reasoning
		case m.Role == contract.RoleAssistant && last >= 0 && talk[last].Role == m.Role:
			talk[last].Text += m.Text
			talk[last].ToolCalls = append(talk[last].ToolCalls, m.ToolCalls...)
		default:
			talk = append(talk, m)
		}
	}
	return q, encode(&q, talk)
}

func (i inputItem) understand(names map[string]string) (m contract.Message, err error) {
	switch i.Type {
	case "message":
		m.Role = contract.Role(i.Role)
		texts := "input_text"
		if m.Role == contract.RoleAssistant {
			texts = "output_text"
		}
		m.Text, m.Files, err = i.Content.read(texts)
	case "function_call":
		m.Role, names[i.CallID] = contract.RoleAssistant, toolName(i.Name)
		m.ToolCalls = []contract.ToolCall{{ID: i.CallID, Tool: names[i.CallID], Args: asJSON(i.Arguments)}}
	case "function_call_output":
		m.Role, m.CallID, m.Tool = contract.RoleTool, i.CallID, names[i.CallID]
		m.Text, m.Files, err = i.Output.read("input_text")
		m.Failed = strings.HasPrefix(m.Text, `{"error":`)
	}
	return m, err
}

// asJSON returns arguments as JSON: the model may have written anything.
func asJSON(args string) json.RawMessage {
	if json.Valid([]byte(args)) {
		return json.RawMessage(args)
	}
	return json.RawMessage(quote(args))
}
