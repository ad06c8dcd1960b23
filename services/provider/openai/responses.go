package openai

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/packages/ssestream"
	"github.com/openai/openai-go/v3/responses"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/services/provider/httpapi"
)

// responsesQuestion prepares a request for the Responses API. Nothing is stored there: the
// request holds the whole conversation, with the model's encrypted reasoning.
func (a *Adapter) responsesQuestion(req contract.Request, talk []contract.Message) (try, error) {
	ask := func(ctx context.Context, plain bool, delta func(text, reasoning string)) (contract.Response, bool, error) {
		params, err := a.responsesParams(req, talk, plain)
		if err != nil {
			return contract.Response{}, false, err
		}
		open := func(ctx context.Context, o option.RequestOption) *ssestream.Stream[responses.ResponseStreamEventUnion] {
			return a.responses.NewStreaming(ctx, params, o)
		}
		return read(ctx, a, open, &responsesAnswer{
			answer: answer{limits: a.cfg.Limits, delta: delta}, api: a.api, host: httpapi.Host(a.cfg.BaseURL),
		})
	}
	return func(ctx context.Context, delta func(text, reasoning string)) (contract.Response, bool, error) {
		_, plain := a.plain.Load(req.Model)
		resp, begun, err := ask(ctx, plain, delta)
		if plain || begun || !aboutEncryption(err) {
			return resp, begun, err
		}
		if strings.Contains(err.Error(), "not supported") {
			a.plain.Store(req.Model, true)
		}
		return ask(ctx, true, delta)
	}, nil
}

// aboutEncryption reports whether the API refused a request because of encrypted reasoning:
// the model has none, or the reasoning is of another account's key.
func aboutEncryption(err error) bool {
	var e *contract.Error
	return errors.As(err, &e) && e.Code == contract.ErrBadRequest &&
		strings.Contains(strings.ToLower(e.Message), "encrypted content")
}

// responsesParams builds the request; a plain one neither contains encrypted reasoning nor
// asks for it.
func (a *Adapter) responsesParams(
	req contract.Request, talk []contract.Message, plain bool,
) (responses.ResponseNewParams, error) {
	p := responses.ResponseNewParams{Model: req.Model, Store: param.NewOpt(false)}
	in := input{host: httpapi.Host(a.cfg.BaseURL), plain: plain}
	for _, m := range talk {
		if err := in.add(m); err != nil {
			return p, err
		}
	}
	p.Input = param.Override[responses.ResponseNewParamsInputUnion](in.items)
	if !plain {
		p.Include = []responses.ResponseIncludable{responses.ResponseIncludableReasoningEncryptedContent}
	}
	if req.System != "" {
		p.Instructions = param.NewOpt(req.System)
	}
	for _, t := range req.Tools {
		p.Tools = append(p.Tools, responses.ToolUnionParam{OfFunction: functionTool(t)})
	}
	if req.Temperature != nil {
		p.Temperature = param.NewOpt(*req.Temperature)
	}
	if req.MaxTokens > 0 {
		p.MaxOutputTokens = param.NewOpt(int64(req.MaxTokens))
	}
	if len(req.Schema) > 0 {
		format := &responses.ResponseFormatTextJSONSchemaConfigParam{
			Name: schemaName, Strict: param.NewOpt(fitsStrict(req.Schema)),
		}
		format.SetExtraFields(map[string]any{"schema": req.Schema}) // as it is, like a tool's
		p.Text.Format.OfJSONSchema = format
	}
	return p, nil
}

func functionTool(t contract.ToolSpec) *responses.FunctionToolParam {
	f := &responses.FunctionToolParam{Name: httpapi.WireName(t.Name), Strict: param.NewOpt(false)}
	if t.Description != "" {
		f.Description = param.NewOpt(t.Description)
	}
	schema := t.Args
	if len(schema) == 0 {
		schema = json.RawMessage(`{"type":"object","properties":{}}`)
	}
	f.SetExtraFields(map[string]any{"parameters": schema})
	return f
}

// The entries of the input. The SDK's own types would lose what they do not know of an item.
type (
	inputMessage struct {
		Type    string `json:"type"` // message
		Role    string `json:"role"`
		Content any    `json:"content"` // a string or []inputPart
	}
	inputCall struct {
		Type      string `json:"type"` // function_call
		CallID    string `json:"call_id"`
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	}
	inputResult struct {
		Type   string `json:"type"` // function_call_output
		CallID string `json:"call_id"`
		Output any    `json:"output"` // a string or []inputPart
	}
	inputPart struct {
		Type     string `json:"type"` // input_text, input_image or input_file
		Text     string `json:"text,omitempty"`
		ImageURL string `json:"image_url,omitempty"`
		Detail   string `json:"detail,omitempty"`
		Filename string `json:"filename,omitempty"`
		FileData string `json:"file_data,omitempty"`
	}
)

// input builds the list of items.
type input struct {
	host  string // of the API
	plain bool   // without encrypted reasoning
	items []any
	ids   map[string]string // of the latest answer's calls on the wire, by the contract's
}

func (in *input) add(m contract.Message) error {
	switch m.Role {
	case contract.RoleUser:
		in.items = append(in.items, inputMessage{Type: "message", Role: "user", Content: inputContent(m)})
	case contract.RoleAssistant:
		in.assistant(m)
	case contract.RoleTool:
		id, ok := in.ids[m.CallID]
		if !ok {
			id = wireCallID(m.CallID)
		}
		in.items = append(in.items, inputResult{Type: "function_call_output", CallID: id, Output: inputContent(m)})
	default:
		return unknownRole(m)
	}
	return nil
}

func (in *input) assistant(m contract.Message) {
	in.ids = make(map[string]string, len(m.ToolCalls))
	if raws, own := itemsOf(m, in.host); own && !in.plain {
		for _, raw := range raws {
			in.items = append(in.items, raw)
		}
		for _, c := range m.ToolCalls {
			in.ids[c.ID] = c.ID
		}
		return
	}
	if m.Text != "" || len(m.ToolCalls) == 0 {
		in.items = append(in.items, inputMessage{Type: "message", Role: "assistant", Content: m.Text})
	}
	for _, c := range m.ToolCalls {
		in.ids[c.ID] = wireCallID(c.ID)
		in.items = append(in.items, inputCall{
			Type: "function_call", CallID: in.ids[c.ID], Name: httpapi.WireName(c.Tool), Arguments: string(httpapi.WireArgs(c.Args)),
		})
	}
}

// inputContent is a message's text, or the list of its text and files.
func inputContent(m contract.Message) any {
	text, files := httpapi.Compose(m, accepts)
	if len(files) == 0 {
		return text
	}
	var parts []inputPart
	if text != "" {
		parts = append(parts, inputPart{Type: "input_text", Text: text})
	}
	for _, f := range files {
		if f.MediaType == httpapi.PDF {
			parts = append(parts, inputPart{Type: "input_file", Filename: httpapi.FileName(f), FileData: dataURL(f)})
			continue
		}
		parts = append(parts, inputPart{Type: "input_image", ImageURL: dataURL(f), Detail: "auto"})
	}
	return parts
}
