package openai

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/shared"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/services/provider/adapter"
	"skandha.dev/services/provider/httpapi"
)

// maxCallID is the longest id of a call that the API accepts.
const maxCallID = 40

// params turns a request of the contract into the API's.
func (a *Adapter) params(req contract.Request) (sdk.ChatCompletionNewParams, error) {
	talk, err := req.Conversation()
	if err != nil {
		return sdk.ChatCompletionNewParams{}, adapter.Errorf(contract.ErrBadRequest, "messages: %v", err)
	}
	p := sdk.ChatCompletionNewParams{
		Model:         a.cfg.Model,
		StreamOptions: sdk.ChatCompletionStreamOptionsParam{IncludeUsage: param.NewOpt(true)},
	}
	if req.Model != "" {
		p.Model = req.Model
	}
	if req.System != "" {
		p.Messages = append(p.Messages, sdk.SystemMessage(req.System))
	}
	open := lastUser(talk)
	for i, m := range talk {
		converted, err := message(m, i > open)
		if err != nil {
			return p, err
		}
		p.Messages = append(p.Messages, converted)
	}
	for _, t := range req.Tools {
		p.Tools = append(p.Tools, function(t))
	}
	if req.Temperature != nil {
		p.Temperature = param.NewOpt(*req.Temperature)
	}
	if req.MaxTokens > 0 {
		// Other servers know only the older name, which OpenAI's newer models refuse.
		if strings.HasSuffix(httpapi.Host(a.cfg.BaseURL), "openai.com") {
			p.MaxCompletionTokens = param.NewOpt(int64(req.MaxTokens))
		} else {
			p.MaxTokens = param.NewOpt(int64(req.MaxTokens))
		}
	}
	return p, nil
}

func lastUser(talk []contract.Message) int {
	for i := len(talk) - 1; i >= 0; i-- {
		if talk[i].Role == contract.RoleUser {
			return i
		}
	}
	return -1
}

// message converts one entry; open means that it belongs to the turn that is
// not answered yet.
func message(m contract.Message, open bool) (sdk.ChatCompletionMessageParamUnion, error) {
	switch m.Role {
	case contract.RoleUser:
		return sdk.UserMessage(m.Text), nil
	case contract.RoleTool:
		return sdk.ToolMessage(m.Text, wireCallID(m.CallID)), nil
	case contract.RoleAssistant:
		return assistant(m, open), nil
	}
	return sdk.ChatCompletionMessageParamUnion{}, adapter.Errorf(contract.ErrBadRequest,
		"messages: the role %q is unknown", m.Role)
}

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
