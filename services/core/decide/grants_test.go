package decide_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/core/security/grant"
	"skandha.dev/services/internal/executor"
)

// wary returns a world whose policy asks about every call of read.
func wary(t *testing.T) *world {
	w := newWorld(t)
	w.policy = func(a decide.Access) decide.Ruling {
		if a.Resource.Name == "forbidden" {
			return decide.Ruling{Effect: decide.Deny, Rule: "policy[1]", Reason: "never"}
		}
		return decide.Ruling{
			Effect: decide.Ask, Rule: "policy[0]", Reason: "it asks",
			Warning: &hook.Warning{Level: hook.LevelWarn, Message: "it asks"},
		}
	}
	w.say("read the drafts")
	return w
}

// approve approves the pending call and grants g, if any, for the session.
func (w *world) approve(call string, g *event.Grant) {
	w.t.Helper()
	st := w.step(call)
	w.process(w.cause(subject.Confirmation, "web", string(mustJSON(event.Confirmation{
		ConfirmationID: st.Call, Hash: st.Hash, Approved: true, Source: "page", Always: g,
	}))), nil)
}

// wide returns the widest grant that the pending call offers.
func (w *world) wide(call string) *event.Grant {
	w.t.Helper()
	offers := w.step(call).Always
	if len(offers) == 0 {
		w.fail("call %s offers no grant", call)
	}
	return &offers[len(offers)-1]
}

func (w *world) verdictOn(call string) event.Audited {
	w.t.Helper()
	for _, p := range events[event.Audited](w) {
		if p.Action == event.ActionCall && strings.HasSuffix(p.Call, call) {
			return p
		}
	}
	w.fail("call %s was not audited", call)
	return event.Audited{}
}

// becomes lets another plugin offer a tool under an existing name.
func (w *world) becomes(name string, change func(*tool.Spec)) {
	o := *w.tools[name]
	change(&o.Spec)
	w.tools[name] = &o
}

// An approval is for the tool that was shown, not for its name.
func TestAnApprovalIsNotForAnotherToolOfTheName(t *testing.T) {
	for name, change := range map[string]func(*tool.Spec){
		"of another plugin":     func(s *tool.Spec) { s.Plugin = "evil" },
		"with another text":     func(s *tool.Spec) { s.Description = "the same, surely" },
		"with more permissions": func(s *tool.Spec) { s.Permissions = []string{"fs.delete"} },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.say("x")
			w.calls("mail:send", `{"to":"you"}`)
			first := w.step("c0").Hash
			w.becomes("mail:send", change)
			w.approve("c0", nil)
			st := w.step("c0")
			if asked := events[event.ToolCallRequest](w); st.Status != decide.Confirming || st.Hash == first ||
				len(asked) != 2 || st.ApprovedBy != "" {
				t.Fatalf("%+v after %d requests", st, len(asked))
			}
			if asked := events[event.ToolCallRequest](w)[1]; asked.Owner != w.tools["mail:send"].Plugin || !saysChanged(asked) {
				t.Errorf("%+v", asked)
			}
			if asked := events[event.ToolCallRequest](w)[0]; saysChanged(asked) {
				t.Errorf("the first request says %+v", asked.SecurityWarning)
			}
			w.approve("c0", nil)
			if st := w.step("c0"); st.Status != decide.Assigned || st.ApprovedBy != "web" {
				t.Fatalf("%+v", st)
			}
		})
	}
	t.Run("after a runner has refused it", func(t *testing.T) {
		w := newWorld(t)
		w.say("x")
		w.calls("mail:send", `{"to":"you"}`)
		w.approve("c0", nil)
		w.becomes("mail:send", func(s *tool.Spec) { s.Plugin = "evil" })
		w.replied("c0", executor.Answer{State: executor.Never})
		if st := w.step("c0"); st.Status != decide.Confirming {
			t.Fatalf("%+v", st)
		}
	})
	t.Run("that is internal by now", func(t *testing.T) {
		w := newWorld(t)
		w.say("x")
		w.calls("mail:send", `{"to":"you"}`)
		w.becomes("mail:send", func(s *tool.Spec) { s.Internal = true })
		w.approve("c0", nil)
		w.codes(map[string]tool.Code{"c0": tool.CodeUnknownTool})
	})
	t.Run("nor is a grant", func(t *testing.T) {
		w := wary(t)
		w.calls("read", `{"path":"drafts/a.txt"}`)
		w.approve("c0", w.wide("c0"))
		w.succeed("c0", `1`)
		w.becomes("read", func(s *tool.Spec) { s.Plugin = "evil" })
		w.calls("read", `{"path":"drafts/b.txt"}`)
		if st := w.step("p2-c0"); st.Status != decide.Confirming {
			t.Fatalf("%+v", st)
		}
		if asked := events[event.ToolCallRequest](w); !saysChanged(asked[len(asked)-1]) {
			t.Errorf("%+v", asked)
		}
	})
}

// saysChanged reports whether a request says that the tool has changed.
func saysChanged(q event.ToolCallRequest) bool {
	return q.SecurityWarning != nil && strings.Contains(q.SecurityWarning.Message, "has changed since it was approved")
}

// The answers of judges from before an approval may be outdated: they are asked again
// before the call runs.
func TestAnApprovedCallIsJudgedAgain(t *testing.T) {
	for verb, want := range map[hook.Verb]decide.Status{
		hook.DenyVerb: decide.Done, hook.Confirm: decide.Assigned, hook.Continue: decide.Assigned,
	} {
		w := newWorld(t)
		w.on(hook.BeforeAct, func(hook.Envelope) hook.Decision { return hook.Decision{} })
		w.say("x")
		w.calls("mail:send", `{"to":"you"}`)
		w.judge = func(hook.Envelope, hook.Decision) hook.Decision { return hook.Decision{Verb: verb, Reason: "by now"} }
		w.approve("c0", nil)
		if want == decide.Done {
			w.codes(map[string]tool.Code{"c0": tool.CodeDenied})
		} else if st := w.step("c0"); st.Status != want {
			t.Errorf("%s: %+v, want %s", verb, st, want)
		}
	}
}

// A plugin's answer instead of the tool counts only if policy and judges let the call
// pass, and is marked as not being a result of the tool.
func TestAnAnswerInsteadOfTheToolIsJudged(t *testing.T) {
	answering := func(t *testing.T) *world {
		w := newWorld(t)
		w.on(hook.BeforeAct, func(hook.Envelope) hook.Decision {
			return hook.Decision{Verb: hook.AnswerFor, Answer: []byte(`"done"`), AnsweredBy: "cache"}
		})
		w.say("x")
		return w
	}
	t.Run("policy denies", func(t *testing.T) {
		w := answering(t)
		w.calls("forbidden", `{}`)
		w.codes(map[string]tool.Code{"c0": tool.CodeDenied})
	})
	t.Run("a judge denies", func(t *testing.T) {
		w := answering(t)
		w.judge = func(hook.Envelope, hook.Decision) hook.Decision {
			return hook.Decision{Verb: hook.DenyVerb, Reason: "no"}
		}
		w.calls("write", `{"text":"x"}`)
		w.codes(map[string]tool.Code{"c0": tool.CodeDenied})
	})
	t.Run("a person is asked, and sees the answer", func(t *testing.T) {
		w := answering(t)
		w.calls("mail:send", `{"to":"you"}`)
		asked := events[event.ToolCallRequest](w)[0]
		if asked.Answer == nil || asked.Answer.By != "cache" || string(asked.Answer.Data) != `"done"` ||
			len(asked.Always) > 0 {
			t.Fatalf("%+v", asked)
		}
		w.approve("c0", nil)
		w.codes(map[string]tool.Code{"c0": "ok"})
		if n := len(events[event.ActRequested](w)); n > 0 {
			t.Errorf("the tool ran %d times", n)
		}
	})
	t.Run("nobody objects", func(t *testing.T) {
		w := answering(t)
		w.calls("write", `{"text":"x"}`)
		w.codes(map[string]tool.Code{"c0": "ok"})
		done := events[event.ActCompleted](w)[0]
		if !strings.Contains(done.Note, "answered by the plugin cache; the tool did not run") ||
			len(events[event.Audited](w)) != 1 {
			t.Errorf("%+v, %d audits", done, len(events[event.Audited](w)))
		}
	})
}

func TestWhatIsGrantedOnceIsNotAskedAgain(t *testing.T) {
	w := wary(t)
	w.calls("read", `{"path":"drafts/a.txt"}`)
	asked := events[event.ToolCallRequest](w)[0]
	if want := []event.Grant{
		{Tool: "read", Spec: catalog["read"].Digest(), Args: map[string]string{"path": "drafts/a.txt"}},
		{Tool: "read", Spec: catalog["read"].Digest(), Args: map[string]string{"path": "drafts/*"}},
	}; !slices.EqualFunc(asked.Always, want, sameGrant) {
		t.Fatalf("offered: %+v", asked.Always)
	}
	w.approve("c0", w.wide("c0"))
	if c := events[event.ActConfirmed](w)[0]; c.Always == nil || c.Always.Args["path"] != "drafts/*" || c.By != "web" ||
		c.Source != "page" {
		t.Fatalf("%+v", c)
	}
	w.succeed("c0", `1`)

	// The same directory is not asked about; each neighbour is.
	w.calls("read", `{"path":"drafts/b/c.txt"}`, "read", `{"path":"drafts/../secret"}`, "read", `{"path":"drafts2/a.txt"}`,
		"write", `{"text":"drafts/a.txt"}`)
	for call, want := range map[string]decide.Status{
		"c0": decide.Assigned, "c1": decide.Confirming, "c2": decide.Confirming, "c3": decide.Confirming,
	} {
		if got := w.status(call); got != want {
			t.Errorf("%s is %s, want %s", call, got, want)
		}
	}
	v := w.verdictOn("p2-c0")
	if v.Effect != decide.Allow || v.Rule != "grant" || v.Grant == nil || v.Grant.Args["path"] != "drafts/*" ||
		v.Resource != "read" || v.Principal != "web" {
		t.Errorf("audited: %+v", v)
	}
	if v := w.verdictOn("p2-c1"); v.Effect != decide.Ask || v.Rule != "policy[0]" || v.Grant != nil ||
		v.Reason != "it asks" {
		t.Errorf("audited: %+v", v)
	}
}

func TestResetTakesGrantsBack(t *testing.T) {
	w := wary(t)
	w.calls("read", `{"path":"drafts/a.txt"}`)
	w.approve("c0", w.wide("c0"))
	if len(w.state.Grants) != 1 || w.state.GrantChain == "" {
		t.Fatalf("%+v", w.state.Grants)
	}
	w.process(w.cause(subject.Command, "web", `{"name":"reset"}`), decide.Closings{})
	if len(w.state.Grants) != 0 || w.state.GrantChain != "" {
		t.Fatalf("%+v", w.state.Grants)
	}
	w.say("again")
	w.calls("read", `{"path":"drafts/a.txt"}`)
	if w.status("c0") != decide.Confirming {
		t.Fatal("it was not asked")
	}
}

func TestAGrantWithoutScopeIsForExactlyThatCall(t *testing.T) {
	w := wary(t)
	w.calls("write", `{"text":"a"}`)
	offers := w.step("c0").Always
	if len(offers) != 1 || offers[0].Hash != w.step("c0").Hash || offers[0].Args != nil {
		t.Fatalf("%+v", offers)
	}
	w.approve("c0", &offers[0])
	w.succeed("c0", `1`)
	w.calls("write", `{"text":"a"}`, "write", `{"text":"b"}`)
	if w.status("c0") != decide.Assigned || w.status("c1") != decide.Confirming {
		t.Fatalf("%s, %s", w.status("c0"), w.status("c1"))
	}
}

func TestAPlansStepsAreJudgedEachByTheirOwnTool(t *testing.T) {
	w := wary(t)
	w.calls("read", `{"path":"drafts/a.txt"}`)
	w.approve("c0", w.wide("c0"))
	w.succeed("c0", `1`)
	w.calls("plan:execute",
		`{"steps":[{"id":"s0","tool":"read","params":{"path":"drafts/b.txt"}},{"id":"s1","tool":"read","params":{"path":"b.txt"}},{"id":"s2","tool":"forbidden","params":{}}]}`)
	if w.status("c0-s0") != decide.Assigned || w.status("c0-s1") != decide.Confirming ||
		w.code("c0-s2") != tool.CodeDenied {
		t.Fatalf("%s, %s, %s", w.status("c0-s0"), w.status("c0-s1"), w.code("c0-s2"))
	}
	for _, p := range events[event.Audited](w) {
		if p.Resource == "plan:execute" {
			t.Fatalf("the plan itself was judged: %+v", p)
		}
	}
}

// A grant replaces an approval that policy requires, never one that a hook or the breaker
// requires, and never a denial.
func TestAGrantOverridesNobodyElse(t *testing.T) {
	granted := func(t *testing.T) *world {
		w := wary(t)
		w.calls("read", `{"path":"drafts/a.txt"}`)
		w.approve("c0", w.wide("c0"))
		w.succeed("c0", `1`)
		return w
	}
	t.Run("policy denies by now", func(t *testing.T) {
		w := granted(t)
		w.policy = func(decide.Access) decide.Ruling {
			return decide.Ruling{Effect: decide.Deny, Rule: "policy[7]", Reason: "no more"}
		}
		w.calls("read", `{"path":"drafts/a.txt"}`)
		w.codes(map[string]tool.Code{"c0": tool.CodeDenied})
		if v := w.verdictOn("p2-c0"); v.Effect != decide.Deny || v.Rule != "policy[7]" || v.Reason != "no more" ||
			v.Grant != nil {
			t.Fatalf("%+v", v)
		}
	})
	t.Run("a hook asks", func(t *testing.T) {
		w := granted(t)
		w.on(hook.BeforeAct, func(hook.Envelope) hook.Decision { return hook.Decision{Verb: hook.Confirm} })
		w.calls("read", `{"path":"drafts/a.txt"}`)
		st := w.step("c0")
		if st.Status != decide.Confirming || len(st.Always) > 0 || st.Warning == nil || st.Warning.Message == "" {
			t.Fatalf("%+v", st)
		}
		if v := w.verdictOn("p2-c0"); v.Effect != decide.Ask || v.Rule != "before_act" || v.Grant != nil {
			t.Fatalf("%+v", v)
		}
	})
	t.Run("the breaker asks", func(t *testing.T) {
		w := granted(t)
		for i := range 5 {
			w.calls("read", fmt.Sprintf(`{"path":"drafts/%d.txt"}`, i))
			w.result("c0", tool.Failure(tool.CodeFailed, "no"))
		}
		w.calls("read", `{"path":"drafts/a.txt"}`)
		if st := w.step("c0"); st.Status != decide.Confirming || len(st.Always) > 0 {
			t.Fatalf("%+v", st)
		}
		if v := w.verdictOn("p7-c0"); v.Rule != "breaker" || v.Effect != decide.Ask || v.Grant != nil {
			t.Fatalf("%+v", v)
		}
	})
}

func TestOnlyWhatWasOfferedIsGranted(t *testing.T) {
	for name, g := range map[string]event.Grant{
		"everything":               {Tool: "read", Args: map[string]string{"path": "*"}},
		"the directory above":      {Tool: "read", Args: map[string]string{"path": "/*"}},
		"another directory":        {Tool: "read", Args: map[string]string{"path": "secret/*"}},
		"another tool":             {Tool: "write", Args: map[string]string{"path": "drafts/*"}},
		"no argument":              {Tool: "read"},
		"one argument more":        {Tool: "read", Args: map[string]string{"path": "drafts/*", "n": "1"}},
		"a hash that is not shown": {Tool: "read", Hash: "00"},
		"nothing":                  {},
	} {
		t.Run(name, func(t *testing.T) {
			w := wary(t)
			w.calls("read", `{"path":"drafts/a.txt"}`)
			before, st := *w.state, w.step("c0")
			w.approve("c0", &g)
			if p := w.refused(before, st.Call, st.Hash); !strings.Contains(p.Reason, "not offered") {
				t.Fatalf("%+v", p)
			}
		})
	}
	t.Run("with a refusal", func(t *testing.T) {
		w := wary(t)
		w.calls("read", `{"path":"drafts/a.txt"}`)
		before, st := *w.state, w.step("c0")
		w.process(w.cause(subject.Confirmation, "web", string(mustJSON(event.Confirmation{
			ConfirmationID: st.Call, Hash: st.Hash, Always: w.wide("c0"),
		}))), nil)
		w.refused(before, st.Call, st.Hash)
	})
}

func TestGrantsAreBounded(t *testing.T) {
	w := wary(t)
	for i := range grant.Max - 1 {
		w.calls("write", fmt.Sprintf(`{"text":"%d"}`, i))
		w.approve("c0", w.wide("c0"))
		w.succeed("c0", `1`)
		if i%20 == 19 {
			w.final("so far")
			w.say("go on")
		}
	}
	w.calls("write", `{"text":"x"}`, "write", `{"text":"y"}`)
	x, y := w.wide("c0"), w.wide("c1")
	w.approve("c0", x)
	before, st := *w.state, w.step("c1")
	w.approve("c1", y)
	if p := w.refused(before, st.Call, st.Hash); !strings.Contains(p.Reason, "100 grants") ||
		len(w.state.Grants) != grant.Max {
		t.Fatalf("%d grants, %+v", len(w.state.Grants), p)
	}
	w.approve("c1", nil)
	w.succeed("c0", `1`)
	w.succeed("c1", `1`)
	w.calls("write", `{"text":"z"}`)
	if st := w.step("c0"); st.Status != decide.Confirming || len(st.Always) != 0 {
		t.Fatalf("offered: %+v", st.Always)
	}
}

func TestTheSameGrantTwiceIsOne(t *testing.T) {
	w := wary(t)
	w.calls("read", `{"path":"drafts/a.txt"}`, "read", `{"path":"drafts/b.txt"}`)
	w.approve("c0", w.wide("c0"))
	w.approve("c1", w.wide("c1"))
	if len(w.state.Grants) != 1 || w.status("c1") != decide.Assigned {
		t.Fatalf("%+v, %s", w.state.Grants, w.status("c1"))
	}
}

// Of two answers the first counts, and the log shows which.
func TestOfTwoAnswersTheFirstCounts(t *testing.T) {
	w, _ := asking(t)
	st := w.step("c0")
	answer := func(by subject.Writer, approved bool) decide.Cause {
		return w.cause(subject.Confirmation, by,
			string(mustJSON(event.Confirmation{ConfirmationID: st.Call, Hash: st.Hash, Approved: approved, Source: string(by)})))
	}
	no, yes := answer("cli", false), answer("web", true)
	w.process(no, nil)
	before := *w.state
	w.process(yes, nil)
	w.codes(map[string]tool.Code{"c0": tool.CodeDenied})
	if c := events[event.ActConfirmed](w); len(c) != 1 || c[0].By != "cli" || c[0].Source != "cli" ||
		c[0].Outcome != event.Denied {
		t.Fatalf("%+v", c)
	}
	w.refused(before, st.Call, st.Hash)
}

func TestAnAnswerFromAnotherSession(t *testing.T) {
	t.Run("to a session that is there: refused, and audited", func(t *testing.T) {
		w := newWorld(t)
		in := w.say("x")
		w.final("done")
		before := *w.state
		w.process(w.cause(subject.Confirmation, "web", `{"confirmation_id":"t1-p1-c0","hash":"00","approved":true}`), nil)
		w.refused(before, "t1-p1-c0", "00")
		w.ends(in.Sequence, "recorded")
	})
	t.Run("to one that is not: nothing is made for it", func(t *testing.T) {
		w := newWorld(t)
		reason := w.process(w.cause(subject.Confirmation, "web",
			`{"confirmation_id":"t1-p1-c0","hash":"00","approved":true}`), nil)
		if reason == "" || len(w.log) > 0 {
			t.Fatalf("reason %q, %d commits", reason, len(w.log))
		}
		w.say("x") // and the verdict stays
		if d, why := decide.OnCause(w.state, 1, w.seen.causes[1].Cause, nil, w.env()); d != nil || why == "" {
			t.Fatal("it has an effect later")
		}
	})
}

// A flood of invalid answers costs the log no more than the answers themselves.
func TestARefusalIsSmall(t *testing.T) {
	w, _ := asking(t)
	huge := strings.Repeat("\x01<é", 1<<20)
	for _, c := range []event.Confirmation{
		{ConfirmationID: huge, Hash: huge, Reason: huge, Source: huge, Approved: true},
		{
			ConfirmationID: w.step("c0").Call, Hash: huge, Approved: true,
			Always: &event.Grant{Tool: huge, Args: map[string]string{huge: huge}},
		},
	} {
		w.process(w.cause(subject.Confirmation, "web", string(mustJSON(c))), nil)
		if n := len(w.log[len(w.log)-1].body); n > 4000 {
			t.Errorf("%d bytes", n)
		}
	}
	w.process(w.cause(subject.Confirmation, "web", huge), nil)
	if n := len(w.log[len(w.log)-1].body); n > 4000 {
		t.Errorf("%d bytes", n)
	}
}
