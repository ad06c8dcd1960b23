package acp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"skandha.dev/pkg/event"
	"skandha.dev/services/internal/proposal"
	"skandha.dev/services/uibridge/compat/turn"
	"skandha.dev/services/uibridge/contract"
)

// The options of a permission request. Those for longer are followed by the number of the grant.
const (
	allowOnce  = "allow"
	allowLong  = "allow-always-"
	rejectOnce = "reject"
)

const dismissed = "dismissed in the editor"

// asked is a permission request that waits for an answer.
type asked struct {
	request  *contract.ToolCallRequest
	question *question
}

// asked handles a confirmation request. While the past is loaded, it may be answered already.
func (t *translator) asked(v *contract.ToolCallRequest) {
	c := t.call(v.ConfirmationID, v.ToolName, v.Args)
	c.become(v.Args, &t.files)
	if t.x.loading != nil {
		t.waiting = append(t.waiting, v)
		return
	}
	t.x.confirm(v)
}

// confirm asks the client.
func (x *session) confirm(v *contract.ToolCallRequest) {
	c := x.call(v.ConfirmationID, v.ToolName, v.Args)
	if x.asks[v.ConfirmationID] != nil {
		return
	}
	p := permissionCall{toolCall: x.describe(c), Title: c.title(), Content: x.diff(c)}
	if why := turn.Reasons(v); why != "" {
		p.Content = append(content(why), p.Content...)
	}
	a := &asked{v, x.server.conn.ask(askPermission, permissionRequest{x.ref.Session, p, options(v)})}
	x.asks[v.ConfirmationID] = a
	x.server.work.Go(func() {
		select {
		case r := <-a.question.answer:
			x.decide(a, r)
		case <-x.life.Done():
		}
	})
}

func options(v *contract.ToolCallRequest) []permissionOption {
	out := []permissionOption{{allowOnce, "Allow", "allow_once"}}
	for i, g := range v.Always {
		out = append(out, permissionOption{
			allowLong + strconv.Itoa(i), "Always allow in this session: " + proposal.Grant(g), "allow_always",
		})
	}
	return append(out, permissionOption{rejectOnce, "Reject", "reject_once"})
}

// answer makes the answer to a request. Anything but an option that was offered denies.
func (a *asked) answer(r reply) contract.Answer {
	q := a.request
	out := contract.Answer{ConfirmationID: q.ConfirmationID, Hash: q.Hash, Source: "acp"}
	var p permissionResponse
	switch err := json.Unmarshal(r.result, &p); {
	case r.err != nil:
		out.Reason = r.err.Error()
	case err != nil:
		out.Reason = "the editor's answer could not be read"
	case p.Outcome.Outcome == "cancelled":
		out.Reason = dismissed
	case p.Outcome.Outcome != "selected":
		out.Reason = fmt.Sprintf("the editor answered %.40q", p.Outcome.Outcome)
	case p.Outcome.OptionID == allowOnce:
		out.Approved = true
	case p.Outcome.OptionID == rejectOnce:
	default:
		n, is := strings.CutPrefix(p.Outcome.OptionID, allowLong)
		i, err := strconv.Atoi(n)
		if !is || err != nil || i < 0 || i >= len(q.Always) {
			out.Reason = fmt.Sprintf("the editor chose %.40q, which was not offered", p.Outcome.OptionID)
			break
		}
		out.Approved, out.Always = true, &q.Always[i]
	}
	return out
}

// decide stores the client's answer. If it does not count, the client sees why; the request
// then waits for somebody else, or expires.
func (x *session) decide(a *asked, r reply) {
	answer := a.answer(r)
	if answer.Reason == dismissed && x.stopping() {
		return // the client has cancelled the turn, which ends the call, too
	}
	answer.Ref = x.ref
	var receipt contract.Receipt
	err := x.persist(func(ctx context.Context) (err error) {
		receipt, err = x.server.sys.Backend.Confirm(ctx, x.server.sys.Principal, answer)
		return err
	})
	if err == nil && receipt.Counted != nil && !*receipt.Counted {
		err = errors.New(receipt.Reason)
	}
	if err == nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.asks[a.request.ConfirmationID] != a {
		return // somebody else has answered
	}
	x.server.Log.Warn("an answer to a confirmation request does not count", "session", x.ref, "error", err)
	x.note(a.request.ConfirmationID, "Your answer does not count: "+err.Error()+". The request waits for another one, until "+
		a.request.ExpiresAt.UTC().Format("15:04:05 UTC")+".")
}

// note adds a text to what the client sees of a call that waits.
func (x *session) note(id, why string) {
	if c := x.calls[id]; c != nil {
		x.send(update{Kind: toolCallUpdate, toolCall: &toolCall{ToolCallID: id}, Content: append(content(why), x.diff(c)...)})
	}
}

func (t *translator) partly(v *contract.PartialApproval) {
	t.x.note(v.ConfirmationID, fmt.Sprintf("Approved by %s; more people must approve: %d.", v.Person, v.Left))
}

// resolved withdraws a request that is decided, by this client or another.
func (t *translator) resolved(v *contract.ConfirmationResolved) {
	t.waiting = slices.DeleteFunc(t.waiting, func(q *contract.ToolCallRequest) bool {
		return q.ConfirmationID == v.ConfirmationID
	})
	t.withdraw(v.ConfirmationID)
	if v.Outcome == event.Approved && v.Source != "acp" {
		t.x.note(v.ConfirmationID, "Approved by "+cmp.Or(v.Person, string(v.By))+".")
	}
}

// withdraw ends the question about a call, if there is one.
func (t *translator) withdraw(id string) {
	if a := t.x.asks[id]; a != nil {
		delete(t.x.asks, id)
		a.question.withdraw()
	}
}
