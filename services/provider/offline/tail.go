package offline

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	contract "skandha.dev/pkg/provider"
)

// tail is the end of a conversation: the last user message and everything after it.
type tail struct {
	message string
	rounds  int      // assistant messages with calls since the message
	results []result // of all rounds, in order
}

// result is the result of a tool call.
type result struct {
	tool  string
	ok    bool
	text  string          // as sent to the model, without the note
	note  string          // core's remark beside the result
	call  string          // the id of the call
	calls json.RawMessage // the calls of its round, read only when a template asks for .args
}

// message holds the fields that are read of a conversation's entry; skipping the rest
// halves the cost of an answer.
type message struct {
	Role      contract.Role   `json:"role"`
	Text      string          `json:"text"`
	ToolCalls json.RawMessage `json:"tool_calls"`
	CallID    string          `json:"call_id"`
	Tool      string          `json:"tool"`
	Failed    bool            `json:"failed"`
}

var errNoMessage = errors.New("messages: there is no user message")

// readTail decodes from the end back to the last user message and no further:
// a long history costs nothing.
func readTail(raw []json.RawMessage) (tail, error) {
	first := len(raw) - 1
	var t tail
	var after []message // newest first
	for ; first >= 0; first-- {
		var m message
		if err := json.Unmarshal(raw[first], &m); err != nil {
			return t, fmt.Errorf("messages[%d]: %w", first, err)
		}
		if m.Role == contract.RoleUser {
			t.message = trimMessage(m.Text)
			break
		}
		after = append(after, m)
	}
	if first < 0 {
		return t, errNoMessage
	}
	var calls json.RawMessage
	for i := len(after) - 1; i >= 0; i-- {
		switch m := &after[i]; m.Role {
		case contract.RoleAssistant:
			if bytes.IndexByte(m.ToolCalls, '{') > 0 {
				t.rounds++
				calls = m.ToolCalls
			}
		case contract.RoleTool:
			t.results = append(t.results, readResult(m, calls))
		}
	}
	return t, nil
}

// trimMessage removes the lines that core appends for hooks' annotations:
// each a text in brackets.
func trimMessage(s string) string {
	s = strings.TrimSpace(s)
	for {
		i := strings.LastIndexByte(s, '\n')
		if i < 0 || !strings.HasPrefix(s[i+1:], "[") || !strings.HasSuffix(s, "]") {
			return s
		}
		s = strings.TrimSpace(s[:i])
	}
}

func readResult(m *message, calls json.RawMessage) result {
	r := result{tool: m.Tool, ok: !m.Failed, text: m.Text, call: m.CallID, calls: calls}
	if strings.HasSuffix(m.Text, "]") {
		if i := strings.LastIndex(m.Text, "\n["); i >= 0 && json.Valid([]byte(m.Text[:i])) {
			r.text, r.note = m.Text[:i], m.Text[i+2:len(m.Text)-1]
		}
	}
	return r
}

// args returns the decoded arguments of the call; nil if they are not found.
func (r result) args() any {
	var calls []contract.ToolCall
	if json.Unmarshal(r.calls, &calls) != nil {
		return nil
	}
	for _, c := range calls {
		if c.ID == r.call {
			return decode(c.Args)
		}
	}
	return nil
}

// vars returns the variables of a result for the template t, or for any template if t is nil.
func (r result) vars(t *tmpl) map[string]any {
	v := map[string]any{"tool": r.tool, "ok": r.ok, "text": r.text, "note": r.note}
	if t.uses(".args") {
		v["args"] = r.args()
	}
	if !t.uses(".data") && !t.uses(".error") {
		return v
	}
	data := decode([]byte(r.text))
	if data == nil && r.text != "null" {
		data = r.text // not JSON: use the tool's text
	}
	if v["data"] = data; r.ok {
		return v
	}
	v["data"] = nil
	fault := map[string]any{"code": "tool_failed", "message": r.text, "details": []any(nil)}
	if m, ok := data.(map[string]any); ok {
		v["data"] = m["data"]
		if e, ok := m["error"].(map[string]any); ok {
			for k, x := range e {
				fault[k] = x
			}
		}
	}
	v["error"] = fault
	return v
}

// decode reads any JSON value, numbers as they are written; nil if it is not JSON.
func decode(b []byte) any {
	if len(b) == 0 {
		return nil
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	var v any
	if dec.Decode(&v) != nil || dec.More() {
		return nil
	}
	return v
}
