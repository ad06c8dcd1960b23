package decide_test

import (
	"encoding/json"
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

// chosen returns a world whose agent names providers.
func chosen(t *testing.T, names ...string) *world {
	w := newWorld(t)
	for _, n := range names {
		c, err := decide.ParseChoice(n)
		if err != nil {
			t.Fatal(err)
		}
		w.agent.Providers = append(w.agent.Providers, c)
	}
	return w
}

// fails lets the attempt at the model call fail.
func (w *world) fails(code provider.ErrorCode, retryable bool) {
	w.t.Helper()
	w.planReplied(executor.Answer{
		State: executor.Finished, Error: &provider.Error{Code: code, Message: "no", Retryable: retryable},
	})
}

// planReplied delivers a provider's answer about the current attempt.
func (w *world) planReplied(a executor.Answer) {
	w.t.Helper()
	p := w.state.Turn.Plan
	a.Call, a.Attempt, a.Instance = p.ID, p.Attempt, p.Provider
	d, retry := decide.OnPlanAnswer(w.state, w.state.Driver, a, w.env())
	if d == nil {
		w.fail("the answer has no effect (retry %t)", retry)
	}
	w.commit(d, w.state.Driver)
}

// uses checks which provider and model are asked now.
func (w *world) uses(want string) {
	w.t.Helper()
	if w.state.Turn == nil || w.state.Turn.Plan == nil {
		w.fail("nothing is asked, want %s", want)
	}
	p := w.state.Turn.Plan
	if got := strings.TrimSuffix(p.Use+"/"+p.Model, "/"); got != want {
		w.fail("%s is asked, want %s", got, want)
	}
	if m := decide.Prompt(w.state, w.agent).Model; m != p.Model {
		w.fail("the request names model %q, the plan %q", m, p.Model)
	}
}

func TestTheNextProviderIsAskedWhenOneFails(t *testing.T) {
	w := chosen(t, "openai/gpt-5", "gemini", "sim")
	in := w.say("x")
	w.uses("openai/gpt-5")
	w.fails(provider.ErrUnavailable, true)
	w.uses("gemini")
	w.reload()
	w.fails(provider.ErrAuth, false)
	w.uses("sim")
	w.fails(provider.ErrRateLimited, true)
	w.uses("openai/gpt-5")
	w.fails(provider.ErrUnavailable, true)
	w.uses("sim") // gemini refused the key, so it is not asked again in this turn
	w.final("at last")
	w.ends(in.Sequence, "recorded")
	next := w.say("y")
	w.uses("openai/gpt-5")
	w.final("yes")
	w.ends(next.Sequence, "recorded")
}

func TestATurnEndsWhenAllProvidersFail(t *testing.T) {
	w := chosen(t, "openai", "gemini")
	in := w.say("x")
	w.fails(provider.ErrAuth, false)
	w.uses("gemini")
	w.fails(provider.ErrOverBudget, false)
	w.ends(in.Sequence, "limit_cost")

	w = chosen(t, "openai", "gemini")
	in = w.say("x")
	for range 5 {
		w.fails(provider.ErrUnavailable, true)
	}
	w.ends(in.Sequence, "provider_failed")
}

func TestAnAbsentProviderIsPassedOverABusyOneIsWaitedFor(t *testing.T) {
	w := chosen(t, "openai", "gemini")
	w.absent = map[string]bool{"openai": true}
	w.say("x")
	w.uses("gemini")
	w.final("yes")

	w.absent, w.busy = nil, map[string]bool{"openai": true}
	w.say("y")
	if w.state.Turn.Plan != nil {
		t.Fatal("another provider was asked while the first is busy")
	}
	w.busy = nil
	w.progress()
	w.uses("openai")

	w = chosen(t, "openai", "gemini")
	w.absent = map[string]bool{"openai": true, "gemini": true}
	in := w.say("z")
	w.now = w.now.Add(30 * time.Second)
	w.progress()
	w.ends(in.Sequence, "no_provider")
	if f := events[event.TurnFailed](w); !strings.Contains(f[0].Reason, `"openai, gemini"`) {
		t.Errorf("the reason is %q", f[0].Reason)
	}
}

// A process that ends is not the model's failure: another process of the same provider is asked.
func TestAnotherProcessOfTheSameProviderIsAskedFirst(t *testing.T) {
	w := chosen(t, "openai", "gemini")
	w.say("x")
	was := w.state.Turn.Plan.Provider
	w.planReplied(executor.Answer{State: executor.Never})
	w.uses("openai")
	if w.state.Turn.Plan.Provider == was {
		t.Errorf("%s was asked again", was)
	}
}

func TestAPersonChoosesTheProviderOfASession(t *testing.T) {
	w := chosen(t, "openai/gpt-5", "gemini")
	command := func(args string) string {
		t.Helper()
		before := len(events[event.UIMessage](w))
		w.process(w.cause(subject.Command, "web", `{"name":"provider","args":[`+args+`]}`), nil)
		w.reload()
		return events[event.UIMessage](w)[before].Content
	}
	for _, c := range []struct{ args, says, uses string }{
		{``, "- **openai**, model `gpt`.  — answers this session", "openai/gpt-5"},
		{`"gemini/pro"`, "From now on **gemini**, model `pro` answers", "gemini/pro"},
		{`"opena"`, "did you mean `openai`? Available: `sim`, `gemini`, `openai`.", "gemini/pro"},
		{`"openai"`, "From now on **openai** answers", "openai/gpt-5"},
		{`"sim"`, "From now on **sim** answers", "sim"},
		{`"gemini/"`, "want a provider's name, or name/model", "sim"},
		{`"default"`, "The agent's own choice", "openai/gpt-5"},
	} {
		if got := command(c.args); !strings.Contains(got, c.says) {
			t.Errorf("/provider %s: %q, want %q", c.args, got, c.says)
		}
		w.say("x")
		w.uses(c.uses)
		w.final("yes")
	}
	command(`"gemini"`)
	w.say("x")
	w.fails(provider.ErrUnavailable, true)
	w.uses("openai/gpt-5") // the agent's own remain behind it
}

func TestFilesBelongToTheirSession(t *testing.T) {
	w := newWorld(t)
	photo := `{"ref":"a/s/photo.png","media_type":"image/png","bytes":3}`
	in := w.cause(subject.Input, "web", `{"text":"what is it?","files":[`+photo+`]}`)
	w.process(in, nil)
	w.calls("read", `{}`)
	w.result("c0", tool.Result{Success: true, Data: json.RawMessage(`{"x":1}`), Files: []provider.File{
		{Ref: "a/s/plot.png", MediaType: "image/png", Data: []byte("x")},
		{Ref: "a/s/bad"},
	}})
	m := w.said()
	if len(m[0].Files) != 1 || m[0].Files[0].Ref != "a/s/photo.png" {
		t.Errorf("the model sees %+v", m[0])
	}
	if f := m[len(m)-1].Files; len(f) != 1 || f[0].Ref != "a/s/plot.png" || f[0].Data != nil {
		t.Errorf("the result has %+v", f)
	}
	w.final("a cat")
	w.ends(in.Sequence, "recorded")
	for _, ref := range []string{"a/t/photo.png", "a/s/../t/photo.png", "a/s/", "b/s/x"} {
		in := w.cause(subject.Input, "web", `{"text":"x","files":[{"ref":"`+ref+`","media_type":"image/png","bytes":3}]}`)
		w.process(in, nil)
		w.ends(in.Sequence, "malformed")
	}
}

func TestARequestSaysWhatItMayCost(t *testing.T) {
	w := newWorld(t)
	w.agent.Limits.CostMicroUSD, w.agent.Limits.SessionCostMicroUSD = 100, 150
	afford := func(want int64) {
		t.Helper()
		if got := decide.Prompt(w.state, w.agent).MaxCostMicroUSD; got == nil || *got != want {
			t.Errorf("may cost %v, want %d", got, want)
		}
	}
	w.say("x")
	afford(100)
	w.answer(provider.Response{TextContent: "a", Usage: provider.Usage{CostMicroUSD: 90}})
	w.say("y")
	afford(60)
	w.answer(provider.Response{TextContent: "b", Usage: provider.Usage{CostMicroUSD: 60}})
	in := w.say("z")
	w.ends(in.Sequence, "limit_cost")
}

// A provider that is nowhere is not waited for when the one that is there has failed for good.
func TestAFailureForGoodIsNotWaitedOut(t *testing.T) {
	w := chosen(t, "openai", "gemini")
	w.absent = map[string]bool{"gemini": true}
	in := w.say("x")
	w.fails(provider.ErrAuth, false)
	w.ends(in.Sequence, "provider_failed")
}

// A process that hangs or refuses leaves the turn to the others, and a provider that failed
// for good stays out.
func TestAProcessThatFailsComesLast(t *testing.T) {
	w := chosen(t, "openai", "gemini", "sim")
	w.providersOf = map[string][]subject.Instance{"openai": {"p1"}, "gemini": {"p2"}, "sim": {"p3"}}
	in := w.say("x")
	w.fails(provider.ErrAuth, false)
	w.uses("gemini")
	w.planReplied(executor.Answer{State: executor.Refused, Reason: executor.RefusedBad})
	w.uses("sim")
	w.final("yes")
	w.ends(in.Sequence, "recorded")
}

func TestWhatAFailureCostIsSpent(t *testing.T) {
	known, unknown := provider.Usage{CostMicroUSD: 7, Uncounted: 1}, provider.Usage{Uncounted: 1, Unpriced: 1}
	for _, c := range []struct {
		answer executor.Answer
		want   provider.Usage
	}{
		{executor.Answer{
			State: executor.Finished, Error: &provider.Error{Code: provider.ErrGarbage, Message: "?", Retryable: true},
			Spent: known,
		}, known},
		{executor.Answer{State: executor.Unknown}, unknown}, // its process died
		{executor.Answer{State: executor.Stopped}, unknown},
		{executor.Answer{State: executor.Never}, provider.Usage{}},
		{executor.Answer{State: executor.Refused, Reason: executor.RefusedFull}, provider.Usage{}},
	} {
		w := newWorld(t)
		w.say("x")
		w.planReplied(c.answer)
		if u := w.state.Turn.Usage; u != c.want {
			t.Errorf("%s: the turn has spent %+v, want %+v", c.answer.State, u, c.want)
		}
	}
}

// A session whose provider is full waits for that provider's slots, and for those of no other.
func TestAFullProviderIsWaitedForAlone(t *testing.T) {
	w := chosen(t, "openai", "gemini", "sim")
	w.say("x")
	next := func(a executor.Answer, want string) {
		t.Helper()
		if got := strings.Join(w.state.Providers(w.agent, &a), " "); got != want {
			t.Errorf("another attempt waits for %s, want %s", got, want)
		}
	}
	full := executor.Answer{State: executor.Refused, Reason: executor.RefusedFull}
	next(full, "openai gemini sim")
	next(executor.Answer{State: executor.Never}, "openai gemini sim")
	bad := func(code provider.ErrorCode, retryable bool) executor.Answer {
		return executor.Answer{State: executor.Finished, Error: &provider.Error{Code: code, Retryable: retryable}}
	}
	next(bad(provider.ErrUnavailable, true), "gemini sim openai")
	next(bad(provider.ErrAuth, false), "gemini sim")
	w.fails(provider.ErrAuth, false)
	next(full, "gemini sim")
}
