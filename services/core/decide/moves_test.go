package decide_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/internal/executor"
)

// The steps that tests take by hand.

// say stores an input and processes it.
func (w *world) say(text string) decide.Cause {
	w.t.Helper()
	c := w.cause(subject.Input, "web", string(mustJSON(event.Input{Text: text})))
	w.process(c, nil)
	return c
}

// answer lets the provider answer the model call in progress.
func (w *world) answer(r provider.Response) {
	w.t.Helper()
	p := w.state.Turn.Plan
	if p == nil {
		w.fail("the model was not asked")
	}
	d, retry := decide.OnPlanAnswer(w.state, w.state.Driver, executor.Answer{
		Call: p.ID, Attempt: p.Attempt, Instance: p.Provider, State: executor.Finished, Response: &r,
	}, w.env())
	if d == nil {
		w.fail("the answer has no effect (retry %t)", retry)
	}
	w.commit(d, w.state.Driver)
}

// calls lets the model call tools, given as pairs of a tool and its arguments.
func (w *world) calls(toolAndArgs ...string) {
	w.t.Helper()
	w.answer(provider.Response{ToolCalls: calls(toolAndArgs...)})
}

func calls(toolAndArgs ...string) []provider.ToolCall {
	var out []provider.ToolCall
	for i := 0; i < len(toolAndArgs); i += 2 {
		out = append(out, provider.ToolCall{
			ID: fmt.Sprintf("c%d", i/2), Tool: toolAndArgs[i], Args: json.RawMessage(toolAndArgs[i+1]),
		})
	}
	return out
}

func (w *world) final(text string) {
	w.t.Helper()
	w.answer(provider.Response{TextContent: text})
}

// replied delivers a runner's answer about a call's current attempt.
func (w *world) replied(call string, a executor.Answer) (retry bool) {
	w.t.Helper()
	st := w.step(call)
	a.Call, a.Attempt = st.Call, st.Attempt
	if a.State == executor.Never || a.State == executor.Refused {
		w.seen.refusedBy[a.Attempt] = true
	}
	d, retry := decide.OnCallAnswer(w.state, w.state.Driver, a, w.env())
	if d != nil {
		w.commit(d, w.state.Driver)
	}
	return retry
}

func (w *world) result(call string, r tool.Result) {
	w.t.Helper()
	w.replied(call, executor.Answer{State: executor.Finished, Result: &r})
}

func (w *world) succeed(call, data string) {
	w.t.Helper()
	w.result(call, tool.Result{Success: true, Data: json.RawMessage(data)})
}

// step returns a step by the suffix of its call's id: "c0", or "c1-s2".
func (w *world) step(call string) decide.Step {
	w.t.Helper()
	if w.state.Turn != nil {
		for _, st := range w.state.Turn.Steps {
			if strings.HasSuffix(st.Call, "-"+call) {
				return st
			}
		}
	}
	w.fail("no call %s is open", call)
	return decide.Step{}
}

func (w *world) status(call string) decide.Status { w.t.Helper(); return w.step(call).Status }

// confirm answers a confirmation request as it was shown.
func (w *world) confirm(call string, approved bool) string {
	w.t.Helper()
	st := w.step(call)
	return w.process(w.cause(subject.Confirmation, "web", string(mustJSON(event.Confirmation{
		ConfirmationID: st.Call, Hash: st.Hash, Approved: approved,
	}))), nil)
}

// refused checks that the last commit only refuses an answer about call, with hash: it
// moves the cursor, and audits the refusal.
func (w *world) refused(before decide.State, call, hash string) event.Audited {
	w.t.Helper()
	c := w.last()
	var p event.Audited
	if len(c.Events) != 1 || c.Events[0].DataAs(&p) != nil {
		w.fail("the commit is %+v", c)
	}
	if p.Action != event.ActionConfirmation || p.Effect != decide.Deny || p.Principal != "web" || p.Call != call ||
		p.Hash != hash || p.Reason == "" {
		w.fail("it is audited as %+v", p)
	}
	after := *w.state
	if after.Cursor == before.Cursor || after.Driver != before.Driver || after.Delivery != before.Delivery {
		w.fail("cursor %d, then %d; driver %d, then %d", before.Cursor, after.Cursor, before.Driver, after.Driver)
	}
	// Apart from what every commit changes, the state is unchanged.
	after.Rev, after.Prev, after.Cursor = before.Rev, before.Prev, before.Cursor
	after.Commits, after.Now, after.Digest = before.Commits, before.Now, before.Digest
	w.same(&before, &after, "state before", "state after")
	return p
}

func (w *world) progress() bool {
	w.t.Helper()
	d := decide.OnProgress(w.state, w.state.Driver, w.env())
	if d != nil {
		w.commit(d, w.state.Driver)
	}
	return d != nil
}

func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// chance is true once in n, on average.
func chance(r *rand.Rand, n int) bool { return r.IntN(n) == 0 }

func oneOf[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }
