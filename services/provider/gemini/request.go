package gemini

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/genai"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/services/provider/adapter"
	"skandha.dev/services/provider/httpapi"
)

// question is a request as the API wants it.
type question struct {
	model string
	body  map[string]any
	tools map[string]string // the offered ones, by their name on the wire
}

// config makes the SDK send the body as it is. Its own types would reorder the properties of
// schemas and lose what they do not know of a part.
func (q *question) config() *genai.GenerateContentConfig {
	return &genai.GenerateContentConfig{
		AutomaticContinuation: genai.Ptr(false),
		HTTPOptions: &genai.HTTPOptions{
			ExtrasRequestProvider: func(map[string]any) map[string]any { return q.body },
		},
	}
}

// The entries of the body.
type (
	content struct {
		Role  string `json:"role,omitempty"`
		Parts []any  `json:"parts"`
	}
	textPart struct {
		Text string `json:"text"`
	}
	dataPart struct {
		InlineData blob `json:"inlineData"`
	}
	blob struct {
		MimeType string `json:"mimeType"`
		Data     []byte `json:"data"`
	}
	callPart struct {
		FunctionCall functionCall `json:"functionCall"`
	}
	resultPart struct {
		FunctionResponse functionResponse `json:"functionResponse"`
	}
	functionResponse struct {
		ID       string            `json:"id,omitempty"`
		Name     string            `json:"name"`
		Response map[string]string `json:"response"`
	}
	declaration struct {
		Name        string          `json:"name"`
		Description string          `json:"description,omitempty"`
		Parameters  json.RawMessage `json:"parametersJsonSchema,omitempty"`
	}
)

// question turns a request of the contract into the API's.
func (a *Adapter) question(req contract.Request) (*question, error) {
	talk, err := req.Conversation()
	if err != nil {
		return nil, adapter.Errorf(contract.ErrBadRequest, "messages: %v", err)
	}
	q := &question{
		model: cmp.Or(req.Model, a.cfg.Model), tools: map[string]string{}, body: map[string]any{},
	}
	if strings.ContainsAny(q.model, "?&#") || strings.Contains(q.model, "..") {
		return nil, adapter.Errorf(contract.ErrBadRequest, "model %q is not a name of the API's", q.model)
	}
	c := conversation{open: lastUser(talk)}
	for i, m := range talk {
		if err := c.add(i, m); err != nil {
			return nil, err
		}
	}
	c.show()
	q.body["contents"] = c.contents
	if req.System != "" {
		q.body["systemInstruction"] = content{Parts: []any{textPart{req.System}}}
	}
	if len(req.Tools) > 0 {
		q.body["tools"] = []any{map[string]any{"functionDeclarations": q.declare(req.Tools)}}
	}
	if settings := settingsOf(req); len(settings) > 0 {
		q.body["generationConfig"] = settings
	}
	return q, nil
}

func settingsOf(req contract.Request) map[string]any {
	settings := map[string]any{}
	if req.Temperature != nil {
		settings["temperature"] = *req.Temperature
	}
	if req.MaxTokens > 0 {
		settings["maxOutputTokens"] = req.MaxTokens
	}
	if len(req.Schema) > 0 {
		settings["responseMimeType"], settings["responseJsonSchema"] = "application/json", req.Schema
	}
	return settings
}

func (q *question) declare(tools []contract.ToolSpec) []declaration {
	out := make([]declaration, len(tools))
	for i, t := range tools {
		name := wireName(t.Name)
		q.tools[name] = t.Name
		out[i] = declaration{name, t.Description, t.Args}
	}
	return out
}

// wireName returns a tool's name as the API accepts it: it must not begin with a digit or a
// hyphen.
func wireName(tool string) string {
	name := httpapi.WireName(tool)
	if c := name[0]; c == '-' || c >= '0' && c <= '9' {
		return httpapi.WireName("_" + tool)
	}
	return name
}

func lastUser(talk []contract.Message) int {
	for i, m := range slices.Backward(talk) {
		if m.Role == contract.RoleUser {
			return i
		}
	}
	return -1
}

// conversation builds the contents.
type conversation struct {
	open     int // index of the message that the turn which is not answered began with
	contents []content

	calls  map[string]functionCall // of the latest answer, by the contract's id
	asText bool                    // that answer was sent as text
	shown  []any                   // files of results, which follow when all results are there
}

func (c *conversation) add(i int, m contract.Message) error {
	if m.Role != contract.RoleTool {
		c.show()
	}
	switch m.Role {
	case contract.RoleUser:
		c.user(m)
	case contract.RoleAssistant:
		c.assistant(m, i > c.open)
	case contract.RoleTool:
		c.result(m)
	default:
		return adapter.Errorf(contract.ErrBadRequest, "messages: the role %q is unknown", m.Role)
	}
	return nil
}

// put adds parts to the last entry if it has the same role: the results of parallel calls
// must be in one entry.
func (c *conversation) put(role string, parts ...any) {
	if last := len(c.contents) - 1; last >= 0 && c.contents[last].Role == role {
		c.contents[last].Parts = append(c.contents[last].Parts, parts...)
		return
	}
	c.contents = append(c.contents, content{role, parts})
}

func (c *conversation) user(m contract.Message) {
	text, files := httpapi.Compose(m, accepts)
	if text != "" || len(files) == 0 {
		c.put("user", textPart{text})
	}
	for _, f := range files {
		c.put("user", dataPart{blob{f.MediaType, f.Data}})
	}
}

// show adds the files of results.
func (c *conversation) show() {
	if len(c.shown) > 0 {
		c.put("user", c.shown...)
		c.shown = nil
	}
}

func (c *conversation) assistant(m contract.Message, open bool) {
	c.calls, c.asText = map[string]functionCall{}, false
	if s, calls, own := stateOf(m); own {
		c.calls = calls
		if s.NoText && m.Text != "" {
			c.put("model", textPart{m.Text})
		}
		for _, raw := range s.Parts {
			c.put("model", raw)
		}
		return
	}
	if m.Text != "" || len(m.ToolCalls) == 0 {
		c.put("model", textPart{m.Text})
	}
	c.asText = open && len(m.ToolCalls) > 0
	for _, call := range m.ToolCalls {
		if c.asText {
			c.put("model", textPart{fmt.Sprintf("I called %s with %s.", call.Tool, call.Args)})
			continue
		}
		f := functionCall{Name: wireName(call.Tool), Args: httpapi.WireArgs(call.Args)}
		c.calls[call.ID] = f
		c.put("model", callPart{f})
	}
}

func (c *conversation) result(m contract.Message) {
	key := "output"
	if m.Failed {
		key = "error"
	}
	text, files := httpapi.Compose(m, accepts)
	call, known := c.calls[m.CallID]
	if c.asText || !known {
		c.put("user", textPart{fmt.Sprintf("%s of %s: %s", key, m.Tool, text)})
	} else {
		c.put("user", resultPart{functionResponse{call.ID, call.Name, map[string]string{key: text}}})
	}
	for _, f := range files {
		c.shown = append(c.shown, textPart{httpapi.Belongs(m, f, call.ID)}, dataPart{blob{f.MediaType, f.Data}})
	}
}

// accepts reports whether the API accepts files of a media type.
func accepts(mediaType string) bool {
	return httpapi.IsPicture(mediaType) && mediaType != "image/gif" || slices.Contains(documents, mediaType)
}

// documents are the other media types that the API accepts.
var documents = []string{
	httpapi.PDF, "image/heic", "image/heif",
	"audio/wav", "audio/x-wav", "audio/mp3", "audio/mpeg", "audio/aiff", "audio/aac", "audio/ogg", "audio/flac",
	"video/mp4", "video/mpeg", "video/mov", "video/quicktime", "video/avi", "video/x-flv", "video/mpg", "video/webm",
	"video/wmv", "video/3gpp",
}
