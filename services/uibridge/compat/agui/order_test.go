package agui_test

import (
	"encoding/json"
	"fmt"
	"strings"
)

// order is what a client of AG-UI accepts: the rules of its verifier, and those of
// the protocol's pages about reasoning, state, results and interrupts.
type order struct {
	first, started, over                          bool
	steps, messages, calls, reasonings, reasoning map[string]bool
	ended                                         map[string]bool // calls that may have a result
	results, ids                                  map[string]bool
	state                                         bool
	bad                                           []string
}

func newOrder() *order {
	m := func() map[string]bool { return map[string]bool{} }
	return &order{
		first: true, steps: m(), messages: m(), calls: m(), reasonings: m(), reasoning: m(), ended: m(), results: m(),
		ids: m(),
	}
}

func (o *order) fault(format string, args ...any) {
	o.bad = append(o.bad, fmt.Sprintf(format, args...))
}

// wire is an event as a client reads it.
type wire struct {
	Type            string            `json:"type"`
	Timestamp       int64             `json:"timestamp"`
	ThreadID        string            `json:"threadId"`
	RunID           string            `json:"runId"`
	StepName        string            `json:"stepName"`
	MessageID       string            `json:"messageId"`
	Role            string            `json:"role"`
	ToolCallID      string            `json:"toolCallId"`
	ToolCallName    string            `json:"toolCallName"`
	ParentMessageID string            `json:"parentMessageId"`
	Content         string            `json:"content"`
	Delta           json.RawMessage   `json:"delta"`
	Snapshot        json.RawMessage   `json:"snapshot"`
	Messages        []json.RawMessage `json:"messages"`
	Name            string            `json:"name"`
	Value           json.RawMessage   `json:"value"`
	Message         string            `json:"message"`
	Code            string            `json:"code"`
	Result          struct {
		Text     string `json:"text"`
		Turn     string `json:"turn"`
		Sequence uint64 `json:"sequence"`
	} `json:"result"`
	Outcome struct {
		Type       string `json:"type"`
		Interrupts []struct {
			ID         string `json:"id"`
			Reason     string `json:"reason"`
			ToolCallID string `json:"toolCallId"`
		} `json:"interrupts"`
	} `json:"outcome"`
	Usage []struct {
		InputTokens int64 `json:"inputTokens"`
	} `json:"usage"`
}

func (w wire) text() string {
	var s string
	_ = json.Unmarshal(w.Delta, &s) // a patch is none
	return s
}

// begun records the beginning of something with an id, which must be its first.
func (o *order) begin(open map[string]bool, e wire, id string) {
	if id == "" || open[id] || o.ids[e.Type+id] {
		o.fault("%s of %q: it has begun before, or has no id", e.Type, id)
	}
	open[id], o.ids[e.Type+id] = true, true
}

func (o *order) within(open map[string]bool, e wire, id string) {
	if !open[id] {
		o.fault("%s of %q, which is not open", e.Type, id)
	}
}

func (o *order) end(open map[string]bool, e wire, id string) {
	o.within(open, e, id)
	delete(open, id)
}

func (o *order) take(e wire) {
	if o.first && e.Type != "RUN_STARTED" {
		o.fault("the first event is %s", e.Type)
	}
	if o.over {
		o.fault("%s after the end", e.Type)
	}
	if e.Timestamp == 0 {
		o.fault("%s has no time", e.Type)
	}
	o.first = false
	switch e.Type {
	case "RUN_STARTED":
		if o.started || e.ThreadID == "" || e.RunID == "" {
			o.fault("RUN_STARTED twice, or without ids")
		}
		o.started = true
	case "RUN_FINISHED":
		o.finished(e)
	case "RUN_ERROR":
		o.over = true
		if e.Message == "" || e.Code == "" {
			o.fault("RUN_ERROR says nothing")
		}
	case "STEP_STARTED":
		o.begin(o.steps, e, e.StepName)
	case "STEP_FINISHED":
		o.end(o.steps, e, e.StepName)
	case "TEXT_MESSAGE_START":
		o.begin(o.messages, e, e.MessageID)
		if e.Role != "assistant" {
			o.fault("a text of %q", e.Role)
		}
	case "TEXT_MESSAGE_END":
		o.end(o.messages, e, e.MessageID)
	case "REASONING_START":
		o.begin(o.reasonings, e, e.MessageID)
	case "REASONING_END":
		o.end(o.reasonings, e, e.MessageID)
	case "REASONING_MESSAGE_START":
		o.within(o.reasonings, e, e.MessageID)
		o.begin(o.reasoning, e, e.MessageID)
	case "REASONING_MESSAGE_END":
		o.end(o.reasoning, e, e.MessageID)
	case "TEXT_MESSAGE_CONTENT", "REASONING_MESSAGE_CONTENT", "TOOL_CALL_ARGS":
		o.piece(e)
	case "TOOL_CALL_START":
		o.begin(o.calls, e, e.ToolCallID)
		if e.ToolCallName == "" {
			o.fault("a call of no tool")
		}
	case "TOOL_CALL_END":
		o.end(o.calls, e, e.ToolCallID)
		o.ended[e.ToolCallID] = true
	case "TOOL_CALL_RESULT":
		if !o.ended[e.ToolCallID] || o.results[e.ToolCallID] || e.MessageID == "" {
			o.fault("a result of %q, which has not ended, or has one", e.ToolCallID)
		}
		o.results[e.ToolCallID] = true
	case "STATE_SNAPSHOT":
		o.state = json.Valid(e.Snapshot)
	case "STATE_DELTA":
		if !o.state || !strings.HasPrefix(string(e.Delta), "[") {
			o.fault("a patch of no state, or no patch: %s", e.Delta)
		}
	case "MESSAGES_SNAPSHOT":
		if len(e.Messages) == 0 {
			o.fault("a snapshot of no messages")
		}
	case "CUSTOM":
		if !strings.HasPrefix(e.Name, "skandha.") || !json.Valid(e.Value) {
			o.fault("a custom event %q", e.Name)
		}
	default:
		o.fault("there is no event %q", e.Type)
	}
}

func (o *order) piece(e wire) {
	if e.text() == "" {
		o.fault("%s of nothing", e.Type)
	}
	switch e.Type {
	case "TEXT_MESSAGE_CONTENT":
		o.within(o.messages, e, e.MessageID)
	case "REASONING_MESSAGE_CONTENT":
		o.within(o.reasoning, e, e.MessageID)
	default:
		o.within(o.calls, e, e.ToolCallID)
	}
}

func (o *order) finished(e wire) {
	o.over = true
	for what, open := range map[string]map[string]bool{
		"steps": o.steps, "messages": o.messages, "calls": o.calls, "reasonings": o.reasonings, "reasoning": o.reasoning,
	} {
		if len(open) > 0 {
			o.fault("RUN_FINISHED with open %s: %v", what, open)
		}
	}
	switch {
	case e.ThreadID == "" || e.RunID == "":
		o.fault("RUN_FINISHED without ids")
	case e.Outcome.Type == "interrupt" && len(e.Outcome.Interrupts) == 0:
		o.fault("an interrupt by nothing")
	case e.Outcome.Type != "interrupt" && e.Outcome.Type != "success":
		o.fault("an outcome %q", e.Outcome.Type)
	}
}

// check returns what is wrong with a run's events.
func check(events []wire) []string {
	o := newOrder()
	for _, e := range events {
		o.take(e)
	}
	if !o.over {
		o.fault("the run has no end")
	}
	return o.bad
}
