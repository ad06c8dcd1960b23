package gemini

import (
	"encoding/json"
	"slices"
	"strings"

	"skandha.dev/pkg/provider"
)

// state is the provider_state of an answer: its parts as they arrived. Each is a JSON string
// that holds the part's JSON, because JSON within JSON loses its space and its escapes on the
// way through the bus and the log.
type state struct {
	Parts []string `json:"gemini_legacy_parts"`
	// NoText means that Parts lacks the answer's text, which then comes first.
	NoText bool `json:"no_text,omitempty"`

	needed bool // there is something that the contract has no field for
	texts  []bool
}

// add adds a part. It leaves out what the API would not accept back: a thought without a
// signature, and an empty text.
func (s *state) add(raw json.RawMessage, p part) {
	if p.Signature == "" && (p.Thought || p.Text == "" && onlyText(raw)) {
		return
	}
	s.needed = s.needed || p.Signature != "" || p.Call != nil
	s.Parts = append(s.Parts, string(raw))
	s.texts = append(s.texts, p.Text != "" && !p.Thought)
}

// onlyText reports whether a part has no other field than text.
func onlyText(raw json.RawMessage) bool {
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) != nil {
		return false
	}
	delete(fields, "text")
	return len(fields) == 0
}

// encode returns nil if there is nothing to send back, or too much. It leaves out the text of
// a state that would otherwise be too large.
func (s *state) encode() json.RawMessage {
	if !s.needed {
		return nil
	}
	if b, err := json.Marshal(s); err == nil && len(b) <= maxState {
		return b
	}
	rest := state{NoText: true}
	for i, p := range s.Parts {
		if !s.texts[i] {
			rest.Parts = append(rest.Parts, p)
		}
	}
	if b, err := json.Marshal(rest); err == nil && len(b) <= maxState && len(rest.Parts) > 0 {
		return b
	}
	return nil
}

// readState returns the parts of a message, and its calls by the contract's ids. It reports
// false if another provider wrote the message, or if a hook has changed it since: then the
// parts no longer say what the message says.
func readState(m provider.Message) (s state, calls map[string]functionCall, own bool) {
	if len(m.ProviderState) == 0 || json.Unmarshal(m.ProviderState, &s) != nil || len(s.Parts) == 0 {
		return s, nil, false
	}
	var text strings.Builder
	var seen []provider.ToolCall
	calls = map[string]functionCall{}
	for _, raw := range s.Parts {
		var p part
		if json.Unmarshal([]byte(raw), &p) != nil {
			return s, nil, false
		}
		if !p.Thought {
			text.WriteString(p.Text)
		}
		if p.Call == nil {
			continue
		}
		if len(seen) == len(m.ToolCalls) || !p.Call.became(m.ToolCalls[len(seen)], seen) {
			return s, nil, false
		}
		seen = slices.Clone(m.ToolCalls[:len(seen)+1])
		calls[seen[len(seen)-1].ID] = *p.Call
	}
	return s, calls, len(seen) == len(m.ToolCalls) && (s.NoText || text.String() == m.Text)
}

// became reports whether a part's call is the contract's call after the calls before it. The
// arguments are not compared, because core may have completed them.
func (c *functionCall) became(call provider.ToolCall, before []provider.ToolCall) bool {
	return callID(c.ID, before) == call.ID && (wireName(call.Tool) == c.Name || toolName(c.Name) == call.Tool)
}
