package acp

import (
	"strconv"
	"strings"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/provider"
	"skandha.dev/services/internal/proposal"
	input "skandha.dev/services/internal/turn"
	"skandha.dev/services/uibridge/compat/turn"
	"skandha.dev/services/uibridge/contract"
)

// translator converts a session's notifications into updates.
type translator struct {
	x    *session
	feed *turn.Session

	turn    string // the running one
	text    turn.Text
	message string // the id of the text that is being sent
	said    bool   // some of the plan's text was sent
	calls   map[string]*call
	order   []string // of the calls, for the plan
	files   proposal.Files
	waiting []*contract.ToolCallRequest // that the past leaves unanswered, while it is loaded
}

func newTranslator(x *session) translator {
	return translator{x: x, calls: map[string]*call{}}
}

// translate converts one notification.
func (t *translator) translate(v any) {
	switch v := v.(type) {
	case *contract.Input:
		t.input(v)
	case *contract.PlanConsidered:
		t.think(v.Plan, v.Reasoning)
	case *contract.PlanRequested:
		t.requested(v)
	case *contract.Delta:
		t.delta(v)
	case *contract.PlanCompleted:
		t.completed(v)
	case *contract.ToolCallRequest:
		t.asked(v)
	case *contract.PartialApproval:
		t.partly(v)
	case *contract.ConfirmationResolved:
		t.resolved(v)
	case *contract.ToolCall:
		t.began(v)
	case *contract.ToolOutput:
		t.printed(v)
	case *contract.ToolResult:
		t.result(v)
	case *contract.Message:
		if v.Turn == "" { // a command's answer; the text of a turn comes from the plan
			t.say("answer-"+v.Cause, v.Content)
		}
	case *contract.TurnEnd:
		t.end(v)
	}
}

// input shows an input, unless the client has just sent it.
func (t *translator) input(v *contract.Input) {
	if v.Disposition == event.FromQueue || t.x.prompted(v.InputID) != nil {
		return // the client shows it already
	}
	id := "input-" + strconv.FormatUint(v.Sequence, 10)
	if v.Text != "" {
		t.x.send(update{Kind: userMessage, MessageID: id, Content: textBlock(v.Text)})
	}
	for _, f := range v.Files {
		t.x.send(update{Kind: userMessage, MessageID: id, Content: fileBlock(f)})
	}
}

// fileBlock names a file of an input. Its content is an artifact, which has no URI outside.
func fileBlock(f provider.File) *block {
	return &block{Type: "resource_link", Name: f.Name, URI: "skandha-artifact:" + f.Ref, MimeType: f.MediaType}
}

func (t *translator) think(plan, text string) {
	if text != "" {
		t.x.send(update{Kind: agentThought, MessageID: plan + "-thought", Content: textBlock(text)})
	}
}

func (t *translator) say(id, text string) {
	if text != "" {
		t.x.send(update{Kind: agentMessage, MessageID: id, Content: textBlock(text)})
	}
}

func (t *translator) requested(v *contract.PlanRequested) {
	if v.Turn != t.turn {
		t.begin(v.Turn)
	}
	early, _ := t.text.Begin(v.Plan, v.Attempt)
	t.message = v.Plan
	for _, d := range early {
		t.delta(d)
	}
}

// begin begins a turn, or ends it if the id is empty.
func (t *translator) begin(id string) {
	t.turn, t.text, t.said, t.order = id, turn.Text{}, false, nil
	clear(t.calls)
}

func (t *translator) delta(v *contract.Delta) {
	text, known := t.text.Delta(v)
	if known {
		t.think(v.Plan, v.Reasoning)
	}
	if text != "" {
		t.said = true
		t.say(t.message, text)
	}
}

// completed sends what is missing of the model's text, and its calls.
func (t *translator) completed(v *contract.PlanCompleted) {
	if v.Purpose != "" || v.Error != nil {
		return
	}
	rest, ok := t.text.Complete(v.Plan, v.Text)
	id := v.Plan
	if !ok { // another text was begun, and the client cannot take it back
		id, rest = v.Plan+"-again", "\n\n"+v.Text
	}
	if rest != "" {
		t.said = true
		t.say(id, rest)
	}
	t.proposed(v.Steps)
}

// end ends a turn. An input that ends while another one's turn runs ends nothing here.
func (t *translator) end(v *contract.TurnEnd) {
	seq := input.End{Recorded: v.Recorded, Failed: v.Failed}.Sequence()
	running := t.turn != "" && input.SequenceOf(t.turn) == seq
	if r := v.Recorded; r != nil && r.Command == "" && (!running || !t.said) {
		t.say(event.TurnID(seq)+"-answer", r.Answer) // of no model
	}
	if !t.x.ended(v) && v.Failed != nil {
		t.say(event.TurnID(seq)+"-failed", "The turn failed: "+reason(v.Failed))
	}
	if running {
		t.begin("")
	}
}

// oneLine shortens a text for a title.
func oneLine(s string, most int) string {
	r := []rune(strings.Join(strings.Fields(s), " "))
	if len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return string(r)
}
