package decide_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/decide"
)

// What the observer knows about the security layer. It shares no code with it.

// audited checks that every call is judged before it has any effect, and later only to
// stop it, and that every answer that does not count is refused in a commit that does
// nothing else.
func (o *observer) audited(c event.Commit, e event.Event, p event.Audited) (about bool, err error) {
	t := c.Header.Trigger
	o.audits[fmt.Sprint(p.Action, " ", p.Rule, " ", p.Effect)]++
	if p.Action == event.ActionConfirmation {
		o.answers[t.Sequence]++
		switch {
		case t.Kind != event.ByCause || t.Cause != subject.Confirmation || p.Principal != t.Writer:
			return false, fmt.Errorf("an answer of %s is refused after %+v", p.Principal, t)
		case p.Effect != decide.Deny || p.Reason == "" || len(c.Events) != 1:
			return false, fmt.Errorf("%+v, among %d events", p, len(c.Events))
		case len(e.Data) > 1500:
			return false, fmt.Errorf("a refusal of %d bytes", len(e.Data))
		}
		return false, nil
	}
	call, err := o.pending(p.Call)
	if err != nil {
		return true, err
	}
	by := o.causes[o.inputs[o.open]].Writer
	switch {
	case call.audited != nil && call.audited.Effect != decide.Deny && !call.barred && p.Effect == decide.Deny &&
		(len(call.requests) > 0 || call.confirmed != nil) && p.Hash == call.audited.Hash:
		o.audits["barred"]++
		call.barred = true // policy was asked again before a later assignment
		return true, o.inTurn(e, p.Call)
	case p.Action == event.ActionCall && call.audited != nil && p.Hash != call.audited.Hash &&
		(call.confirmed != nil || len(call.requests) > 0):
		o.audits["again"]++ // the tool has changed since the call was judged
	case p.Action != event.ActionCall || call.audited != nil || call.asked != nil || len(call.requests) > 0:
		return true, fmt.Errorf("%s of %s, which was judged before", p.Action, p.Call)
	}
	var in event.Input
	if event.DecodeCause([]byte(o.causes[o.inputs[o.open]].body), &in) == nil && in.By != nil {
		by = in.By.Writer // whom the agents work for
	}
	switch {
	case p.Resource != call.Tool || p.Principal != by:
		return true, fmt.Errorf("%s by %s is judged, and %s by %s was planned", p.Resource, p.Principal, call.Tool, by)
	case p.Effect == decide.Deny && (p.Reason == "" || p.Obligations != nil):
		return true, fmt.Errorf("a denial of %+v", p)
	case (p.Rule == "grant") != (p.Grant != nil) || p.Grant != nil && (p.Effect != decide.Allow || !o.holds(*p.Grant)):
		return true, fmt.Errorf("nobody granted %+v: %+v", p, o.grants)
	}
	call.audited = &p
	return true, o.inTurn(e, p.Call)
}

func (o *observer) holds(g event.Grant) bool {
	return slices.ContainsFunc(o.grants, func(h event.Grant) bool { return sameGrant(g, h) })
}

func sameGrant(a, b event.Grant) bool {
	return a.Tool == b.Tool && a.Spec == b.Spec && a.Hash == b.Hash && maps.Equal(a.Args, b.Args)
}

func (c *callSeen) granted() bool { return c.audited != nil && c.audited.Grant != nil }

func (o *observer) askedAsAudited(c *callSeen) error {
	switch a := c.audited; {
	case a == nil || a.Effect != decide.Ask || a.Hash != c.asked.Hash:
		return fmt.Errorf("a person is asked, and it was judged as %+v", a)
	case c.asked.SecurityWarning == nil || c.asked.SecurityWarning.Message == "":
		return errors.New("nobody says why a person is asked")
	case len(c.asked.Always) > 0 && (a.Rule == "before_act" || a.Rule == "breaker"):
		return fmt.Errorf("%s asks, and a grant is offered", a.Rule)
	}
	for _, g := range c.asked.Always {
		if !o.coversLiterally(g, c.asked.ToolName, c.asked.Args, c.asked.Hash) {
			return fmt.Errorf("offered for the call is %+v", g)
		}
	}
	return nil
}

// approved checks an approval that needs further ones: its person may not have approved before.
func (o *observer) approved(c event.Commit, p event.ActApproved) error {
	call, err := o.pending(p.Call)
	if err != nil {
		return err
	}
	t := c.Header.Trigger
	cause := o.causes[t.Sequence]
	var said event.Confirmation
	switch {
	case call.asked == nil || call.confirmed != nil || call.asked.Approval == nil:
		return errors.New("no request for several approvals is pending")
	case t.Kind != event.ByCause || t.Cause != subject.Confirmation || t.Sequence <= call.askedAt ||
		event.DecodeCause([]byte(cause.body), &said) != nil:
		return fmt.Errorf("it was approved by %+v", t)
	case said.ConfirmationID != p.Call || said.Hash != call.asked.Hash || !said.Approved || p.By != cause.Writer ||
		!cause.Time.Before(call.asked.ExpiresAt):
		return fmt.Errorf("it was approved by %+v", said)
	case slices.Contains(call.approvers, p.Person) || p.Person == call.asked.Approval.Requester:
		return fmt.Errorf("%s has approved before, or may not", p.Person)
	}
	call.approvers = append(call.approvers, p.Person)
	if len(call.approvers)+p.Left < call.asked.Approval.People { // more are left if somebody may not approve any more
		return fmt.Errorf("%v have approved, %d are left of %d", call.approvers, p.Left, call.asked.Approval.People)
	}
	o.answers[t.Sequence]++
	return nil
}

// granting records the grant of an answer, which must have been offered.
func (o *observer) granting(t event.Trigger, call *callSeen, said event.Confirmation) error {
	if t.Cause == subject.Confirmation {
		o.answers[t.Sequence]++
	}
	g := call.confirmed.Always
	switch {
	case g == nil && (said.Always == nil || said.ConfirmationID == ""):
		return nil
	case g == nil && len(call.approvers) > 0: // not all chose it
		return nil
	case g == nil || said.Always == nil || !sameGrant(*g, *said.Always):
		return fmt.Errorf("granted was %+v, said %+v", g, said.Always)
	case call.confirmed.Outcome != event.Approved ||
		!slices.ContainsFunc(call.asked.Always, func(x event.Grant) bool { return sameGrant(*g, x) }):
		return fmt.Errorf("granted was %+v, offered %+v", g, call.asked.Always)
	}
	o.grants = append(o.grants, *g)
	return nil
}

// asAudited checks that an assigned call was judged in the same form, and passed.
func (o *observer) asAudited(c *callSeen, now time.Time, p event.ActRequested) error {
	a := c.audited
	switch {
	case a == nil || c.barred || a.Hash != p.Hash || a.Effect == decide.Deny ||
		(a.Effect == decide.Ask) != (c.asked != nil && c.asked.Hash == p.Hash):
		return fmt.Errorf("it was judged as %+v", a)
	case c.granted() && !o.coversLiterally(*a.Grant, p.Tool, p.Args, p.Hash):
		return fmt.Errorf("%s is no case of the grant %+v", p.Args, a.Grant)
	}
	if must := a.Obligations; must != nil && must.MaxDurationMS > 0 &&
		p.NotAfter.After(now.Add(time.Duration(must.MaxDurationMS)*time.Millisecond)) {
		return fmt.Errorf("it may run until %s, more than %d ms", p.NotAfter, must.MaxDurationMS)
	}
	return nil
}

// obliged checks that a call that ran met its obligations.
func (c *callSeen) obliged(p event.ActCompleted) error {
	if c.audited == nil || c.audited.Obligations == nil || len(c.requests) == 0 {
		return nil
	}
	o := c.audited.Obligations
	if o.MaxResultBytes > 0 && len(p.Result.Data) > o.MaxResultBytes {
		return fmt.Errorf("a result of %d bytes, more than %d", len(p.Result.Data), o.MaxResultBytes)
	}
	if !strings.Contains(p.Note, o.Note) {
		return fmt.Errorf("the note for the model is %q, not %q", p.Note, o.Note)
	}
	return nil
}

// answersAreDecided checks that every answer in an existing session is decided once.
func (o *observer) answersAreDecided(poisoned map[uint64]bool) error {
	for seq, c := range o.causes {
		want := 1
		if c.Kind != subject.Confirmation || poisoned[seq] || seq < o.first || o.first == 0 {
			want = 0
		}
		if o.answers[seq] != want {
			return fmt.Errorf("cause %d (%s %s) was decided %d times, want %d", seq, c.Kind, c.body, o.answers[seq], want)
		}
	}
	return nil
}

// coversLiterally reports what a grant covers, for the values that the simulation uses.
func (o *observer) coversLiterally(g event.Grant, tool string, args json.RawMessage, hash string) bool {
	var values map[string]any
	is := o.specOf(tool, args, nil, hash)
	if g.Tool != tool || is == nil || g.Spec != is.Digest() || json.Unmarshal(args, &values) != nil {
		return false
	}
	if g.Hash != "" {
		return g.Hash == hash
	}
	for name, pattern := range g.Args {
		v, _ := values[name].(string)
		if dir, wide := strings.CutSuffix(pattern, "*"); wide && !strings.HasPrefix(v, dir) || !wide && v != pattern {
			return false
		}
	}
	return len(g.Args) > 0
}
