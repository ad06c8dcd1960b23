package gemini

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/services/provider/httpapi"
)

// state is what an answer's provider_state holds: its parts, as they arrived.
type state struct {
	Parts []json.RawMessage `json:"gemini_parts"`
	// NoText means that Parts lacks the answer's text, which then comes first.
	NoText bool `json:"no_text,omitempty"`

	signed bool // there is something to send back
	text   []bool
}

// add adds a part. A thought without a signature has no use for the model, and a part without
// data, or with an empty text and nothing else, would be refused.
func (s *state) add(raw json.RawMessage, p part) {
	signed := len(p.ThoughtSignature) > 0
	if p.Thought && !signed || p.Text == "" && onlyText(raw) {
		return
	}
	s.signed = s.signed || signed || p.FunctionCall != nil
	s.Parts = append(s.Parts, slices.Clone(raw))
	s.text = append(s.text, p.Text != "" && !p.Thought)
}

// onlyText reports whether a part has no field, or no other than text.
func onlyText(raw json.RawMessage) bool {
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) != nil {
		return false
	}
	delete(fields, "text")
	return len(fields) == 0
}

// encode returns nil if there is nothing to send back, or more than limit bytes. Text is left
// out of a state that would be larger.
func (s *state) encode(limit int) json.RawMessage {
	if !s.signed {
		return nil
	}
	whole := encoded(*s)
	if len(whole) <= limit {
		return whole
	}
	rest := state{NoText: true}
	for i, p := range s.Parts {
		if !s.text[i] {
			rest.Parts = append(rest.Parts, p)
		}
	}
	if b := encoded(rest); len(rest.Parts) > 0 && len(b) <= limit {
		return b
	}
	return nil
}

// encoded is the state as JSON, without the escapes that would make markup six times as long.
func encoded(s state) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(s) != nil { // cannot happen: the parts are JSON
		return nil
	}
	return bytes.TrimSpace(b.Bytes())
}

// stateOf returns the parts of a message, with its calls by the contract's ids. It reports
// false if another provider wrote the message, or a hook has changed it since: then the
// parts no longer say what the message does.
func stateOf(m contract.Message) (s state, calls map[string]functionCall, own bool) {
	if len(m.ProviderState) == 0 || json.Unmarshal(m.ProviderState, &s) != nil || len(s.Parts) == 0 {
		return s, nil, false
	}
	var text strings.Builder
	var seen []contract.ToolCall
	calls = map[string]functionCall{}
	for _, raw := range s.Parts {
		var p part
		if json.Unmarshal(raw, &p) != nil {
			return s, nil, false
		}
		if !p.Thought {
			text.WriteString(p.Text)
		}
		if c := p.FunctionCall; c != nil {
			if len(seen) == len(m.ToolCalls) || !c.is(m.ToolCalls[len(seen)], seen) {
				return s, nil, false
			}
			seen = append(seen, m.ToolCalls[len(seen)])
			calls[seen[len(seen)-1].ID] = *c
		}
	}
	return s, calls, len(seen) == len(m.ToolCalls) && (s.NoText || text.String() == m.Text)
}

// is reports whether a part's call became the contract's call after others.
func (c *functionCall) is(call contract.ToolCall, before []contract.ToolCall) bool {
	return httpapi.CallID(c.ID, before) == call.ID && (wireName(call.Tool) == c.Name || httpapi.ToolName(c.Name) == call.Tool) &&
		httpapi.SameArgs(call.Args, httpapi.ReadArgs(string(c.Args)))
}
