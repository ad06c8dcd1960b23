package security_test

import (
	"encoding/json"
	"testing"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/core/security"
)

// What a tool reads may be part of an answer to a stranger, and the names of packages leave.
func TestWhatLeavesByTheAnswerOrByNames(t *testing.T) {
	p, err := security.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	reads := tool.Spec{Name: "file_system:read_file", Permissions: []string{"fs.read"}}
	skill := tool.Spec{Name: "skills:load", Permissions: []string{"fs.read"}}
	own := tool.Spec{Name: "sandbox_fs:read", Permissions: []string{"fs.read"}, Sticky: true}
	python := tool.Spec{Name: "python:execute", Permissions: []string{"code.execute"}}
	const mail = "email:a@example.org"
	for _, c := range []struct {
		name     string
		spec     tool.Spec
		stranger string
		after    []string
		args     string
		want     decide.Effect
	}{
		{"a file for a user", reads, "", []string{mail}, `{}`, decide.Allow},
		{"a file for a stranger", reads, mail, []string{mail}, `{}`, decide.Ask},
		{"a skill for a stranger", skill, mail, []string{mail}, `{}`, decide.Allow},
		{"a file of the session's sandbox", own, mail, []string{mail}, `{}`, decide.Allow},
		{"packages for a user", python, "", nil, `{"dependencies":["numpy"]}`, decide.Allow},
		{"no packages after a mail", python, "", []string{mail}, `{"dependencies":[],"requirements":[]}`, decide.Allow},
		{"packages after a mail", python, "", []string{mail}, `{"dependencies":["numpy"]}`, decide.Ask},
		{"requirements after a mail", python, "", []string{mail}, `{"requirements":["numpy"]}`, decide.Ask},
		{"packages that cannot be read", python, "", []string{mail}, `{"dependencies":"numpy"}`, decide.Ask},
	} {
		r := p.Evaluate(decide.Access{Action: event.ActionCall, Resource: c.spec, Granted: [][]string{security.DefaultPermissions()}, Context: decide.Context{
			Stranger: c.stranger, After: c.after, Args: json.RawMessage(c.args),
		}})
		if r.Effect != c.want {
			t.Errorf("%s: %+v, want %s", c.name, r, c.want)
		}
	}
	p, err = security.New([]security.Rule{{Tool: "file_system:read_file", Principal: "mail/a@example.org", Effect: decide.Allow}})
	if err != nil {
		t.Fatal(err)
	}
	r := p.Evaluate(decide.Access{
		Principal: "mail", From: "a@example.org", Action: event.ActionCall, Resource: reads, Granted: [][]string{{"fs.read"}},
		Context: decide.Context{Stranger: mail},
	})
	if r.Effect != decide.Allow {
		t.Errorf("a rule that allows it: %+v", r)
	}
}
