package event

import (
	"fmt"
	"strings"

	"skandha.dev/pkg/subject"
)

// Approval is what the configuration demands of the answers to a confirmation request.
type Approval struct {
	Rule string `json:"rule"` // which rule demands it, such as "approvals.rules[2]"
	// By lists the people and groups of the configuration who may answer; empty: every person that
	// it names.
	By     []string `json:"by,omitempty"`
	People int      `json:"people"` // how many different people must approve
	// Requester is the person who may not approve, because the call is for an input of theirs.
	Requester string `json:"requester,omitempty"`
	Passkey   bool   `json:"passkey,omitempty"` // each approval needs a passkey
}

// Needs says in words what an approval takes, such as "2 people of ops must approve it".
func (a Approval) Needs() string {
	who := "a person"
	if a.People > 1 {
		who = fmt.Sprintf("%d people", a.People)
	}
	if len(a.By) > 0 {
		who += " of " + strings.Join(a.By, ", ")
	}
	if a.Requester != "" {
		who += ", but not " + a.Requester + ","
	}
	if a.Passkey {
		return who + " must approve it on the page, with a passkey"
	}
	return who + " must approve it"
}

// ActApproved reports that a person approved a call that needs the approval of more people. The
// request still waits; [ActConfirmed] ends it.
type ActApproved struct {
	Call    string         `json:"call"` // the confirmation id
	Hash    string         `json:"hash"`
	By      subject.Writer `json:"by"`
	From    string         `json:"from,omitempty"`
	Person  string         `json:"person"`
	For     string         `json:"for,omitempty"` // who delegated the approval to them
	Passkey bool           `json:"passkey,omitempty"`
	Reason  string         `json:"reason,omitempty"`
	Source  string         `json:"source,omitempty"`
	Always  *Grant         `json:"always,omitempty"` // granted only if all others choose it, too
	Left    int            `json:"left"`             // how many more people must approve
}

// EventType implements Payload.
func (ActApproved) EventType() Type { return TypeActApproved }
