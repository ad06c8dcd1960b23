package mcp

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"skandha.dev/services/internal/safetext"
	"skandha.dev/services/uibridge/compat/turn"
	"skandha.dev/services/uibridge/contract"
)

// answer returns what all results of the turn have in common.
func (a *asking) answer(outcome, text string) *Answer {
	out := &Answer{Agent: a.ref.Agent, Session: a.ref.Session, Outcome: outcome, Text: text, Handle: a.handle}
	if a.input != nil {
		out.Turn = turnID(a.input)
	}
	return out
}

// end returns the result of a turn that has ended.
func (a *asking) end(v *contract.TurnEnd) (*sdk.CallToolResult, *Answer, error) {
	if f := v.Failed; f != nil {
		out := a.answer(failed, cmp.Or(f.Reason, string(f.Code)))
		out.Code = f.Code
		return &sdk.CallToolResult{
			IsError: true, Content: textOf(fmt.Sprintf("The turn failed (%s): %s", f.Code, out.Text)),
		}, out, nil
	}
	out := a.answer(answered, v.Recorded.Answer)
	return &sdk.CallToolResult{Content: textOf(out.Text)}, out, nil
}

// waits returns the result of a turn that waits for people. The note says why they are not asked here.
func (a *asking) waits(asked []*contract.ToolCallRequest, note string) (*sdk.CallToolResult, *Answer, error) {
	var b strings.Builder
	b.WriteString("The turn waits for the approval of a person:\n")
	out := a.answer(waiting, "")
	for _, q := range asked {
		w := waitingOf(q)
		out.Waiting = append(out.Waiting, w)
		fmt.Fprintf(&b, "- %s %s, until %s\n", w.Tool, w.Args, w.Expires.UTC().Format("15:04:05 UTC"))
	}
	if note != "" {
		b.WriteString(note + "\n")
	}
	b.WriteString("A person decides on the agent's page, in its terminal or with any other client. " +
		"Then call wait with the handle " + a.handle + " to get the answer.")
	out.Text = b.String()
	return &sdk.CallToolResult{Content: textOf(out.Text)}, out, nil
}

func waitingOf(q *contract.ToolCallRequest) Waiting {
	return Waiting{
		ID: q.ConfirmationID, Tool: q.ToolName, Args: safetext.Visible(string(q.Args)), Why: turn.Reasons(q),
		Expires: q.ExpiresAt,
	}
}

func textOf(s string) []sdk.Content { return []sdk.Content{&sdk.TextContent{Text: s}} }

// all returns the requests that wait, in the order of their ids.
func (a *asking) all() (out []*contract.ToolCallRequest) {
	for _, q := range a.open {
		out = append(out, q)
	}
	slices.SortFunc(out, func(p, q *contract.ToolCallRequest) int {
		return cmp.Compare(p.ConfirmationID, q.ConfirmationID)
	})
	return out
}
