package gemini

import (
	"encoding/json"
	"strings"

	"google.golang.org/genai"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/services/provider/adapter"
	"skandha.dev/services/provider/httpapi"
)

// part is what this package reads of a part.
type part struct {
	Text             string          `json:"text"`
	Thought          bool            `json:"thought"`
	ThoughtSignature json.RawMessage `json:"thoughtSignature"`
	FunctionCall     *functionCall   `json:"functionCall"`
}

type functionCall struct {
	ID   string          `json:"id,omitempty"`
	Name string          `json:"name"`
	Args json.RawMessage `json:"args,omitempty"`
}

// accumulator joins the chunks of one answer.
type accumulator struct {
	limits adapter.Limits
	delta  func(text, reasoning string)
	tools  map[string]string // by their name on the wire
	clean  func(string) string
	begun  bool // something was passed to delta

	text      strings.Builder
	calls     []contract.ToolCall
	argsBytes int
	state     state
	ended     genai.FinishReason
	blocked   string // why the API did not answer
	model     string
	usage     contract.Usage
}

// add adds a chunk and the parts that came with it.
func (a *accumulator) add(chunk *genai.GenerateContentResponse, parts []json.RawMessage) error {
	if chunk.ModelVersion != "" {
		a.model = chunk.ModelVersion
	}
	if f := chunk.PromptFeedback; f != nil && f.BlockReason != "" {
		a.blocked = a.clean(string(f.BlockReason) + " " + f.BlockReasonMessage)
	}
	if u := chunk.UsageMetadata; u != nil {
		a.usage = contract.Usage{
			InputTokens:     int64(u.PromptTokenCount) + int64(u.ToolUsePromptTokenCount),
			OutputTokens:    int64(u.CandidatesTokenCount) + int64(u.ThoughtsTokenCount),
			CachedTokens:    int64(u.CachedContentTokenCount),
			ReasoningTokens: int64(u.ThoughtsTokenCount),
		}
	}
	if len(chunk.Candidates) > 0 && chunk.Candidates[0].FinishReason != "" {
		a.ended = chunk.Candidates[0].FinishReason
	}
	for _, raw := range parts {
		if err := a.part(raw); err != nil {
			return err
		}
	}
	return nil
}

func (a *accumulator) part(raw json.RawMessage) error {
	var p part
	if err := json.Unmarshal(raw, &p); err != nil {
		return err
	}
	a.state.add(raw, p)
	switch {
	case p.FunctionCall != nil:
		return a.call(p.FunctionCall)
	case p.Text == "":
		return nil
	case p.Thought:
		a.pass("", p.Text)
		return nil
	}
	if a.text.Len()+len(p.Text) > a.limits.TextBytes {
		return a.limits.TextTooLong()
	}
	a.text.WriteString(p.Text)
	a.pass(p.Text, "")
	return nil
}

func (a *accumulator) pass(text, reasoning string) {
	a.begun = true
	a.delta(text, reasoning)
}

func (a *accumulator) call(c *functionCall) error {
	if len(a.calls) >= a.limits.Calls {
		return a.limits.TooManyCalls()
	}
	if c.Name == "" {
		return adapter.Errorf(contract.ErrGarbage, "tool call %d names no function", len(a.calls))
	}
	if a.argsBytes += len(c.Args) + len(c.Name); a.argsBytes > a.limits.ArgsBytes {
		return a.limits.ArgsTooLong()
	}
	tool, ok := a.tools[c.Name]
	if !ok {
		tool = httpapi.ToolName(c.Name)
	}
	a.calls = append(a.calls, contract.ToolCall{ID: httpapi.CallID(c.ID, a.calls), Tool: tool, Args: httpapi.ReadArgs(string(c.Args))})
	return nil
}

// finish builds the answer from the chunks, or returns why they do not form one.
func (a *accumulator) finish() (contract.Response, error) {
	if err := a.fault(); err != nil {
		return contract.Response{}, err
	}
	resp := contract.Response{
		IsFinal: len(a.calls) == 0, TextContent: a.text.String(), ToolCalls: a.calls, StopReason: a.stopReason(),
		Model: a.model, Usage: a.usage, ProviderState: a.state.encode(a.limits.StateBytes),
	}
	if err := a.limits.Check(resp); err != nil {
		return resp, err
	}
	return resp, nil
}

// fault returns why there is no answer; nil if there is one.
func (a *accumulator) fault() error {
	empty := a.text.Len() == 0 && len(a.calls) == 0
	switch a.ended {
	case "", genai.FinishReasonUnspecified:
		if a.blocked != "" {
			return adapter.Errorf(contract.ErrBadRequest, "the API's filter refused the conversation: %s", a.blocked)
		}
		return adapter.Errorf(contract.ErrGarbage, "the answer broke off: the stream ended before a finishReason")
	case genai.FinishReasonMalformedFunctionCall, genai.FinishReasonUnexpectedToolCall, genai.FinishReasonTooManyToolCalls:
		return adapter.Errorf(contract.ErrGarbage, "the model's call of a tool could not be read: %s", a.ended)
	case genai.FinishReasonMaxTokens:
		if empty {
			return adapter.Errorf(contract.ErrTooLong,
				"the token limit was reached before the answer began: raise max_tokens, or shorten the conversation")
		}
	case genai.FinishReasonStop:
		if empty {
			return adapter.Errorf(contract.ErrGarbage, "the answer holds neither text nor tool calls")
		}
	default:
		if empty {
			return adapter.Errorf(contract.ErrBadRequest, "the API's filter withheld the answer: %s", a.clean(string(a.ended)))
		}
	}
	return nil
}

func (a *accumulator) stopReason() contract.StopReason {
	switch a.ended {
	case genai.FinishReasonMaxTokens:
		return contract.StopLength
	case genai.FinishReasonStop:
		if len(a.calls) > 0 {
			return contract.StopToolCalls
		}
		return contract.StopEnd
	case genai.FinishReasonOther:
		return contract.StopOther
	}
	return contract.StopFilter
}
