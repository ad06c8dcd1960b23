package openai

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/services/provider/httpapi"
)

// item is what this package reads of an item of the output.
type item struct {
	Type      string          `json:"type"`
	Status    string          `json:"status"`
	Phase     string          `json:"phase"`
	CallID    string          `json:"call_id"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
	Encrypted string          `json:"encrypted_content"`
	Content   []itemContent   `json:"content"`
}

type itemContent struct {
	Text    string `json:"text"`
	Refusal string `json:"refusal"`
}

// text is the text of a message.
func (i item) text() string {
	var b strings.Builder
	for _, c := range i.Content {
		b.WriteString(c.Text + c.Refusal)
	}
	return b.String()
}

// refuses reports whether a message declines to answer.
func (i item) refuses() bool {
	return slices.ContainsFunc(i.Content, func(c itemContent) bool { return c.Refusal != "" })
}

// args are the arguments of a call as the model wrote them: a string, or an object of a
// server that does not follow the API.
func (i item) args() string {
	var s string
	if json.Unmarshal(i.Arguments, &s) == nil {
		return s
	}
	return string(i.Arguments)
}

// between separates the texts of two messages in one answer.
const between = "\n\n"

// itemsState is what an answer's provider_state holds: the items, as they arrived.
type itemsState struct {
	Host  string            `json:"openai_host"` // whose keys the reasoning is encrypted with
	Items []json.RawMessage `json:"openai_items"`
}

// encode returns nil if it is larger than limit, in bytes.
func (s itemsState) encode(limit int) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // it would make markup six times as long
	if e.Encode(s) != nil || b.Len() > limit {
		return nil
	}
	return bytes.TrimSpace(b.Bytes())
}

// worthKeeping reports whether an item says more than the text and the calls of its message.
func worthKeeping(i item) bool {
	return i.Type == "reasoning" || i.Type == "function_call" || i.Phase != ""
}

// returnable reports whether the API would take an item back. It refuses the name of a
// function that the model invented if no function could have it. Reasoning without its
// content is only a reference to what was not stored.
func returnable(i item) bool {
	switch i.Type {
	case "function_call":
		return functionName.MatchString(i.Name)
	case "reasoning":
		return i.Encrypted != "" || i.text() != ""
	}
	return true
}

var functionName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// itemsOf returns the items of a message. It reports false if another API or server wrote
// it, or if a hook has changed it since: then the items no longer say what the message does.
func itemsOf(m contract.Message, host string) (raws []json.RawMessage, own bool) {
	var s itemsState
	if len(m.ProviderState) == 0 || json.Unmarshal(m.ProviderState, &s) != nil || len(s.Items) == 0 || s.Host != host {
		return nil, false
	}
	var texts []string
	calls := m.ToolCalls
	for _, raw := range s.Items {
		var i item
		if json.Unmarshal(raw, &i) != nil {
			return nil, false
		}
		switch i.Type {
		case "message":
			if t := i.text(); t != "" {
				texts = append(texts, t)
			}
		case "function_call":
			if len(calls) == 0 || !i.is(calls[0]) {
				return nil, false
			}
			calls = calls[1:]
		}
	}
	return s.Items, len(calls) == 0 && strings.Join(texts, between) == m.Text
}

// is reports whether an item became the contract's call.
func (i item) is(c contract.ToolCall) bool {
	return i.CallID == c.ID && (httpapi.ToolName(i.Name) == c.Tool || httpapi.WireName(c.Tool) == i.Name) &&
		httpapi.SameArgs(c.Args, httpapi.ReadArgs(i.args()))
}
