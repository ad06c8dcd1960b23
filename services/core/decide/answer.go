package decide

import (
	"cmp"
	"fmt"
	"strings"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/security/grant"
)

// confirmation decides about a person's answer. One that does not count is
// refused and audited: a commit that moves the cursor alone, so that a flood of
// them costs no more than itself. A session that does not exist is not made for
// it; then the answer has no effect (rule 5).
func (x *causeDecider) confirmation() string {
	var c event.Confirmation
	st, no := x.counts(&c)
	if no.Reason != "" {
		return x.refused(c, no)
	}
	c.Reason, c.Source = cut(c.Reason, maxReason), cut(c.Source, maxSource)
	x.touched = true
	if c.Approved {
		x.emit(event.ActConfirmed{
			Call: st.Call, Hash: st.Hash, Outcome: event.Approved, By: x.c.Writer, Reason: c.Reason, Source: c.Source, Always: c.Always,
		})
	} else {
		x.refuse(st, event.ActConfirmed{Outcome: event.Denied, By: x.c.Writer, Source: c.Source}, tool.CodeDenied,
			strings.TrimSuffix("refused by "+string(x.c.Writer)+": "+c.Reason, ": "))
	}
	x.advance()
	return ""
}

// counts reads an answer into c. It counts iff it names a request that came
// before it and is still pending, carries the hash of what was shown, and was
// stored in time (rule 5); if it grants more, that was offered; and if policy lets
// its writer answer. The ruling has a reason iff it does not count.
func (x *causeDecider) counts(c *event.Confirmation) (*Step, Ruling) {
	if err := event.DecodeCause(x.c.Body, c); err != nil {
		return nil, Ruling{Reason: err.Error()}
	}
	st, why := x.pending(c.ConfirmationID)
	switch {
	case why != "":
	case st.Asked == 0 || st.Asked >= x.c.Sequence:
		why = "it was stored before the request it answers"
	case c.Hash != st.Hash:
		why = "its hash is not that of the arguments that were shown"
	case !x.c.Time.Before(st.ExpiresAt):
		why = "the request had expired"
	case c.Always != nil:
		why = x.grants(st, c)
	}
	if why != "" {
		return nil, Ruling{Reason: why}
	}
	return st, x.mayAnswer(st, c)
}

func (x *causeDecider) grants(st *Step, c *event.Confirmation) (why string) {
	switch {
	case !c.Approved:
		return "it refuses the call and grants it for the session"
	case !grant.In(st.Always, *c.Always):
		return "what it grants for the session was not offered"
	case len(x.s.Grants) >= grant.Max && !grant.In(x.s.Grants, *c.Always):
		return fmt.Sprintf("%d calls are granted for the session already; /reset takes them back", grant.Max)
	}
	return ""
}

// mayAnswer asks policy whether the writer may answer, which it may if nothing is
// said of it: its credentials let it write answers.
func (x *causeDecider) mayAnswer(st *Step, c *event.Confirmation) Ruling {
	spec, known := x.env.Tools.Lookup(st.Tool)
	if !known {
		spec = tool.Spec{Name: st.Tool}
	}
	r := x.env.Policy.Evaluate(Access{
		Principal: x.c.Writer, Action: event.ActionConfirmation, Resource: spec,
		Context: Context{Ref: x.s.Ref, Turn: x.s.Turn.ID, Call: st.Call, Source: cut(c.Source, maxSource), Args: st.Final},
	})
	if r.Effect == Allow {
		return Ruling{}
	}
	return Ruling{Rule: r.Rule, Reason: cmp.Or(r.Reason, fmt.Sprintf("policy does not let %s answer", x.c.Writer))}
}

// Bounds of what a refused answer leaves in the log, in bytes.
const (
	maxRefusal = 200 // of the reason, which may quote what was sent
	maxQuoted  = 128 // of the id and the hash that it claims
)

// refused notes an answer that does not count. It returns the reason if even that
// is not written: nobody makes a session by answering in it.
func (x *causeDecider) refused(c event.Confirmation, no Ruling) string {
	if x.s.Rev == 0 {
		return no.Reason
	}
	p := event.Audited{
		Principal: x.c.Writer, Action: event.ActionConfirmation, Effect: event.EffectDeny,
		Call: cut(c.ConfirmationID, maxQuoted), Hash: cut(c.Hash, maxQuoted), Reason: cut(no.Reason, maxRefusal), Rule: no.Rule,
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
		return nil, "nothing waits for confirmation"
	}
	st := x.s.Turn.step(id)
	if st == nil || st.Status != Confirming {
		return nil, fmt.Sprintf("no confirmation %q is pending", id)
	}
	c := *st // emitting changes the original
	return &c, ""
}
