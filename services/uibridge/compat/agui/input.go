package agui

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/strictjson"
	"skandha.dev/services/uibridge/contract"
)

// RunAgentInput is a client's request. Fields that later versions of the protocol add are
// ignored.
type RunAgentInput struct {
	ThreadID       string            `json:"threadId"`
	RunID          string            `json:"runId"`
	ParentRunID    string            `json:"parentRunId"`
	State          json.RawMessage   `json:"state"`
	Messages       []json.RawMessage `json:"messages"`
	Tools          []json.RawMessage `json:"tools"`
	Context        []Context         `json:"context"`
	ForwardedProps json.RawMessage   `json:"forwardedProps"`
	Resume         []Resume          `json:"resume"`

	props Props
}

// Context is a piece of context from the client's application.
type Context struct {
	Description string `json:"description"`
	Value       string `json:"value"`
}

// Resume answers an interrupt, which is a confirmation request.
type Resume struct {
	InterruptID string   `json:"interruptId"`
	Status      string   `json:"status"` // resolved or cancelled
	Payload     *Payload `json:"payload"`
}

// Payload is the answer.
type Payload struct {
	Approved *bool        `json:"approved"`
	Hash     string       `json:"hash"` // of the request; optional if this handler has sent it to the principal
	Reason   string       `json:"reason"`
	Always   *event.Grant `json:"always"`
}

// UnmarshalJSON implements [json.Unmarshaler]. An unknown field is an error: an approval is
// for the arguments that were shown, so a client must not assume that it can change them.
func (p *Payload) UnmarshalJSON(b []byte) error {
	type plain Payload
	err := strictjson.Names(b, (*plain)(p))
	if err == nil {
		d := json.NewDecoder(bytes.NewReader(b))
		d.DisallowUnknownFields()
		err = d.Decode((*plain)(p))
	}
	if err != nil {
		return contract.Invalid("resume.payload", "want {approved: true or false, hash?, reason?, always?}: "+err.Error())
	}
	return nil
}

// UnmarshalJSON implements [json.Unmarshaler].
func (r *Resume) UnmarshalJSON(b []byte) error {
	type plain Resume
	return strictjson.Unmarshal(b, (*plain)(r))
}

// Props are the fields of forwardedProps.skandha.
type Props struct {
	Interrupts bool            `json:"interrupts"` // end the run when approval is required; default true
	Mode       event.InputMode `json:"mode"`
}

// readInput decodes and checks a client's request.
func readInput(body []byte) (*RunAgentInput, error) {
	in := &RunAgentInput{props: Props{Interrupts: true}}
	var invalid *contract.Error
	if err := strictjson.Unmarshal(body, in); errors.As(err, &invalid) {
		return nil, invalid
	} else if err != nil {
		return nil, contract.Invalid(field(err), "want a RunAgentInput: "+err.Error())
	}
	var props struct {
		Skandha json.RawMessage `json:"skandha"`
	}
	// A client may forward anything; only Skandha's part is read strictly.
	if json.Unmarshal(in.ForwardedProps, &props) == nil && len(props.Skandha) > 0 {
		d := json.NewDecoder(bytes.NewReader(props.Skandha))
		d.DisallowUnknownFields()
		if err := d.Decode(&in.props); err != nil {
			return nil, contract.Invalid("forwardedProps.skandha", "want {interrupts?, mode?}: "+err.Error())
		}
	}
	switch {
	case in.ThreadID == "":
		return nil, contract.Invalid("threadId", "missing; name the thread")
	case in.RunID == "":
		return nil, contract.Invalid("runId", "missing; give each run its own id")
	case len(in.RunID) > event.MaxInputIDBytes:
		return nil, contract.Invalid("runId", fmt.Sprintf(
			"has %d bytes; the limit is %d", len(in.RunID), event.MaxInputIDBytes))
	}
	return in, in.checkResume()
}

// field returns the field that a JSON error is about.
func field(err error) string {
	if e, ok := err.(*json.UnmarshalTypeError); ok && e.Field != "" { //nolint:errorlint // encoding/json returns it unwrapped
		return e.Field
	}
	return "body"
}

func (in *RunAgentInput) checkResume() error {
	for i, r := range in.Resume {
		at := fmt.Sprintf("resume[%d].", i)
		switch {
		case r.InterruptID == "":
			return contract.Invalid(at+"interruptId", "missing; send the confirmationId of skandha.confirmation")
		case r.Status != "resolved" && r.Status != "cancelled":
			return contract.Invalid(at+"status", fmt.Sprintf("is %q, want resolved or cancelled", r.Status))
		case r.Status == "resolved" && (r.Payload == nil || r.Payload.Approved == nil):
			return contract.Invalid(at+"payload", "want {approved: true or false, hash?, reason?, always?}")
		case slices.ContainsFunc(in.Resume[:i], func(q Resume) bool { return q.InterruptID == r.InterruptID }):
			return contract.Invalid(at+"interruptId", "duplicate answer")
		}
	}
	return nil
}

// text returns the input: the last message, and the context.
func (in *RunAgentInput) text() (string, error) {
	at := len(in.Messages) - 1
	if at < 0 {
		return "", contract.Invalid("messages", "empty; the last message is the agent's input")
	}
	where := fmt.Sprintf("messages[%d]", at)
	var m struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	}
	if err := json.Unmarshal(in.Messages[at], &m); err != nil {
		return "", contract.Invalid(where, "want a message: "+err.Error())
	}
	if m.Role != "user" {
		return "", contract.Invalid(where+".role", fmt.Sprintf(
			"is %q; the last message is the agent's input and must be a user's", m.Role))
	}
	text, err := contentText(m.Content)
	if err != nil {
		return "", contract.Invalid(where+".content", err.Error())
	}
	if strings.TrimSpace(text) == "" {
		return "", contract.Invalid(where+".content", "empty; send some text")
	}
	if len(in.Context) == 0 || strings.HasPrefix(text, "/") { // nothing can be appended to a slash command
		return text, nil
	}
	var b strings.Builder
	b.WriteString(text + "\n\n<context>\n")
	for _, c := range in.Context {
		b.WriteString(strings.TrimSpace(c.Description) + ": " + strings.TrimSpace(c.Value) + "\n")
	}
	b.WriteString("</context>")
	return b.String(), nil
}

// contentText returns a message's text: a string, or parts of type text.
func contentText(raw json.RawMessage) (string, error) {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text, nil
	}
	var parts []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if err := json.Unmarshal(raw, &parts); err != nil {
		return "", fmt.Errorf("want a string, or parts of type text")
	}
	texts := make([]string, 0, len(parts))
	for _, p := range parts {
		if p.Type != "text" {
			return "", fmt.Errorf("has a part of type %q; the agent only accepts text", p.Type)
		}
		texts = append(texts, p.Text)
	}
	return strings.Join(texts, "\n"), nil
}
