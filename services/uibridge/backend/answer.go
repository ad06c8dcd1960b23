package backend

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/services/uibridge/contract"
)

// Confirm implements contract.Backend.
func (b *Backend) Confirm(ctx context.Context, p contract.Principal, a contract.Answer) (contract.Receipt, error) {
	if err := p.Require(contract.Approve, a.Ref.Agent); err != nil {
		return contract.Receipt{}, err
	}
	if err := b.checkRef(ctx, a.Ref); err != nil {
		return contract.Receipt{}, err
	}
	if err := checkAnswer(a); err != nil {
		return contract.Receipt{}, err
	}
	if a.Passkey != nil && a.Approved {
		if b.signed == nil {
			return contract.Receipt{}, contract.Invalid("passkey", "this bridge uses no passkeys")
		}
		if err := b.signed(p, a); err != nil {
			return contract.Receipt{}, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, b.cfg.Patience)
	defer cancel()
	// Core creates no session for an answer, so without history it would neither audit the
	// answer nor notify anybody.
	last, err := b.client.Journal.LastCommitSeq(ctx, a.Ref)
	if err != nil {
		return contract.Receipt{}, b.refusal("looking for a session", err)
	}
	if last == 0 {
		return contract.Receipt{}, &contract.Error{
			Code: contract.CodeNotFound, Field: "session", Message: fmt.Sprintf(
				"session %s has no history, so no confirmation request is pending in it", a.Ref),
		}
	}
	// Before the answer, so that no notification is missed
	feed, err := b.hub.Attach(ctx, contract.Attachment{Ref: a.Ref, Name: "answer"})
	if err != nil {
		return contract.Receipt{}, err
	}
	defer feed.Close()
	r := receipt(a.Ref)
	r.Sequence, err = b.client.As(p.Writer).Answer(ctx, a.Ref, event.Confirmation{
		ConfirmationID: a.ConfirmationID, Hash: a.Hash, Approved: a.Approved, Reason: a.Reason, Source: a.Source,
		Always: a.Always, Passkey: a.Approved && a.Passkey != nil,
	})
	if err != nil {
		return r, b.refusal("storing an answer", err)
	}
	b.judged(ctx, feed, a.ConfirmationID, &r)
	return r, nil
}

// verdictWait is how long Confirm waits for core's decision on an answer.
const verdictWait = 3 * time.Second

// judged waits for core's decision on an answer. The answer is already stored, so without a
// decision Counted and Reason of the receipt stay empty.
func (b *Backend) judged(ctx context.Context, feed contract.Feed, id string, r *contract.Receipt) {
	ctx, cancel := context.WithTimeout(ctx, verdictWait)
	defer cancel()
	cause := strconv.FormatUint(r.Sequence, 10)
	for {
		n, err := feed.Next(ctx)
		if err != nil {
			return
		}
		counted := false
		switch n.Method {
		case contract.OnPartialApproval:
			var v contract.PartialApproval
			if json.Unmarshal(n.Params, &v) != nil || v.ConfirmationID != id || v.Cause != cause {
				continue
			}
			counted, r.Left = true, v.Left
		case contract.OnConfirmationResolved:
			var v contract.ConfirmationResolved
			if json.Unmarshal(n.Params, &v) != nil || v.ConfirmationID != id || v.Cause != cause {
				continue
			}
			counted = true
		case contract.OnAudit:
			var v contract.Audit
			if json.Unmarshal(n.Params, &v) != nil || v.Action != event.ActionConfirmation || v.Effect == event.EffectAllow ||
				v.Cause != cause {
				continue
			}
			r.Reason = v.Reason
		default:
			continue
		}
		r.Counted = &counted
		return
	}
}

func checkAnswer(a contract.Answer) error {
	switch {
	case a.ConfirmationID == "":
		return contract.Invalid("confirmationId", "missing; send that of onToolCallRequest")
	case a.Hash == "":
		return contract.Invalid("hash", "missing; send that of the onToolCallRequest that was shown")
	case a.Always != nil && !a.Approved:
		return contract.Invalid("always", "only allowed with an approval")
	case a.Always != nil && a.Always.Tool == "":
		return contract.Invalid("always", "tool is missing; send one of the grants that onToolCallRequest offers")
	}
	return first(
		checkText("confirmationId", a.ConfirmationID, event.MaxInputIDBytes),
		checkText("hash", a.Hash, event.MaxInputIDBytes),
		checkText("reason", a.Reason, maxReasonBytes),
		checkText("source", a.Source, maxSourceBytes),
		checkGrant(a.Always),
	)
}

func checkGrant(g *event.Grant) error {
	if g == nil {
		return nil
	}
	bytes := len(g.Tool) + len(g.Hash)
	for name, pattern := range g.Args {
		bytes += len(name) + len(pattern)
	}
	if bytes > maxGrantBytes {
		return tooLarge("always", bytes, maxGrantBytes)
	}
	return nil
}

// Cancel implements contract.Backend.
func (b *Backend) Cancel(ctx context.Context, p contract.Principal, c contract.Cancellation) (contract.Receipt, error) {
	if err := p.Require(contract.Talk, c.Ref.Agent); err != nil {
		return contract.Receipt{}, err
	}
	if err := b.checkRef(ctx, c.Ref); err != nil {
		return contract.Receipt{}, err
	}
	if c.Sequence != 0 && c.InputID != "" {
		return contract.Receipt{}, contract.Invalid("sequence",
			"sequence and inputId both name an input; send only one")
	}
	if err := first(checkText("inputId", c.InputID, event.MaxInputIDBytes),
		checkText("reason", c.Reason, maxReasonBytes)); err != nil {
		return contract.Receipt{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, b.cfg.Patience)
	defer cancel()
	if c.Sequence == 0 && c.InputID == "" {
		now, err := b.client.Session(ctx, c.Ref)
		if err != nil {
			return contract.Receipt{}, b.refusal("looking up the running turn", err)
		}
		if now.Running == 0 {
			return contract.Receipt{}, &contract.Error{Code: contract.CodeConflict, Message: "no turn is running"}
		}
		c.Sequence = now.Running
	}
	r := receipt(c.Ref)
	r.ID = c.InputID
	if c.Sequence != 0 {
		r.Turn = event.TurnID(c.Sequence)
	}
	var err error
	r.Sequence, err = b.client.As(p.Writer).Stop(ctx, c.Ref,
		event.Cancel{Sequence: c.Sequence, InputID: c.InputID, Reason: c.Reason})
	return r, b.refusal("storing a cancel", err)
}
