package security_test

import (
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/core/security"
	"skandha.dev/services/internal/people"
)

var crew = people.Config{"ann": {Groups: []string{"ops"}}, "bob": {Groups: []string{"ops"}}, "cid": {}}

func TestWhatIsWrongWithRulesOfApprovals(t *testing.T) {
	who, err := people.New(crew)
	if err != nil {
		t.Fatal(err)
	}
	until := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for want, c := range map[string]security.ApprovalsConfig{
		`approvals.rules[0].by[1] is "opps", want the name of a person in people, or of a group`: {
			Rules: []security.ApprovalRule{{By: []string{"ops", "opps"}}},
		},
		`approvals.rules[0].people is 3, but only 2 may approve`: {
			Rules: []security.ApprovalRule{{By: []string{"ops"}, People: 3}},
		},
		`approvals.rules[0].people is -1, want 1 to 10`:   {Rules: []security.ApprovalRule{{People: -1}}},
		`approvals.rules[0].tool "[" is not a valid`:      {Rules: []security.ApprovalRule{{Tool: "["}}},
		`approvals.rules[0].risk is "huge"`:               {Rules: []security.ApprovalRule{{Risk: "huge"}}},
		`approvals.rules[0].expires is 1s, want 10s to`:   {Rules: []security.ApprovalRule{{Expires: time.Second}}},
		`approvals.delegations[0].to is "eve", want the`:  {Delegations: []security.Delegation{{From: "ann", To: "eve", Until: until}}},
		`approvals.delegations[0].to is "ann", the same`:  {Delegations: []security.Delegation{{From: "ann", To: "ann", Until: until}}},
		`approvals.delegations[0].until is missing, want`: {Delegations: []security.Delegation{{From: "ann", To: "bob"}}},
	} {
		if _, err := security.NewApprovals(c, who); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestTheLastRuleOfApprovalsThatMatchesCounts(t *testing.T) {
	who, err := people.New(crew)
	if err != nil {
		t.Fatal(err)
	}
	rules, err := security.NewApprovals(security.ApprovalsConfig{Rules: []security.ApprovalRule{
		{Risk: tool.RiskHigh, People: 2},
		{Tool: "mail:*", By: []string{"cid"}, Expires: time.Hour},
		{Tool: "mail:*", Agent: "ops", Passkey: true},
	}}, who)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		agent subject.Agent
		spec  tool.Spec
		want  string
	}{
		{"main", tool.Spec{Name: "read"}, ""},
		{"main", tool.Spec{Name: "rm", Risk: tool.RiskHigh}, "approvals.rules[0]"},
		{"main", tool.Spec{Name: "Mail:Send", Risk: tool.RiskHigh}, "approvals.rules[1]"},
		{"ops", tool.Spec{Name: "mail:send"}, "approvals.rules[2]"},
	} {
		got := ""
		d, _ := rules.Demand(decide.Access{Resource: c.spec, Context: decide.Context{Ref: subject.Ref{Agent: c.agent}}})
		if d != nil {
			got = d.Rule
		}
		if got != c.want {
			t.Errorf("%s by %s: %q, want %q", c.spec.Name, c.agent, got, c.want)
		}
	}
}
