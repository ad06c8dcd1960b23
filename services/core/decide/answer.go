package decide

import (
	"cmp"
	"fmt"
	"strings"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/security/grant"
	"skandha.dev/services/internal/text"
)

// confirmation decides about a person's answer. An answer that does not count is
// refused and audited in a commit that only moves the cursor, so a flood of them causes
// no further work. An answer never creates a session: without one, it has no effect
// (rule 5).
func (x *causeDecider) confirmation(c event.Confirmation) string {
	st, who, no := x.counts(c)
	if no.Reason != "" {
		return x.refused(c, who.person, no)
	}
	c.Reason, c.Source = text.Cut(c.Reason, maxReason), text.Cut(c.Source, maxSource)
	if c.Approved {
		x.approve(st, c, who)
		return ""
	}
	x.touched = true
	x.refuse(st, event.ActConfirmed{
		Outcome: event.Denied, By: x.c.Writer, From: c.From, Source: c.Source, Person: who.person, For: who.delegator,
	}, tool.CodeDenied, strings.TrimSuffix("refused by "+cmp.Or(who.person, string(x.c.Writer))+": "+c.Reason, ": "))
	x.advance()
	return ""
}

// counts reports whether an answer counts. It counts if it names a
// request that was stored earlier and is still pending, carries the hash of what was
// shown, and was stored in time (rule 5); if the grant that it chooses, if any, was
// offered; and if policy and the rules of approvals let its writer answer. The ruling has a
// reason only if the answer does not count.
func (x *causeDecider) counts(c event.Confirmation) (*Step, answerer, Ruling) {
	if err := cmp.Or(x.c.err, c.Check()); err != nil {
		return nil, answerer{}, Ruling{Reason: err.Error()}
	}
	st, why := x.pending(c.ConfirmationID)
	switch {
	case why != "":
	case st.Asked == 0 || st.Asked >= x.c.Sequence:
		why = "the answer was stored before the request"
	case c.Hash != st.Hash:
		why = "the hash does not match the arguments that were shown"
	case !x.c.Time.Before(st.ExpiresAt):
		why = "the request had expired"
	case c.Always != nil:
		why = x.grants(st, c)
	}
	if why != "" {
		return nil, answerer{}, Ruling{Reason: why}
	}
	if no := x.mayAnswer(st, c); no.Reason != "" {
		return nil, answerer{}, no
	}
	who, why := x.entitled(st, c)
	if why != "" {
		return nil, who, Ruling{Reason: why, Rule: st.Approval.Rule}
	}
	return st, who, Ruling{}
}

func (x *causeDecider) grants(st *Step, c event.Confirmation) (why string) {
	switch {
	case !c.Approved:
		return "the answer denies the call but grants it for the session"
	case !grant.In(st.Always, *c.Always):
		return "the answer chooses a grant that was not offered"
	case len(x.s.Grants) >= grant.Max && !grant.In(x.s.Grants, *c.Always):
		return fmt.Sprintf("the session has reached its limit of %d grants; /reset revokes them", grant.Max)
	}
	return ""
}

// mayAnswer asks policy whether the writer may answer. Without a matching rule it may,
// because its credentials let it write answers.
func (x *causeDecider) mayAnswer(st *Step, c event.Confirmation) Ruling {
	spec, known := x.env.Tools.Lookup(st.Tool)
	if !known {
		spec = tool.Spec{Name: st.Tool}
	}
	r := x.env.Policy.Evaluate(Access{
		Principal: x.c.Writer, From: c.From, Action: event.ActionConfirmation, Resource: spec,
		Context: Context{
			Ref: x.s.Ref, Turn: x.s.Turn.ID, Call: st.Call, Source: text.Cut(c.Source, maxSource),
			Args: st.Final,
		},
	})
	if r.Effect == Allow {
		return Ruling{}
	}
	return Ruling{Rule: r.Rule, Reason: cmp.Or(r.Reason, fmt.Sprintf("policy does not allow %s to answer", Access{Principal: x.c.Writer, From: c.From}.Name()))}
}

// Bounds, in bytes, of what a refused answer adds to the log.
const (
	maxRefusal = 200 // of the reason, which may quote what was sent
	maxRuled   = 400 // of the reason, if the configuration gives it
	maxQuoted  = 128 // of the id and the hash that it claims
)

// refused audits an answer that does not count. In a session without a commit it only
// returns the reason, because an answer must not create a session.
func (x *causeDecider) refused(c event.Confirmation, person string, no Ruling) string {
	if x.s.Rev == 0 {
		return no.Reason
	}
	limit := maxRefusal
	if no.Rule != "" {
		limit = maxRuled
	}
	p := event.Audited{
		Principal: x.c.Writer, From: c.From, Action: event.ActionConfirmation, Effect: event.EffectDeny,
		Call: text.Cut(c.ConfirmationID, maxQuoted), Hash: text.Cut(c.Hash, maxQuoted),
		Reason: text.Cut(no.Reason, limit), Rule: no.Rule, Person: person,
	}
	turn := ""
	if t := x.s.Turn; t != nil {
		if st := t.step(c.ConfirmationID); st != nil {
			p.Resource, turn = st.Tool, t.ID
		}
	}
	x.emitIn(turn, p)
	return ""
}

func (b *builder) expireRequest(st *Step) {
	b.refuse(st, event.ActConfirmed{Outcome: event.Expired, By: subject.TimerWriter}, tool.CodeExpired,
		"nobody answered the confirmation request in time")
}

// refuse ends a pending request without an approval.
func (b *builder) refuse(st *Step, p event.ActConfirmed, code tool.Code, why string) {
	p.Call, p.Hash, p.Reason = st.Call, st.Hash, why
	b.emit(p)
	b.complete(st.Call, tool.Failure(code, why))
}

func (x *causeDecider) pending(id string) (*Step, string) {
	if x.s.Turn == nil {
		return nil, "no confirmation request is pending"
	}
	st := x.s.Turn.step(id)
	if st == nil || st.Status != Confirming {
		return nil, fmt.Sprintf("no confirmation request %q is pending", id)
	}
	c := *st // emitting changes the original
	return &c, ""
}
