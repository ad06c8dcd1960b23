package hub

import (
	"encoding/json"
	"fmt"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/follow"
	"skandha.dev/services/uibridge/contract"
)

// notForwarded lists the event types that produce no notification, with the reason.
var notForwarded = map[event.Type]string{
	event.TypeCheckpoint: "it contains the session's state, which is internal to core; onCommit has the rest",
}

// placeOf returns an item's place, the zero place for lossy items.
func placeOf(i follow.Item) place {
	if i.Delta != nil || i.Output != nil {
		return place{}
	}
	return place{i.Commit, i.Index}
}

func encode(at place, method string, params any) (contract.Notification, error) {
	b, err := json.Marshal(params)
	if err != nil {
		return contract.Notification{}, fmt.Errorf("encoding %s: %w", method, err)
	}
	n := contract.Notification{Method: method, Params: b}
	if at.commit > 0 {
		n.ID = at.id()
	}
	return n, nil
}

// paramsOf returns the method and the parameters of an item's notification.
func paramsOf(ref subject.Ref, i follow.Item) (method string, params any, err error) {
	about := contract.About{Agent: ref.Agent, Session: ref.Session, Turn: i.Turn}
	switch {
	case i.Delta != nil:
		return contract.OnDelta, contract.Delta{About: about, Delta: *i.Delta}, nil
	case i.Output != nil:
		return contract.OnToolOutput, contract.ToolOutput{About: about, Output: *i.Output}, nil
	case i.Whole != nil:
		return contract.OnCommit, commit(about, i), nil
	}
	about.Turn, about.Time, about.Cause = i.Event.Turn, i.Event.Time, i.Event.Cause
	f, ok := shapers[i.Event.Type]
	if !ok {
		if notForwarded[i.Event.Type] != "" {
			return "", nil, nil
		}
		return "", nil, fmt.Errorf("making a notification of %s: %w", i.Event.Type, event.ErrUnknownType)
	}
	return f(about, i.Event)
}

func commit(about contract.About, i follow.Item) contract.Commit {
	h := i.Whole.Header
	about.Time = h.Now
	c := contract.Commit{
		About: about, Commit: i.Commit, Trigger: h.Trigger, Hooks: h.Hooks, Events: make([]event.Event, len(i.Whole.Events)),
	}
	for n, e := range i.Whole.Events {
		if e.Type == event.TypeCheckpoint {
			e.Data = withoutState(e)
		}
		c.Events[n] = e
	}
	return c
}

// withoutState returns a checkpoint's body without the state.
func withoutState(e event.Event) json.RawMessage {
	var body struct {
		Reason string `json:"reason"`
	}
	if json.Unmarshal(e.Data, &body) != nil {
		return json.RawMessage(`{}`)
	}
	b, err := json.Marshal(body)
	if err != nil {
		return json.RawMessage(`{}`)
	}
	return b
}

type shaper func(contract.About, event.Event) (method string, params any, err error)

// shaping makes a shaper from a function that converts a payload for UIs.
func shaping[P any, PP interface {
	*P
	event.Payload
}](method string, shape func(contract.About, P) any) shaper {
	return func(about contract.About, e event.Event) (string, any, error) {
		var p P
		if err := e.DataAs(PP(&p)); err != nil {
			return "", nil, err
		}
		return method, shape(about, p), nil
	}
}

var shapers = map[event.Type]shaper{
	event.TypePerceived: shaping(contract.OnInput, func(a contract.About, p event.Perceived) any {
		return contract.Input{About: a, Perceived: p}
	}),
	event.TypePlanRequested: shaping(contract.OnPlanRequested, func(a contract.About, p event.PlanRequested) any {
		return contract.PlanRequested{
			About: a, Plan: p.Plan, Round: p.Round, Attempt: p.Attempt, Attempts: p.Attempts, Provider: p.Provider,
		}
	}),
	event.TypePlanCompleted: shaping(contract.OnPlanCompleted, planCompleted),
	event.TypeActRequested: shaping(contract.OnToolCall, func(a contract.About, p event.ActRequested) any {
		return contract.ToolCall{
			About: a, Call: p.Call, ToolName: p.Tool, Args: p.Args, Runner: p.Runner, Attempts: p.Attempts,
			ApprovedBy: p.ApprovedBy,
		}
	}),
	event.TypeActConfirmed: shaping(contract.OnConfirmationResolved, func(a contract.About, p event.ActConfirmed) any {
		return contract.ConfirmationResolved{
			About: a, ConfirmationID: p.Call, Outcome: p.Outcome, By: p.By, Source: p.Source, Reason: p.Reason, Always: p.Always,
		}
	}),
	event.TypeActCompleted: shaping(contract.OnToolResult, func(a contract.About, p event.ActCompleted) any {
		return contract.ToolResult{
			About: a, Call: p.Call, ToolName: p.Tool, Result: p.Result, DurationMS: p.DurationMS, Note: p.Note,
		}
	}),
	event.TypeAudited: shaping(contract.OnAudit, func(a contract.About, p event.Audited) any {
		return contract.Audit{About: a, Audited: p}
	}),
	event.TypeRecorded: shaping(contract.OnTurnEnd, func(a contract.About, p event.Recorded) any {
		return contract.TurnEnd{About: a, Recorded: &p}
	}),
	event.TypeTurnFailed: shaping(contract.OnTurnEnd, func(a contract.About, p event.TurnFailed) any {
		return contract.TurnEnd{About: a, Failed: &p}
	}),
	event.TypeSessionLocked: shaping(contract.OnSessionLocked, func(a contract.About, p event.SessionLocked) any {
		return contract.SessionLocked{About: a, SessionLocked: p}
	}),
	event.TypeSessionReset: shaping(contract.OnSessionReset, func(a contract.About, p event.SessionReset) any {
		return contract.SessionReset{About: a, SessionReset: p}
	}),
	event.TypeUIMessage: shaping(contract.OnNewMessage, func(a contract.About, p event.UIMessage) any {
		return contract.Message{About: a, UIMessage: p}
	}),
	event.TypeToolCallRequest: shaping(contract.OnToolCallRequest, func(a contract.About, p event.ToolCallRequest) any {
		return toolCallRequest(a, p)
	}),
	event.TypeUIReady: shaping(contract.OnReadyForInput, func(a contract.About, _ event.UIReady) any { return a }),
	event.TypeUIState: shaping(contract.OnAgentStateChange, func(a contract.About, p event.UIState) any {
		return contract.StateChange{About: a, UIState: p}
	}),
}

func planCompleted(a contract.About, p event.PlanCompleted) any {
	out := contract.PlanCompleted{
		About: a, Plan: p.Plan, Steps: p.Steps, Usage: p.Spent, Error: p.Error, DurationMS: p.DurationMS,
	}
	if r := p.Response; r != nil {
		out.Text, out.Usage = r.TextContent, r.Usage
	}
	return out
}

func toolCallRequest(a contract.About, p event.ToolCallRequest) contract.ToolCallRequest {
	return contract.ToolCallRequest{
		About: a, ToolName: p.ToolName, Args: p.Args, ConfirmationID: p.ConfirmationID, SecurityWarning: p.SecurityWarning,
		Hash: p.Hash, ExpiresAt: p.ExpiresAt, Always: p.Always, Owner: p.Owner, Answer: p.Answer,
	}
}
