package anthropic

import (
	"bytes"
	"cmp"
	"encoding/json"
	"strings"

	sdk "github.com/anthropics/anthropic-sdk-go"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/services/provider/adapter"
	"skandha.dev/services/provider/httpapi"
)

// event is what this package reads of an event of the stream. There are others, such as
// ping, and more fields; both are passed over.
type event struct {
	Type    string `json:"type"`
	Index   int64  `json:"index"`
	Message struct {
		Model string `json:"model"`
		Usage usage  `json:"usage"`
	} `json:"message"`
	Block json.RawMessage `json:"content_block"`
	Delta delta           `json:"delta"`
	Usage usage           `json:"usage"`
}

type delta struct {
	Type        string          `json:"type"`
	Text        string          `json:"text"`
	PartialJSON string          `json:"partial_json"`
	Thinking    json.RawMessage `json:"thinking"`
	Signature   json.RawMessage `json:"signature"`
	StopReason  sdk.StopReason  `json:"stop_reason"`
	StopDetails struct {
		Category    string `json:"category"`
		Explanation string `json:"explanation"`
	} `json:"stop_details"`
}

// usage counts tokens; a later event's counts replace an earlier one's.
type usage struct {
	Input      int64 `json:"input_tokens"`
	CacheWrite int64 `json:"cache_creation_input_tokens"`
	CacheRead  int64 `json:"cache_read_input_tokens"`
	Output     int64 `json:"output_tokens"`
	Details    struct {
		Thinking int64 `json:"thinking_tokens"`
	} `json:"output_tokens_details"`
}

// counts is the usage of the contract.
func (u usage) counts() contract.Usage {
	return httpapi.Counted(contract.Usage{
		InputTokens: u.Input + u.CacheWrite + u.CacheRead, OutputTokens: u.Output, CachedTokens: u.CacheRead,
		CacheWriteTokens: u.CacheWrite, ReasoningTokens: u.Details.Thinking,
	})
}

// content is a content block that is being written.
type content struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	Thinking  json.RawMessage `json:"thinking"`
	Signature json.RawMessage `json:"signature"`

	raw       json.RawMessage // as it began
	bytes     int             // of a text
	args      strings.Builder
	thoughts  literal
	signature literal
}

// The types of content blocks. What has another type is kept as it began.
const (
	typeText     = "text"
	typeThinking = "thinking"
	typeRedacted = "redacted_thinking"
	typeToolUse  = "tool_use"
)

// accumulator joins the events of one answer.
type accumulator struct {
	limits adapter.Limits
	delta  func(text, reasoning string)
	tools  map[string]string // by their name on the wire
	clean  func(string) string
	begun  bool // something was passed to delta

	text      strings.Builder
	blocks    []*content
	current   map[int64]*content // by the index of the stream
	calls     int
	argsBytes int
	kept      int  // bytes for the state
	lost      bool // the state lacks something
	ended     sdk.StopReason
	refusal   string
	done      bool // the last event has arrived
	model     string
	usage     usage
}

func (a *accumulator) add(data []byte) error {
	e := event{Usage: a.usage}
	e.Message.Usage = a.usage
	if err := json.Unmarshal(data, &e); err != nil {
		return err
	}
	switch e.Type {
	case "message_start":
		a.model, a.usage = e.Message.Model, e.Message.Usage
	case "content_block_start":
		return a.start(e.Index, e.Block)
	case "content_block_delta":
		return a.extend(e.Index, e.Delta)
	case "message_delta":
		a.ended, a.usage = cmp.Or(e.Delta.StopReason, a.ended), e.Usage
		a.refusal += e.Delta.StopDetails.Category + " " + e.Delta.StopDetails.Explanation
	case "message_stop":
		a.done = true
	}
	return nil
}

func (a *accumulator) start(index int64, raw json.RawMessage) error {
	c := &content{raw: raw}
	if err := json.Unmarshal(raw, c); err != nil {
		return err
	}
	if a.current == nil {
		a.current = make(map[int64]*content)
	}
	a.current[index] = c
	a.blocks = append(a.blocks, c)
	switch c.Type {
	case typeText:
		return a.addText(c, c.Text)
	case typeThinking:
		return a.addThoughts(c, c.Thinking, c.Signature)
	case typeToolUse:
		return a.startCall(c)
	}
	a.kept += len(raw)
	return nil
}

func (a *accumulator) extend(index int64, d delta) error {
	c := a.current[index]
	if c == nil {
		return adapter.Errorf(contract.ErrGarbage, "the stream continues content block %d, which did not begin", index)
	}
	switch c.Type + " " + d.Type {
	case "text text_delta":
		return a.addText(c, d.Text)
	case "text citations_delta":
		return nil
	case "thinking thinking_delta", "thinking signature_delta":
		return a.addThoughts(c, d.Thinking, d.Signature)
	case "tool_use input_json_delta":
		return a.addArgs(c, d.PartialJSON)
	}
	a.lost = true // a block of the future, which cannot be put together
	return nil
}

func (a *accumulator) addText(c *content, piece string) error {
	if piece == "" {
		return nil
	}
	if a.text.Len()+len(piece) > a.limits.TextBytes {
		return a.limits.TextTooLong()
	}
	a.text.WriteString(piece)
	c.bytes += len(piece)
	a.pass(piece, "")
	return nil
}

// addThoughts adds pieces of thinking and of its signature, as they were written.
func (a *accumulator) addThoughts(c *content, thoughts, signature json.RawMessage) error {
	var piece string
	if len(thoughts) > 0 {
		if err := json.Unmarshal(thoughts, &piece); err != nil {
			return err
		}
	}
	if piece != "" {
		a.pass("", piece)
	}
	if a.kept += len(thoughts) + len(signature); a.kept > a.limits.StateBytes {
		a.lost = true
	}
	if a.lost {
		return nil
	}
	return c.think(thoughts, signature)
}

func (c *content) think(thoughts, signature json.RawMessage) error {
	if err := c.thoughts.add(thoughts); err != nil {
		return err
	}
	return c.signature.add(signature)
}

func (a *accumulator) pass(text, reasoning string) {
	a.begun = true
	a.delta(text, reasoning)
}

func (a *accumulator) startCall(c *content) error {
	if a.calls >= a.limits.Calls {
		return a.limits.TooManyCalls()
	}
	if c.Name == "" {
		return adapter.Errorf(contract.ErrGarbage, "tool call %d names no tool", a.calls)
	}
	a.calls++
	return a.count(len(c.Name) + len(c.Input))
}

func (a *accumulator) addArgs(c *content, piece string) error {
	c.args.WriteString(piece)
	return a.count(len(piece))
}

// count counts bytes of arguments.
func (a *accumulator) count(n int) error {
	if a.argsBytes += n; a.argsBytes > a.limits.ArgsBytes {
		return a.limits.ArgsTooLong()
	}
	return nil
}

// finish builds the answer of a model from the events, or returns why they do not form one.
func (a *accumulator) finish(model string) (contract.Response, error) {
	resp := contract.Response{
		TextContent: a.text.String(), StopReason: a.stopReason(), Model: a.model,
		Usage: a.usage.counts(),
	}
	if resp.Model == "" {
		resp.Model = model
	}
	if resp.StopReason != contract.StopFilter { // calls of a refused answer may be incomplete
		resp.ToolCalls = a.toolCalls()
		resp.ProviderState = a.state(model, resp)
	}
	resp.IsFinal = len(resp.ToolCalls) == 0
	if err := a.fault(resp); err != nil {
		return contract.Response{}, err
	}
	if err := a.limits.Check(resp); err != nil {
		return contract.Response{}, err
	}
	return resp, nil
}

func (a *accumulator) toolCalls() []contract.ToolCall {
	var out []contract.ToolCall
	for i, c := range a.blocks {
		if c.Type != typeToolUse {
			continue
		}
		tool, ok := a.tools[c.Name]
		if !ok {
			tool = httpapi.ToolName(c.Name)
		}
		cut := i == len(a.blocks)-1 && a.stopReason() == contract.StopLength
		out = append(out, contract.ToolCall{ID: httpapi.CallID(c.ID, out), Tool: tool, Args: c.arguments(cut)})
	}
	return out
}

// arguments returns a call's arguments. Those of a call that was cut before they began are
// no object without fields.
func (c *content) arguments(cut bool) json.RawMessage {
	whole := len(c.Input) > 2 && !bytes.Equal(bytes.TrimSpace(c.Input), []byte("null")) // not {}
	switch {
	case c.args.Len() == 0 && whole:
		return httpapi.ReadArgs(string(c.Input))
	case c.args.Len() == 0 && cut:
		return json.RawMessage(`""`)
	}
	return httpapi.ReadArgs(c.args.String())
}

// fault returns why there is no answer; nil if there is one.
func (a *accumulator) fault(resp contract.Response) error {
	if !a.done || a.ended == "" {
		return adapter.Errorf(contract.ErrGarbage, "the answer broke off: the stream ended before its last event")
	}
	if resp.TextContent != "" || len(resp.ToolCalls) > 0 {
		return nil
	}
	switch a.ended {
	case sdk.StopReasonMaxTokens:
		return adapter.Errorf(contract.ErrTooLong,
			"the token limit was reached before the answer began: raise max_tokens, or shorten the conversation")
	case sdk.StopReasonModelContextWindowExceeded:
		return adapter.Errorf(contract.ErrTooLong, "the model's context window is full: shorten the conversation")
	case sdk.StopReasonRefusal:
		return adapter.Errorf(contract.ErrBadRequest, "%s", a.clean("the API's filter withheld the answer: "+a.refusal))
	}
	return adapter.Errorf(contract.ErrGarbage, "the answer holds neither text nor tool calls")
}

func (a *accumulator) stopReason() contract.StopReason {
	switch a.ended {
	case sdk.StopReasonMaxTokens, sdk.StopReasonModelContextWindowExceeded:
		return contract.StopLength
	case sdk.StopReasonRefusal:
		return contract.StopFilter
	case sdk.StopReasonToolUse, sdk.StopReasonEndTurn, sdk.StopReasonStopSequence:
		if a.calls > 0 {
			return contract.StopToolCalls
		}
		return contract.StopEnd
	}
	return contract.StopOther
}
