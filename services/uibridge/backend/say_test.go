package backend_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/uibridge/contract"
	"skandha.dev/services/uibridge/hub"
)

// Rights are checked before everything else, and each call needs its own.
func TestRights(t *testing.T) {
	r := start(t, hub.Config{})
	ref := session("rights")
	f := r.attach(contract.Attachment{Ref: ref})
	r.say(ref, "hello") // an answer needs a session with a history
	f.await(contract.OnTurnEnd, 1)
	calls := map[contract.Right][]func(p contract.Principal) error{
		contract.See: {func(p contract.Principal) error {
			f, err := r.Attach(natstest.Context(t), p, contract.Attachment{Ref: ref})
			if err == nil {
				f.Close()
			}
			return err
		}},
		contract.Talk: {
			func(p contract.Principal) error {
				_, err := r.Submit(natstest.Context(t), p, contract.Submission{Ref: ref, Text: "hi"})
				return err
			},
			func(p contract.Principal) error {
				_, err := r.Cancel(natstest.Context(t), p, contract.Cancellation{Ref: ref, Sequence: 1})
				return err
			},
		},
		contract.Approve: {func(p contract.Principal) error {
			_, err := r.Confirm(natstest.Context(t), p, contract.Answer{Ref: ref, ConfirmationID: "c", Hash: "h"})
			return err
		}},
	}
	for right, all := range calls {
		for i, call := range all {
			for _, has := range contract.AllRights() {
				p := contract.Principal{Name: "one", Writer: "ui-one", Rights: []contract.Right{has}}
				err := call(p)
				if code, _ := refused(err); has == right && err != nil || has != right && code != contract.CodeForbidden {
					t.Errorf("what needs %s (%d), with %s: got %v", right, i, has, err)
				}
			}
			p := r.ann
			p.Agents = []subject.Agent{"other"}
			if code, _ := refused(call(p)); code != contract.CodeForbidden {
				t.Errorf("what needs %s (%d), for another agent: got %s", right, i, code)
			}
			p = r.ann
			p.Expires = time.Now()
			if code, _ := refused(call(p)); code != contract.CodeUnauthenticated {
				t.Errorf("what needs %s (%d), expired: got %s", right, i, code)
			}
		}
	}
}

// A slash command does not give a token that is limited to an agent more than the methods
// do.
func TestCommandsThatConcernEveryAgent(t *testing.T) {
	r := start(t, hub.Config{})
	limited := r.ann
	limited.Agents = []subject.Agent{"main"}
	for text, want := range map[string]contract.Code{
		"/plugins": contract.CodeForbidden, "/PLUGINS x": contract.CodeForbidden, "/metrics": contract.CodeForbidden,
		"/tools": "", "/help": "",
	} {
		_, err := r.Submit(natstest.Context(t), limited, contract.Submission{Ref: session("limited"), Text: text})
		if code, _ := refused(err); code != want {
			t.Errorf("%s of a token for one agent: got %v, want %q", text, err, want)
		}
		if _, err := r.Submit(natstest.Context(t), r.ann, contract.Submission{Ref: session("all"), Text: text}); err != nil {
			t.Errorf("%s of a token for all agents: %v", text, err)
		}
	}
}

// An answer to a session without history would have no effect, so it is refused.
func TestAnAnswerToNobodysQuestion(t *testing.T) {
	r := start(t, hub.Config{})
	ref := session("no-history")
	_, err := r.Confirm(natstest.Context(t), r.ann,
		contract.Answer{Ref: ref, ConfirmationID: "c", Hash: "h", Approved: true})
	if code, field := refused(err); code != contract.CodeNotFound || field != "session" {
		t.Errorf("it is answered with %v", err)
	}
	for m, err := range r.bus.Messages(natstest.Context(t), ref, 0) {
		t.Errorf("stored: %s, %v", m.Subject, err)
	}
}

// An invalid request is refused with its field, before anything is stored.
func TestFields(t *testing.T) {
	r := start(t, hub.Config{})
	ref := session("fields")
	long := strings.Repeat("x", event.MaxTextBytes+1)
	say := func(s contract.Submission) func() error {
		return func() error { _, err := r.Submit(natstest.Context(t), r.ann, s); return err }
	}
	confirm := func(a contract.Answer) func() error {
		return func() error { _, err := r.Confirm(natstest.Context(t), r.ann, a); return err }
	}
	cancel := func(c contract.Cancellation) func() error {
		return func() error { _, err := r.Cancel(natstest.Context(t), r.ann, c); return err }
	}
	for _, c := range []struct {
		about string
		call  func() error
		code  contract.Code
		field string
	}{
		{"no text", say(contract.Submission{Ref: ref, Text: " \n"}), contract.CodeInvalid, "input"},
		{"a long text", say(contract.Submission{Ref: ref, Text: long}), contract.CodeTooLarge, "input"},
		{"no UTF-8", say(contract.Submission{Ref: ref, Text: "a\xff"}), contract.CodeInvalid, "input"},
		{"a long id", say(contract.Submission{Ref: ref, Text: "x", ID: long}), contract.CodeTooLarge, "id"},
		{"a long source", say(contract.Submission{Ref: ref, Text: "x", Source: long}), contract.CodeTooLarge, "source"},
		{"an unknown mode", say(contract.Submission{Ref: ref, Text: "x", Mode: "now"}), contract.CodeInvalid, "mode"},
		{
			"a file without a type", say(contract.Submission{Ref: ref, Text: "x", Files: []provider.File{{Ref: "main/fields/a"}}}),
			contract.CodeInvalid, "files[0]",
		},
		{
			"a file of another session", say(contract.Submission{Ref: ref, Text: "x", Files: []provider.File{
				{Ref: "main/other/a", MediaType: "image/png"},
			}}), contract.CodeInvalid, "files[0].ref",
		},
		{
			"many words", say(contract.Submission{Ref: ref, Text: "/help" + strings.Repeat(" x", 65)}), contract.CodeInvalid,
			"input",
		},
		{"no agent", say(contract.Submission{Ref: subject.Ref{Session: "x"}, Text: "x"}), contract.CodeInvalid, "agent"},
		{
			"a bad session", say(contract.Submission{Ref: subject.Ref{Agent: "main", Session: "a.b"}, Text: "x"}),
			contract.CodeInvalid, "session",
		},
		{
			"an unknown agent", say(contract.Submission{Ref: subject.Ref{Agent: "nobody", Session: "x"}, Text: "x"}),
			contract.CodeNotFound, "agent",
		},
		{"no confirmation", confirm(contract.Answer{Ref: ref, Hash: "h"}), contract.CodeInvalid, "confirmationId"},
		{"no hash", confirm(contract.Answer{Ref: ref, ConfirmationID: "c", Approved: true}), contract.CodeInvalid, "hash"},
		{
			"a long reason", confirm(contract.Answer{Ref: ref, ConfirmationID: "c", Hash: "h", Reason: long}),
			contract.CodeTooLarge, "reason",
		},
		{
			"always without approval",
			confirm(contract.Answer{Ref: ref, ConfirmationID: "c", Hash: "h", Always: &event.Grant{Tool: "x"}}),
			contract.CodeInvalid, "always",
		},
		{
			"always nothing",
			confirm(contract.Answer{Ref: ref, ConfirmationID: "c", Hash: "h", Approved: true, Always: &event.Grant{}}),
			contract.CodeInvalid, "always",
		},
		{
			"a large grant",
			confirm(contract.Answer{Ref: ref, ConfirmationID: "c", Hash: "h", Approved: true, Always: &event.Grant{Tool: long}}),
			contract.CodeTooLarge, "always",
		},
		{
			"two names of a turn", cancel(contract.Cancellation{Ref: ref, Sequence: 1, InputID: "i"}), contract.CodeInvalid,
			"sequence",
		},
		{"nothing runs", cancel(contract.Cancellation{Ref: ref}), contract.CodeConflict, ""},
	} {
		if code, field := refused(c.call()); code != c.code || field != c.field {
			t.Errorf("%s: got %q about %q, want %q about %q", c.about, code, field, c.code, c.field)
		}
	}
	if n, err := r.bus.LastCommitSeq(natstest.Context(t), ref); n != 0 || err != nil {
		t.Errorf("something was stored: %d, %v", n, err)
	}
}

// The same id twice is stored once, and a receipt names the turn.
func TestTheSameInputTwice(t *testing.T) {
	r := start(t, hub.Config{})
	ref := session("twice")
	f := r.attach(contract.Attachment{Ref: ref})
	in := contract.Submission{Ref: ref, Text: "hello", ID: "mine"}
	a, err := r.Submit(natstest.Context(t), r.ann, in)
	if err != nil {
		t.Fatal(err)
	}
	b, err := r.Submit(natstest.Context(t), r.ann, in)
	if err != nil || a != b || a.ID != "mine" {
		t.Errorf("got %+v and %+v, %v", a, b, err)
	}
	f.await(contract.OnReadyForInput, 1)
	if e := last[contract.TurnEnd](f, contract.OnTurnEnd); e.Turn != a.Turn || e.Recorded.Sequence != a.Sequence ||
		e.Recorded.InputID != "mine" {
		t.Errorf("got %+v, want the end of %+v", e, a)
	}
}

// Text that begins with a slash bypasses the model; with two slashes it is text that begins
// with one.
func TestCommands(t *testing.T) {
	r := start(t, hub.Config{})
	ref := session("commands")
	f := r.attach(contract.Attachment{Ref: ref, Commits: true})
	for i, c := range []struct{ text, command, says string }{
		{"/help", "help", "/reset"},
		{"/", "help", "/reset"},
		{"/reset", "reset", "reset"},
		{"/quit", "quit", "The session stays open"},
		{"//usr/bin is a folder", "", "echo: /usr/bin is a folder"},
	} {
		got := r.say(ref, c.text)
		f.await(contract.OnTurnEnd, i+1)
		e := last[contract.TurnEnd](f, contract.OnTurnEnd)
		if e.Recorded == nil || e.Recorded.Sequence != got.Sequence || e.Recorded.Command != c.command ||
			(got.Turn == "") != (c.command != "") {
			t.Errorf("%q: got %+v, receipt %+v", c.text, e.Recorded, got)
		}
		if m := last[contract.Message](f, contract.OnNewMessage); !strings.Contains(m.Content, c.says) {
			t.Errorf("%q is answered with %q", c.text, m.Content)
		}
	}
	r.say(ref, "/no_such thing at all")
	f.await(contract.OnTurnEnd, 6)
	if e := last[contract.TurnEnd](f, contract.OnTurnEnd); e.Failed == nil || e.Failed.Code != event.FailUnknownCommand {
		t.Errorf("an unknown command: %+v", e)
	}
	// The words of a command are stored one by one.
	c := last[contract.Commit](f, contract.OnCommit)
	m, err := r.bus.Message(natstest.Context(t), c.Trigger.Sequence)
	if err != nil {
		t.Fatal(err)
	}
	var stored event.Command
	if err := json.Unmarshal(m.Data, &stored); err != nil || stored.Name != "no_such" ||
		strings.Join(stored.Args, "|") != "thing|at|all" {
		t.Errorf("stored %+v, %v", stored, err)
	}
}

// A turn is cancelled by its sequence, by the id of its input, or as the running one.
func TestCancel(t *testing.T) {
	r := start(t, hub.Config{})
	for name, of := range map[string]func(in contract.Receipt) contract.Cancellation{
		"sequence": func(in contract.Receipt) contract.Cancellation { return contract.Cancellation{Sequence: in.Sequence} },
		"id":       func(in contract.Receipt) contract.Cancellation { return contract.Cancellation{InputID: in.ID} },
		"running":  func(contract.Receipt) contract.Cancellation { return contract.Cancellation{Reason: "enough"} },
	} {
		t.Run(name, func(t *testing.T) {
			ref := session("cancel-" + name)
			f := r.attach(contract.Attachment{Ref: ref})
			in := r.say(ref, "hang")
			f.await(contract.OnPlanRequested, 1)
			c := of(in)
			c.Ref = ref
			got, err := r.Cancel(natstest.Context(t), r.ann, c)
			if err != nil || got.Sequence <= in.Sequence || name != "id" && got.Turn != in.Turn {
				t.Fatalf("got %+v, %v", got, err)
			}
			f.await(contract.OnTurnEnd, 1)
			if e := last[contract.TurnEnd](f, contract.OnTurnEnd); e.Failed == nil || e.Failed.Code != event.FailCancelled ||
				e.Failed.Sequence != in.Sequence {
				t.Errorf("ended with %+v", e)
			}
		})
	}
}

// Two principals answer one request: the first wins, and both are notified of the winner.
func TestTheFirstAnswerWins(t *testing.T) {
	r := start(t, hub.Config{})
	ref := session("race")
	bob := contract.Principal{Name: "bob", Writer: "ui-bob", Rights: []contract.Right{contract.Approve}}
	f := r.attach(contract.Attachment{Ref: ref})
	r.say(ref, `call file_system:write_file {"path":"a.txt","content":"x"}`)
	f.await(contract.OnToolCallRequest, 1)
	q := last[contract.ToolCallRequest](f, contract.OnToolCallRequest)
	answer := contract.Answer{Ref: ref, ConfirmationID: q.ConfirmationID, Hash: q.Hash, Reason: "no"}
	mutated := answer
	mutated.Hash, mutated.Approved = "0000", true
	// The receipt says whether the answer counts, and why not.
	confirm := func(p contract.Principal, a contract.Answer, counted bool) {
		t.Helper()
		got, err := r.Confirm(natstest.Context(t), p, a)
		if err != nil {
			t.Fatal(err)
		}
		if got.Counted == nil || *got.Counted != counted || (got.Reason == "") != counted {
			t.Errorf("the answer %+v of %s is acknowledged as %+v, want counted %t", a, p.Name, got, counted)
		}
	}
	confirm(bob, mutated, false)
	confirm(bob, answer, true)
	answer.Approved = true
	confirm(r.ann, answer, false)
	f.await(contract.OnReadyForInput, 1)
	if n := f.count(contract.OnConfirmationResolved); n != 1 {
		t.Errorf("the request is resolved %d times", n)
	}
	if c := last[contract.ConfirmationResolved](f, contract.OnConfirmationResolved); c.By != bob.Writer ||
		c.Outcome != event.Denied || !strings.HasSuffix(c.Reason, "no") {
		t.Errorf("resolved %+v", c)
	}
}

// Without the bus the error says so, and that the same id is safe.
func TestWithoutBus(t *testing.T) {
	r := start(t, hub.Config{})
	r.open(contract.Attachment{Ref: session("without")})
	r.bus.Close()
	ctx, cancel := context.WithTimeout(natstest.Context(t), time.Second)
	defer cancel()
	_, err := r.Submit(ctx, r.ann, contract.Submission{Ref: session("without"), Text: "hi"})
	if code, _ := refused(err); code != contract.CodeUnavailable {
		t.Errorf("submit: got %v", err)
	}
	_, err = r.Attach(natstest.Context(t), r.ann, contract.Attachment{Ref: session("other")})
	if code, _ := refused(err); code != contract.CodeUnavailable {
		t.Errorf("attach: got %v", err)
	}
	_, err = r.Cancel(natstest.Context(t), r.ann, contract.Cancellation{Ref: session("without")})
	if code, _ := refused(err); code != contract.CodeUnavailable {
		t.Errorf("cancel: got %v", err)
	}
}

// A method is registered under its name, only once.
func TestMethods(t *testing.T) {
	r := start(t, hub.Config{})
	m := contract.Method{
		Name: "listNothing", Right: contract.See,
		Call: func(context.Context, contract.Principal, json.RawMessage) (any, error) { return "nothing", nil },
	}
	r.Add(m)
	if got, err := r.Methods()["listNothing"].Call(natstest.Context(t), r.ann, nil); err != nil || got != "nothing" {
		t.Errorf("got %v, %v", got, err)
	}
	for about, bad := range map[string]contract.Method{
		"again": m, "no call": {Name: "x", Right: contract.See}, "no right": {Name: "x", Call: m.Call},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: a mistake of the program goes unnoticed", about)
				}
			}()
			r.Add(bad)
		}()
	}
}
