package agui

import (
	"encoding/json"
	"slices"

	"skandha.dev/pkg/provider"
	"skandha.dev/services/uibridge/contract"
)

// transcript holds the messages that a client makes from the events, in order, to be sent
// again if one of them does not count after all.
type transcript struct {
	before   []json.RawMessage // the client's
	messages []*message
	dropped  bool
}

// message is an AG-UI message.
type message struct {
	ID         string     `json:"id"`
	Role       string     `json:"role"`
	Content    string     `json:"content,omitempty"`
	ToolCalls  []toolCall `json:"toolCalls,omitempty"`
	ToolCallID string     `json:"toolCallId,omitempty"`
}

type toolCall struct {
	ID       string   `json:"id"`
	Type     string   `json:"type"`
	Function function `json:"function"`
}

type function struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

func (t *transcript) text(id string) {
	t.messages = append(t.messages, &message{ID: id, Role: "assistant"})
}

// add continues the last text.
func (t *transcript) add(text string) { t.messages[len(t.messages)-1].Content += text }

func (t *transcript) drop(id string) {
	t.dropped = true
	t.messages = slices.DeleteFunc(t.messages, func(m *message) bool { return m.ID == id })
}

// call adds a call to its message, or adds a new message for it.
func (t *transcript) call(parent, id, name string, args json.RawMessage) {
	c := toolCall{ID: id, Type: "function", Function: function{Name: name, Arguments: string(args)}}
	for _, m := range t.messages {
		if m.ID == parent && parent != "" {
			m.ToolCalls = append(m.ToolCalls, c)
			return
		}
	}
	t.messages = append(t.messages, &message{ID: id, Role: "assistant", ToolCalls: []toolCall{c}})
}

func (t *transcript) result(id, call, content string) {
	t.messages = append(t.messages, &message{ID: id, Role: "tool", Content: content, ToolCallID: call})
}

// all returns the messages that count.
func (t *transcript) all() []json.RawMessage {
	out := slices.Clone(t.before)
	for _, m := range t.messages {
		b, err := json.Marshal(m)
		if err != nil {
			continue // cannot happen: the struct has only strings
		}
		out = append(out, b)
	}
	return out
}

func usageOf(u provider.Usage) []Usage {
	if u.InputTokens == 0 && u.OutputTokens == 0 {
		return nil
	}
	return []Usage{{InputTokens: u.InputTokens, OutputTokens: u.OutputTokens, TotalTokens: u.InputTokens + u.OutputTokens}}
}

// interruptOf converts a confirmation request to AG-UI's form.
func interruptOf(q contract.ToolCallRequest) Interrupt {
	i := Interrupt{
		ID: q.ConfirmationID, Reason: "tool_call", ToolCallID: q.ConfirmationID,
		Message: "Allow the call of " + q.ToolName + "?",
		ResponseSchema: map[string]any{
			"type": "object", "required": []string{"approved"},
			"properties": map[string]any{
				"approved": map[string]string{"type": "boolean"}, "reason": map[string]string{"type": "string"},
			},
		},
		Metadata: map[string]any{"skandha": q},
	}
	if !q.ExpiresAt.IsZero() {
		i.ExpiresAt = q.ExpiresAt.UTC().Format("2006-01-02T15:04:05.000Z")
	}
	if q.SecurityWarning != nil {
		i.Message += " " + q.SecurityWarning.Message
	}
	return i
}
