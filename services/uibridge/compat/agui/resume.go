package agui

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"skandha.dev/services/uibridge/compat/turn"
	"skandha.dev/services/uibridge/contract"
)

// resume answers the confirmation requests that interrupted a run, and follows its turn.
func (r *run) resume(ctx context.Context) (*turn.Turn, error) {
	first, _ := r.handler.sent.Peek(r.key(r.in.Resume[0].InterruptID))
	t, err := turn.Attach(ctx, r.handler.backend, r.p, r.ref, first.after, "agui")
	if err != nil {
		return nil, err
	}
	answers, id, err := r.answers(t.Attached.Pending)
	for _, a := range answers {
		if err == nil {
			_, err = r.handler.backend.Confirm(context.WithoutCancel(ctx), r.p, a)
		}
	}
	if err != nil {
		t.Close()
		return nil, err
	}
	t.Follow(id)
	if first.after != "" {
		r.translator.calls = first.calls
	}
	return t, nil
}

// answers returns the answers to the pending requests, and the id of their turn.
func (r *run) answers(pending []contract.ToolCallRequest) (answers []contract.Answer, id string, err error) {
	var open []string
	for _, q := range pending {
		if !slices.ContainsFunc(r.in.Resume, func(a Resume) bool { return a.InterruptID == q.ConfirmationID }) {
			open = append(open, q.ConfirmationID)
		}
	}
	for i, a := range r.in.Resume {
		at := fmt.Sprintf("resume[%d].", i)
		n := slices.IndexFunc(pending, func(q contract.ToolCallRequest) bool { return q.ConfirmationID == a.InterruptID })
		if n < 0 {
			return nil, "", &contract.Error{
				Code: contract.CodeConflict, Field: at + "interruptId",
				Message: a.InterruptID + " is not pending: it was answered, has expired, or never existed",
			}
		}
		answer, err := r.answer(a, pending[n])
		if err != nil {
			return nil, "", contract.Invalid(at+"payload.hash", err.Error())
		}
		answers, id = append(answers, answer), pending[n].Turn
	}
	if len(open) > 0 && r.in.props.Interrupts {
		return nil, "", &contract.Error{
			Code: contract.CodeConflict, Field: "resume",
			Message: "answer all pending requests in one run; missing: " + strings.Join(open, ", "),
		}
	}
	return answers, id, nil
}

// answer builds the answer to a request. It is bound to the hash that the client sent, or
// to the one that this handler sent to the principal; never to that of the pending request.
func (r *run) answer(a Resume, q contract.ToolCallRequest) (contract.Answer, error) {
	out := contract.Answer{Ref: r.ref, ConfirmationID: q.ConfirmationID, Source: "agui"}
	if a.Payload != nil {
		out.Hash, out.Reason = a.Payload.Hash, a.Payload.Reason
	}
	if a.Status == "resolved" {
		out.Approved, out.Always = *a.Payload.Approved, a.Payload.Always
	} else if out.Reason == "" {
		out.Reason = "cancelled by the client"
	}
	if out.Hash == "" {
		e, ok := r.handler.sent.Peek(r.key(q.ConfirmationID))
		if !ok {
			return out, fmt.Errorf(
				"missing, and the request was not sent to you over this API; send the hash of its %s event",
				CustomConfirmation)
		}
		out.Hash = e.hash
	}
	return out, nil
}
