package openai

import (
	"strconv"
	"strings"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/services/provider/adapter"
	"skandha.dev/services/provider/httpapi"
)

// answer is what an answer has in common on both wires. It is bounded while it grows.
type answer struct {
	limits adapter.Limits
	delta  func(text, reasoning string)
	begun  bool // something was passed to delta

	text      strings.Builder
	calls     []*pendingCall
	argsBytes int
	refused   bool
	model     string
	usage     contract.Usage
}

type pendingCall struct {
	id   string
	name string
	args strings.Builder
}

func (a *answer) started() bool { return a.begun }

func (a *answer) pass(text, reasoning string) {
	a.begun = true
	a.delta(text, reasoning)
}

// say adds a piece of the text.
func (a *answer) say(piece string) error {
	if piece == "" {
		return nil
	}
	if a.text.Len()+len(piece) > a.limits.TextBytes {
		return a.limits.TextTooLong()
	}
	a.text.WriteString(piece)
	a.pass(piece, "")
	return nil
}

func (a *answer) newCall() (*pendingCall, error) {
	if len(a.calls) >= a.limits.Calls {
		return nil, a.limits.TooManyCalls()
	}
	c := &pendingCall{}
	a.calls = append(a.calls, c)
	return c, nil
}

// write adds a piece of a call's arguments.
func (a *answer) write(c *pendingCall, piece string) error {
	if err := a.count(len(piece)); err != nil {
		return err
	}
	c.args.WriteString(piece)
	return nil
}

// count counts bytes of calls.
func (a *answer) count(n int) error {
	if a.argsBytes += n; a.argsBytes > a.limits.ArgsBytes {
		return a.limits.ArgsTooLong()
	}
	return nil
}

// response returns the answer without its state. A call whose id is missing or not unique
// gets another one.
func (a *answer) response(stop contract.StopReason) (contract.Response, error) {
	resp := contract.Response{
		IsFinal: len(a.calls) == 0, TextContent: a.text.String(), StopReason: stop, Model: a.model, Usage: a.usage,
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
	return resp, nil
}

// stopReason returns why the answer ended; otherwise is the reason if nothing about the
// answer says more.
func (a *answer) stopReason(otherwise contract.StopReason) contract.StopReason {
	switch {
	case otherwise == contract.StopLength || otherwise == contract.StopFilter:
		return otherwise
	case len(a.calls) > 0: // some servers say stop
		return contract.StopToolCalls
	case a.refused:
		return contract.StopFilter
	}
	return otherwise
}

// nothing is the error of an answer with neither text nor calls.
func nothing(stop contract.StopReason) *contract.Error {
	switch stop {
	case contract.StopLength:
		return adapter.Errorf(contract.ErrTooLong,
			"the token limit was reached before the answer began: raise max_tokens, or shorten the conversation")
	case contract.StopFilter:
		return adapter.Errorf(contract.ErrBadRequest, "the API's content filter withheld the answer")
	}
	return adapter.Errorf(contract.ErrGarbage, "the answer holds neither text nor tool calls")
}
