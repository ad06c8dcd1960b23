package decide_test

import (
	"encoding/json"
	"strings"
	"testing"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/internal/executor"
)

// What a before_act hook can answer, and what it cannot.
func TestBeforeAct(t *testing.T) {
	for _, c := range []struct {
		name string
		d    hook.Decision
		want tool.Code // "" if it is assigned
		args string
	}{
		{"continue", hook.Decision{Verb: hook.Continue}, "", `{"text":"x"}`},
		{"stop", hook.Decision{Verb: hook.Stop}, "", `{"text":"x"}`},
		{"deny", hook.Decision{Verb: hook.DenyVerb, Reason: "no"}, tool.CodeDenied, ""},
		{"answer", hook.Decision{Verb: hook.AnswerFor, Answer: []byte(`"cached"`)}, "ok", ""},
		{"answer nothing", hook.Decision{Verb: hook.AnswerFor}, "ok", ""},
		{"answer garbage", hook.Decision{Verb: hook.AnswerFor, Answer: []byte(`{"cut`)}, tool.CodeDenied, ""},
		{
			"replace",
			hook.Decision{Verb: hook.Replace, Data: []byte(`{"args":{"text":"<safe>"}}`)},
			"",
			`{"text":"\u003csafe\u003e"}`,
		},
		{
			"replace the tool",
			hook.Decision{Verb: hook.Replace, Data: []byte(`{"tool":"internal","args":{"text":"x"}}`)},
			"",
			`{"text":"x"}`,
		},
		{
			"replace by what does not fit",
			hook.Decision{Verb: hook.Replace, Data: []byte(`{"args":{"txet":1}}`)},
			tool.CodeInvalidArgs, "",
		},
		{"replace by nothing", hook.Decision{Verb: hook.Replace, Data: []byte(`{}`)}, tool.CodeDenied, ""},
		{"replace by garbage", hook.Decision{Verb: hook.Replace, Data: []byte(`{"args`)}, tool.CodeDenied, ""},
		{"replace without data", hook.Decision{Verb: hook.Replace}, tool.CodeDenied, ""},
		{"an unknown verb", hook.Decision{Verb: "shrug"}, tool.CodeDenied, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.on(hook.BeforeAct, func(hook.Envelope) hook.Decision { return c.d })
			w.say("x")
			w.calls("write", `{"text":"x"}`)
			if c.want != "" {
				w.codes(map[string]tool.Code{"c0": c.want})
				return
			}
			if st := w.step("c0"); st.Status != decide.Assigned || string(st.Final) != c.args || st.Tool != "write" {
				t.Fatalf("%+v", st)
			}
		})
	}
}

// An after_act hook may change the message, never whether a call ran.
func TestAfterActCannotLie(t *testing.T) {
	by := func(r tool.Result) hook.Decision {
		return hook.Decision{Verb: hook.Replace, Data: mustJSON(hook.AfterActData{Result: r})}
	}
	ran := tool.Result{Success: true, Data: json.RawMessage(`"secret"`)}
	failed := tool.Failure(tool.CodeFailed, "broken")
	for _, c := range []struct {
		name string
		ran  *tool.Result // nil: its runner is unreachable
		hook hook.Decision
		want tool.Code
	}{
		{"redacts", &ran, by(tool.OK("***")), "ok"},
		{"finds fault", &ran, by(tool.Failure(tool.CodeFailed, "wrong")), tool.CodeFailed},
		{"mends", &failed, by(tool.OK("guessed")), "ok"},
		{"says that it never ran", &ran, by(tool.Failure(tool.CodeCancelled, "never")), tool.CodeFailed},
		{"says that it was denied", &failed, by(tool.Failure(tool.CodeDenied, "no")), tool.CodeFailed},
		{"knows what nobody can", nil, by(tool.OK("fine")), tool.CodeOutcomeUnknown},
		{"says nothing", &ran, hook.Decision{Verb: hook.Replace, Data: []byte(`{}`)}, tool.CodeFailed},
		{"talks garbage", &ran, hook.Decision{Verb: hook.Replace, Data: []byte(`{`)}, "ok"},
		{"withholds", &ran, hook.Decision{Verb: hook.DenyVerb, Reason: "secret"}, tool.CodeFailed},
		{"withholds a failure", &failed, hook.Decision{Verb: hook.DenyVerb, Reason: "secret"}, tool.CodeFailed},
		{"withholds an unknown outcome", nil, hook.Decision{Verb: hook.DenyVerb, Reason: "secret"}, tool.CodeOutcomeUnknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.on(hook.AfterAct, func(hook.Envelope) hook.Decision { return c.hook })
			w.say("x")
			w.calls("write", `{"text":"x"}`)
			if c.ran != nil {
				w.result("c0", *c.ran)
			} else {
				w.replied("c0", executor.Answer{State: executor.Unknown})
			}
			w.codes(map[string]tool.Code{"c0": c.want})
		})
	}
}

func TestBeforePlan(t *testing.T) {
	for _, c := range []struct {
		name, data    string
		tools, system string
	}{
		{"takes tools away", `{"tools":["read"]}`, "read", ""},
		{"takes all away", `{"tools":[]}`, "", ""},
		{"cannot add any", `{"tools":["internal","evil","write"]}`, "write", ""},
		{
			"changes the system prompt alone", `{"system":"be brief"}`, "forbidden keep mail:send read write plan:execute",
			"be brief",
		},
		{"garbage changes nothing", `{"tools":7}`, "forbidden keep mail:send read write plan:execute", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.on(hook.BeforePlan, func(hook.Envelope) hook.Decision {
				return hook.Decision{Verb: hook.Replace, Data: []byte(c.data)}
			})
			w.say("x")
			p := w.state.Turn.Plan
			if got := strings.Join(p.Tools, " "); got != c.tools || p.System != c.system {
				t.Fatalf("tools %q, system %q", got, p.System)
			}
		})
	}
	t.Run("denies", func(t *testing.T) {
		w := newWorld(t)
		w.on(hook.BeforePlan, func(hook.Envelope) hook.Decision { return hook.Decision{Verb: hook.DenyVerb, Reason: "no"} })
		w.ends(w.say("x").Sequence, "denied")
	})
	t.Run("its advice goes to the model, once", func(t *testing.T) {
		w := newWorld(t)
		rounds := 0
		w.on(hook.BeforePlan, func(hook.Envelope) hook.Decision {
			if rounds++; rounds > 1 {
				return hook.Decision{Verb: hook.Continue}
			}
			return hook.Decision{Verb: hook.Replace, Data: []byte(`{"advice":["think"]}`)}
		})
		w.say("x")
		if p := decide.Prompt(w.state, w.agent); !strings.Contains(p.System, "think") {
			t.Fatalf("%q", p.System)
		}
		w.calls("read", `{}`)
		w.succeed("c0", `1`)
		if p := decide.Prompt(w.state, w.agent); strings.Contains(p.System, "think") {
			t.Fatalf("%q", p.System)
		}
	})
}

func TestAfterPlan(t *testing.T) {
	t.Run("denies: nothing runs, and every call says so", func(t *testing.T) {
		w := newWorld(t)
		w.on(hook.AfterPlan, func(hook.Envelope) hook.Decision { return hook.Decision{Verb: hook.DenyVerb, Reason: "no"} })
		in := w.say("x")
		w.calls("plan:execute", `{"steps":[{"tool":"read"},{"tool":"read","depends_on":[0]}]}`, "write", `{"text":"x"}`)
		w.ends(in.Sequence, "denied")
		w.codes(map[string]tool.Code{
			"c0": tool.CodeDenied, "c0-s0": tool.CodeDenied, "c0-s1": tool.CodeDenied, "c1": tool.CodeDenied,
		})
	})
	t.Run("replaces the calls, which must still be offered", func(t *testing.T) {
		w := newWorld(t)
		w.on(hook.AfterPlan, func(hook.Envelope) hook.Decision {
			return hook.Decision{Verb: hook.Replace, Data: mustJSON(hook.AfterPlanData{Response: provider.Response{
				ToolCalls: calls("internal", `{}`, "read", `{}`), Usage: provider.Usage{OutputTokens: 1 << 40},
			}})}
		})
		w.say("x")
		w.answer(provider.Response{TextContent: "hi", Usage: provider.Usage{OutputTokens: 2}})
		w.codes(map[string]tool.Code{"c0": tool.CodeUnknownTool})
		if w.status("c1") != decide.Assigned || w.state.Turn.Usage.OutputTokens != 2 {
			t.Fatalf("usage %+v", w.state.Turn.Usage)
		}
	})
}

func TestReflectionHooks(t *testing.T) {
	w := newWorld(t)
	w.on(hook.BeforeReflect, func(hook.Envelope) hook.Decision {
		return hook.Decision{Verb: hook.Replace, Data: []byte(`{"answer":"another","notes":["remember"]}`)}
	})
	w.say("x")
	w.final("the answer")
	if r := events[event.Recorded](w)[0]; r.Answer != "the answer" || len(r.Notes) != 1 {
		t.Fatalf("%+v", r)
	}
	if v := w.last().Header.Hooks; len(v) != 1 || v[0].Point != hook.BeforeReflect {
		t.Fatalf("verdicts %+v", v)
	}
}

func TestAHookMayAskAPerson(t *testing.T) {
	w := newWorld(t)
	w.on(hook.BeforeAct, func(hook.Envelope) hook.Decision {
		return hook.Decision{Verb: hook.Confirm, Warning: &hook.Warning{Level: hook.LevelInfo, Message: "is it wise?"}}
	})
	w.say("x")
	w.calls("write", `{"text":"x"}`)
	if st := w.step("c0"); st.Status != decide.Confirming || st.Warning.Message != "is it wise?" {
		t.Fatalf("%+v", st)
	}
	w.confirm("c0", true)
	if w.status("c0") != decide.Assigned {
		t.Fatal("the approval did not count")
	}
}
