package inspect

import (
	"context"
	"fmt"
	"slices"

	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/text"
	"skandha.dev/services/uibridge/contract"
	"skandha.dev/services/uibridge/request"
)

// The limits of listOutbox.
const (
	defaultOutbox = 50
	maxOutbox     = 200
	maxOutboxText = 4000 // bytes of a message's text in an answer
	maxOutboxID   = 200  // bytes
)

type outboxQuery struct {
	State string
	Limit int
}

func (q *outboxQuery) params() []request.Param {
	return []request.Param{{Name: "state", Into: &q.State}, {Name: "limit", Into: &q.Limit}}
}

// listOutbox returns the messages to people that are not delivered, of the agents that the
// principal may see. Texts are cut.
func (i *inspector) listOutbox(ctx context.Context, p contract.Principal, q outboxQuery) (coreapi.OutboxPage, error) {
	states := []coreapi.OutboxState{"", coreapi.OutboxWaiting, coreapi.OutboxSending, coreapi.OutboxDead}
	state := coreapi.OutboxState(q.State)
	if !slices.Contains(states, state) {
		return coreapi.OutboxPage{}, contract.Invalid("state",
			fmt.Sprintf("is %q; want waiting, sending or dead", text.Cut(q.State, 40)))
	}
	limit, err := bounded(q.Limit, defaultOutbox, maxOutbox)
	if err != nil {
		return coreapi.OutboxPage{}, err
	}
	ask := coreapi.OutboxQuery{State: state, Limit: limit}
	if p.Everywhere(contract.See) != nil {
		ask.Limit = 1000 // core's maximum, as those of other agents are left out
	}
	page, err := i.askOutbox(ctx, p, ask)
	if len(page.Messages) > limit {
		page.Messages, page.More = page.Messages[:limit], true
	}
	return page, err
}

// outboxAction is what an operator wants of a message.
type outboxAction struct{ Op, ID string }

func (q *outboxAction) params() []request.Param {
	return []request.Param{{Name: "op", Into: &q.Op, Must: true}, {Name: "id", Into: &q.ID, Must: true}}
}

// outboxAction has core send a dead message again, or drop one, and returns the message as it is
// then: none if it was dropped, or delivered already. As the answer shows the message, the right to
// look is needed, too.
func (i *inspector) outboxAction(
	ctx context.Context, p contract.Principal, q outboxAction,
) (page coreapi.OutboxPage, err error) {
	if err := p.Require(contract.See, ""); err != nil {
		return page, err
	}
	op := coreapi.OutboxAction(q.Op)
	switch {
	case op != coreapi.OutboxResend && op != coreapi.OutboxDrop:
		return page, contract.Invalid("op", fmt.Sprintf("is %q; want resend or drop", text.Cut(q.Op, 40)))
	case q.ID == "" || len(q.ID) > maxOutboxID:
		return page, contract.Invalid("id", fmt.Sprintf("want 1 to %d bytes; listOutbox lists the ids", maxOutboxID))
	}
	if p.Everywhere(contract.Administer) != nil { // another agent's message is, for this token, not there
		if page, err = i.askOutbox(ctx, p, coreapi.OutboxQuery{ID: q.ID}); err != nil {
			return page, err
		}
		page.Messages = slices.DeleteFunc(page.Messages,
			func(m coreapi.OutboxMessage) bool { return p.Require(contract.Administer, m.Agent) != nil })
		if len(page.Messages) == 0 {
			return page, &contract.Error{
				Code: contract.CodeNotFound, Message: fmt.Sprintf("no message %q is in the outbox", q.ID),
			}
		}
	}
	i.log.Info("outbox action requested", "op", q.Op, "id", q.ID, "by", p.Writer)
	return i.askOutbox(ctx, p, coreapi.OutboxQuery{Action: op, ID: q.ID, Caller: p.Writer})
}

// askOutbox asks core for messages, and leaves out those of agents that the principal may not
// reach.
func (i *inspector) askOutbox(
	ctx context.Context, p contract.Principal, q coreapi.OutboxQuery,
) (page coreapi.OutboxPage, err error) {
	if err = i.client.Administer(ctx, coreapi.VerbOutbox, q, &page); err != nil {
		return coreapi.OutboxPage{}, err
	}
	page.Messages = slices.DeleteFunc(listed(page.Messages),
		func(m coreapi.OutboxMessage) bool { return p.Require(contract.See, m.Agent) != nil })
	for n := range page.Messages {
		page.Messages[n].Text = text.Cut(page.Messages[n].Text, maxOutboxText)
	}
	return page, nil
}
