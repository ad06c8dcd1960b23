package hub

import (
	"encoding/json"
	"fmt"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/follow"
	"skandha.dev/services/uibridge/contract"
)

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
	err = shapes(about, func(m string, p any) { method, params = m, p }).Visit(i.Event)
	if err != nil {
		return "", nil, fmt.Errorf("making a notification: %w", err)
	}
	return method, params, nil
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

// shapes converts payloads for UIs and hands them to put. Memories and summaries, which
// are for the model, are in onCommit alone. So is a checkpoint, without the session's state.
func shapes(a contract.About, put func(method string, params any)) event.Visitor {
	return event.Visitor{
		Perceived: func(p event.Perceived) { put(contract.OnInput, contract.Input{About: a, Perceived: p}) },
		PlanConsidered: func(p event.PlanConsidered) {
			put(contract.OnPlanConsidered, contract.PlanConsidered{About: a, PlanConsidered: p})
		},
		PlanRequested: func(p event.PlanRequested) {
			put(contract.OnPlanRequested, contract.PlanRequested{
				About: a, Plan: p.Plan, Round: p.Round, Attempt: p.Attempt, Attempts: p.Attempts, Provider: p.Provider,
			})
		},
		PlanCompleted: func(p event.PlanCompleted) { put(contract.OnPlanCompleted, planCompleted(a, p)) },
		ActRequested: func(p event.ActRequested) {
			put(contract.OnToolCall, contract.ToolCall{
				About: a, Call: p.Call, ToolName: p.Tool, Args: p.Args, Runner: p.Runner, Attempts: p.Attempts,
				ApprovedBy: p.ApprovedBy,
			})
		},
		ActApproved: func(p event.ActApproved) {
			put(contract.OnPartialApproval, contract.PartialApproval{
				About: a, ConfirmationID: p.Call, By: p.By, Person: p.Person, For: p.For, Source: p.Source, Left: p.Left,
			})
		},
		ActConfirmed: func(p event.ActConfirmed) {
			put(contract.OnConfirmationResolved, contract.ConfirmationResolved{
				About: a, ConfirmationID: p.Call, Outcome: p.Outcome, By: p.By, From: p.From, Source: p.Source, Reason: p.Reason,
				Always: p.Always, Person: p.Person, Others: p.Others, For: p.For, Passkey: p.Passkey,
			})
		},
		ActCompleted: func(p event.ActCompleted) {
			put(contract.OnToolResult, contract.ToolResult{
				About: a, Call: p.Call, ToolName: p.Tool, Result: p.Result, DurationMS: p.DurationMS, Note: p.Note,
			})
		},
		Audited:    func(p event.Audited) { put(contract.OnAudit, contract.Audit{About: a, Audited: p}) },
		Recorded:   func(p event.Recorded) { put(contract.OnTurnEnd, contract.TurnEnd{About: a, Recorded: &p}) },
		TurnFailed: func(p event.TurnFailed) { put(contract.OnTurnEnd, contract.TurnEnd{About: a, Failed: &p}) },
		SessionLocked: func(p event.SessionLocked) {
			put(contract.OnSessionLocked, contract.SessionLocked{About: a, SessionLocked: p})
		},
		SessionReset: func(p event.SessionReset) {
			put(contract.OnSessionReset, contract.SessionReset{About: a, SessionReset: p})
		},
		UIMessage:       func(p event.UIMessage) { put(contract.OnNewMessage, contract.Message{About: a, UIMessage: p}) },
		ToolCallRequest: func(p event.ToolCallRequest) { put(contract.OnToolCallRequest, toolCallRequest(a, p)) },
		UIReady:         func(event.UIReady) { put(contract.OnReadyForInput, a) },
		UIState: func(p event.UIState) {
			put(contract.OnAgentStateChange, contract.StateChange{About: a, UIState: p})
		},
	}
}

func planCompleted(a contract.About, p event.PlanCompleted) any {
	out := contract.PlanCompleted{
		About: a, Plan: p.Plan, Purpose: p.Purpose, Steps: p.Steps, Usage: p.Spent, Error: p.Error, DurationMS: p.DurationMS,
	}
	if r := p.Response; r != nil {
		out.Usage = r.Usage
		if p.Purpose == "" {
			out.Text = r.TextContent
		}
	}
	return out
}

func toolCallRequest(a contract.About, p event.ToolCallRequest) contract.ToolCallRequest {
	return contract.ToolCallRequest{
		About: a, ToolName: p.ToolName, Args: p.Args, ConfirmationID: p.ConfirmationID, SecurityWarning: p.SecurityWarning,
		Hash: p.Hash, ExpiresAt: p.ExpiresAt, Always: p.Always, Owner: p.Owner, Answer: p.Answer, After: p.After,
		Approval: p.Approval,
	}
}
