package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
)

// completion is a request.
type completion struct {
	Model         string            `json:"model"`
	Messages      []message         `json:"messages"`
	Stream        bool              `json:"stream"`
	StreamOptions *streamOptions    `json:"stream_options"`
	Metadata      map[string]string `json:"metadata"`

	agent subject.Agent
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

// message is a message of the conversation.
type message struct {
	Role      string          `json:"role"`
	Content   json.RawMessage `json:"content"`
	ToolCalls json.RawMessage `json:"tool_calls"`

	text string
}

// refused lists parameters that would change the answer but that an agent does not support,
// with the values that are harmless.
var refused = map[string]struct {
	harmless *regexp.Regexp
	why      string
}{
	"n":             {regexp.MustCompile(`^1$`), "only one answer is supported; leave it out or send 1"},
	"tools":         {regexp.MustCompile(`^\[\s*\]$`), "the agent's tools are on the bus; offer one as a plugin"},
	"functions":     {regexp.MustCompile(`^\[\s*\]$`), "the agent's tools are on the bus; offer one as a plugin"},
	"tool_choice":   {regexp.MustCompile(`^"(none|auto)"$`), "the agent chooses its tools; leave it out"},
	"function_call": {regexp.MustCompile(`^"(none|auto)"$`), "the agent chooses its tools; leave it out"},
	"logprobs":      {regexp.MustCompile(`^false$`), "agents have no logprobs; leave it out"},
	"top_logprobs":  {regexp.MustCompile(`^0$`), "agents have no logprobs; leave it out"},
	"audio":         {nil, "the agent only sends text; leave it out"},
	"modalities":    {regexp.MustCompile(`^\[\s*"text"\s*\]$`), `the agent only sends text; want ["text"]`},
	"response_format": {
		regexp.MustCompile(`^\{\s*"type"\s*:\s*"text"\s*\}$`), `the agent only sends text; want {"type": "text"}`,
	},
	"stop":               {regexp.MustCompile(`^(""|\[\s*\])$`), "agents ignore stop sequences; leave it out"},
	"logit_bias":         {regexp.MustCompile(`^\{\s*\}$`), "the agent's configuration decides; leave it out"},
	"web_search_options": {nil, "the agent chooses its tools; leave it out"},
}

// The metadata keys that this package uses.
const (
	metaSession       = "session"
	metaConfirmations = "confirmations"        // wait or deny
	metaDisconnect    = "cancel_on_disconnect" // true or false
	metaDeltas        = "deltas"               // on or off
)

var choices = map[string][]string{
	metaConfirmations: {"wait", "deny"}, metaDisconnect: {"true", "false"}, metaDeltas: {"on", "off"},
}

// readCompletion decodes and checks a request.
func readCompletion(body []byte) (*completion, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(body, &all); err != nil {
		return nil, invalid("", "the body is not a JSON object: "+err.Error())
	}
	for _, name := range sortedKeys(refused) {
		r, v := refused[name], bytes.TrimSpace(all[name])
		if len(v) > 0 && string(v) != "null" && (r.harmless == nil || !r.harmless.Match(v)) {
			e := invalid(name, "is not supported: "+r.why)
			e.Code = "unsupported_parameter"
			return nil, e
		}
	}
	c := &completion{}
	if err := json.Unmarshal(body, c); err != nil {
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			return nil, invalid(wrong.Field, "has the wrong type: "+wrong.Value)
		}
		return nil, invalid("", err.Error())
	}
	return c, c.check()
}

func (c *completion) check() error {
	name := strings.TrimPrefix(c.Model, "skandha/")
	switch {
	case c.Model == "":
		return invalid("model", "is missing; send an agent's name")
	case !subject.Valid(name):
		return noModel(c.Model)
	case len(c.Messages) == 0:
		return invalid("messages", "is empty; the last message is the agent's input")
	}
	c.agent = subject.Agent(name)
	for key, values := range choices {
		if v, ok := c.Metadata[key]; ok && v != values[0] && v != values[1] {
			return invalid("metadata."+key, fmt.Sprintf("is %q; want %q or %q", v, values[0], values[1]))
		}
	}
	if s, ok := c.Metadata[metaSession]; ok && !subject.Valid(s) {
		return invalid("metadata.session", "want 1 to 64 characters of A-Z a-z 0-9 _ -")
	}
	for i := range c.Messages {
		if err := c.Messages[i].read(fmt.Sprintf("messages[%d]", i)); err != nil {
			return err
		}
	}
	last := len(c.Messages) - 1
	switch m := c.Messages[last]; {
	case m.Role != "user":
		return invalid(fmt.Sprintf("messages[%d].role", last), fmt.Sprintf(
			"is %q; the last message is the agent's input and must be a user's", m.Role))
	case strings.TrimSpace(m.text) == "":
		return invalid(fmt.Sprintf("messages[%d].content", last), "is empty; send some text")
	}
	return nil
}

// read decodes a message's text.
func (m *message) read(at string) error {
	switch m.Role {
	case "user", "assistant", "system", "developer":
	case "tool", "function":
		return invalid(at+".role", "is "+m.Role+"; the agent calls its tools itself")
	default:
		return invalid(at+".role", fmt.Sprintf("is %q; want user, assistant, system or developer", m.Role))
	}
	if calls := string(bytes.TrimSpace(m.ToolCalls)); calls != "" && calls != "null" && calls != "[]" {
		return invalid(at+".tool_calls", "is not supported: the agent calls its tools itself")
	}
	if len(m.Content) == 0 || string(m.Content) == "null" {
		return nil
	}
	if json.Unmarshal(m.Content, &m.text) == nil {
		return nil
	}
	var parts []struct {
		Type    string `json:"type"`
		Text    string `json:"text"`
		Refusal string `json:"refusal"`
	}
	if json.Unmarshal(m.Content, &parts) != nil {
		return invalid(at+".content", "want a string, or parts of type text")
	}
	texts := make([]string, len(parts))
	for i, p := range parts {
		switch p.Type {
		case "text":
			texts[i] = p.Text
		case "refusal":
			texts[i] = p.Refusal
		default:
			return invalid(fmt.Sprintf("%s.content[%d].type", at, i), fmt.Sprintf(
				"is %q; the agent only accepts text", p.Type))
		}
	}
	m.text = strings.Join(texts, "\n")
	return nil
}

// before returns the messages before the last one.
func (c *completion) before() []message { return c.Messages[:len(c.Messages)-1] }

// command matches a slash command, but not, for example, a path.
var command = regexp.MustCompile(`^/[a-z]+(\s|$)`)

// text returns the agent's input. For a new session it includes the messages before the
// last one.
func (c *completion) text(fresh bool) (string, error) {
	last := c.Messages[len(c.Messages)-1].text
	if command.MatchString(last) {
		return last, nil
	}
	if before := c.before(); fresh && len(before) > 0 {
		var b strings.Builder
		b.WriteString("<earlier>\n")
		for _, m := range before {
			b.WriteString(m.Role + ": " + strings.ReplaceAll(m.text, "</earlier>", `<\/earlier>`) + "\n")
		}
		b.WriteString("</earlier>\n\n" + last)
		last = b.String()
	}
	if strings.HasPrefix(last, "/") {
		last = "/" + last // the backend's escape for text that begins with a slash
	}
	if len(last) > event.MaxTextBytes {
		e := invalid("messages", fmt.Sprintf(
			"the limit for an input is %d bytes, and this one has %d; send less, or continue a session",
			event.MaxTextBytes, len(last)))
		e.Code = "context_length_exceeded"
		return "", e
	}
	return last, nil
}
