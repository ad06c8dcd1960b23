package event

import "fmt"

// Visitor is a reader of the events of commits: it has a function for the payload of each
// type that it needs. Data of other types is not decoded.
type Visitor struct {
	Perceived       func(Perceived)
	Recalled        func(Recalled)
	PlanConsidered  func(PlanConsidered)
	PlanRequested   func(PlanRequested)
	PlanCompleted   func(PlanCompleted)
	Audited         func(Audited)
	ToolCallRequest func(ToolCallRequest)
	ActApproved     func(ActApproved)
	ActConfirmed    func(ActConfirmed)
	ActRequested    func(ActRequested)
	ActCompleted    func(ActCompleted)
	Recorded        func(Recorded)
	TurnFailed      func(TurnFailed)
	SessionLocked   func(SessionLocked)
	SessionReset    func(SessionReset)
	SessionPaused   func(SessionPaused)
	Checkpoint      func(Checkpoint)
	Summarized      func(Summarized)
	UIMessage       func(UIMessage)
	UIReady         func(UIReady)
	UIState         func(UIState)
}

// Visit calls the visitor's function for the event, if it has one. The error wraps
// [ErrUnknownType] if the event's type or version is unknown, or [ErrMalformed] if its data
// is not a payload of the type; in both cases nothing was called.
func (v Visitor) Visit(e Event) error {
	switch e.Type {
	case TypePerceived:
		return visit(e, v.Perceived)
	case TypeRecalled:
		return visit(e, v.Recalled)
	case TypePlanConsidered:
		return visit(e, v.PlanConsidered)
	case TypePlanRequested:
		return visit(e, v.PlanRequested)
	case TypePlanCompleted:
		return visit(e, v.PlanCompleted)
	case TypeAudited:
		return visit(e, v.Audited)
	case TypeToolCallRequest:
		return visit(e, v.ToolCallRequest)
	case TypeActApproved:
		return visit(e, v.ActApproved)
	case TypeActConfirmed:
		return visit(e, v.ActConfirmed)
	case TypeActRequested:
		return visit(e, v.ActRequested)
	case TypeActCompleted:
		return visit(e, v.ActCompleted)
	case TypeRecorded:
		return visit(e, v.Recorded)
	case TypeTurnFailed:
		return visit(e, v.TurnFailed)
	case TypeSessionLocked:
		return visit(e, v.SessionLocked)
	case TypeSessionReset:
		return visit(e, v.SessionReset)
	case TypeSessionPaused:
		return visit(e, v.SessionPaused)
	case TypeCheckpoint:
		return visit(e, v.Checkpoint)
	case TypeSummarized:
		return visit(e, v.Summarized)
	case TypeUIMessage:
		return visit(e, v.UIMessage)
	case TypeUIReady:
		return visit(e, v.UIReady)
	case TypeUIState:
		return visit(e, v.UIState)
	}
	return fmt.Errorf("%w: %q", ErrUnknownType, e.Type)
}

func visit[P Payload](e Event, f func(P)) error {
	if f == nil {
		return nil
	}
	var p P
	if err := e.DataAs(any(&p).(Payload)); err != nil { // a pointer has the methods of its type
		return err
	}
	f(p)
	return nil
}
