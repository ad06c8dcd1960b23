package gemini

import (
	"encoding/json"
	"slices"
)

// state is what an answer's provider_state holds: its parts, byte for byte. The text of
// parts that are nothing but text is left out where it can be: the message has it.
type state struct {
	Parts []json.RawMessage `json:"gemini_parts"`
	// NoText means that Parts lacks the answer's text, which then comes first.
	NoText bool `json:"no_text,omitempty"`

	signed bool // there is something to send back
	plain  []bool
}

// add adds a part. A thought without a signature has no use for the model, and a part with
// nothing but an empty text would be refused.
func (s *state) add(raw json.RawMessage, p part) {
	signed := len(p.ThoughtSignature) > 0
	if p.Thought && !signed || p.Text == "" && onlyText(raw) {
		return
	}
	s.signed = s.signed || signed || p.FunctionCall != nil
	s.Parts = append(s.Parts, slices.Clone(raw))
	s.plain = append(s.plain, !signed && p.FunctionCall == nil)
}

func onlyText(raw json.RawMessage) bool {
	var fields object
	return json.Unmarshal(raw, &fields) == nil && len(fields) == 1 && fields["text"] != nil
}

// encode returns nil if there is nothing to send back. Text is left out of a state that is
// larger than limit.
func (s *state) encode(limit int) json.RawMessage {
	if !s.signed {
		return nil
	}
	b, err := json.Marshal(s)
	if err == nil && limit > 0 && len(b) > limit {
		rest := state{NoText: true}
		for i, p := range s.Parts {
			if !s.plain[i] {
				rest.Parts = append(rest.Parts, p)
			}
		}
		b, err = json.Marshal(rest)
	}
	if err != nil { // cannot happen: the parts are JSON
		return nil
	}
	return b
}

// readState returns the parts of an answer of this package; false for any other state.
func readState(raw json.RawMessage) (state, bool) {
	var s state
	if len(raw) == 0 || json.Unmarshal(raw, &s) != nil || len(s.Parts) == 0 {
		return state{}, false
	}
	return s, true
}
