package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"skandha.dev/services/internal/safetext"
	"skandha.dev/services/uibridge/compat/turn"
	"skandha.dev/services/uibridge/contract"
)

// maxShown limits the arguments that a client is asked about, in bytes: they must be shown whole.
const maxShown = 16 << 10

// form is the form that the client shows its user.
var form = json.RawMessage(`{"type":"object","properties":{` +
	`"decision":{"type":"string","title":"Decision","enum":["approve","deny"]},` +
	`"reason":{"type":"string","title":"Reason","maxLength":1000}},"required":["decision"]}`)

// leftError ends the following of a turn that continues to wait.
type leftError struct{ note string }

// Error implements error.
func (e *leftError) Error() string { return e.note }

// confirm has the client ask its user about calls. Over means that the request ends here.
func (a *asking) confirm(
	ctx context.Context, asked []*contract.ToolCallRequest,
) (res *sdk.CallToolResult, answer *Answer, over bool) {
	for _, q := range asked {
		a.open[q.ConfirmationID] = q
	}
	able := a.d.askable(a.c, a.req.ClientCapabilities(), asked)
	switch {
	case len(able) == 0:
		res, answer, _ = a.waits(a.all(), "")
		return res, answer, true
	case a.c.stateless:
		return &sdk.CallToolResult{InputRequests: questions(able), RequestState: a.handle}, nil, true
	}
	for _, q := range able {
		a.elicit(ctx, q)
	}
	return nil, nil, false
}

// askable returns the requests that the client's user can answer.
func (d *Handler) askable(
	c *caller, caps *sdk.ClientCapabilities, asked []*contract.ToolCallRequest,
) (out []*contract.ToolCallRequest) {
	if caps == nil || caps.Elicitation == nil || caps.Elicitation.Form == nil && caps.Elicitation.URL != nil {
		return nil
	}
	for _, q := range asked {
		passkey := q.Approval != nil && q.Approval.Passkey
		if !passkey && len(q.Args) <= maxShown && c.p.Require(contract.Approve, q.Agent) == nil {
			out = append(out, q)
		}
	}
	return out
}

// questions returns what the client is to ask. The key of a question has the hash of what is shown.
func questions(asked []*contract.ToolCallRequest) sdk.InputRequestMap {
	out := sdk.InputRequestMap{}
	for _, q := range asked {
		out[q.ConfirmationID+"."+q.Hash] = question(q)
	}
	return out
}

func question(q *contract.ToolCallRequest) *sdk.ElicitParams {
	text := fmt.Sprintf("The agent %s wants to call the tool %s with:\n%s",
		q.Agent, q.ToolName, safetext.Visible(string(q.Args)))
	if why := turn.Reasons(q); why != "" {
		text += "\n" + why
	}
	return &sdk.ElicitParams{Mode: "form", Message: text, RequestedSchema: form}
}

// elicit asks the client's user about a call while the turn is followed.
func (a *asking) elicit(ctx context.Context, q *contract.ToolCallRequest) {
	ctx, cancel := context.WithCancel(ctx)
	a.mu.Lock()
	a.asks[q.ConfirmationID] = cancel
	a.mu.Unlock()
	a.work.Go(func() {
		defer cancel()
		res, err := a.req.Session.Elicit(ctx, question(q))
		note := ""
		if err != nil {
			note = "The client did not ask its user: " + safetext.Line(err.Error())
		} else {
			note, err = a.d.decide(ctx, a.c, contract.Answer{Ref: a.ref, ConfirmationID: q.ConfirmationID, Hash: q.Hash}, res)
			if err != nil {
				note = "The answer was not stored: " + contract.ErrorOf(err).Error()
			}
		}
		if note != "" && ctx.Err() == nil { // else somebody else has answered
			a.stop(&leftError{note})
		}
	})
}

// resolved withdraws the question about a call.
func (a *asking) resolved(v *contract.ConfirmationResolved) {
	delete(a.open, v.ConfirmationID)
	for i, q := range a.asked {
		if q.ConfirmationID == v.ConfirmationID {
			a.asked = append(a.asked[:i:i], a.asked[i+1:]...)
			break
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if withdraw := a.asks[v.ConfirmationID]; withdraw != nil {
		delete(a.asks, v.ConfirmationID)
		withdraw()
	}
}

// respond stores the client's answer to a question of an earlier result. The note says why the call
// continues to wait. A key of no question, or of one that was answered before, is ignored.
func (d *Handler) respond(
	ctx context.Context, c *caller, f *found, key string, answer func() (*sdk.ElicitResult, bool),
) (note string, err error) {
	id, hash, _ := strings.Cut(key, ".")
	for _, q := range pendingOf(f) {
		if q.ConfirmationID != id {
			continue
		}
		res, ok := answer()
		if !ok {
			return "", contract.Invalid("inputResponses", "want {action, content} for each question")
		}
		return d.decide(ctx, c, contract.Answer{Ref: f.ref, ConfirmationID: id, Hash: hash}, res)
	}
	return "", nil
}

// decide stores the user's answer, which is bound to the hash of what was shown.
func (d *Handler) decide(
	ctx context.Context, c *caller, answer contract.Answer, res *sdk.ElicitResult,
) (note string, err error) {
	answer.Source = "mcp"
	answer.Reason, _ = res.Content["reason"].(string)
	decision, _ := res.Content["decision"].(string)
	switch {
	case res.Action == "accept" && decision == "approve":
		answer.Approved = true
	case res.Action == "accept" && decision == "deny", res.Action == "decline":
	case res.Action == "cancel":
		return "The user has dismissed the question.", nil
	default:
		return "", contract.Invalid("decision", "want approve or deny")
	}
	r, err := d.deps.Backend.Confirm(context.WithoutCancel(ctx), c.p, answer)
	switch {
	case err != nil:
		return "", err
	case r.Counted != nil && !*r.Counted:
		return "The answer does not count: " + r.Reason, nil
	case r.Left > 0:
		return fmt.Sprintf("Approved; more people must approve: %d.", r.Left), nil
	}
	return "", nil
}
