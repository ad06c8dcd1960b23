package anthropic

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/services/provider/adapter"
)

// literal is a JSON string as it was written, escapes included, without its quotes.
type literal struct{ written strings.Builder }

// add appends a JSON string; nothing is allowed, too.
func (l *literal) add(raw json.RawMessage) error {
	if raw = bytes.TrimSpace(raw); len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	if raw[0] != '"' {
		return adapter.Errorf(contract.ErrGarbage, "a piece of a thinking block is not a text")
	}
	l.written.Write(raw[1 : len(raw)-1])
	return nil
}

func (l *literal) String() string { return `"` + l.written.String() + `"` }

func (l *literal) empty() bool { return l.written.Len() == 0 }

// state is what an answer's provider_state holds: the blocks that the message has no place
// for, and their places among its texts and calls.
type state struct {
	Model  string `json:"anthropic_model"`       // that wrote them
	Text   string `json:"text_sha256,omitempty"` // of all texts together
	Blocks []kept `json:"blocks"`
}

// kept is one of: a block as it arrived, a text of that many bytes, a call.
type kept struct {
	Raw  json.RawMessage `json:"raw,omitempty"`
	Text int             `json:"text,omitempty"`
	Call string          `json:"call,omitempty"` // its id
	Tool string          `json:"tool,omitempty"`
}

// state returns what the model wants back; nil if that is nothing, or too much.
func (a *accumulator) state(model string, resp contract.Response) json.RawMessage {
	if a.lost {
		return nil
	}
	s := state{Model: model, Text: digest(resp.TextContent)}
	calls, needed := resp.ToolCalls, false
	for _, c := range a.blocks {
		k := kept{Text: c.bytes}
		switch c.Type {
		case typeText:
		case typeToolUse:
			k = kept{Call: calls[0].ID, Tool: calls[0].Tool}
			calls = calls[1:]
		default:
			k = kept{Raw: c.finished()}
		}
		needed = needed || k.Raw != nil
		if k.Raw != nil || k.Text > 0 || k.Call != "" {
			s.Blocks = append(s.Blocks, k)
		}
	}
	if b := encode(s); needed && len(b) <= a.limits.StateBytes {
		return b
	}
	return nil
}

// finished returns the block as the API wants it back. A thought without a signature is nil:
// the API would refuse it.
func (c *content) finished() json.RawMessage {
	if c.Type != typeThinking {
		return c.raw
	}
	if c.signature.empty() {
		return nil
	}
	return json.RawMessage(`{"type":"thinking","thinking":` + c.thoughts.String() + `,"signature":` +
		c.signature.String() + `}`)
}

// encode returns a value as JSON, without the escapes that would make markup six times as
// long; nil if it is none.
func encode(v any) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(v) != nil {
		return nil
	}
	return bytes.TrimSpace(b.Bytes())
}

func digest(text string) string {
	if text == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}

// stateOf returns the state of a message. It reports false if another model wrote the
// message, or a hook has changed it since.
func stateOf(m contract.Message, model string) (s state, own bool) {
	if len(m.ProviderState) == 0 || json.Unmarshal(m.ProviderState, &s) != nil || s.Model != model ||
		s.Text != digest(m.Text) {
		return s, false
	}
	text, calls := 0, 0
	for _, k := range s.Blocks {
		if text += k.Text; k.Text < 0 {
			return s, false
		}
		if k.Call == "" {
			continue
		}
		if calls == len(m.ToolCalls) || m.ToolCalls[calls].ID != k.Call || m.ToolCalls[calls].Tool != k.Tool {
			return s, false
		}
		calls++
	}
	return s, len(s.Blocks) > 0 && calls == len(m.ToolCalls) && text == len(m.Text)
}

// restore returns the blocks of a message as the model wrote them; calls are those of the
// message. The API refuses a message that ends with a thought.
func (s state) restore(text string, calls []*block) []any {
	var out []any
	for _, k := range s.Blocks {
		switch {
		case k.Raw != nil:
			out = append(out, k.Raw)
		case k.Call != "":
			out = append(out, calls[0])
			calls = calls[1:]
		default:
			out = append(out, textBlocks(text[:k.Text])...)
			text = text[k.Text:]
		}
	}
	for len(out) > 0 && isKept(out[len(out)-1]) {
		out = out[:len(out)-1]
	}
	return out
}

// isKept reports whether a block of a request comes from a state.
func isKept(b any) bool {
	_, ok := b.(json.RawMessage)
	return ok
}
