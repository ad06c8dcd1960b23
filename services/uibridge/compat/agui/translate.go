package agui

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/uibridge/compat/turn"
	"skandha.dev/services/uibridge/contract"
)

// translator converts a turn's notifications into AG-UI events, in an order that its
// clients accept: everything that begins ends before the run does, and nothing continues
// that has not begun.
type translator struct {
	thread, run string
	text        turn.Text
	message     string // the open text message
	reasoning   string // the open reasoning message
	step        string // the open step
	round       int
	written     int // texts of the plan that have begun
	calls       map[string]*call
	state       event.AgentState
	known       bool // the client has a state that can be patched
	transcript  transcript
	pending     []contract.ToolCallRequest // requests that are pending according to the notifications so far
	out         []Event
}

// call is a tool call as the client knows it.
type call struct {
	step    event.Step
	parent  string // the message that it belongs to
	started bool
}

func newTranslator(thread, run string) *translator {
	return &translator{thread: thread, run: run, text: turn.Text{Restarts: true}, calls: map[string]*call{}}
}

func (t *translator) emit(e Event) {
	e.Timestamp = time.Now().UnixMilli()
	t.out = append(t.out, e)
}

// take returns the events since the last take.
func (t *translator) take() []Event {
	out := t.out
	t.out = nil
	return out
}

// begin begins the run.
func (t *translator) begin(in *RunAgentInput, ref subject.Ref, now event.AgentState) {
	t.transcript.before = in.Messages
	t.emit(Event{Type: RunStarted, ThreadID: t.thread, RunID: t.run, ParentRunID: in.ParentRunID})
	state := map[string]any{}
	if len(in.State) > 0 && string(in.State) != "null" && json.Unmarshal(in.State, &state) != nil {
		return // the client's state is not an object, so nothing can be added to it
	}
	t.state, t.known = now, true
	state["skandha"] = map[string]any{"agent": ref.Agent, "session": ref.Session, "state": now}
	t.emit(Event{Type: StateSnapshot, Snapshot: state})
}

// translate converts one notification into events.
func (t *translator) translate(v any) {
	switch v := v.(type) {
	case *contract.PlanRequested:
		t.requested(v)
	case *contract.Delta:
		t.delta(v)
	case *contract.PlanCompleted:
		t.completed(v)
	case *contract.ToolCall:
		t.call(v.Call, v.ToolName, v.Args)
	case *contract.ToolCallRequest:
		t.call(v.ConfirmationID, v.ToolName, v.Args)
		t.pending = append(t.pending, *v)
		t.emit(Event{Type: Custom, Name: CustomConfirmation, Value: v})
	case *contract.ConfirmationResolved:
		t.pending = slices.DeleteFunc(t.pending,
			func(q contract.ToolCallRequest) bool { return q.ConfirmationID == v.ConfirmationID })
		t.emit(Event{Type: Custom, Name: CustomConfirmationResolved, Value: v})
	case *contract.ToolResult:
		t.result(v)
	case *contract.ToolOutput:
		t.emit(Event{
			Type: Custom, Name: CustomToolOutput, Value: map[string]any{"call": v.Call, "stream": v.Stream, "text": v.Text},
		})
	case *contract.Audit:
		if v.Action == "confirmation" {
			t.emit(Event{Type: Custom, Name: CustomAudit, Value: v})
		}
	case *contract.StateChange:
		t.changed(v.State)
	case *contract.Message:
		if v.Turn == "" && v.Content != "" { // a command's answer; the text of a turn comes from the plan
			t.openMessage("answer-" + v.Cause)
			t.say(v.Content)
			t.closeMessage()
		}
	case *contract.TurnEnd:
		t.end(v)
	}
}

func (t *translator) requested(v *contract.PlanRequested) {
	early, again := t.text.Begin(v.Plan, v.Attempt)
	if again {
		t.abandon()
	}
	t.openStep(v.Round)
	for _, d := range early {
		t.delta(d)
	}
}

func (t *translator) openStep(round int) {
	if t.step == "" && round > t.round {
		t.round, t.written = round, 0
		t.step = fmt.Sprintf("plan %d", round)
		t.emit(Event{Type: StepStarted, StepName: t.step})
	}
}

func (t *translator) closeStep() {
	if t.step != "" {
		t.emit(Event{Type: StepFinished, StepName: t.step})
		t.step = ""
	}
}

func (t *translator) delta(v *contract.Delta) {
	text, known := t.text.Delta(v)
	if known && v.Reasoning != "" && t.message == "" {
		t.reason(v.Plan, v.Reasoning)
	}
	if text != "" {
		t.write(v.Plan, text)
	}
}

// write continues the plan's text.
func (t *translator) write(plan, text string) {
	t.closeReasoning()
	if t.message == "" {
		t.written++
		id := plan
		if t.written > 1 {
			id = fmt.Sprintf("%s-%d", plan, t.written)
		}
		t.openMessage(id)
	}
	t.say(text)
}

func (t *translator) openMessage(id string) {
	t.message = id
	t.transcript.text(id)
	t.emit(Event{Type: TextMessageStart, MessageID: id, Role: "assistant"})
}

func (t *translator) say(text string) {
	t.transcript.add(text)
	t.emit(Event{Type: TextMessageContent, MessageID: t.message, Delta: text})
}

func (t *translator) closeMessage() {
	if t.message != "" {
		t.emit(Event{Type: TextMessageEnd, MessageID: t.message})
		t.message = ""
	}
}

// abandon ends a text that does not count, because it is written again.
func (t *translator) abandon() {
	t.closeReasoning()
	if t.message != "" {
		t.transcript.drop(t.message)
		t.closeMessage()
	}
}

func (t *translator) reason(plan, text string) {
	if t.reasoning == "" {
		t.written++
		t.reasoning = fmt.Sprintf("%s-r%d", plan, t.written)
		t.emit(Event{Type: ReasoningStart, MessageID: t.reasoning})
		t.emit(Event{Type: ReasoningMessageStart, MessageID: t.reasoning, Role: "reasoning"})
	}
	t.emit(Event{Type: ReasoningMessageContent, MessageID: t.reasoning, Delta: text})
}

func (t *translator) closeReasoning() {
	if t.reasoning != "" {
		t.emit(Event{Type: ReasoningMessageEnd, MessageID: t.reasoning})
		t.emit(Event{Type: ReasoningEnd, MessageID: t.reasoning})
		t.reasoning = ""
	}
}

// completed handles a plan's complete text and its calls.
func (t *translator) completed(v *contract.PlanCompleted) {
	rest, ok := t.text.Complete(v.Plan, v.Text)
	if !ok {
		t.abandon()
		rest = v.Text
	}
	if rest != "" {
		t.write(v.Plan, rest)
	}
	parent := t.message
	t.closeReasoning()
	t.closeMessage()
	t.closeStep()
	for _, s := range v.Steps {
		t.calls[s.Call] = &call{step: s, parent: parent}
	}
}

// call sends a call once, with the final arguments.
func (t *translator) call(id, name string, args json.RawMessage) {
	c := t.calls[id]
	if c == nil {
		c = &call{}
		t.calls[id] = c
	}
	if c.started {
		return
	}
	c.started = true
	if len(args) == 0 {
		args = json.RawMessage(`{}`)
	}
	t.transcript.call(c.parent, id, name, args)
	t.emit(Event{Type: ToolCallStart, ToolCallID: id, ToolCallName: name, ParentMessageID: c.parent})
	t.emit(Event{Type: ToolCallArgs, ToolCallID: id, Delta: string(args)})
	t.emit(Event{Type: ToolCallEnd, ToolCallID: id})
}

func (t *translator) result(v *contract.ToolResult) {
	var args json.RawMessage
	if c := t.calls[v.Call]; c != nil {
		args = c.step.Args // the call never ran, so there are no others
	}
	t.call(v.Call, v.ToolName, args)
	content, err := json.Marshal(v.Result)
	if err != nil {
		content = []byte(`{"success":false}`)
	}
	id := v.Call + "-result"
	t.transcript.result(id, v.Call, string(content))
	t.emit(Event{Type: ToolCallResult, MessageID: id, ToolCallID: v.Call, Role: "tool", Content: string(content)})
}

func (t *translator) changed(s event.AgentState) {
	if t.known && s != t.state {
		t.state = s
		t.emit(Event{Type: StateDelta, Delta: []Patch{{Op: "replace", Path: "/skandha/state", Value: s}}})
	}
}

// closeAll ends everything that is open before the run ends, and lists the messages that
// count if one of them does not.
func (t *translator) closeAll() {
	t.closeReasoning()
	t.closeMessage()
	t.closeStep()
	if t.transcript.dropped {
		t.emit(Event{Type: MessagesSnapshot, Messages: t.transcript.all()})
	}
}

func (t *translator) end(v *contract.TurnEnd) {
	t.closeAll()
	if f := v.Failed; f != nil {
		t.emit(Event{
			Type: RunError, Message: cmp.Or(f.Reason, string(f.Code)), Code: string(f.Code), Usage: usageOf(f.Usage),
		})
		return
	}
	r := v.Recorded
	if r == nil {
		t.fail(&contract.Error{Code: contract.CodeInternal, Message: "decoding the turn's end failed"})
		return
	}
	t.emit(Event{
		Type: RunFinished, ThreadID: t.thread, RunID: t.run,
		Result:  &Result{Text: r.Answer, Turn: v.Turn, Sequence: r.Sequence},
		Outcome: &Outcome{Type: "success"}, Usage: usageOf(r.Usage),
	})
}

// interrupt ends the run while requests are pending.
func (t *translator) interrupt(asked []contract.ToolCallRequest) {
	t.closeAll()
	o := &Outcome{Type: "interrupt"}
	for _, q := range asked {
		o.Interrupts = append(o.Interrupts, interruptOf(q))
	}
	t.emit(Event{Type: RunFinished, ThreadID: t.thread, RunID: t.run, Outcome: o})
}

func (t *translator) fail(err error) {
	t.closeAll()
	e := contract.ErrorOf(err)
	t.emit(Event{Type: RunError, Message: e.Error(), Code: string(e.Code)})
}
