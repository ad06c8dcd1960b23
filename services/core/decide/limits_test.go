package decide_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/internal/executor"
)

func TestLimitsEndATurn(t *testing.T) {
	for _, c := range []struct {
		name  string
		limit decide.Limits
		usage provider.Usage
		want  string // after one round; "" if the turn continues
	}{
		{"rounds", decide.Limits{Rounds: 1}, provider.Usage{}, "limit_rounds"},
		{"rounds to go", decide.Limits{Rounds: 2}, provider.Usage{}, ""},
		{"tokens", decide.Limits{Tokens: 100}, provider.Usage{InputTokens: 60, OutputTokens: 40}, "limit_tokens"},
		{"tokens to go", decide.Limits{Tokens: 101}, provider.Usage{InputTokens: 60, OutputTokens: 40}, ""},
		{"cost", decide.Limits{CostMicroUSD: 50}, provider.Usage{CostMicroUSD: 50}, "limit_cost"},
		{"cost to go", decide.Limits{CostMicroUSD: 51}, provider.Usage{CostMicroUSD: 50}, ""},
		{"none", decide.Limits{}, provider.Usage{InputTokens: 1 << 40, CostMicroUSD: 1 << 40}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			c.limit.Queue = 1
			w.agent.Limits = c.limit
			in, next := w.say("x"), w.say("y")
			w.answer(provider.Response{ToolCalls: calls("read", `{}`), Usage: c.usage})
			w.succeed("c0", `1`)
			w.ends(in.Sequence, c.want)
			if c.want != "" && w.state.Turn.Sequence != next.Sequence {
				t.Fatal("the next turn has not begun")
			}
		})
	}
}

func TestAFinalAnswerCountsEvenBeyondTheLimit(t *testing.T) {
	w := newWorld(t)
	w.agent.Limits = decide.Limits{Tokens: 10, Rounds: 1}
	in := w.say("x")
	w.answer(provider.Response{TextContent: "there", Usage: provider.Usage{OutputTokens: 99}})
	w.ends(in.Sequence, "recorded")
	if u := events[event.Recorded](w)[0].Usage; u.OutputTokens != 99 || w.state.Usage.OutputTokens != 99 {
		t.Fatalf("%+v, %+v", u, w.state.Usage)
	}
}

func TestCallsBeyondTheLimitDoNotRun(t *testing.T) {
	w := newWorld(t)
	w.agent.Limits.Calls = 2
	w.say("x")
	w.calls("read", `{}`, "read", `{}`, "read", `{}`)
	w.codes(map[string]tool.Code{"c2": tool.CodeNotRun})
	if w.status("c0") != decide.Assigned || w.status("c1") != decide.Assigned {
		t.Fatal("those within the limit do not run")
	}
}

func TestTheQueueIsBounded(t *testing.T) {
	w := newWorld(t)
	w.agent.Limits.Queue = 2
	w.say("runs")
	two, three, four := w.say("2"), w.say("3"), w.say("4")
	w.ends(two.Sequence, "")
	w.ends(three.Sequence, "")
	w.ends(four.Sequence, "queue_full")
}

func TestTheWallTimeEndsATurnAndClosesItsCalls(t *testing.T) {
	w := newWorld(t)
	w.agent.Limits.Wall = time.Minute
	in, next := w.say("x"), w.say("y")
	w.calls("write", `{"text":"x"}`, "read", `{}`)
	if st := w.step("c0"); !st.NotAfter.Equal(w.now.Add(time.Minute)) {
		t.Fatalf("the call may run until %s, longer than its turn", st.NotAfter)
	}
	w.now = w.now.Add(time.Minute)
	never, lost := w.step("c0"), w.step("c1")
	d := decide.OnDeadline(w.state, w.state.Driver, decide.Closings{
		never.Call: {Answer: executor.Answer{Attempt: never.Attempt, State: executor.Never}},
		lost.Call:  {Unreachable: true},
	}, w.env())
	w.commit(d, w.state.Driver)
	w.ends(in.Sequence, "deadline")
	w.codes(map[string]tool.Code{"c0": tool.CodeCancelled, "c1": tool.CodeOutcomeUnknown})
	if w.state.Turn.Sequence != next.Sequence || !w.state.Turn.Deadline.Equal(w.now.Add(time.Minute)) {
		t.Fatalf("the next turn: %+v", w.state.Turn)
	}
}

func TestATurnWithoutALimitHasNoDeadline(t *testing.T) {
	w := newWorld(t)
	w.agent.Limits.Wall = 0
	w.say("x")
	w.now = w.now.AddDate(50, 0, 0)
	if d := decide.OnDeadline(w.state, w.state.Driver, nil, w.env()); d != nil {
		t.Fatal("it ended")
	}
}

func TestTimeNeverGoesBack(t *testing.T) {
	w := newWorld(t)
	w.say("x")
	w.now = w.now.Add(-time.Hour) // this core's clock is slow
	w.calls("read", `{}`)         // the world's observer checks the header
	if !w.state.Now.Equal(epoch) {
		t.Fatalf("%s", w.state.Now)
	}
}

// An agent that vanishes from the configuration keeps its open turn, without tools.
func TestATurnOutlivesItsAgentsConfiguration(t *testing.T) {
	w := newWorld(t)
	in := w.say("x")
	w.calls("read", `{}`)
	w.agent = nil
	w.succeed("c0", `1`)
	if p := w.state.Turn.Plan; len(p.Tools) != 0 {
		t.Fatalf("tools %v are offered", p.Tools)
	}
	w.final("bye")
	w.ends(in.Sequence, "recorded")
	w.ends(w.say("hello?").Sequence, "unknown_agent")
}

func TestTheOfferedSetIsClosed(t *testing.T) {
	for _, c := range []struct {
		name  string
		tools []string
		want  map[string]tool.Code
	}{
		{
			"every public tool", nil,
			map[string]tool.Code{"c0": "", "c1": tool.CodeUnknownTool, "c2": tool.CodeUnknownTool, "c3": ""},
		},
		{
			"a list",
			[]string{"read", "internal"},
			map[string]tool.Code{"c0": "", "c1": tool.CodeUnknownTool, "c2": tool.CodeUnknownTool, "c3": tool.CodeUnknownTool},
		},
		{
			"none",
			[]string{},
			map[string]tool.Code{
				"c0": tool.CodeUnknownTool, "c1": tool.CodeUnknownTool, "c2": tool.CodeUnknownTool, "c3": tool.CodeUnknownTool,
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.agent.Tools = c.tools
			w.say("x")
			w.calls("read", `{}`, "internal", `{}`, "nonsense", `{}`, "write", `{"text":"x"}`)
			for call, code := range c.want {
				if code == "" {
					if w.status(call) != decide.Assigned {
						t.Errorf("%s does not run", call)
					}
				} else if got := w.code(call); got != code {
					t.Errorf("%s is %q, want %q", call, got, code)
				}
			}
		})
	}
}

func TestWithoutToolsNoPlanIsOffered(t *testing.T) {
	w := newWorld(t)
	for _, o := range w.tools {
		o.gone = true
	}
	w.say("x")
	if got := w.state.Turn.Plan.Tools; len(got) != 0 {
		t.Fatalf("%v are offered", got)
	}
}

func TestProvidersFailOver(t *testing.T) {
	said := func(w *world, a executor.Answer) (done, retry bool) {
		t.Helper()
		p := w.state.Turn.Plan
		a.Call, a.Attempt = p.ID, p.Attempt
		d, retry := decide.OnPlanAnswer(w.state, w.state.Driver, a, w.env())
		if d != nil {
			w.commit(d, w.state.Driver)
		}
		return d != nil, retry
	}
	limited := executor.Answer{
		State: executor.Finished,
		Error: &provider.Error{Code: provider.ErrRateLimited, Message: "slow down", Retryable: true},
	}
	full := executor.Answer{State: executor.Refused, Reason: executor.RefusedFull}

	t.Run("a failure that may pass is tried elsewhere, four times in all", func(t *testing.T) {
		w := newWorld(t)
		in := w.say("x")
		for n, at := range []subject.Instance{"p1", "p2", "p1", "p2"} {
			if p := w.state.Turn.Plan; p.Provider != at || p.Attempts != n+1 {
				t.Fatalf("attempt %d is at %s", p.Attempts, p.Provider)
			}
			said(w, limited)
		}
		w.ends(in.Sequence, "provider_failed")
	})
	t.Run("one that stays ends the turn", func(t *testing.T) {
		w := newWorld(t)
		in := w.say("x")
		said(w, executor.Answer{State: executor.Finished, Error: &provider.Error{Code: provider.ErrAuth, Message: "no key"}})
		w.ends(in.Sequence, "provider_failed")
	})
	t.Run("a new attempt asks the same", func(t *testing.T) {
		w := newWorld(t)
		w.say("x")
		before := *w.state.Turn.Plan
		said(w, executor.Answer{State: executor.Unknown})
		after := *w.state.Turn.Plan
		if after.Attempt == before.Attempt || after.ID != before.ID || after.Round != before.Round ||
			len(after.Tools) != len(before.Tools) {
			t.Fatalf("%+v\n%+v", before, after)
		}
	})
	t.Run("what is running, or of an old attempt, changes nothing", func(t *testing.T) {
		w := newWorld(t)
		w.say("x")
		old := *w.state.Turn.Plan
		if done, retry := said(w, executor.Answer{State: executor.Running}); done || retry {
			t.Fatal("running had an effect")
		}
		said(w, limited)
		late := executor.Answer{
			Call: old.ID, Attempt: old.Attempt, State: executor.Finished, Response: &provider.Response{TextContent: "late"},
		}
		if d, retry := decide.OnPlanAnswer(w.state, w.state.Driver, late, w.env()); d != nil || retry {
			t.Fatal("a late answer had an effect")
		}
	})
	t.Run("without any provider the turn waits, then ends", func(t *testing.T) {
		w := newWorld(t)
		w.providers = nil
		in := w.say("x")
		if w.state.Turn == nil || w.state.Driver != in.Sequence || !w.state.Waits() {
			t.Fatal("nobody waits")
		}
		w.now = w.now.Add(29 * time.Second)
		if w.progress() {
			t.Fatal("too early")
		}
		w.now = w.now.Add(time.Second)
		w.progress()
		w.ends(in.Sequence, "no_provider")
	})
	t.Run("the one that the agent names is not there: the turn's end says so", func(t *testing.T) {
		w := newWorld(t)
		w.agent.Providers, w.providers = []decide.Choice{{Provider: "oracle"}}, nil
		in := w.say("x")
		w.now = w.now.Add(30 * time.Second)
		w.progress()
		w.ends(in.Sequence, "no_provider")
		if f := events[event.TurnFailed](w); !strings.Contains(f[0].Reason, `"oracle"`) ||
			!strings.Contains(f[0].Reason, "agents.a.provider") {
			t.Errorf("the reason is %q", f[0].Reason)
		}
	})
	t.Run("a required guide is missing: the model is not asked", func(t *testing.T) {
		w := newWorld(t)
		w.agent.Unguided = `guide "kind" is required but missing`
		in := w.say("x")
		w.ends(in.Sequence, "no_guide")
		if f := events[event.TurnFailed](w); f[0].Reason != w.agent.Unguided || len(events[event.PlanRequested](w)) != 0 {
			t.Errorf("got %+v", f)
		}
	})
	t.Run("when one comes, it is asked", func(t *testing.T) {
		w := newWorld(t)
		w.providers = nil
		in := w.say("x")
		w.providers = []subject.Instance{"p7"}
		w.progress()
		if w.state.Turn.Plan.Provider != "p7" {
			t.Fatal("it is not")
		}
		w.final("hi")
		w.ends(in.Sequence, "recorded")
	})
	t.Run("the only one is full, again and again: the turn waits for it", func(t *testing.T) {
		w := newWorld(t)
		w.providers = []subject.Instance{"p1"}
		in := w.say("x")
		for range 100 {
			w.full, w.providers = true, nil // until it says that it has a free slot
			w.now = w.now.Add(time.Minute)
			if done, retry := said(w, full); done || !retry {
				t.Fatalf("done %t, retry %t", done, retry)
			}
			w.full, w.providers = false, []subject.Instance{"p1"}
			if done, _ := said(w, full); !done {
				t.Fatal("it is not asked again")
			}
		}
		w.final("hi")
		w.ends(in.Sequence, "recorded")
	})
	t.Run("a provider that is busy is there, however long the turn waits for it", func(t *testing.T) {
		w := newWorld(t)
		w.full, w.providers = true, nil
		in := w.say("x")
		w.now = w.now.Add(9 * time.Minute)
		if w.progress() {
			t.Fatal("the turn ended")
		}
		w.full, w.providers = false, []subject.Instance{"p1"}
		w.progress()
		w.final("hi")
		w.ends(in.Sequence, "recorded")
	})
	t.Run("all die in the middle: the turn waits, then ends", func(t *testing.T) {
		w := newWorld(t)
		in := w.say("x")
		w.providers = nil
		if done, retry := said(w, limited); done || !retry {
			t.Fatal("it does not wait")
		}
		w.now = w.state.Turn.Plan.NotAfter.Add(30 * time.Second)
		said(w, limited)
		w.ends(in.Sequence, "no_provider")
	})
	t.Run("neither text nor calls is a failure, and its cost counts", func(t *testing.T) {
		w := newWorld(t)
		in := w.say("x")
		empty := executor.Answer{
			State: executor.Finished, Response: &provider.Response{TextContent: " \n", Usage: provider.Usage{OutputTokens: 3}},
		}
		for range 4 {
			said(w, empty)
		}
		w.ends(in.Sequence, "provider_failed")
		if f := events[event.TurnFailed](w)[0]; f.Usage.OutputTokens != 12 || w.state.Usage.OutputTokens != 12 {
			t.Fatalf("%+v, %+v", f.Usage, w.state.Usage)
		}
	})
	t.Run("an answer without measure is a failure", func(t *testing.T) {
		for name, cs := range map[string][]string{
			"257 calls":      slices.Repeat([]string{"read", `{}`}, 257),
			"half a MiB and": {"write", `{"text":"` + strings.Repeat("x", 512<<10) + `"}`},
		} {
			w := newWorld(t)
			in := w.say(name)
			for range 4 {
				said(w, executor.Answer{State: executor.Finished, Response: &provider.Response{ToolCalls: calls(cs...)}})
			}
			w.ends(in.Sequence, "provider_failed")
		}
	})
	t.Run("calls win over is_final, and their text is commentary", func(t *testing.T) {
		w := newWorld(t)
		w.say("x")
		w.answer(provider.Response{IsFinal: true, TextContent: "I shall read", ToolCalls: calls("read", `{}`)})
		if w.status("c0") != decide.Assigned || events[event.PlanCompleted](w)[0].Response.IsFinal {
			t.Fatal("the call does not run")
		}
		if m := events[event.UIMessage](w); len(m) != 1 || m[0].Content != "I shall read" {
			t.Fatalf("%+v", m)
		}
	})
}
