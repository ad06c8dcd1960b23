package security_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/core/security"
)

func TestRulesThatAreRefused(t *testing.T) {
	sound := security.Rule{Effect: decide.Allow}
	bound := func(o security.Obligations) security.Rule {
		return security.Rule{Effect: decide.Allow, Obligations: &o}
	}
	for _, c := range []struct {
		name string
		rule security.Rule
		want []string
	}{
		{"no effect", security.Rule{}, []string{"policy[1].effect", "allow, deny or confirm"}},
		{"an unknown effect", security.Rule{Effect: "permit"}, []string{"policy[1].effect", `"permit"`}},
		{"a tool that is no pattern", security.Rule{Tool: "[a", Effect: decide.Deny}, []string{"policy[1].tool", `"[a"`}},
		{
			"a principal that is no pattern",
			security.Rule{Principal: "x[", Effect: decide.Deny},
			[]string{"policy[1].principal", `"x["`},
		},
		{"an agent that is no pattern", security.Rule{Agent: "x[", Effect: decide.Deny}, []string{"policy[1].agent"}},
		{
			"a pattern that is broken behind a star",
			security.Rule{Tool: "abc*[", Effect: decide.Deny},
			[]string{"policy[1].tool"},
		},
		{
			"after a text that is not from outside",
			security.Rule{After: "Untrusted", Effect: decide.Deny},
			[]string{"policy[1].after", `"Untrusted"`, "want untrusted, file, memory, web, or one of chat, email, listener"},
		},
		{"after a misspelt label", security.Rule{After: "webb", Effect: decide.Deny}, []string{"policy[1].after", `"webb"`}},
		{"after a label in capitals", security.Rule{After: "Email:*", Effect: decide.Deny}, []string{"policy[1].after"}},
		{"after a misspelt kind", security.Rule{After: "emial:*", Effect: decide.Deny}, []string{"policy[1].after"}},
		{"after a bare kind", security.Rule{After: "email", Effect: decide.Deny}, []string{"policy[1].after", "email:*"}},
		{"after a bare server", security.Rule{After: "mcp", Effect: decide.Deny}, []string{"policy[1].after", "mcp:*"}},
		{"after a misspelt sensor", security.Rule{After: "senser:*", Effect: decide.Deny}, []string{"policy[1].after"}},
		{"after a mail", security.Rule{After: "email:*@example.org", Effect: decide.Deny}, nil},
		{"after the web", security.Rule{After: "web", Effect: decide.Deny}, nil},
		{"after any text by pattern", security.Rule{After: "*web*", Effect: decide.Deny}, nil},
		{"after an origin that a plugin has invented", security.Rule{After: "rss:*", Effect: decide.Deny}, nil},
		{"deliveries", security.Rule{Tool: "Deliver:*", Effect: decide.Deny}, []string{"policy[1].tool", "not subject to policy"}},
		{"a tool that can't be one", security.Rule{Tool: "a/*", Effect: decide.Deny}, nil},
		{
			"an unknown action",
			security.Rule{Action: "tool.look", Effect: decide.Deny},
			[]string{"policy[1].action", `"tool.look"`, "tool.call or confirmation"},
		},
		{
			"an answer that a person is asked about",
			security.Rule{Action: event.ActionConfirmation, Effect: decide.Ask},
			[]string{"policy[1].effect", "allow or deny"},
		},
		{
			"an answer with obligations",
			security.Rule{
				Action: event.ActionConfirmation, Effect: decide.Allow, Obligations: &security.Obligations{Note: ptr("x")},
			},
			[]string{"policy[1].obligations"},
		},
		{
			"a plan itself, of which only the steps are judged",
			security.Rule{Tool: "plan:execute", Effect: decide.Deny},
			[]string{"policy[1].tool", "agents.NAME.tools"},
		},
		{
			"a host that anybody can have",
			security.Rule{Args: map[string]string{"url": "https://docs.example.com*"}, Effect: decide.Allow},
			[]string{"policy[1].args.url", "*.example.com"},
		},
		{
			"a host that begins with anything",
			security.Rule{Args: map[string]string{"url": "https://*example.com/*"}, Effect: decide.Allow},
			[]string{"policy[1].args.url"},
		},
		{
			"such a host, to deny it", security.Rule{Args: map[string]string{"url": "https://*evil*"}, Effect: decide.Deny}, nil,
		},
		{
			"hosts below a domain",
			security.Rule{Args: map[string]string{"url": "https://*.example.com:8443/*"}, Effect: decide.Allow},
			nil,
		},
		{
			"any port of a host",
			security.Rule{Args: map[string]string{"url": "http://localhost:*/*"}, Effect: decide.Allow},
			nil,
		},
		{"any host", security.Rule{Args: map[string]string{"url": "https://*/*"}, Effect: decide.Allow}, nil},
		{
			"an unknown risk",
			security.Rule{Risk: "huge", Effect: decide.Deny},
			[]string{"policy[1].risk", `"huge"`, "low, medium or high"},
		},
		{
			"an argument that is no pattern",
			security.Rule{Args: map[string]string{"url": "[a"}, Effect: decide.Deny},
			[]string{"policy[1].args.url"},
		},
		{
			"an argument without a pattern",
			security.Rule{Args: map[string]string{"url": ""}, Effect: decide.Deny},
			[]string{"policy[1].args.url", "use *"},
		},
		{
			"an argument without a name",
			security.Rule{Args: map[string]string{"": "x"}, Effect: decide.Deny},
			[]string{"policy[1].args."},
		},
		{
			"too long a reason",
			security.Rule{Reason: strings.Repeat("x", 501), Effect: decide.Deny},
			[]string{"policy[1].reason", "501"},
		},
		{
			"no time at all", bound(security.Obligations{MaxDuration: ptr(time.Duration(0))}),
			[]string{"policy[1].obligations.max_duration", "1s to 2h"},
		},
		{
			"a time that goes back", bound(security.Obligations{MaxDuration: ptr(-time.Minute)}),
			[]string{"policy[1].obligations.max_duration", "-1m0s"},
		},
		{
			"more time than a call ever has", bound(security.Obligations{MaxDuration: ptr(3 * time.Hour)}),
			[]string{"policy[1].obligations.max_duration"},
		},
		{
			"no result at all", bound(security.Obligations{MaxResultBytes: ptr(0)}),
			[]string{"policy[1].obligations.max_result_bytes", "256 to"},
		},
		{
			"less than nothing", bound(security.Obligations{MaxResultBytes: ptr(-1)}),
			[]string{"policy[1].obligations.max_result_bytes"},
		},
		{"an empty note", bound(security.Obligations{Note: ptr(" ")}), []string{"policy[1].obligations.note"}},
		{
			"too long a note", bound(security.Obligations{Note: ptr(strings.Repeat("x", 501))}),
			[]string{"policy[1].obligations.note", "501"},
		},
		{
			"obligations of what does not run",
			security.Rule{Effect: decide.Deny, Obligations: &security.Obligations{Note: ptr("x")}},
			[]string{"policy[1].obligations", "deny"},
		},
		{
			"sound obligations",
			bound(security.Obligations{MaxDuration: ptr(time.Second), MaxResultBytes: ptr(256), Note: ptr("x")}), nil,
		},
		{"no obligations", bound(security.Obligations{}), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := security.New([]security.Rule{sound, c.rule})
			if (err == nil) != (c.want == nil) {
				t.Fatal(err)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v does not say %s", err, want)
				}
			}
		})
	}
	_, err := security.New([]security.Rule{{}, sound, {Tool: "[", Effect: "x"}})
	if n := strings.Count(fmt.Sprint(err), "policy["); n != 3 {
		t.Errorf("got %d of 3 faults: %v", n, err)
	}
}
