package openai

import (
	"encoding/json"
	"strconv"
	"strings"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/respjson"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/services/provider/adapter"
	"skandha.dev/services/provider/httpapi"
)

// accumulator joins the chunks of one answer. The SDK has one too, but
// it is unbounded and refuses chunks that other servers send.
type accumulator struct {
	limits adapter.Limits
	delta  func(text, reasoning string)
	begun  bool // something was passed to delta

	text      strings.Builder
	thoughts  strings.Builder
	keep      bool // the reasoning arrived in reasoningField, so it must be sent back
	calls     []*pendingCall
	current   map[int64]*pendingCall // by the index of the stream
	argsBytes int
	refused   bool
	ended     string
	model     string
	usage     sdk.CompletionUsage
}

type pendingCall struct {
	id   string
	name string
	args strings.Builder
}

func (a *accumulator) add(chunk sdk.ChatCompletionChunk) error {
	if chunk.Model != "" {
		a.model = chunk.Model
	}
	if u := chunk.Usage; u.PromptTokens > 0 || u.CompletionTokens > 0 {
		a.usage = u
	}
	for _, c := range chunk.Choices {
		if c.Index != 0 {
			continue // only one choice was requested
		}
		if c.FinishReason != "" {
			a.ended = c.FinishReason
		}
		if err := a.addDelta(c.Delta); err != nil {
			return err
		}
	}
	return nil
}

func (a *accumulator) addDelta(d sdk.ChatCompletionChunkChoiceDelta) error {
	if thoughts := a.reasoning(d.JSON.ExtraFields); thoughts != "" {
		if a.thoughts.Len() <= maxReasoningState {
			a.thoughts.WriteString(thoughts)
		}
		a.pass("", thoughts)
	}
	a.refused = a.refused || d.Refusal != ""
	if piece := d.Content + d.Refusal; piece != "" {
		if a.text.Len()+len(piece) > a.limits.TextBytes {
			return a.limits.TextTooLong()
		}
		a.text.WriteString(piece)
		a.pass(piece, "")
	}
	for _, c := range d.ToolCalls {
		if err := a.addCall(c); err != nil {
			return err
		}
	}
	return nil
}

func (a *accumulator) pass(text, reasoning string) {
	a.begun = true
	a.delta(text, reasoning)
}

// reasoning reads the fields that servers add to the API for a model's reasoning.
func (a *accumulator) reasoning(extra map[string]respjson.Field) string {
	for _, name := range [...]string{reasoningField, "reasoning"} {
		f, ok := extra[name]
		if !ok {
			continue
		}
		var s string
		if json.Unmarshal([]byte(f.Raw()), &s) == nil && s != "" {
			a.keep = a.keep || name == reasoningField
			return s
		}
	}
	return ""
}

// otherThan reports whether d is a piece of another call with the same index:
// some servers number every parallel call 0, a few of them without ids.
func (c *pendingCall) otherThan(d sdk.ChatCompletionChunkChoiceDeltaToolCall) bool {
	if d.ID != "" {
		return c.id != "" && d.ID != c.id
	}
	return d.Function.Name != "" && c.args.Len() > 0 && json.Valid([]byte(c.args.String()))
}

// addCall adds a piece of a call. Pieces belong together by their index.
func (a *accumulator) addCall(d sdk.ChatCompletionChunkChoiceDeltaToolCall) error {
	c := a.current[d.Index]
	if c == nil || c.otherThan(d) {
		if len(a.calls) >= a.limits.Calls {
			return a.limits.TooManyCalls()
		}
		c = &pendingCall{}
		a.calls = append(a.calls, c)
		if a.current == nil {
			a.current = make(map[int64]*pendingCall)
		}
		a.current[d.Index] = c
	}
	if c.id == "" {
		c.id = d.ID
	}
	if n := d.Function.Name; n != "" && n != c.name && c.args.Len() == 0 {
		c.name += n
	}
	if a.argsBytes += len(d.Function.Arguments) + len(d.Function.Name); a.argsBytes > a.limits.ArgsBytes {
		return a.limits.ArgsTooLong()
	}
	c.args.WriteString(d.Function.Arguments)
	return nil
}

// finish builds the answer from the chunks, or returns why they do not form one.
func (a *accumulator) finish() (contract.Response, error) {
	if a.ended == "" {
		return contract.Response{}, adapter.Errorf(contract.ErrGarbage,
			"the answer broke off: the stream ended before a finish_reason")
	}
	resp := contract.Response{
		IsFinal:     len(a.calls) == 0,
		TextContent: a.text.String(),
		StopReason:  a.stopReason(),
		Model:       a.model,
		Usage:       contract.Usage{InputTokens: a.usage.PromptTokens, OutputTokens: a.usage.CompletionTokens},
	}
	ids := make(map[string]bool, len(a.calls))
	for i, c := range a.calls {
		if c.name == "" {
			return resp, adapter.Errorf(contract.ErrGarbage, "tool call %d names no function", i)
		}
		if c.id == "" || ids[c.id] {
			c.id = "call_" + strconv.Itoa(i)
		}
		ids[c.id] = true
		resp.ToolCalls = append(resp.ToolCalls,
			contract.ToolCall{ID: c.id, Tool: httpapi.ToolName(c.name), Args: httpapi.ReadArgs(c.args.String())})
	}
	if len(resp.ToolCalls) > 0 && a.keep {
		resp.ProviderState = writeState(a.thoughts.String())
	}
	if resp.TextContent == "" && len(resp.ToolCalls) == 0 {
		return resp, a.nothing()
	}
	if err := a.limits.Check(resp); err != nil {
		return resp, err
	}
	return resp, nil
}

func (a *accumulator) stopReason() contract.StopReason {
	switch a.ended {
	case "length":
		return contract.StopLength
	case "content_filter":
		return contract.StopFilter
	}
	switch {
	case len(a.calls) > 0: // some servers say stop
		return contract.StopToolCalls
	case a.refused:
		return contract.StopFilter
	case a.ended == "stop":
		return contract.StopEnd
	}
	return contract.StopOther
}

// nothing is the error of an answer with neither text nor calls.
func (a *accumulator) nothing() *contract.Error {
	switch a.ended {
	case "length":
		return adapter.Errorf(contract.ErrTooLong,
			"the token limit was reached before the answer began: raise max_tokens, or shorten the conversation")
	case "content_filter":
		return adapter.Errorf(contract.ErrBadRequest, "the API's content filter withheld the answer")
	}
	return adapter.Errorf(contract.ErrGarbage, "the answer holds neither text nor tool calls")
}
