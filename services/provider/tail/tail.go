// Package tail reads the end of a conversation: the last user message and what came
// after it. It is for models that are programs and need no more than that.
package tail

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	contract "skandha.dev/pkg/provider"
)

// Tail is the end of a conversation.
type Tail struct {
	Message string // the last user message, without the annotations that hooks append
	Rounds  int    // assistant messages with calls since then
	Results []Result
}

// Result is the result of a tool call.
type Result struct {
	Tool  string
	OK    bool
	Text  string // as sent to the model, without the note
	Note  string // core's remark beside the result
	Args  json.RawMessage
	Files []contract.File
	Round int // the first is 1
}

// ErrNoMessage says that nobody has said anything.
var ErrNoMessage = errors.New("messages: there is no user message")

// Read decodes from the end back to the last user message and no further:
// a long history costs nothing.
func Read(raw []json.RawMessage) (Tail, error) {
	var t Tail
	var after []contract.Message // newest first
	for i, b := range slices.Backward(raw) {
		var m contract.Message
		if err := json.Unmarshal(b, &m); err != nil {
			return t, fmt.Errorf("messages[%d]: %w", i, err)
		}
		if m.Role == contract.RoleUser {
			t.Message = trim(m.Text)
			t.read(after)
			return t, nil
		}
		after = append(after, m)
	}
	return t, ErrNoMessage
}

func (t *Tail) read(after []contract.Message) {
	var calls []contract.ToolCall
	for _, m := range slices.Backward(after) {
		switch {
		case m.Role == contract.RoleTool:
			r := Result{Tool: m.Tool, OK: !m.Failed, Files: m.Files, Round: t.Rounds}
			r.Text, r.Note = splitNote(m.Text)
			for _, c := range calls {
				if c.ID == m.CallID {
					r.Args = c.Args
				}
			}
			t.Results = append(t.Results, r)
		case m.Role == contract.RoleAssistant && len(m.ToolCalls) > 0:
			t.Rounds++
			calls = m.ToolCalls
		}
	}
}

// trim removes the lines that core appends for hooks' annotations: each a text in
// brackets.
func trim(s string) string {
	s = strings.TrimSpace(s)
	for {
		i := strings.LastIndexByte(s, '\n')
		if i < 0 || !strings.HasPrefix(s[i+1:], "[") || !strings.HasSuffix(s, "]") {
			return s
		}
		s = strings.TrimSpace(s[:i])
	}
}

func splitNote(s string) (text, note string) {
	if i := strings.LastIndex(s, "\n["); i >= 0 && strings.HasSuffix(s, "]") && json.Valid([]byte(s[:i])) {
		return s[:i], s[i+2 : len(s)-1]
	}
	return s, ""
}

// Succeeded reports whether all results were successes.
func (t *Tail) Succeeded() bool {
	return !slices.ContainsFunc(t.Results, func(r Result) bool { return !r.OK })
}

// Fault is why a call failed.
type Fault struct {
	Code, Message string
	Details       []any
}

// Fault reads the failure. What is not in the shape of one is a message.
func (r *Result) Fault() Fault {
	var envelope struct {
		Error struct {
			Code    string `json:"code"`
			Message string `json:"message"`
			Details []any  `json:"details"`
		} `json:"error"`
	}
	_ = json.Unmarshal([]byte(r.Text), &envelope)
	f := Fault(envelope.Error)
	f.Code = cmp.Or(f.Code, "tool_failed")
	f.Message = cmp.Or(f.Message, r.Text)
	return f
}

// Data is the result's value: of a failure, what came with it. What is not JSON is text.
func (r *Result) Data() any {
	v, ok := Decode([]byte(r.Text))
	if r.OK {
		if !ok {
			return r.Text
		}
		return v
	}
	m, _ := v.(map[string]any)
	return m["data"]
}

// Decode reads any JSON value, numbers as they are written.
func Decode(b []byte) (v any, ok bool) {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	if dec.Decode(&v) != nil || dec.More() {
		return nil, false
	}
	return v, true
}
