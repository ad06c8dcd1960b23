package turn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/uibridge/contract"
)

// Session follows all notifications of a session, decoded. It is not safe for concurrent use.
type Session struct {
	// Attached describes the session at the time of attaching.
	Attached contract.Attached

	backend   contract.Backend
	principal contract.Principal
	ref       subject.Ref
	name      string
	feed      contract.Feed
	after     string // the last id seen
}

// AttachSession attaches to a session, after the id of a notification, or "" for new ones
// only. The transport's name is for logs. The feed ends with ctx, or with Close.
func AttachSession(
	ctx context.Context, b contract.Backend, p contract.Principal, ref subject.Ref, after, transport string,
) (*Session, error) {
	s := &Session{backend: b, principal: p, ref: ref, name: transport}
	return s, s.attach(ctx, after)
}

func (s *Session) attach(ctx context.Context, after string) error {
	s.Close()
	f, err := s.backend.Attach(ctx, s.principal, contract.Attachment{Ref: s.ref, After: after, Name: s.name})
	if err != nil {
		return err
	}
	s.feed = f
	var a contract.Attached
	n, err := f.Next(ctx)
	if err == nil && n.Method != contract.OnAttached {
		err = fmt.Errorf("attaching to %s: the first notification is %s", s.ref, n.Method)
	}
	if err == nil {
		err = json.Unmarshal(n.Params, &a)
	}
	if err != nil {
		s.Close()
		return err
	}
	s.Attached, s.after = a, a.After
	return nil
}

// After returns the last id that Next returned, to attach after.
func (s *Session) After() string { return s.after }

// Close stops following. The session continues.
func (s *Session) Close() {
	if s.feed != nil {
		s.feed.Close()
	}
}

// kinds makes the values that notifications are decoded into.
var kinds = map[string]func() any{
	contract.OnNewMessage:           func() any { return &contract.Message{} },
	contract.OnToolCallRequest:      func() any { return &contract.ToolCallRequest{} },
	contract.OnAgentStateChange:     func() any { return &contract.StateChange{} },
	contract.OnInput:                func() any { return &contract.Input{} },
	contract.OnPlanConsidered:       func() any { return &contract.PlanConsidered{} },
	contract.OnPlanRequested:        func() any { return &contract.PlanRequested{} },
	contract.OnPlanCompleted:        func() any { return &contract.PlanCompleted{} },
	contract.OnToolCall:             func() any { return &contract.ToolCall{} },
	contract.OnToolResult:           func() any { return &contract.ToolResult{} },
	contract.OnPartialApproval:      func() any { return &contract.PartialApproval{} },
	contract.OnConfirmationResolved: func() any { return &contract.ConfirmationResolved{} },
	contract.OnAudit:                func() any { return &contract.Audit{} },
	contract.OnTurnEnd:              func() any { return &contract.TurnEnd{} },
	contract.OnDelta:                func() any { return &contract.Delta{} },
	contract.OnToolOutput:           func() any { return &contract.ToolOutput{} },
}

// Next returns the next notification, and the id of its place in the log if it has one. The
// value is a pointer to one of the contract's types. A feed that was not read fast enough
// continues after the last id; only deltas are lost then.
func (s *Session) Next(ctx context.Context) (v any, id string, err error) {
	for {
		n, err := s.feed.Next(ctx)
		if e, ok := errors.AsType[*contract.Error](err); ok && e.Code == contract.CodeSlow {
			err = s.attach(ctx, s.after)
			if err == nil {
				continue
			}
		}
		if err != nil {
			return nil, "", err
		}
		if n.ID != "" {
			s.after = n.ID
		}
		kind := kinds[n.Method]
		if kind == nil {
			continue
		}
		v := kind()
		if err := json.Unmarshal(n.Params, v); err != nil {
			return nil, "", fmt.Errorf("reading %s: %w", n.Method, err)
		}
		return v, n.ID, nil
	}
}
