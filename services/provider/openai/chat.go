package openai

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/packages/ssestream"
	"github.com/openai/openai-go/v3/shared"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/services/provider/adapter"
	"skandha.dev/services/provider/httpapi"
)

// maxCallID is the longest id of a call that the API accepts.
const maxCallID = 40

// chatQuestion prepares a request for the chat completions API.
func (a *Adapter) chatQuestion(req contract.Request, talk []contract.Message) (try, error) {
	params, err := a.chatParams(req, talk)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, delta func(text, reasoning string)) (contract.Response, bool, error) {
		open := func(ctx context.Context, o option.RequestOption) *ssestream.Stream[sdk.ChatCompletionChunk] {
			return a.chat.NewStreaming(ctx, params, o)
		}
		return read(ctx, a, open, &chatAnswer{answer: answer{limits: a.cfg.Limits, delta: delta}})
	}, nil
}

func (a *Adapter) chatParams(req contract.Request, talk []contract.Message) (sdk.ChatCompletionNewParams, error) {
	p := sdk.ChatCompletionNewParams{
		Model:         req.Model,
		StreamOptions: sdk.ChatCompletionStreamOptionsParam{IncludeUsage: param.NewOpt(true)},
	}
	var err error
	if p.Messages, err = chatMessages(req.System, talk); err != nil {
		return p, err
	}
	for _, t := range req.Tools {
		p.Tools = append(p.Tools, function(t))
	}
	if req.Temperature != nil {
		p.Temperature = param.NewOpt(*req.Temperature)
	}
	if req.MaxTokens > 0 {
		// Other servers know only the older name, which OpenAI's newer models refuse.
		if ownHost(a.cfg.BaseURL) {
			p.MaxCompletionTokens = param.NewOpt(int64(req.MaxTokens))
		} else {
			p.MaxTokens = param.NewOpt(int64(req.MaxTokens))
		}
	}
	if len(req.Schema) > 0 {
		p.ResponseFormat.OfJSONSchema = &shared.ResponseFormatJSONSchemaParam{
			JSONSchema: shared.ResponseFormatJSONSchemaJSONSchemaParam{
				Name: schemaName, Schema: req.Schema, Strict: param.NewOpt(fitsStrict(req.Schema)),
			},
		}
	}
	return p, nil
}

// chatMessages converts the conversation. The result of a call may only be text there, so
// its pictures follow in a message of the user, after the results of all parallel calls.
func chatMessages(system string, talk []contract.Message) ([]sdk.ChatCompletionMessageParamUnion, error) {
	var out []sdk.ChatCompletionMessageParamUnion
	if system != "" {
		out = append(out, sdk.SystemMessage(system))
	}
	var shown []sdk.ChatCompletionContentPartUnionParam // files of results
	open := lastUser(talk)
	for i, m := range talk {
		if m.Role != contract.RoleTool && len(shown) > 0 {
			out, shown = append(out, sdk.UserMessage(shown)), nil
		}
		switch m.Role {
		case contract.RoleUser:
			out = append(out, userMessage(m))
		case contract.RoleTool:
			text, files := httpapi.Compose(m, accepts)
			out = append(out, sdk.ToolMessage(text, wireCallID(m.CallID)))
			shown = append(shown, shownFiles(m, files)...)
		case contract.RoleAssistant:
			out = append(out, assistant(m, i > open))
		default:
			return nil, unknownRole(m)
		}
	}
	if len(shown) > 0 {
		out = append(out, sdk.UserMessage(shown))
	}
	return out, nil
}

func unknownRole(m contract.Message) error {
	return adapter.Errorf(contract.ErrBadRequest, "messages: the role %q is unknown", m.Role)
}

func userMessage(m contract.Message) sdk.ChatCompletionMessageParamUnion {
	text, files := httpapi.Compose(m, accepts)
	if len(files) == 0 {
		return sdk.UserMessage(text)
	}
	var parts []sdk.ChatCompletionContentPartUnionParam
	if text != "" {
		parts = append(parts, sdk.TextContentPart(text))
	}
	for _, f := range files {
		parts = append(parts, filePart(f))
	}
	return sdk.UserMessage(parts)
}

// shownFiles are a result's files, each after a line that says which call it belongs to.
func shownFiles(m contract.Message, files []contract.File) []sdk.ChatCompletionContentPartUnionParam {
	var parts []sdk.ChatCompletionContentPartUnionParam
	for _, f := range files {
		parts = append(parts, sdk.TextContentPart(httpapi.Belongs(m, f, wireCallID(m.CallID))), filePart(f))
	}
	return parts
}

// accepts reports whether the API accepts files of a media type.
func accepts(mediaType string) bool { return httpapi.IsPicture(mediaType) || mediaType == httpapi.PDF }

func filePart(f contract.File) sdk.ChatCompletionContentPartUnionParam {
	if f.MediaType == httpapi.PDF {
		return sdk.FileContentPart(sdk.ChatCompletionContentPartFileFileParam{
			Filename: param.NewOpt(httpapi.FileName(f)), FileData: param.NewOpt(dataURL(f)),
		})
	}
	return sdk.ImageContentPart(sdk.ChatCompletionContentPartImageImageURLParam{URL: dataURL(f)})
}

// dataURL returns a file's content as a data URL.
func dataURL(f contract.File) string {
	return "data:" + f.MediaType + ";base64," + base64.StdEncoding.EncodeToString(f.Data)
}

func lastUser(talk []contract.Message) int {
	for i := len(talk) - 1; i >= 0; i-- {
		if talk[i].Role == contract.RoleUser {
			return i
		}
	}
	return -1
}

// assistant converts an answer; open means that it belongs to the turn that is not
// answered yet.
func assistant(m contract.Message, open bool) sdk.ChatCompletionMessageParamUnion {
	var msg sdk.ChatCompletionAssistantMessageParam
	if m.Text != "" || len(m.ToolCalls) == 0 {
		msg.Content.OfString = param.NewOpt(m.Text)
	}
	for _, c := range m.ToolCalls {
		msg.ToolCalls = append(msg.ToolCalls, sdk.ChatCompletionMessageToolCallUnionParam{
			OfFunction: &sdk.ChatCompletionMessageFunctionToolCallParam{
				ID: wireCallID(c.ID),
				Function: sdk.ChatCompletionMessageFunctionToolCallFunctionParam{
					Name: httpapi.WireName(c.Tool), Arguments: string(httpapi.WireArgs(c.Args)),
				},
			},
		})
	}
	// Servers of models that reason between tool calls (DeepSeek) require the
	// reasoning back until the turn is answered.
	if thoughts := readState(m.ProviderState); open && thoughts != "" {
		msg.SetExtraFields(map[string]any{reasoningField: thoughts})
	}
	return sdk.ChatCompletionMessageParamUnion{OfAssistant: &msg}
}

func function(t contract.ToolSpec) sdk.ChatCompletionToolUnionParam {
	f := shared.FunctionDefinitionParam{Name: httpapi.WireName(t.Name)}
	if t.Description != "" {
		f.Description = param.NewOpt(t.Description)
	}
	if len(t.Args) > 0 {
		// As raw JSON, to keep the order of properties and every number as written.
		f.SetExtraFields(map[string]any{"parameters": t.Args})
	}
	return sdk.ChatCompletionFunctionTool(f)
}

// wireCallID shortens the id of a call that another provider made.
func wireCallID(id string) string {
	if len(id) <= maxCallID {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return "call_" + hex.EncodeToString(sum[:16])
}

// reasoningField is where servers put a model's reasoning, and expect it back.
const reasoningField = "reasoning_content"

// maxReasoningState bounds the reasoning that is kept, in bytes.
const maxReasoningState = 64 << 10

type state struct {
	Reasoning string `json:"reasoning_content,omitempty"`
}

// readState is lenient: a session may have changed its provider.
func readState(raw json.RawMessage) string {
	var s state
	if len(raw) == 0 || json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s.Reasoning
}

func writeState(thoughts string) json.RawMessage {
	if thoughts == "" || len(thoughts) > maxReasoningState {
		return nil
	}
	b, err := json.Marshal(state{thoughts})
	if err != nil {
		return nil
	}
	return b
}
