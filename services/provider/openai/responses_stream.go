package openai

import (
	"cmp"
	"encoding/json"
	"strings"

	"github.com/openai/openai-go/v3/responses"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/services/provider/adapter"
	"skandha.dev/services/provider/httpapi"
)

// responsesAnswer joins the events of one answer.
type responsesAnswer struct {
	answer
	api  httpapi.API
	host string

	items  []json.RawMessage // as they arrived, in their order
	parsed []item
	open   map[int64]*pendingCall // calls that are being written, by their place in the output
	spoken map[int64]bool         // the places of messages whose text has begun
	ended  string                 // the last event: completed or incomplete
	reason string                 // why it is incomplete
}

// add adds an event. The API adds new kinds of events over time; unknown ones are ignored.
func (a *responsesAnswer) add(e responses.ResponseStreamEventUnion) error {
	switch e.Type {
	case "response.output_text.delta":
		return a.speak(e.OutputIndex, e.Delta)
	case "response.refusal.delta":
		a.refused = true
		return a.speak(e.OutputIndex, e.Delta)
	case "response.reasoning_summary_text.delta", "response.reasoning_text.delta":
		a.think(e.Delta)
	case "response.reasoning_summary_part.added":
		if e.SummaryIndex > 0 {
			a.think(between)
		}
	case "response.output_item.added":
		return a.itemAdded(e)
	case "response.function_call_arguments.delta":
		if c := a.open[e.OutputIndex]; c != nil {
			return a.write(c, e.Delta)
		}
	case "response.output_item.done":
		return a.itemDone(e.OutputIndex, e.Item)
	case "response.completed", "response.incomplete", "response.failed":
		return a.end(e)
	case "error":
		return a.api.InStream(fault(e.Code, "", e.Message))
	}
	return nil
}

func (a *responsesAnswer) think(piece string) {
	if piece != "" {
		a.pass("", piece)
	}
}

// speak adds text of the message at a place in the output. An answer may hold several
// messages, such as a commentary and the final text.
func (a *responsesAnswer) speak(place int64, piece string) error {
	if piece == "" {
		return nil
	}
	if !a.spoken[place] {
		if a.spoken == nil {
			a.spoken = map[int64]bool{}
		}
		a.spoken[place] = true
		if a.text.Len() > 0 {
			piece = between + piece
		}
	}
	return a.say(piece)
}

func (a *responsesAnswer) itemAdded(e responses.ResponseStreamEventUnion) error {
	if e.Item.Type != "function_call" {
		return nil
	}
	var i item
	if err := json.Unmarshal([]byte(e.Item.RawJSON()), &i); err != nil {
		return err
	}
	_, err := a.begin(e.OutputIndex, i)
	return err
}

// begin adds the call at a place in the output.
func (a *responsesAnswer) begin(place int64, i item) (*pendingCall, error) {
	c, err := a.newCall()
	if err != nil {
		return nil, err
	}
	c.id, c.name = i.CallID, i.Name
	if a.open == nil {
		a.open = map[int64]*pendingCall{}
	}
	a.open[place] = c
	return c, a.count(len(i.Name))
}

// itemDone adds an item that is complete. What came of it in pieces is not repeated.
func (a *responsesAnswer) itemDone(place int64, done responses.ResponseOutputItemUnion) error {
	raw := done.RawJSON()
	switch done.Type {
	case "message", "function_call", "reasoning":
	default:
		return nil // of a tool that was not offered
	}
	var i item
	if err := json.Unmarshal([]byte(raw), &i); err != nil {
		return err
	}
	a.items, a.parsed = append(a.items, json.RawMessage(raw)), append(a.parsed, i)
	if i.Type == "function_call" {
		return a.callDone(place, i)
	}
	if i.Type == "message" && !a.spoken[place] {
		a.refused = a.refused || i.refuses()
		return a.speak(place, i.text())
	}
	return nil
}

func (a *responsesAnswer) callDone(place int64, i item) error {
	c := a.open[place]
	if c == nil {
		var err error
		if c, err = a.begin(place, i); err != nil {
			return err
		}
	}
	delete(a.open, place)
	c.id, c.name = i.CallID, i.Name
	whole := i.args()
	if err := a.count(max(0, len(whole)-c.args.Len())); err != nil {
		return err
	}
	c.args.Reset()
	c.args.WriteString(whole)
	return nil
}

func (a *responsesAnswer) end(e responses.ResponseStreamEventUnion) error {
	r := e.Response
	a.model = cmp.Or(r.Model, a.model)
	a.usage = contract.Usage{
		InputTokens: r.Usage.InputTokens, OutputTokens: r.Usage.OutputTokens,
		CachedTokens: r.Usage.InputTokensDetails.CachedTokens, ReasoningTokens: r.Usage.OutputTokensDetails.ReasoningTokens,
		CacheWriteTokens: r.Usage.InputTokensDetails.CacheWriteTokens,
	}
	if e.Type == "response.failed" {
		return a.api.InStream(fault(string(r.Error.Code), r.Error.Type, r.Error.Message))
	}
	a.ended, a.reason = e.Type, r.IncompleteDetails.Reason
	if len(a.items) > 0 {
		return nil
	}
	for i, item := range r.Output { // of a server that reports no item before the end
		if err := a.itemDone(int64(i), item); err != nil {
			return err
		}
	}
	return nil
}

// fault is an error as the API reports it in a stream. Its codes name what is wrong with a
// request, and have no common part.
func fault(code, kind, message string) httpapi.Fault {
	f := httpapi.Fault{Code: code, Type: kind, Message: cmp.Or(message, "an error without a description")}
	wrong := strings.HasPrefix(code, "invalid_") || strings.Contains(code, "image") || strings.Contains(code, "policy") ||
		code == "data_residency_mismatch"
	if kind == "" && wrong && code != "invalid_api_key" {
		f.Type = "invalid_request_error"
	}
	return f
}

// finish builds the answer from the events, or returns why they do not form one.
func (a *responsesAnswer) finish() (contract.Response, error) {
	if a.ended == "" {
		return contract.Response{}, adapter.Errorf(contract.ErrGarbage,
			"the answer broke off: the stream ended before response.completed")
	}
	resp, err := a.response(a.stopReason(a.stop()))
	if err != nil {
		return resp, err
	}
	resp.ProviderState = a.state(resp)
	return resp, nil
}

func (a *responsesAnswer) stop() contract.StopReason {
	switch {
	case a.ended == "response.completed":
		return contract.StopEnd
	case a.reason == "max_output_tokens":
		return contract.StopLength
	case a.reason == "content_filter":
		return contract.StopFilter
	}
	return contract.StopOther
}

// state returns the items of a complete answer, if they can be sent back and say more than
// the answer does.
func (a *responsesAnswer) state(resp contract.Response) json.RawMessage {
	worth := false
	for _, i := range a.parsed {
		if !returnable(i) || i.Status == "incomplete" {
			return nil
		}
		worth = worth || worthKeeping(i)
	}
	if !worth || a.ended != "response.completed" {
		return nil
	}
	state := itemsState{Host: a.host, Items: a.items}.encode(a.limits.StateBytes)
	m := contract.Message{Text: resp.TextContent, ToolCalls: resp.ToolCalls, ProviderState: state}
	if _, own := itemsOf(m, a.host); !own { // such as two calls with one id
		return nil
	}
	return state
}
