package security_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/core/security"
)

// An agent that lacks a required guide may not call anything, regardless of the rules.
func TestAnUnguidedAgentCallsNothing(t *testing.T) {
	p, err := security.New([]security.Rule{{Effect: decide.Allow}})
	if err != nil {
		t.Fatal(err)
	}
	a := decide.Access{Action: event.ActionCall, Resource: tool.Spec{Name: "a:b"}, Unguided: "guide kind is missing"}
	if r := p.Evaluate(a); r.Effect != decide.Deny || r.Reason != a.Unguided {
		t.Errorf("got %+v", r)
	}
}

func TestEvaluate(t *testing.T) {
	var (
		read  = tool.Spec{Name: "file_system:read_file"}
		write = tool.Spec{Name: "file_system:write_file", Permissions: []string{"fs.write"}, Risk: tool.RiskMedium}
		mail  = tool.Spec{Name: "mail:send", Permissions: []string{"network.request"}, Risk: tool.RiskHigh}
	)
	leaves := tool.Spec{Name: "chat:post", Permissions: []string{"fs.read", "network.connect"}, Risk: tool.RiskLow}
	deletes := tool.Spec{Name: "bin:empty", Permissions: []string{"fs.delete"}}
	schedules := tool.Spec{Name: "cal:plan", Permissions: []string{"schedule.create"}}
	cancels := tool.Spec{Name: "cal:cancel", Permissions: []string{"schedule.delete"}}
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
		{"no rule, low risk that leaves the machine: a person is asked", nil, leaves, "web", decide.Ask},
		{"no rule, low risk that deletes: a person is asked", nil, deletes, "web", decide.Ask},
		{"no rule, low risk that acts later: a person is asked", nil, schedules, "web", decide.Ask},
		{"no rule, low risk that cancels: nobody is asked", nil, cancels, "web", decide.Allow},
		{
			"to allow, a permission has to be all that the tool needs",
			[]security.Rule{rule("", "network.connect", "", decide.Allow)},
			leaves, "web", decide.Ask,
		},
		{
			"a rule may trust what leaves the machine",
			[]security.Rule{rule("", "network.connect fs.read", "", decide.Allow)},
			leaves, "web", decide.Allow,
		},
		{"also by groups", []security.Rule{rule("", "network.* fs.*", "", decide.Allow)}, leaves, "web", decide.Allow},
		{
			"a rule that allows by permission is about no tool that needs none",
			[]security.Rule{rule("", "", "", decide.Deny), rule("", "*", "", decide.Allow)},
			read, "web", decide.Deny,
		},
		{
			"to deny, one permission is enough",
			[]security.Rule{rule("", "network.connect", "", decide.Deny)},
			leaves, "web",
			decide.Deny,
		},
		{
			"to deny, one of a group is enough",
			[]security.Rule{rule("", "network.*", "", decide.Deny)},
			leaves, "web",
			decide.Deny,
		},
		{
			"what is not granted is denied", nil,
			tool.Spec{Name: "robot:arm", Permissions: []string{"robot.move"}},
			"web",
			decide.Deny,
		},
		{
			"whatever a rule says",
			[]security.Rule{rule("", "", "", decide.Allow)},
			tool.Spec{Name: "robot:arm", Permissions: []string{"fs.read", "robot.move"}},
			"web", decide.Deny,
		},
		{
			"a rule about answers is none about calls",
			[]security.Rule{{Action: event.ActionConfirmation, Effect: decide.Deny}},
			read, "web", decide.Allow,
		},
		{
			"a rule about calls may say so",
			[]security.Rule{{Action: event.ActionCall, Effect: decide.Deny}},
			read, "web",
			decide.Deny,
		},
		{"a rule for every tool", []security.Rule{rule("", "", "", decide.Deny)}, read, "web", decide.Deny},
		{
			"a star is every tool, also with a colon", []security.Rule{rule("*", "", "", decide.Deny)}, read, "web", decide.Deny,
		},
		{"by name", []security.Rule{rule("mail:send", "", "", decide.Deny)}, mail, "web", decide.Deny},
		{"by another's name", []security.Rule{rule("mail:send", "", "", decide.Deny)}, read, "web", decide.Allow},
		{"by prefix", []security.Rule{rule("file_system:*", "", "", decide.Ask)}, write, "web", decide.Ask},
		{
			"a name is matched as a whole", []security.Rule{rule("file_system", "", "", decide.Deny)}, read, "web", decide.Allow,
		},
		{"case matters to allow", []security.Rule{rule("Mail:*", "", "", decide.Allow)}, mail, "web", decide.Ask},
		{"case does not matter to deny", []security.Rule{rule("Mail:*", "", "", decide.Deny)}, mail, "web", decide.Deny},
		{
			"a name in other letters is not beyond a rule",
			[]security.Rule{rule("mail:send", "", "", decide.Deny)},
			tool.Spec{Name: "MAIL:Send"},
			"web", decide.Deny,
		},
		{"a class of characters", []security.Rule{rule("[a-m]*:send", "", "", decide.Deny)}, mail, "web", decide.Deny},
		{
			"a star matches slashes, too",
			[]security.Rule{rule("mcp:*", "", "", decide.Deny)},
			tool.Spec{Name: "mcp:files/delete"},
			"web", decide.Deny,
		},
		{
			"any tool, with a slash too",
			[]security.Rule{rule("*", "", "", decide.Deny)},
			tool.Spec{Name: "files/delete"},
			"web", decide.Deny,
		},
		{
			"a slash is itself",
			[]security.Rule{rule("mcp:files/*", "", "", decide.Deny)},
			tool.Spec{Name: "mcp:files/a/b"},
			"web", decide.Deny,
		},
		{"by permission", []security.Rule{rule("", "fs.write", "", decide.Ask)}, write, "web", decide.Ask},
		{
			"by a permission it does not declare",
			[]security.Rule{rule("", "fs.write", "", decide.Ask)},
			read, "web",
			decide.Allow,
		},
		{"by principal", []security.Rule{rule("", "", "cron", decide.Deny)}, read, "cron", decide.Deny},
		{"by a pattern on the principal", []security.Rule{rule("", "", "mqtt-*", decide.Deny)}, read, "mqtt-7", decide.Deny},
		{"by another principal", []security.Rule{rule("", "", "cron", decide.Deny)}, read, "web", decide.Allow},
		{
			"every condition must hold",
			[]security.Rule{rule("mail:*", "network.request", "cron", decide.Deny)},
			mail, "web",
			decide.Ask,
		},
		{
			"the last match wins",
			[]security.Rule{rule("", "", "", decide.Deny), rule("file_system:read_*", "", "", decide.Allow)},
			read, "web",
			decide.Allow,
		},
		{
			"the last match wins, the other way round",
			[]security.Rule{rule("file_system:read_*", "", "", decide.Allow), rule("", "", "", decide.Deny)},
			read, "web",
			decide.Deny,
		},
		{
			"a rule that does not match decides nothing",
			[]security.Rule{rule("", "", "", decide.Deny), rule("x", "", "", decide.Allow)},
			read, "web", decide.Deny,
		},
		{
			"a rule may trust a risky tool",
			[]security.Rule{rule("mail:send", "", "cli", decide.Allow)},
			mail, "cli",
			decide.Allow,
		},
		{
			"for others the risk still decides",
			[]security.Rule{rule("mail:send", "", "cli", decide.Allow)},
			mail, "web",
			decide.Ask,
		},
		{"by risk", []security.Rule{{Risk: tool.RiskMedium, Effect: decide.Deny}}, write, "web", decide.Deny},
		{"by another risk", []security.Rule{{Risk: tool.RiskMedium, Effect: decide.Deny}}, mail, "web", decide.Ask},
		{"no declared risk is low", []security.Rule{{Risk: tool.RiskLow, Effect: decide.Deny}}, read, "web", decide.Deny},
		{"by idempotence", []security.Rule{{Idempotent: ptr(false), Effect: decide.Ask}}, write, "web", decide.Ask},
		{"by the other", []security.Rule{{Idempotent: ptr(true), Effect: decide.Ask}}, write, "web", decide.Allow},
		{"by agent", []security.Rule{{Agent: "ma*", Effect: decide.Deny}}, read, "web", decide.Deny},
		{"by another agent", []security.Rule{{Agent: "x*", Effect: decide.Deny}}, read, "web", decide.Allow},
		{
			"by an argument",
			[]security.Rule{{Args: map[string]string{"path": "a/*"}, Effect: decide.Deny}},
			read, "web",
			decide.Deny,
		},
		{
			"by an argument that is not there",
			[]security.Rule{{Args: map[string]string{"url": "*"}, Effect: decide.Deny}},
			read, "web", decide.Allow,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := security.New(c.rules)
			if err != nil {
				t.Fatal(err)
			}
			r := p.Evaluate(decide.Access{
				Principal: c.by, Action: event.ActionCall, Resource: c.spec, Granted: [][]string{security.DefaultPermissions()},
				Context: decide.Context{Ref: subject.Ref{Agent: "main", Session: "s"}, Args: json.RawMessage(`{"path":"a/b"}`)},
			})
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

func ptr[T any](v T) *T { return &v }

// The warning states what could happen, and which rule asks.
func TestWhatIsSaidToThePerson(t *testing.T) {
	p, err := security.New([]security.Rule{
		{Tool: "a", Effect: decide.Ask, Reason: "it costs money"},
		{Tool: "b", Effect: decide.Ask},
		{Tool: "c", Effect: decide.Deny, Reason: "never"},
		{Tool: "d", Effect: decide.Deny},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		spec   tool.Spec
		rule   string
		reason string
		level  hook.Level
	}{
		{
			tool.Spec{Name: "a"},
			"policy[0]",
			"a does what its arguments say. Rule policy[0] requires approval: it costs money.", hook.LevelWarn,
		},
		{
			tool.Spec{Name: "b", Risk: tool.RiskHigh},
			"policy[1]",
			"b does something that cannot be undone or leaves this machine. Rule policy[1] requires approval.",
			hook.LevelCritical,
		},
		{
			tool.Spec{Name: "b", Permissions: []string{"fs.write", "code.execute"}},
			"policy[1]",
			"b changes files, and runs code that the model wrote. Rule policy[1] requires approval.", hook.LevelWarn,
		},
		{
			tool.Spec{Name: "e", Risk: tool.RiskHigh, Permissions: []string{"network.request"}},
			"risk",
			"e sends data to another machine, which cannot be undone. It is of high risk, and no policy rule overrides this.",
			hook.LevelCritical,
		},
		{
			tool.Spec{Name: "e", Risk: tool.RiskHigh, Permissions: []string{"fs.delete"}},
			"risk",
			"e deletes files, which cannot be undone. It is of high risk, and no policy rule overrides this.",
			hook.LevelCritical,
		},
		{
			tool.Spec{Name: "e", Risk: tool.RiskHigh, Permissions: []string{"robot.move"}},
			"risk",
			"e uses the permission robot.move. It is of high risk, and no policy rule overrides this.", hook.LevelCritical,
		},
		{tool.Spec{Name: "c"}, "policy[2]", "never", ""},
		{tool.Spec{Name: "d"}, "policy[3]", "policy denies d", ""},
		{tool.Spec{Name: "f"}, "default", "", ""},
		{
			tool.Spec{Name: "g", Permissions: []string{"network.request"}},
			"permission",
			"g sends data to another machine, which cannot be undone. It has the permission network.request, " +
				"and no policy rule overrides this.", hook.LevelWarn,
		},
	} {
		r := p.Evaluate(decide.Access{Action: event.ActionCall, Resource: c.spec})
		if r.Reason != c.reason || r.Rule != c.rule {
			t.Errorf("%s: %s because %q, want %s because %q", c.spec.Name, r.Rule, r.Reason, c.rule, c.reason)
		}
		if c.level != "" && (r.Warning == nil || r.Warning.Level != c.level || r.Warning.Message != c.reason) {
			t.Errorf("%s: warning %+v", c.spec.Name, r.Warning)
		}
	}
}

// The same policy decides who may answer a request.
func TestWhoMayAnswer(t *testing.T) {
	rules := []security.Rule{
		{Effect: decide.Deny}, // about calls
		{Action: event.ActionConfirmation, Effect: decide.Deny, Reason: "people approve on the page alone"},
		{Action: event.ActionConfirmation, Principal: "ui*", Effect: decide.Allow},
		{
			Action: event.ActionConfirmation, Principal: "bot", Tool: "mail:*", Args: map[string]string{"to": "me@example.com"},
			Effect: decide.Allow,
		},
		{Action: event.ActionConfirmation, Principal: "ui-guest", Risk: tool.RiskHigh, Effect: decide.Deny},
	}
	for _, c := range []struct {
		name  string
		rules []security.Rule
		by    subject.Writer
		to    string
		want  decide.Ruling
	}{
		{"no rules: any writer", nil, "web", "x", decide.Ruling{Effect: decide.Allow, Rule: "default"}},
		{"rules about calls do not apply", rules[:1], "web", "x", decide.Ruling{Effect: decide.Allow, Rule: "default"}},
		{
			"nobody else", rules, "mqtt", "x",
			decide.Ruling{Effect: decide.Deny, Rule: "policy[1]", Reason: "people approve on the page alone"},
		},
		{"the page", rules, "ui-1", "x", decide.Ruling{Effect: decide.Allow, Rule: "policy[2]"}},
		{"a bot, for what it knows", rules, "bot", "me@example.com", decide.Ruling{Effect: decide.Allow, Rule: "policy[3]"}},
		{
			"a bot, for anything else", rules, "bot", "x",
			decide.Ruling{Effect: decide.Deny, Rule: "policy[1]", Reason: "people approve on the page alone"},
		},
		{
			"a guest, for what is risky", rules, "ui-guest", "x",
			decide.Ruling{
				Effect: decide.Deny, Rule: "policy[4]", Reason: "policy does not allow ui-guest to answer for mail:send",
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := security.New(c.rules)
			if err != nil {
				t.Fatal(err)
			}
			got := p.Evaluate(decide.Access{
				Principal: c.by, Action: event.ActionConfirmation, Resource: tool.Spec{Name: "mail:send", Risk: tool.RiskHigh},
				Context: decide.Context{Args: json.RawMessage(object(t, "to", c.to))},
			})
			if got != c.want {
				t.Fatalf("%+v, want %+v", got, c.want)
			}
		})
	}
	p, _ := security.New(nil)
	if r := p.Evaluate(decide.Access{Action: "tool.look"}); r.Effect != decide.Deny ||
		!strings.Contains(r.Reason, `"tool.look"`) {
		t.Errorf("an unknown action: %+v", r)
	}
}

func TestObligationsOfTheRuleThatDecides(t *testing.T) {
	p, err := security.New([]security.Rule{
		{Effect: decide.Allow, Obligations: &security.Obligations{Note: ptr("of all")}},
		{
			Tool: "a", Effect: decide.Ask,
			Obligations: &security.Obligations{MaxDuration: ptr(2 * time.Second), MaxResultBytes: ptr(1000)},
		},
		{Tool: "b", Effect: decide.Allow},
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]*event.Obligations{
		"a": {MaxDurationMS: 2000, MaxResultBytes: 1000}, "b": nil, "c": {Note: "of all"},
	} {
		got := p.Evaluate(decide.Access{Action: event.ActionCall, Resource: tool.Spec{Name: name}}).Obligations
		if (got == nil) != (want == nil) || got != nil && *got != *want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}

// The policy keeps the checked rules: changing the slice later has no effect.
func TestRulesAreCopied(t *testing.T) {
	rules := []security.Rule{{Effect: decide.Deny, Args: map[string]string{"path": "a"}, Idempotent: ptr(false)}}
	p, err := security.New(rules)
	if err != nil {
		t.Fatal(err)
	}
	rules[0].Effect, rules[0].Args["path"], *rules[0].Idempotent = decide.Allow, "b", true
	x := decide.Access{
		Action: event.ActionCall, Resource: tool.Spec{Name: "x"},
		Context: decide.Context{Args: json.RawMessage(`{"path":"a"}`)},
	}
	if r := p.Evaluate(x); r.Effect != decide.Deny {
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
	a := decide.Access{Principal: "web", Action: event.ActionCall, Resource: tool.Spec{Name: "file_system:read_file"}}
	b.ReportAllocs()
	for b.Loop() {
		p.Evaluate(a)
	}
}

// A tool needs all of its permissions, from the agent and from every guide that lists
// permissions.
func TestPermissionsAreGranted(t *testing.T) {
	p, err := security.New([]security.Rule{{Effect: decide.Allow}})
	if err != nil {
		t.Fatal(err)
	}
	needs := []string{"fs.read", "mail.send"}
	for _, c := range []struct {
		granted [][]string
		want    decide.Effect
	}{
		{[][]string{{"fs.read", "mail.send"}}, decide.Allow},
		{[][]string{{"fs.*", "mail.*"}}, decide.Allow},
		{[][]string{{"*"}}, decide.Allow},
		{[][]string{{"fs.read"}}, decide.Deny},
		{[][]string{{}}, decide.Deny},
		{[][]string{{"fs.*", "mail.sen", "mail.send.all", "*.send"}}, decide.Deny},
		{[][]string{{"*"}, {"fs.*"}}, decide.Deny},
		{[][]string{{"*"}, {"fs.read", "mail.send", "more"}}, decide.Allow},
	} {
		r := p.Evaluate(decide.Access{
			Action: event.ActionCall, Resource: tool.Spec{Name: "mail:send", Permissions: needs}, Granted: c.granted,
			Context: decide.Context{Ref: subject.Ref{Agent: "main"}},
		})
		if r.Effect != c.want || c.want == decide.Deny && !strings.Contains(r.Reason, "agents.main.permissions") {
			t.Errorf("%q: %+v, want %s", c.granted, r, c.want)
		}
	}
}

// A rule without a slash is about all that the listener sends; with one, about a person.
func TestPrincipalsAreListenersAndPeople(t *testing.T) {
	for _, c := range []struct {
		pattern, from string
		matches       bool
	}{
		{"irc", "", true},
		{"irc", "alice", true},
		{"irc/alice", "alice", true},
		{"irc/alice", "bob", false},
		{"irc/alice", "", false},
		{"irc/*", "bob", true},
		{"*/alice", "alice", true},
		{"mail", "alice", false},
	} {
		p, err := security.New([]security.Rule{
			{Effect: decide.Allow}, {Principal: c.pattern, Effect: decide.Deny},
		})
		if err != nil {
			t.Fatal(err)
		}
		r := p.Evaluate(decide.Access{
			Principal: "irc", From: c.from, Action: event.ActionCall, Resource: tool.Spec{Name: "read"},
		})
		if (r.Effect == decide.Deny) != c.matches {
			t.Errorf("pattern %s, from %q: %+v", c.pattern, c.from, r)
		}
	}
}
