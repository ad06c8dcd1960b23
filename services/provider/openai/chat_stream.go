package openai

import (
	"encoding/json"
	"strings"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/respjson"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/services/provider/adapter"
)

// chatAnswer joins the chunks of one answer. The SDK has an accumulator too, but
// it is unbounded and refuses chunks that other servers send.
type chatAnswer struct {
	answer
	thoughts strings.Builder
	keep     bool                   // the reasoning arrived in reasoningField, so it must be sent back
	current  map[int64]*pendingCall // by the index of the stream
	ended    string
}

func (a *chatAnswer) add(chunk sdk.ChatCompletionChunk) error {
	if chunk.Model != "" {
		a.model = chunk.Model
	}
	if u := chunk.Usage; u.PromptTokens > 0 || u.CompletionTokens > 0 {
		a.usage = contract.Usage{
			InputTokens: u.PromptTokens, OutputTokens: u.CompletionTokens,
			CachedTokens: u.PromptTokensDetails.CachedTokens, ReasoningTokens: u.CompletionTokensDetails.ReasoningTokens,
		}
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

func (a *chatAnswer) addDelta(d sdk.ChatCompletionChunkChoiceDelta) error {
	if thoughts := a.reasoning(d.JSON.ExtraFields); thoughts != "" {
		if a.thoughts.Len() <= maxReasoningState {
			a.thoughts.WriteString(thoughts)
		}
		a.pass("", thoughts)
	}
	a.refused = a.refused || d.Refusal != ""
	if err := a.say(d.Content + d.Refusal); err != nil {
		return err
	}
	for _, c := range d.ToolCalls {
		if err := a.addCall(c); err != nil {
			return err
		}
	}
	return nil
}

// reasoning reads the fields that servers add to the API for a model's reasoning.
func (a *chatAnswer) reasoning(extra map[string]respjson.Field) string {
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
func (a *chatAnswer) addCall(d sdk.ChatCompletionChunkChoiceDeltaToolCall) error {
	c := a.current[d.Index]
	if c == nil || c.otherThan(d) {
		var err error
		if c, err = a.newCall(); err != nil {
			return err
		}
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
	if err := a.count(len(d.Function.Name)); err != nil {
		return err
	}
	return a.write(c, d.Function.Arguments)
}

// finish builds the answer from the chunks, or returns why they do not form one.
func (a *chatAnswer) finish() (contract.Response, error) {
	if a.ended == "" {
		return contract.Response{}, adapter.Errorf(contract.ErrGarbage,
			"the answer broke off: the stream ended before a finish_reason")
	}
	resp, err := a.response(a.stopReason(finishReason(a.ended)))
	if err != nil {
		return resp, err
	}
	if len(resp.ToolCalls) > 0 && a.keep {
		resp.ProviderState = writeState(a.thoughts.String())
	}
	return resp, nil
}

func finishReason(ended string) contract.StopReason {
	switch ended {
	case "stop":
		return contract.StopEnd
	case "length":
		return contract.StopLength
	case "content_filter":
		return contract.StopFilter
	}
	return contract.StopOther
}
