package decide

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
)

// bridge begins the writers whose word about a passkey counts: those of the UI bridge.
var bridge = string(subject.Person(""))

// demand returns what the approval of a call takes, and how long people have.
func (b *builder) demand(st *Step, spec tool.Spec, args json.RawMessage) (*event.Approval, time.Duration) {
	if b.env.Approvals == nil {
		return nil, 0
	}
	a := b.access(st, spec, args)
	for _, above := range slices.Backward(b.above()) { // where the work began, rules come first
		a.Context.Ref.Agent = above
		if d, within := b.env.Approvals.Demand(a); d != nil {
			return d, within
		}
	}
	a.Context.Ref.Agent = b.s.Ref.Agent
	return b.env.Approvals.Demand(a)
}

// usable lists the grants that replace the approval that is demanded. A grant never replaces
// a passkey, nor more people than approved it, nor the approval of a call of another
// person, who may be the one that approved the grant.
func (b *builder) usable(d *event.Approval) []event.Grant {
	if d != nil && d.Passkey {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(b.s.Grants), func(g event.Grant) bool {
		switch {
		case g.Requester != "" && g.Requester != b.requester():
			return true
		case d == nil:
			return false
		}
		return max(g.People, 1) < d.People || d.Requester != "" && g.Requester == ""
	})
}

// bound binds the offered grants to what their approval takes.
func bound(offers []event.Grant, d *event.Approval) []event.Grant {
	switch {
	case d == nil:
		return offers
	case d.Passkey:
		return nil
	}
	for i := range offers {
		offers[i].Requester = d.Requester
		if d.People > 1 {
			offers[i].People = d.People
		}
	}
	return offers
}

// requester returns the person whose input the turn works on, or the principal if the configuration
// names no such person.
func (b *builder) requester() string {
	person := ""
	writer, from, _ := b.s.Turn.Principal()
	if b.env.Approvals != nil {
		person = b.env.Approvals.Person(writer, from)
	}
	return cmp.Or(person, Access{Principal: writer, From: from}.Name())
}

// answerer is the person who answers a request.
type answerer struct {
	person, delegator string   // by name; empty if unknown, or if nobody delegated
	others            []string // who have approved before, and still may
	left              int      // how many more people must approve
}

// entitled returns who answers, or why this person may not.
func (x *causeDecider) entitled(st *Step, c event.Confirmation) (who answerer, why string) {
	rules, d := x.env.Approvals, st.Approval
	if rules != nil {
		who.person = rules.Person(x.c.Writer, c.From)
	}
	if d == nil {
		return who, ""
	}
	if who.person == "" {
		return who, fmt.Sprintf("%s is no person that the configuration names, as %s requires; add them to people, or "+
			"this account to the accounts of a person", Access{Principal: x.c.Writer, From: c.From}.Name(), d.Rule)
	}
	if who.delegator, why = rules.May(*d, who.person, x.c.Time); why != "" || !c.Approved {
		return who, why
	}
	switch {
	case who.person == d.Requester:
		return who, fmt.Sprintf("%s asked for this call, so somebody else must approve it (%s)", who.person, d.Rule)
	case slices.ContainsFunc(st.Approvers, func(a Approver) bool { return a.Person == who.person }):
		return who, fmt.Sprintf("%s has approved this already; another person must approve it, too (%s)", who.person, d.Rule)
	case d.Passkey && (!c.Passkey || !strings.HasPrefix(string(x.c.Writer), bridge)):
		return who, fmt.Sprintf("this approval needs a passkey (%s); approve it on the page", d.Rule)
	}
	for _, a := range st.Approvers {
		if _, not := rules.May(*d, a.Person, x.c.Time); not == "" {
			who.others = append(who.others, a.Person)
		}
	}
	who.left = d.People - len(who.others) - 1
	return who, ""
}

// approve counts an approval. Until enough people have approved, the request waits on.
func (x *causeDecider) approve(st *Step, c event.Confirmation, who answerer) {
	if who.left > 0 {
		x.emit(event.ActApproved{
			Call: st.Call, Hash: st.Hash, By: x.c.Writer, From: c.From, Person: who.person, For: who.delegator,
			Passkey: st.needsPasskey(), Reason: c.Reason, Source: c.Source, Always: c.Always, Left: who.left,
		})
		return
	}
	x.touched = true
	x.emit(event.ActConfirmed{
		Call: st.Call, Hash: st.Hash, Outcome: event.Approved, By: x.c.Writer, From: c.From, Reason: c.Reason, Source: c.Source,
		Always: st.agreed(c.Always, who.others), Person: who.person, Others: who.others, For: who.delegator,
		Passkey: st.needsPasskey(),
	})
	x.advance()
}

func (st *Step) needsPasskey() bool { return st.Approval != nil && st.Approval.Passkey }

// agreed returns the grant if all others have chosen it, too.
func (st *Step) agreed(g *event.Grant, others []string) *event.Grant {
	if g == nil {
		return nil
	}
	for _, a := range st.Approvers {
		if slices.Contains(others, a.Person) && (a.Always == nil || string(encode(a.Always)) != string(encode(g))) {
			return nil
		}
	}
	return g
}

// short returns why the approval that a call has is not the one that is demanded now; empty if it is.
func (st *Step) short(d *event.Approval) string {
	switch {
	case d == nil:
		return ""
	case len(st.Approvers) < d.People:
		return fmt.Sprintf("%s now demands the approval of %d people, and the call has that of %d", d.Rule, d.People,
			len(st.Approvers))
	case d.Passkey && !st.needsPasskey():
		return d.Rule + " now demands a passkey, which was not asked for"
	case slices.ContainsFunc(st.Approvers, func(a Approver) bool { return a.Person == d.Requester }):
		return d.Rule + " now excludes " + d.Requester + ", who approved the call"
	}
	return ""
}
