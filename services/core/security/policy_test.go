package security_test

import (
	"strings"
	"testing"

	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/core/security"
)

func TestEvaluate(t *testing.T) {
	var (
		read  = tool.Spec{Name: "file_system:read_file"}
		write = tool.Spec{Name: "file_system:write_file", Permissions: []string{"fs.write"}, Risk: tool.RiskMedium}
		mail  = tool.Spec{Name: "mail:send", Permissions: []string{"network.request"}, Risk: tool.RiskHigh}
	)
	rule := func(pattern, permission, principal string, e decide.Effect) security.Rule {
		return security.Rule{Tool: pattern, Permission: permission, Principal: principal, Effect: e}
	}
	for _, c := range []struct {
		name  string
		rules []security.Rule
		spec  tool.Spec
		by    subject.Writer
		want  decide.Effect
	}{
		{"no rule, low risk", nil, read, "web", decide.Allow},
		{"no rule, medium risk", nil, write, "web", decide.Allow},
		{"no rule, high risk: a person is asked", nil, mail, "web", decide.Ask},
		{"a rule for every tool", []security.Rule{rule("", "", "", decide.Deny)}, read, "web", decide.Deny},
		{"a star is every tool, also with a colon", []security.Rule{rule("*", "", "", decide.Deny)}, read, "web", decide.Deny},
		{"by name", []security.Rule{rule("mail:send", "", "", decide.Deny)}, mail, "web", decide.Deny},
		{"by another's name", []security.Rule{rule("mail:send", "", "", decide.Deny)}, read, "web", decide.Allow},
		{"by prefix", []security.Rule{rule("file_system:*", "", "", decide.Ask)}, write, "web", decide.Ask},
		{"a name is matched as a whole", []security.Rule{rule("file_system", "", "", decide.Deny)}, read, "web", decide.Allow},
		{"case matters", []security.Rule{rule("Mail:*", "", "", decide.Deny)}, mail, "web", decide.Ask},
		{"a class of characters", []security.Rule{rule("[a-m]*:send", "", "", decide.Deny)}, mail, "web", decide.Deny},
		{"a star stands for slashes too", []security.Rule{rule("mcp:*", "", "", decide.Deny)}, tool.Spec{Name: "mcp:files/delete"}, "web", decide.Deny},
		{"any tool, with a slash too", []security.Rule{rule("*", "", "", decide.Deny)}, tool.Spec{Name: "files/delete"}, "web", decide.Deny},
		{"a slash is itself", []security.Rule{rule("mcp:files/*", "", "", decide.Deny)}, tool.Spec{Name: "mcp:files/a/b"}, "web", decide.Deny},
		{"by permission", []security.Rule{rule("", "fs.write", "", decide.Ask)}, write, "web", decide.Ask},
		{"by a permission it does not declare", []security.Rule{rule("", "fs.write", "", decide.Ask)}, read, "web", decide.Allow},
		{"by principal", []security.Rule{rule("", "", "cron", decide.Deny)}, read, "cron", decide.Deny},
		{"by a pattern on the principal", []security.Rule{rule("", "", "mqtt-*", decide.Deny)}, read, "mqtt-7", decide.Deny},
		{"by another principal", []security.Rule{rule("", "", "cron", decide.Deny)}, read, "web", decide.Allow},
		{"every condition must hold", []security.Rule{rule("mail:*", "network.request", "cron", decide.Deny)}, mail, "web", decide.Ask},
		{"the last match wins", []security.Rule{rule("", "", "", decide.Deny), rule("file_system:read_*", "", "", decide.Allow)}, read, "web", decide.Allow},
		{"the last match wins, the other way round", []security.Rule{rule("file_system:read_*", "", "", decide.Allow), rule("", "", "", decide.Deny)}, read, "web", decide.Deny},
		{"a rule that does not match decides nothing", []security.Rule{rule("", "", "", decide.Deny), rule("x", "", "", decide.Allow)}, read, "web", decide.Deny},
		{"a rule may trust a risky tool", []security.Rule{rule("mail:send", "", "cli", decide.Allow)}, mail, "cli", decide.Allow},
		{"for others the risk still decides", []security.Rule{rule("mail:send", "", "cli", decide.Allow)}, mail, "web", decide.Ask},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := security.New(c.rules)
			if err != nil {
				t.Fatal(err)
			}
			r := p.Evaluate(decide.Access{Principal: c.by, Action: "tool.call", Resource: c.spec})
			if r.Effect != c.want {
				t.Fatalf("%s, want %s", r.Effect, c.want)
			}
			if (r.Reason == "") != (r.Effect == decide.Allow) {
				t.Errorf("reason %q", r.Reason)
			}
			if (r.Warning != nil) != (r.Effect == decide.Ask) {
				t.Errorf("warning %+v", r.Warning)
			}
		})
	}
}

func TestWhatIsSaidToThePerson(t *testing.T) {
	p, err := security.New([]security.Rule{
		{Tool: "a", Effect: decide.Ask, Reason: "it costs money"}, {Tool: "b", Effect: decide.Ask}, {Tool: "c", Effect: decide.Deny, Reason: "never"}, {Tool: "d", Effect: decide.Deny},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		spec   tool.Spec
		reason string
		level  hook.Level
	}{
		{tool.Spec{Name: "a"}, "it costs money", hook.LevelWarn},
		{tool.Spec{Name: "a", Risk: tool.RiskHigh}, "it costs money", hook.LevelCritical},
		{tool.Spec{Name: "b", Risk: tool.RiskHigh}, "b is irreversible or leaves this machine", hook.LevelCritical},
		{tool.Spec{Name: "b"}, "policy asks for approval of b", hook.LevelWarn},
		{tool.Spec{Name: "c"}, "never", ""},
		{tool.Spec{Name: "d"}, "policy denies d", ""},
	} {
		r := p.Evaluate(decide.Access{Resource: c.spec})
		if r.Reason != c.reason {
			t.Errorf("%s: reason %q, want %q", c.spec.Name, r.Reason, c.reason)
		}
		if c.level != "" && (r.Warning == nil || r.Warning.Level != c.level || r.Warning.Message != c.reason) {
			t.Errorf("%s: warning %+v", c.spec.Name, r.Warning)
		}
	}
}

func TestRulesThatAreRefused(t *testing.T) {
	sound := security.Rule{Effect: decide.Allow}
	for _, c := range []struct {
		name string
		rule security.Rule
		want []string
	}{
		{"no effect", security.Rule{}, []string{"rule 1", "effect", "allow, deny or confirm"}},
		{"an unknown effect", security.Rule{Effect: "permit"}, []string{"rule 1", `"permit"`}},
		{"a tool that is no pattern", security.Rule{Tool: "[a", Effect: decide.Deny}, []string{"rule 1", "tool", `"[a"`}},
		{"a principal that is no pattern", security.Rule{Principal: "x[", Effect: decide.Deny}, []string{"rule 1", "principal", `"x["`}},
		{"a pattern that is broken behind a star", security.Rule{Tool: "abc*[", Effect: decide.Deny}, []string{"tool"}},
		{"a tool that can't be one", security.Rule{Tool: "a/*", Effect: decide.Deny}, nil},
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
}

// The policy is what was checked: changing the slice later changes nothing.
func TestRulesAreCopied(t *testing.T) {
	rules := []security.Rule{{Effect: decide.Deny}}
	p, err := security.New(rules)
	if err != nil {
		t.Fatal(err)
	}
	rules[0].Effect = decide.Allow
	if r := p.Evaluate(decide.Access{Resource: tool.Spec{Name: "x"}}); r.Effect != decide.Deny {
		t.Fatal("the policy changed")
	}
}

func BenchmarkEvaluate(b *testing.B) {
	var rules []security.Rule
	for range 50 {
		rules = append(rules, security.Rule{Tool: "file_system:*", Permission: "fs.write", Effect: decide.Ask})
	}
	p, err := security.New(rules)
	if err != nil {
		b.Fatal(err)
	}
	a := decide.Access{Principal: "web", Resource: tool.Spec{Name: "file_system:read_file"}}
	b.ReportAllocs()
	for b.Loop() {
		p.Evaluate(a)
	}
}
