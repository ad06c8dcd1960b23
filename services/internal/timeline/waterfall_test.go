package timeline

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/turn"
)

// Every course that a turn can take, and its timeline.
func TestATurnAsAWaterfall(t *testing.T) {
	const c0, c1 = "t1-p1-c0", "t1-p1-c1"
	begin := commit(2, 0, said(1), nil, "t1", heard(1, event.Started), asks("t1", 1, 1))
	calls := func(steps ...event.Step) event.PlanCompleted { return answers("t1", 1, "", steps...) }
	asking := event.ToolCallRequest{
		ToolName: "http:request", Args: json.RawMessage(`{"a":1}`), ConfirmationID: c0, Hash: "h", ExpiresAt: at(9000),
		SecurityWarning: &hook.Warning{Level: hook.LevelCritical, Message: "it leaves this machine"},
	}
	audit := func(e event.Effect) event.Audited {
		return event.Audited{
			Principal: "ui-ada", Action: "tool.call", Resource: "http:request", Call: c0, Hash: "h", Effect: e,
			Reason: "it leaves this machine", Rule: "risk",
		}
	}
	for _, c := range []struct {
		name    string
		commits []turn.Stored
		now     int
		want    string
	}{
		{"an answer", []turn.Stored{begin, commit(3, 100, reply("t1-p1"), nil, "t1", answers("t1", 1, "hi"), ended(1))}, 0, `
			t1 answered 101 ms
			sense/sense "sense" 0+1 ok
			plan/plan "plan, round 1" 1+99 ok
			reflect/reflect "reflect" 100+1 ok
			reflect/end "answered" 101+0 ok
			`},
		{"two cores were about to take it up", []turn.Stored{
			commit(2, 0, marks(1, "core-1"), nil, ""), commit(3, 50, marks(1, "core-2"), nil, ""),
			commit(4, 60, said(1), nil, "t1", heard(1, event.Started), asks("t1", 1, 1)),
			commit(5, 160, reply("t1-p1"), nil, "t1", answers("t1", 1, "hi"), ended(1)),
		}, 0, `
			t1 answered 101 ms
			sense/sense "sense" 0+1 ok
			plan/plan "plan, round 1" 1+99 ok
			reflect/reflect "reflect" 100+1 ok
			reflect/end "answered" 101+0 ok
			`},
		{"plugins are asked everywhere", []turn.Stored{
			commit(2, 0, said(1), []hook.Verdict{
				verdict(hook.BeforeSense, "a", "", hook.Continue, 200), verdict(hook.AfterSense, "a", "", hook.Continue, 100),
				verdict(hook.AfterSense, "b", "", hook.Replace, 300),
				verdict(hook.BeforePlan, "a", "", hook.Continue, 50),
			}, "t1", heard(1, event.Started), asks("t1", 1, 1)),
			commit(3, 100, reply("t1-p1"), []hook.Verdict{
				verdict(hook.AfterPlan, "a", "", hook.Continue, 400), verdict(hook.BeforeAct, "a", c0, hook.Continue, 100),
				verdict(hook.BeforeAct, "b", c0, hook.Confirm, 100),
			}, "t1", calls(wants(c0, "http:request")), audit(event.EffectConfirm), asking),
			commit(5, 1000, because(4, subject.Confirmation, "ui-ada"), nil, "t1",
				event.ActConfirmed{Call: c0, Outcome: event.Approved, By: "ui-ada"}, gives(c0, "http:request", 1)),
			commit(6, 1100, reply(c0),
				[]hook.Verdict{
					verdict(hook.AfterAct, "a", c0, hook.Continue, 1000), verdict(hook.BeforePlan, "a", "", hook.Continue, 500),
				}, "t1", done(c0, "http:request"), asks("t1", 2, 1)),
			commit(7, 1200, reply("t1-p2"), []hook.Verdict{
				verdict(hook.BeforeReflect, "a", "", hook.Replace, 2000), verdict(hook.AfterReflect, "a", "", hook.Continue, 100),
				verdict(hook.AfterReflect, "b", "", hook.Continue, 900),
			}, "t1", answers("t1", 2, "hi"), ended(1)),
		}, 0, `
			t1 answered 1202 ms
			sense/sense "sense" 0+0.95 ok
			  hook/hook "a at before_sense" 0.45+0.2 ok
			  hook/hook "a at after_sense" 0.65+0.1 ok
			  hook/hook "b at after_sense" 0.65+0.3 ok
			plan/plan "plan, round 1" 0.95+99.45 ok
			  hook/hook "a at before_plan" 0.95+0.05 ok
			  hook/hook "a at after_plan" 100+0.4 ok
			act/step "http:request" 100.4+1000.6 ok
			  hook/hook "a at before_act" 100.4+0.1 ok
			  hook/hook "b at before_act" 100.5+0.1 asked
			  confirm/policy "policy: confirm" 100.6+0 asked
			  confirm/confirm "approved by ui-ada" 101+899 ok
			  act/run "attempt 1, runner-1" 1001+99 ok
			  hook/hook "a at after_act" 1100+1 ok
			plan/plan "plan, round 2" 1101+99 ok
			  hook/hook "a at before_plan" 1101+0.5 ok
			reflect/reflect "reflect" 1200+2.9 ok
			  hook/hook "a at before_reflect" 1200+2 ok
			  hook/hook "a at after_reflect" 1202+0.1 ok
			  hook/hook "b at after_reflect" 1202+0.9 ok
			reflect/end "answered" 1202.9+0 ok
			`},
		{"a person refuses", []turn.Stored{
			begin,
			commit(3, 100, reply("t1-p1"), nil, "t1", calls(wants(c0, "http:request")), audit(event.EffectConfirm), asking),
			commit(5, 2000, because(4, subject.Confirmation, "ui-ada"), nil, "t1",
				event.ActConfirmed{Call: c0, Outcome: event.Denied, By: "ui-ada", Reason: "no"},
				failed(c0, "http:request", tool.CodeDenied), asks("t1", 2, 1)),
			commit(6, 2100, reply("t1-p2"), nil, "t1", answers("t1", 2, "a pity"), ended(1)),
		}, 0, `
			t1 answered 2101 ms
			sense/sense "sense" 0+1 ok
			plan/plan "plan, round 1" 1+99 ok
			act/step "http:request" 100+1900 denied
			  confirm/policy "policy: confirm" 100+0 asked
			  confirm/confirm "denied by ui-ada" 101+1899 denied
			plan/plan "plan, round 2" 2001+99 ok
			reflect/reflect "reflect" 2100+1 ok
			reflect/end "answered" 2101+0 ok
			`},
		{"nobody answers, after an answer that did not fit", []turn.Stored{
			begin,
			commit(3, 100, reply("t1-p1"), nil, "t1", calls(wants(c0, "http:request")), asking),
			commit(5, 500, because(4, subject.Confirmation, "ui-eve"), nil, "t1",
				event.Audited{
					Principal: "ui-eve", Action: "confirmation", Call: c0, Effect: event.EffectDeny,
					Reason: "its hash is not that of what was shown",
				}),
			commit(7, 9000, because(6, subject.Timer, "core"), nil, "t1",
				event.ActConfirmed{Call: c0, Outcome: event.Expired, By: "core"}, failed(c0, "http:request", tool.CodeExpired),
				asks("t1", 2, 1)),
		}, 9500, `
			t1 running 9500 ms
			sense/sense "sense" 0+1 ok
			plan/plan "plan, round 1" 1+99 ok
			act/step "http:request" 100+8900 denied
			  confirm/confirm "nobody answered in time" 101+8899 denied
			    confirm/policy "policy: deny" 500+0 denied
			plan/plan "plan, round 2" 9001+499 open
			`},
		{"a hook denies", []turn.Stored{
			begin,
			commit(3, 100, reply("t1-p1"),
				[]hook.Verdict{
					{
						Point: hook.BeforeAct, Plugin: "guard", Step: c0, Verb: hook.DenyVerb, LatencyUS: 1200,
						Error: "no answer within 2s",
					},
				}, "t1",
				calls(wants(c0, "shell:run")), failed(c0, "shell:run", tool.CodeDenied), asks("t1", 2, 1)),
			commit(4, 200, reply("t1-p2"), nil, "t1", answers("t1", 2, "a pity"), ended(1)),
		}, 0, `
			t1 answered 201 ms
			sense/sense "sense" 0+1 ok
			plan/plan "plan, round 1" 1+99 ok
			act/step "shell:run" 100+1.2 denied
			  hook/hook "guard at before_act" 100+1.2 denied
			plan/plan "plan, round 2" 101.2+98.8 ok
			reflect/reflect "reflect" 200+1 ok
			reflect/end "answered" 201+0 ok
			`},
		{"steps side by side, one after another, and one that is skipped", []turn.Stored{
			begin,
			commit(3, 100, reply("t1-p1"), nil, "t1",
				calls(wants(c0, "clock:now"), wants(c1, "file:read"), wants("t1-p1-c2", "file:write", c0),
					wants("t1-p1-c3", "file:send", c1)),
				gives(c0, "clock:now", 1), gives(c1, "file:read", 1)),
			commit(4, 150, reply(c0), nil, "t1", done(c0, "clock:now"), gives("t1-p1-c2", "file:write", 1)),
			commit(5, 160, reply(c1), nil, "t1", failed(c1, "file:read", tool.CodeFailed),
				failed("t1-p1-c3", "file:send", tool.CodeSkipped)),
			commit(6, 170, reply("t1-p1-c2"), nil, "t1", done("t1-p1-c2", "file:write"), asks("t1", 2, 1)),
			commit(7, 200, reply("t1-p2"), nil, "t1", answers("t1", 2, "ok"), ended(1)),
		}, 0, `
			t1 answered 201 ms
			sense/sense "sense" 0+1 ok
			plan/plan "plan, round 1" 1+99 ok
			act/step "clock:now" 100+50 ok
			act/step "file:read" 100+60 failed
			act/step "file:write" 100+70 ok
			  act/wait "waits for t1-p1-c0" 100+50 ok
			  act/run "attempt 1, runner-1" 151+19 ok
			act/step "file:send" 100+60 skipped
			  act/wait "waits for t1-p1-c1" 100+60 ok
			plan/plan "plan, round 2" 170+30 ok
			reflect/reflect "reflect" 200+1 ok
			reflect/end "answered" 201+0 ok
			`},
		{"a plan with its own steps", []turn.Stored{
			begin,
			commit(3, 100, reply("t1-p1"), nil, "t1", calls(wants(c0, "plan:execute"),
				event.Step{Call: c0 + "-s0", CallID: "a", Parent: c0, Tool: "clock:now", Args: json.RawMessage(`{}`)},
				event.Step{
					Call: c0 + "-s1", CallID: "b", Parent: c0, Tool: "file:write", Args: json.RawMessage(`{}`),
					DependsOn: []string{c0 + "-s0"},
				}),
				gives(c0+"-s0", "clock:now", 1)),
			commit(4, 150, reply(c0+"-s0"), nil, "t1", done(c0+"-s0", "clock:now"), gives(c0+"-s1", "file:write", 1)),
			commit(5, 200, reply(c0+"-s1"), nil, "t1", done(c0+"-s1", "file:write"), done(c0, "plan:execute"), asks("t1", 2, 1)),
		}, 250, `
			t1 running 250 ms
			sense/sense "sense" 0+1 ok
			plan/plan "plan, round 1" 1+99 ok
			act/step "plan:execute" 100+100 ok
			  act/step "clock:now" 100+50 ok
			  act/step "file:write" 100+100 ok
			    act/wait "waits for t1-p1-c0-s0" 100+50 ok
			    act/run "attempt 1, runner-1" 151+49 ok
			plan/plan "plan, round 2" 200+50 open
			`},
		{"attempts that came to nothing, at both", []turn.Stored{
			begin,
			commit(3, 100, reply("t1-p1"), nil, "t1", asks("t1", 1, 2)),
			commit(4, 300, reply("t1-p1"), nil, "t1", calls(wants(c0, "clock:now")), gives(c0, "clock:now", 1)),
			commit(5, 5300, reply(c0), nil, "t1",
				func() event.ActRequested { g := gives(c0, "clock:now", 2); g.Uncertain = true; return g }()),
			commit(6, 5400, reply(c0), nil, "t1", failed(c0, "clock:now", tool.CodeOutcomeUnknown), asks("t1", 2, 1)),
			commit(7, 5500, reply("t1-p2"), nil, "t1",
				event.PlanCompleted{Plan: "t1-p2", Error: &provider.Error{Code: provider.ErrUnavailable, Message: "down"}},
				broken(1, event.FailProvider)),
		}, 0, `
			t1 provider_failed 5500 ms
			sense/sense "sense" 0+1 ok
			plan/plan "plan, round 1" 1+299 ok
			  plan/attempt "attempt 1, provider-1" 1+99 failed
			  plan/attempt "attempt 2, provider-1" 100+200 ok
			act/step "clock:now" 300+5100 unknown
			  act/run "attempt 1, runner-1" 301+4999 unknown
			  act/run "attempt 2, runner-2" 5301+99 unknown
			plan/plan "plan, round 2" 5400+100 failed
			reflect/end "failed: provider_failed" 5500+0 failed
			`},
		{"cancelled while a tool runs and another waits for a person", []turn.Stored{
			begin,
			commit(3, 100, reply("t1-p1"), nil, "t1", calls(wants(c0, "http:request"), wants(c1, "shell:run")), asking,
				gives(c1, "shell:run", 1)),
			commit(5, 400, because(4, subject.Cancel, "ui-ada"),
				[]hook.Verdict{verdict(hook.OnError, "log", "", hook.Continue, 300)}, "t1",
				failed(c0, "http:request", tool.CodeCancelled), failed(c1, "shell:run", tool.CodeOutcomeUnknown),
				broken(1, event.FailCancelled)),
		}, 0, `
			t1 cancelled 401 ms
			sense/sense "sense" 0+1 ok
			plan/plan "plan, round 1" 1+99 ok
			act/step "http:request" 100+300 cancelled
			  confirm/confirm "waits for a person" 101+299 cancelled
			act/step "shell:run" 100+300 unknown
			hook/hook "log at on_error" 400.7+0.3 ok
			reflect/end "failed: cancelled" 401+0 cancelled
			`},
		{"interrupted while the model thinks, by an input whose turn begins in the same commit", []turn.Stored{
			begin,
			commit(4, 50, said(3),
				[]hook.Verdict{
					verdict(hook.BeforeSense, "a", "", hook.Continue, 100), verdict(hook.BeforePlan, "a", "", hook.Continue, 100),
				}, "t1",
				broken(1, event.FailInterrupted), heard(3, event.Started), asks("t3", 1, 1)),
		}, 0, `
			t1 interrupted 50 ms
			sense/sense "sense" 0+1 ok
			plan/plan "plan, round 1" 1+49 cancelled
			reflect/end "failed: interrupted" 50+0 cancelled
			`},
		{"a plugin is asked about a call that failed", []turn.Stored{
			begin,
			commit(3, 100, reply("t1-p1"), nil, "t1", calls(wants(c0, "http:request")), gives(c0, "http:request", 1)),
			commit(4, 200, reply(c0), []hook.Verdict{
				verdict(hook.AfterAct, "a", c0, hook.Continue, 1000), verdict(hook.OnError, "log", c0, hook.Continue, 500),
			}, "t1", failed(c0, "http:request", tool.CodeFailed), asks("t1", 2, 1)),
		}, 300, `
			t1 running 300 ms
			sense/sense "sense" 0+1 ok
			plan/plan "plan, round 1" 1+99 ok
			act/step "http:request" 100+101.5 failed
			  act/run "attempt 1, runner-1" 101+99 failed
			  hook/hook "a at after_act" 200+1 ok
			  hook/hook "log at on_error" 201+0.5 ok
			plan/plan "plan, round 2" 201.5+98.5 open
			`},
		{"still thinking", []turn.Stored{begin}, 70, `
			t1 running 70 ms
			sense/sense "sense" 0+1 ok
			plan/plan "plan, round 1" 1+69 open
			`},
		{"dropped by a hook", []turn.Stored{
			commit(2, 0, said(1),
				[]hook.Verdict{
					verdict(hook.BeforeSense, "spam", "", hook.DenyVerb, 500), verdict(hook.OnError, "log", "", hook.Continue, 100),
				}, "", broken(1, event.FailDenied)),
		}, 0, `
			t1 denied 1 ms
			sense/sense "sense" 0+0.9 denied
			  hook/hook "spam at before_sense" 0.4+0.5 denied
			hook/hook "log at on_error" 0.9+0.1 ok
			reflect/end "failed: denied" 1+0 denied
			`},
		{"a slash command", []turn.Stored{
			commit(2, 0, because(1, subject.Command, "ui-ada"), nil, "", heard(1, event.EndedAtOnce),
				event.Recorded{Sequence: 1, Command: "help", Answer: "…"}),
		}, 0, `
			t1 command 1 ms
			sense/sense "sense" 0+1 ok
			reflect/end "/help" 1+0 ok
			`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Build(1, c.commits, at(c.now))
			if want := unindent(c.want); draw(got) != want {
				t.Errorf("got\n%swant\n%s", draw(got), want)
			}
			checkShape(t, got)
		})
	}
}

// checkShape checks a timeline: ids are unique, parents precede and cover their children,
// nothing begins before the turn, and it is valid against its schema.
func checkShape(t *testing.T, tl Timeline) {
	t.Helper()
	seen := map[string]Span{}
	for _, s := range tl.Spans {
		p, there := seen[s.Parent]
		switch {
		case s.ID == "" || seen[s.ID].ID != "":
			t.Errorf("%q is the id of two spans", s.ID)
		case s.Parent != "" && !there:
			t.Errorf("%s comes before its parent %s", s.ID, s.Parent)
		case s.StartUS < 0 || s.DurationUS < 0 || s.Status == "":
			t.Errorf("%+v", s)
		case there && (s.StartUS < p.StartUS || s.StartUS+s.DurationUS > p.StartUS+p.DurationUS):
			t.Errorf("%s is outside of its parent %s", s.ID, s.Parent)
		}
		seen[s.ID] = s
	}
	stated(t, "getTimeline", tl)
}

// An input that waits is sensed at once and has its turn later; meanwhile the previous turn
// continues, and is left out.
func TestAnInputThatWaitsForTheTurnBefore(t *testing.T) {
	commits := []turn.Stored{
		commit(2, 0, said(1), nil, "t1", heard(1, event.Started), asks("t1", 1, 1)),
		commit(4, 50, said(3), []hook.Verdict{verdict(hook.AfterSense, "a", "", hook.Continue, 400)}, "t1",
			heard(3, event.Queued)),
		commit(5, 100, reply("t1-p1"),
			[]hook.Verdict{
				verdict(hook.AfterPlan, "a", "", hook.Continue, 100), verdict(hook.BeforeReflect, "a", "", hook.Continue, 100),
				verdict(hook.BeforePlan, "a", "", hook.Continue, 100),
			}, "t1",
			answers("t1", 1, "one"), ended(1), heard(3, event.FromQueue), asks("t3", 1, 1)),
		commit(6, 200, reply("t3-p1"), nil, "t3", answers("t3", 1, "two"), ended(3)),
	}
	for i, want := range []string{
		"t1 answered 101 ms", "t3 answered 151 ms",
	} {
		got := draw(Build(uint64(1+2*i), commits, start))
		if !strings.HasPrefix(got, want+"\n") {
			t.Errorf("got\n%swant %s", got, want)
		}
	}
	got, want := draw(Build(3, commits, start)), unindent(`
		t3 answered 151 ms
		sense/sense "sense" 0+1 ok
		  hook/hook "a at after_sense" 0.6+0.4 ok
		sense/queue "waits for the previous turn" 1+49 ok
		plan/plan "plan, round 1" 50.2+99.8 ok
		  hook/hook "a at before_plan" 50.2+0.1 ok
		reflect/reflect "reflect" 150+1 ok
		reflect/end "answered" 151+0 ok
		`)
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if got := Build(3, commits[:2], at(80)); got.Outcome != OutcomeQueued ||
		got.Spans[len(got.Spans)-1].Status != StatusOpen {
		t.Errorf("got\n%s", draw(got))
	}
}

// The log's times have milliseconds, its storage times microseconds: events within one
// millisecond are still shown in order.
func TestWithinAMillisecondTheOrderStays(t *testing.T) {
	first := commit(2, 0, said(1), nil, "t1", heard(1, event.Started), asks("t1", 1, 1))
	first.At = start.Add(1300 * time.Microsecond)
	second := commit(3, 1, reply("t1-p1"), nil, "t1", answers("t1", 1, "", wants("t1-p1-c0", "clock:now")),
		gives("t1-p1-c0", "clock:now", 1))
	second.At = start.Add(1900 * time.Microsecond)
	third := commit(4, 1, reply("t1-p1-c0"), nil, "t1", done("t1-p1-c0", "clock:now"), asks("t1", 2, 1))
	third.At = start.Add(2500 * time.Microsecond)
	got, want := draw(Build(1, []turn.Stored{first, second, third}, at(3))), unindent(`
		t1 running 3 ms
		sense/sense "sense" 0+1.3 ok
		plan/plan "plan, round 1" 1.3+0 ok
		act/step "clock:now" 1.3+0 ok
		plan/plan "plan, round 2" 1.3+1.7 open
		`)
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestADetailSaysWhatIsKnown(t *testing.T) {
	const call = "t1-p1-c0"
	tl := Build(1, []turn.Stored{
		commit(2, 0, said(1), nil, "t1", heard(1, event.Started), asks("t1", 1, 1)),
		commit(3, 100, reply("t1-p1"), nil, "t1", answers("t1", 1, "let me see", wants(call, "http:request")),
			event.Audited{
				Principal: "ui-ada", Action: "tool.call", Resource: "http:request", Call: call, Effect: event.EffectConfirm,
				Reason: "risky", Rule: "policy[3]",
			},
			event.ToolCallRequest{
				ToolName: "http:request", Args: json.RawMessage(`{"a":2}`), ConfirmationID: call, Hash: "h2", ExpiresAt: at(900),
				SecurityWarning: &hook.Warning{Level: hook.LevelWarn, Message: "sure?"},
			}),
		commit(5, 200, because(4, subject.Confirmation, "ui-ada"), nil, "t1",
			event.ActConfirmed{
				Call: call, Outcome: event.Approved, By: "ui-ada", Source: "browser", Reason: "fine",
				Always: &event.Grant{Tool: "http:request"},
			},
			func() event.ActRequested {
				g := gives(call, "http:request", 1)
				g.ApprovedBy = "ui-ada"
				return g
			}()),
		commit(6, 300, reply(call), nil, "t1", func() event.ActCompleted {
			d := failed(call, "http:request", tool.CodeTimeout)
			d.Note, d.DurationMS = "do something else", 88
			return d
		}(), asks("t1", 2, 1)),
	}, at(400))
	span := func(k Kind) Detail {
		i := slices.IndexFunc(tl.Spans, func(s Span) bool { return s.Kind == k })
		if i < 0 {
			t.Fatalf("no %s in\n%s", k, draw(tl))
		}
		return tl.Spans[i].Detail
	}
	if d := span(KindPlan); d.Model != "m" || d.Usage.InputTokens != 10 || d.Text != "let me see" ||
		d.Provider != "provider-1" || d.Calls != 1 || d.Offered != 2 || d.Round != 1 || d.WorkedMS != 90 || d.Commit != 2 ||
		d.Ended != 3 {
		t.Errorf("plan: %+v", d)
	}
	if d := span(KindPolicy); d.Rule != "policy[3]" || d.Effect != event.EffectConfirm || d.Principal != "ui-ada" ||
		d.Reason != "risky" {
		t.Errorf("policy: %+v", d)
	}
	if d := span(KindConfirm); d.By != "ui-ada" || d.Source != "browser" || d.Reason != "fine" || d.Grant == nil ||
		d.Warning.Message != "sure?" || string(d.Args) != `{"a":2}` || d.Outcome != event.Approved || d.ExpiresAt.IsZero() {
		t.Errorf("confirm: %+v", d)
	}
	if d := span(KindStep); d.Code != "timeout" || d.Error == "" || d.Note != "do something else" ||
		d.ApprovedBy != "ui-ada" || d.Runner != "runner-1" || d.WorkedMS != 88 || d.Attempts != 1 {
		t.Errorf("step: %+v", d)
	}
	if tl.Text != "do it" || tl.Writer != "ui-ada" || tl.Source != "web" || !tl.Started.Equal(start) || tl.Session != "s" {
		t.Errorf("got %+v", tl)
	}
}

// The same commits give the same timeline, and unreadable events are skipped.
func TestBuildIsPureAndDoesNotFallOver(t *testing.T) {
	c := commit(2, 0, said(1), []hook.Verdict{verdict(hook.BeforeAct, "a", "nobody", hook.Continue, -5)}, "t1",
		heard(1, event.Started), asks("t1", 1, 1),
		done("t9-p9-c9", "x"), gives("t9-p9-c9", "x", 1), event.ActConfirmed{Call: "t9-p9-c9"},
		answers("t1", 7, "of no round"))
	for i := range c.Events {
		one := c
		one.Events = slices.Clone(c.Events)
		one.Events[i].Data = json.RawMessage(`"garbage"`)
		tl := Build(1, []turn.Stored{one}, at(5))
		checkShape(t, tl)
		if again := Build(1, []turn.Stored{one}, at(5)); draw(again) != draw(tl) {
			t.Errorf("once\n%sand then\n%s", draw(tl), draw(again))
		}
	}
	if tl := Build(1, nil, at(5)); len(tl.Spans) != 0 || tl.Spans == nil {
		t.Errorf("got %+v", tl)
	}
}
