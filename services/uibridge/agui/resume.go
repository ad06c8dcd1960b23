package agui

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"skandha.dev/services/uibridge/contract"
	"skandha.dev/services/uibridge/turn"
)

// resume answers what a run was interrupted by, and follows its turn.
func (r *run) resume(ctx context.Context) (*turn.Turn, error) {
	first, _ := r.handler.shown.get(r.key(r.in.Resume[0].InterruptID))
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

// answers are the answers to what is asked now, and the turn that asks.
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
				Message: a.InterruptID + " is not asked any more: somebody has answered, it has expired, or it never was",
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
			Code: contract.CodeConflict, Field: "resume", Message: "answer all that is asked in one run; missing: " + strings.Join(open, ", "),
		}
	}
	return answers, id, nil
}

// answer is bound to the hash of what the principal says that he was shown, or of what
// this door has shown him; never of what is asked now.
func (r *run) answer(a Resume, q contract.ToolCallRequest) (contract.Answer, error) {
	out := contract.Answer{Ref: r.ref, ConfirmationID: q.ConfirmationID, Source: "agui"}
	if a.Payload != nil {
		out.Hash, out.Reason = a.Payload.Hash, a.Payload.Reason
	}
	if a.Status == "resolved" {
		out.Approved, out.Always = *a.Payload.Approved, a.Payload.Always
	} else if out.Reason == "" {
		out.Reason = "left unanswered"
	}
	if out.Hash == "" {
		e, ok := r.handler.shown.get(r.key(q.ConfirmationID))
		if !ok {
			return out, fmt.Errorf("it is missing, and this door has not shown you the request; send the hash that came with %s", CustomConfirmation)
		}
		out.Hash = e.hash
	}
	return out, nil
}
