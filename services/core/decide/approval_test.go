package decide_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/core/security"
	"skandha.dev/services/internal/people"
)

// house is who the tests know: ann and bob of ops, for whom cid may answer, and dan, a stranger to
// them.
var house = people.Config{
	"ann": {Groups: []string{"ops"}, Accounts: []string{"irc/ann", "cli"}}, "bob": {Groups: []string{"ops"}}, "cid": {}, "dan": {},
}

func approvals(t *testing.T, who people.Config, rules ...security.ApprovalRule) decide.Approvals {
	t.Helper()
	d, err := people.New(who)
	if err != nil {
		t.Fatal(err)
	}
	c := security.ApprovalsConfig{Rules: rules}
	if _, is := who["cid"]; is {
		c.Delegations = []security.Delegation{{From: "bob", To: "cid", Until: epoch.Add(5 * time.Minute)}}
	}
	a, err := security.NewApprovals(c, d)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// fourEyes demands two people of ops.
var fourEyes = security.ApprovalRule{Tool: "mail:*", By: []string{"ops"}, People: 2}

// ruled returns a world in which call c0 of ann, who asked on the page, waits for approval by a rule.
func ruled(t *testing.T, rule security.ApprovalRule) (*world, decide.Cause) {
	w := newWorld(t)
	w.approvals = approvals(t, house, rule)
	in := w.cause(subject.Input, "ui-ann", `{"text":"write to them"}`)
	w.process(in, nil)
	w.calls("mail:send", `{"to":"them"}`)
	if w.status("c0") != decide.Confirming {
		t.Fatalf("call is %s", w.status("c0"))
	}
	return w, in
}

// answers lets an account answer about c0, and returns the reason if the answer was refused.
func (w *world) answersAs(account string, change ...func(*event.Confirmation)) (refusal string) {
	w.t.Helper()
	st := w.step("c0")
	writer, from, _ := strings.Cut(account, "/")
	a := event.Confirmation{ConfirmationID: st.Call, Hash: st.Hash, Approved: true, From: from}
	for _, f := range change {
		f(&a)
	}
	if why := w.process(w.cause(subject.Confirmation, subject.Writer(writer), string(mustJSON(a))), nil); why != "" {
		w.fail("the answer has no effect: %s", why)
	}
	var p event.Audited
	if last := w.last().Events; len(last) == 1 && last[0].Type == event.TypeAudited && last[0].DataAs(&p) == nil {
		return p.Reason
	}
	return ""
}

func denies(a *event.Confirmation)  { a.Approved = false }
func passkey(a *event.Confirmation) { a.Passkey = true }

func TestFourEyesAreTwoPeople(t *testing.T) {
	w, in := ruled(t, fourEyes)
	if d := events[event.ToolCallRequest](w)[0].Approval; d.Rule != "approvals.rules[0]" || d.People != 2 || !slices.Equal(d.By, fourEyes.By) {
		t.Fatalf("people are asked for %+v", d)
	}
	driver, commits := w.state.Driver, len(w.log)
	if why := w.answersAs("ui-ann"); why != "" {
		t.Fatal(why)
	}
	first := events[event.ActApproved](w)
	if len(first) != 1 || first[0].Person != "ann" || first[0].Left != 1 || first[0].By != "ui-ann" {
		t.Fatalf("%+v", first)
	}
	if len(w.log) != commits+1 || len(w.last().Events) != 1 || w.state.Driver != driver || !w.state.Parked() {
		t.Fatalf("the first approval does more than that: %+v", w.last())
	}
	for _, account := range []string{"ui-ann", "irc/ann", "cli"} { // one person, whatever they use
		if why := w.answersAs(account); !strings.Contains(why, "ann has approved this already; another person") {
			t.Fatalf("%s: %q", account, why)
		}
	}
	w.reload() // the core that decides next knows it from the log
	if why := w.answersAs("ui-bob"); why != "" {
		t.Fatal(why)
	}
	last := events[event.ActConfirmed](w)
	if len(last) != 1 || last[0].Person != "bob" || !slices.Equal(last[0].Others, []string{"ann"}) {
		t.Fatalf("%+v", last)
	}
	w.succeed("c0", `"sent"`)
	w.final("done")
	w.ends(in.Sequence, "recorded")
}

func TestWhoMayNotApprove(t *testing.T) {
	own := fourEyes
	own.People, own.NotRequester = 1, true
	for name, c := range map[string]struct {
		rule    security.ApprovalRule
		account string
		after   time.Duration
		why     string
	}{
		"a person whom the rule does not name": {fourEyes, "ui-dan", 0, "dan may not answer this request (approvals.rules[0]); ann, bob may"},
		"nobody":                               {fourEyes, "ui-eve", 0, "ui-eve is no person that the configuration names"},
		"an account that nobody has":           {fourEyes, "irc/eve", 0, "irc/eve is no person"},
		"the gateway itself":                   {fourEyes, "irc", 0, "irc is no person"},
		"an account of another network":        {fourEyes, "xmpp/ann", 0, "xmpp/ann is no person"},
		"the bridge in another's name":         {fourEyes, "ui-dan/ann", 0, "ui-dan/ann is no person"},
		"the person who asked":                 {own, "ui-ann", 0, "ann asked for this call, so somebody else must approve it"},
		"the person who asked, from elsewhere": {own, "irc/ann", 0, "ann asked for this call"},
		"a delegate whose time is over":        {fourEyes, "ui-cid", 5 * time.Minute, "the delegation of bob ended at 2026-03-01T12:05:00Z"},
		"after the request expired":            {fourEyes, "ui-ann", 15 * time.Minute, "the request had expired"},
	} {
		t.Run(name, func(t *testing.T) {
			w, in := ruled(t, c.rule)
			w.now = w.now.Add(c.after)
			if why := w.answersAs(c.account); !strings.Contains(why, c.why) {
				t.Fatalf("%q, want %q", why, c.why)
			}
			if w.status("c0") != decide.Confirming || len(events[event.ActApproved](w)) > 0 {
				t.Fatal("it counts")
			}
			w.ends(in.Sequence, "")
		})
	}
}

func TestADelegateApproves(t *testing.T) {
	w, _ := ruled(t, fourEyes)
	w.answersAs("ui-cid")
	if p := events[event.ActApproved](w); len(p) != 1 || p[0].Person != "cid" || p[0].For != "bob" {
		t.Fatalf("%+v", p)
	}
	w.now = w.now.Add(5 * time.Minute) // now cid may not answer any more, so this approval counts no more
	w.answersAs("ui-ann")
	if p := events[event.ActApproved](w); len(p) != 2 || p[1].Left != 1 {
		t.Fatalf("%+v", p)
	}
	w.answersAs("ui-bob")
	if p := events[event.ActConfirmed](w); len(p) != 1 || !slices.Equal(p[0].Others, []string{"ann"}) {
		t.Fatalf("%+v", p)
	}
}

// What a person may not approve, they cannot delegate.
func TestARequesterCannotDelegate(t *testing.T) {
	w := newWorld(t)
	w.approvals = approvals(t, house, security.ApprovalRule{By: []string{"bob"}, NotRequester: true})
	w.process(w.cause(subject.Input, "ui-bob", `{"text":"write to them"}`), nil)
	w.calls("mail:send", `{"to":"them"}`)
	if why := w.answersAs("ui-cid"); !strings.Contains(why, "bob asked for this call, so bob cannot delegate its approval") {
		t.Fatal(why)
	}
}

// The configuration does not name the person who asked, so any of the approvers may be this person.
func TestAnUnknownRequesterTakesOneMore(t *testing.T) {
	w := newWorld(t)
	w.approvals = approvals(t, house, security.ApprovalRule{By: []string{"ops"}, NotRequester: true})
	w.say("write to them") // by the writer web
	w.calls("mail:send", `{"to":"them"}`)
	if d := events[event.ToolCallRequest](w)[0].Approval; d.People != 2 {
		t.Fatalf("%+v", d)
	}
	w.answersAs("ui-ann")
	w.answersAs("ui-bob")
	if len(events[event.ActConfirmed](w)) != 1 {
		t.Fatal("two people did not suffice")
	}
}

func TestADenialByAnyoneEntitledEndsIt(t *testing.T) {
	w, _ := ruled(t, fourEyes)
	w.answersAs("ui-ann")
	if why := w.answersAs("ui-dan", denies); !strings.Contains(why, "dan may not answer") {
		t.Fatal(why)
	}
	w.answersAs("ui-bob", denies)
	w.codes(map[string]tool.Code{"c0": tool.CodeDenied})
	if p := events[event.ActConfirmed](w); len(p) != 1 || p[0].Person != "bob" || p[0].Outcome != event.Denied {
		t.Fatalf("%+v", p)
	}
}

func TestARuleSaysHowLongPeopleHave(t *testing.T) {
	rule := fourEyes
	rule.Expires = time.Minute
	w, _ := ruled(t, rule)
	w.answersAs("ui-ann")
	w.now = w.now.Add(time.Minute)
	if why := w.answersAs("ui-bob"); !strings.Contains(why, "expired") {
		t.Fatal(why)
	}
	w.process(w.cause(subject.Timer, subject.TimerWriter, `{"id":"t1-p1-c0"}`), nil)
	w.codes(map[string]tool.Code{"c0": tool.CodeExpired})
}

func TestAPersonWhoWasRemovedDoesNotCount(t *testing.T) {
	w, _ := ruled(t, fourEyes)
	w.answersAs("ui-ann")
	without := people.Config{"bob": house["bob"], "eve": {Groups: []string{"ops"}}, "dan": {}}
	w.approvals = approvals(t, without, fourEyes)
	if why := w.answersAs("ui-ann"); !strings.Contains(why, "no person") {
		t.Fatal(why)
	}
	w.answersAs("ui-bob")
	if p := events[event.ActConfirmed](w); len(p) > 0 {
		t.Fatalf("the approval of a person who was removed counts: %+v", p)
	}
	w.answersAs("ui-eve")
	if p := events[event.ActConfirmed](w); len(p) != 1 || !slices.Equal(p[0].Others, []string{"bob"}) {
		t.Fatalf("%+v", p)
	}
}

func TestAPasskeyIsTheBridgesWord(t *testing.T) {
	rule := security.ApprovalRule{Passkey: true}
	w, _ := ruled(t, rule)
	if r := events[event.ToolCallRequest](w)[0]; !r.Approval.Passkey || r.Always != nil {
		t.Fatalf("%+v", r)
	}
	for account, change := range map[string]func(*event.Confirmation){
		"ui-ann": func(*event.Confirmation) {}, "cli": passkey, "irc/ann": passkey,
	} {
		if why := w.answersAs(account, change); !strings.Contains(why, "needs a passkey (approvals.rules[0]); approve it on the page") {
			t.Fatalf("%s: %q", account, why)
		}
	}
	w.answersAs("ui-ann", passkey)
	if p := events[event.ActConfirmed](w); len(p) != 1 || !p[0].Passkey {
		t.Fatalf("%+v", p)
	}
	w, _ = ruled(t, rule)
	if why := w.answersAs("cli", denies); why != "" {
		t.Fatalf("a denial needs no passkey: %s", why)
	}
}

// An approval for the session is for as many people, and not for what somebody else asks.
func TestAGrantTakesWhatTheApprovalTakes(t *testing.T) {
	rule := fourEyes
	rule.NotRequester, rule.By = true, []string{"bob", "dan"}
	always := func(a *event.Confirmation) { a.Always = &event.Grant{} }
	for name, c := range map[string]struct {
		second  func(*event.Confirmation) // what the second person chooses; nil: this call alone
		by      subject.Writer            // who asks the next time
		granted bool
	}{
		"both choose it":                     {always, "ui-ann", true},
		"one of them does not":               {nil, "ui-ann", false},
		"for one of the two who approved it": {always, "ui-bob", false},
	} {
		t.Run(name, func(t *testing.T) {
			w, _ := ruled(t, rule)
			offers := events[event.ToolCallRequest](w)[0].Always
			if g := offers[0]; g.People != 2 || g.Requester != "ann" {
				t.Fatalf("%+v", g)
			}
			choose := func(a *event.Confirmation) { a.Always = &offers[0] }
			w.answersAs("ui-bob", choose)
			if c.second == nil {
				w.answersAs("ui-dan")
			} else {
				w.answersAs("ui-dan", choose)
			}
			w.succeed("c0", `"sent"`)
			w.final("done")
			w.process(w.cause(subject.Input, c.by, `{"text":"again"}`), nil)
			w.calls("mail:send", `{"to":"them"}`)
			if got := w.status("c0") == decide.Assigned; got != c.granted {
				t.Fatalf("the next call is %s", w.status("c0"))
			}
		})
	}
}

// Rules that become stricter between the approval and the call hold for the call.
func TestStricterRulesBarAnApprovedCall(t *testing.T) {
	w, _ := ruled(t, security.ApprovalRule{By: []string{"ops"}})
	runners := w.runners
	w.runners = nil
	w.answersAs("ui-ann")
	if w.status("c0") != decide.Approved {
		t.Fatal(w.status("c0"))
	}
	w.approvals, w.runners = approvals(t, house, fourEyes), runners
	w.progress()
	w.codes(map[string]tool.Code{"c0": tool.CodeDenied})
	w.audits("approvals.rules[0] now demands the approval of 2 people, and the call has that of 1")
}

func (w *world) audits(reason string) {
	w.t.Helper()
	if !slices.ContainsFunc(events[event.Audited](w), func(p event.Audited) bool { return p.Reason == reason }) {
		w.fail("nothing is audited as %q", reason)
	}
}
