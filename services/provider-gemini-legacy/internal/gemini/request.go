package gemini

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/google/generative-ai-go/genai"

	"skandha.dev/pkg/provider"
)

// question is a request in the SDK's types, with what they cannot hold.
type question struct {
	system   *genai.Content
	tools    []*genai.Tool
	settings genai.GenerationConfig
	history  []*genai.Content
	last     []genai.Part // of the user, after the history
	exact    exact
	names    map[string]string // the tools, by their name on the wire
}

func newQuestion(r provider.Request) (*question, error) {
	talk, err := r.Conversation()
	if err != nil {
		return nil, failure(provider.ErrBadRequest, "messages: %v", err)
	}
	c := conversation{open: lastUser(talk), exact: map[position][]byte{}}
	for i, m := range talk {
		if err := c.add(i, m); err != nil {
			return nil, err
		}
	}
	c.attach()
	end := len(c.contents) - 1
	if end < 0 || c.contents[end].Role != roleUser {
		return nil, failure(provider.ErrBadRequest,
			"messages: the last one must be a user's message or a tool's result")
	}
	q := &question{
		history: c.contents[:end], last: c.contents[end].Parts, names: map[string]string{},
		exact: exact{parts: c.exact},
	}
	system := r.System
	switch {
	case len(r.Schema) == 0:
	case len(r.Tools) > 0: // models before Gemini 3 refuse a schema beside tools
		system = strings.TrimSpace(system + "\n\nYour final answer must be JSON that matches this JSON Schema, and nothing else:\n" +
			string(r.Schema))
	default:
		q.exact.answer, q.settings.ResponseMIMEType = r.Schema, "application/json"
	}
	if system != "" {
		q.system = genai.NewUserContent(genai.Text(system))
	}
	q.declare(r.Tools)
	if r.Temperature != nil {
		q.settings.SetTemperature(float32(*r.Temperature))
	}
	if r.MaxTokens > 0 {
		q.settings.SetMaxOutputTokens(int32(min(r.MaxTokens, math.MaxInt32))) //nolint:gosec // it is in the range
	}
	return q, nil
}

// declare offers the tools. The SDK's schemas lack much of JSON Schema, so the RoundTripper
// adds them.
func (q *question) declare(tools []provider.ToolSpec) {
	if len(tools) == 0 {
		return
	}
	t := &genai.Tool{}
	for _, spec := range tools {
		name := wireName(spec.Name)
		q.names[name] = spec.Name
		t.FunctionDeclarations = append(t.FunctionDeclarations,
			&genai.FunctionDeclaration{Name: name, Description: spec.Description})
		q.exact.schemas = append(q.exact.schemas, spec.Args)
	}
	q.tools = []*genai.Tool{t}
}

// lastUser returns the index of the user's last message; -1 if there is none.
func lastUser(talk []provider.Message) int {
	for i, m := range slices.Backward(talk) {
		if m.Role == provider.RoleUser {
			return i
		}
	}
	return -1
}

// The roles of the API.
const (
	roleUser  = "user"
	roleModel = "model"
)

// conversation builds the contents of a request.
type conversation struct {
	open     int // index of the message that began the turn which is not answered
	contents []*genai.Content
	exact    map[position][]byte

	calls  map[string]functionCall // of the latest answer, by the contract's id
	asText bool                    // that answer's calls were sent as text
	files  []genai.Part            // of its results, which follow when all results are there
}

func (c *conversation) add(i int, m provider.Message) error {
	if m.Role != provider.RoleTool {
		c.attach()
	}
	switch m.Role {
	case provider.RoleUser:
		if m.Text != "" || len(m.Files) == 0 {
			c.put(roleUser, genai.Text(m.Text))
		}
		c.files = fileParts(m)
		c.attach()
	case provider.RoleAssistant:
		c.assistant(m, i > c.open)
	case provider.RoleTool:
		c.result(m)
	default:
		return failure(provider.ErrBadRequest, "messages: unknown role %q", m.Role)
	}
	return nil
}

// put adds a part, to the last entry if that has the same role: the results of parallel calls
// must be in one entry.
func (c *conversation) put(role string, p genai.Part) {
	end := len(c.contents) - 1
	if end < 0 || c.contents[end].Role != role {
		c.contents = append(c.contents, &genai.Content{Role: role})
		end++
	}
	c.contents[end].Parts = append(c.contents[end].Parts, p)
}

// putExact adds a part that the RoundTripper replaces with raw.
func (c *conversation) putExact(role string, p genai.Part, raw []byte) {
	c.put(role, p)
	end := len(c.contents) - 1
	c.exact[position{end, len(c.contents[end].Parts) - 1}] = raw
}

func (c *conversation) assistant(m provider.Message, open bool) {
	c.calls, c.asText = map[string]functionCall{}, false
	if s, calls, own := readState(m); own {
		c.calls = calls
		if s.NoText && m.Text != "" {
			c.put(roleModel, genai.Text(m.Text))
		}
		for _, raw := range s.Parts {
			c.putExact(roleModel, genai.Text(""), []byte(raw))
		}
		return
	}
	if m.Text != "" || len(m.ToolCalls) == 0 {
		c.put(roleModel, genai.Text(m.Text))
	}
	c.asText = open && len(m.ToolCalls) > 0
	for _, call := range m.ToolCalls {
		if c.asText {
			c.put(roleModel, genai.Text(fmt.Sprintf("I called the tool %s with the arguments %s.", call.Tool, call.Args)))
			continue
		}
		f := functionCall{Name: wireName(call.Tool), Args: object(call.Args)}
		c.calls[call.ID] = f
		c.putExact(roleModel, genai.FunctionCall{Name: f.Name}, encoded(struct {
			Call functionCall `json:"functionCall"`
		}{f}))
	}
}

// attach adds the files that wait.
func (c *conversation) attach() {
	for _, p := range c.files {
		c.put(roleUser, p)
	}
	c.files = nil
}

// result adds a tool's result, with the API's id of the call, which the SDK has no field for.
func (c *conversation) result(m provider.Message) {
	c.files = append(c.files, fileParts(m)...)
	kind := "output"
	if m.Failed {
		kind = "error"
	}
	call, known := c.calls[m.CallID]
	if c.asText || !known {
		c.put(roleUser, genai.Text(fmt.Sprintf("The %s of the tool %s: %s", kind, m.Tool, m.Text)))
		return
	}
	response := genai.FunctionResponse{Name: call.Name, Response: map[string]any{kind: m.Text}}
	if call.ID == "" {
		c.put(roleUser, response)
		return
	}
	type functionResponse struct {
		ID       string         `json:"id"`
		Name     string         `json:"name"`
		Response map[string]any `json:"response"`
	}
	c.putExact(roleUser, response, encoded(struct {
		Response functionResponse `json:"functionResponse"`
	}{functionResponse{call.ID, call.Name, response.Response}}))
}

// object returns arguments as the API accepts them: what is not a JSON object is put into one.
func object(args json.RawMessage) json.RawMessage {
	var fields map[string]json.RawMessage
	if json.Unmarshal(args, &fields) == nil && fields != nil {
		return args
	}
	if len(args) == 0 {
		return json.RawMessage(`{}`)
	}
	var written string
	if json.Unmarshal(args, &written) != nil {
		written = string(args)
	}
	return encoded(map[string]string{"invalid_arguments": written})
}

// encoded returns JSON of a value that always has one.
func encoded(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("encoding %T: %v", v, err))
	}
	return b
}
