package agui_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/test/transporttest"
	"skandha.dev/services/uibridge/compat/agui"
	"skandha.dev/services/uibridge/contract"
)

func about() contract.About {
	return contract.About{Agent: "main", Session: "s", Turn: "t1"}
}

func delta(plan, attempt string, n int, text, reasoning string) contract.Delta {
	return contract.Delta{
		About: about(), Delta: provider.Delta{Plan: plan, Attempt: attempt, N: n, Text: text, Reasoning: reasoning},
	}
}

// script sends one turn by hand, after its input has arrived.
func script(t *testing.T, steps ...any) []wire {
	t.Helper()
	b := transporttest.New()
	c := newClient(t, b, agui.Config{})
	ref := transporttest.Main("s")
	s := c.ask(ctx(t), input("s", "r1", "hello")) // it has been taken when the answer begins
	for _, v := range steps {
		b.Tell(ref, methodOf(v), v)
	}
	s.last()
	return s.events
}

func methodOf(v any) string {
	switch v.(type) {
	case contract.PlanRequested:
		return contract.OnPlanRequested
	case contract.PlanCompleted:
		return contract.OnPlanCompleted
	case contract.Delta:
		return contract.OnDelta
	case contract.ToolResult:
		return contract.OnToolResult
	case contract.ToolCall:
		return contract.OnToolCall
	case contract.TurnEnd:
		return contract.OnTurnEnd
	}
	panic(fmt.Sprintf("%T", v))
}

func requested(plan, attempt string, round int) contract.PlanRequested {
	return contract.PlanRequested{About: about(), Plan: plan, Round: round, Attempt: attempt}
}

func completed(plan, text string, steps ...event.Step) contract.PlanCompleted {
	return contract.PlanCompleted{About: about(), Plan: plan, Text: text, Steps: steps}
}

func recorded(answer string) contract.TurnEnd {
	return contract.TurnEnd{
		About: about(), Recorded: &event.Recorded{Sequence: 1, Answer: answer, Usage: provider.Usage{InputTokens: 3}},
	}
}

func TestReasoningIsTold(t *testing.T) {
	events := script(t, requested("p1", "a", 1), delta("p1", "a", 0, "", "hm"), delta("p1", "a", 1, "", "m"),
		delta("p1", "a", 2, "Yes", ""), completed("p1", "Yes."), recorded("Yes."))
	want := "RUN_STARTED STATE_SNAPSHOT STEP_STARTED REASONING_START REASONING_MESSAGE_START REASONING_MESSAGE_CONTENT " +
		"REASONING_MESSAGE_CONTENT REASONING_MESSAGE_END REASONING_END TEXT_MESSAGE_START TEXT_MESSAGE_CONTENT " +
		"TEXT_MESSAGE_CONTENT TEXT_MESSAGE_END STEP_FINISHED RUN_FINISHED"
	if got := strings.Join(types(events), " "); got != want {
		t.Errorf(" got %s\nwant %s", got, want)
	}
	if last := events[len(events)-1]; len(last.Usage) != 1 || last.Usage[0].InputTokens != 3 {
		t.Errorf("usage is %+v", last.Usage)
	}
}

// A text that is written again is another message, and at the end the messages that count
// are listed.
func TestATextThatIsWrittenAnewIsAnotherMessage(t *testing.T) {
	for name, steps := range map[string][]any{
		"another attempt": {
			requested("p1", "a", 1), delta("p1", "a", 0, "Wrong", ""), requested("p1", "b", 1), delta("p1", "a", 1, " late", ""),
			delta("p1", "b", 0, "Rig", ""), completed("p1", "Right"), recorded("Right"),
		},
		"a hook's changes": {
			requested("p1", "a", 1), delta("p1", "a", 0, "Wrong", ""), completed("p1", "Right"), recorded("Right"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			events := script(t, steps...)
			ids, text := texts(events)
			if len(ids) != 2 || text[ids[0]] != "Wrong" || text[ids[1]] != "Right" {
				t.Errorf("texts are %v %v", ids, text)
			}
			var last struct{ ID, Role, Content string }
			for _, e := range events {
				if e.Type == "MESSAGES_SNAPSHOT" && len(e.Messages) == 2 {
					if err := json.Unmarshal(e.Messages[1], &last); err != nil {
						t.Fatal(err)
					}
				}
			}
			if last.ID != ids[1] || last.Role != "assistant" || last.Content != "Right" {
				t.Errorf("the message that counts is %+v", last)
			}
		})
	}
}

// The message contains whatever was lost of the deltas.
func TestLostDeltasAreMadeUpFor(t *testing.T) {
	events := script(t, delta("p1", "a", 0, "One ", ""), requested("p1", "a", 1), delta("p1", "a", 2, "three ", ""),
		completed("p1", "One two three four"), recorded("One two three four"))
	ids, text := texts(events)
	if len(ids) != 1 || text[ids[0]] != "One two three four" {
		t.Errorf("texts are %v %v", ids, text)
	}
}

// Whatever the order of notifications, a client can follow: its events are legal, and the
// texts that count are those of the log.
func TestAnyOrderIsLegal(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 60 {
		var steps []any
		rounds := 1 + rnd.IntN(3)
		for round := 1; round <= rounds; round++ {
			plan, text := fmt.Sprint("p", round), ""
			for attempt := range 1 + rnd.IntN(2) {
				a := fmt.Sprint(plan, "a", attempt)
				steps = append(steps, requested(plan, a, round))
				text = ""
				for n := range rnd.IntN(6) {
					d := delta(plan, a, n, fmt.Sprint("w", rnd.IntN(10), " "), "")
					if rnd.IntN(4) == 0 {
						d.Text, d.Reasoning = "", "hm "
					}
					text += d.Text
					if rnd.IntN(5) > 0 { // else it is lost
						steps = append(steps, d)
					}
					if rnd.IntN(5) == 0 && len(steps) > 1 { // or overtakes
						i := len(steps) - 1
						steps[i], steps[i-1] = steps[i-1], steps[i]
					}
				}
			}
			var calls []event.Step
			if round < rounds {
				for i := range 1 + rnd.IntN(3) {
					calls = append(calls, event.Step{Call: fmt.Sprint(plan, "-c", i), Tool: "x", Args: json.RawMessage(`{}`)})
				}
			} else {
				text += "end"
			}
			steps = append(steps, completed(plan, text, calls...))
			for _, c := range calls {
				if rnd.IntN(3) > 0 {
					steps = append(steps, contract.ToolCall{About: about(), Call: c.Call, ToolName: "x", Args: c.Args})
				}
			}
			for _, i := range rnd.Perm(len(calls)) {
				steps = append(steps,
					contract.ToolResult{About: about(), Call: calls[i].Call, ToolName: "x", Result: tool.Result{Success: true}})
			}
		}
		answer := steps[len(steps)-1].(contract.PlanCompleted).Text
		events := script(t, append(steps, recorded(answer))...) // which checks the order
		ids, text := texts(events)
		if got := text[ids[len(ids)-1]]; got != answer {
			t.Fatalf("the last text is %q, the answer %q", got, answer)
		}
	}
}

func TestWhatIsWrongIsRefused(t *testing.T) {
	b := transporttest.New()
	c := newClient(t, b, agui.Config{MaxMessage: 4096})
	message := func(role string, content any) map[string]any {
		return map[string]any{"messages": []any{map[string]any{"id": "m", "role": role, "content": content}}}
	}
	for name, x := range map[string]struct {
		in    map[string]any
		field string
	}{
		"no thread":       {input("", "r", "x"), "threadId"},
		"no run":          {input("t", "", "x"), "runId"},
		"a long run":      {input("t", strings.Repeat("x", 200), "x"), "runId"},
		"no messages":     {input("t", "r", "", map[string]any{"messages": []any{}}), "messages"},
		"nothing said":    {input("t", "r", " "), "messages[0].content"},
		"the agent's own": {input("t", "r", "", message("assistant", "x")), "messages[0].role"},
		"a picture": {
			input("t", "r", "", message("user", []any{map[string]any{"type": "image"}})), "messages[0].content",
		},
		"a number":     {input("t", "r", "", message("user", 1)), "messages[0].content"},
		"a wrong type": {input("t", "r", "", map[string]any{"context": 1}), "context"},
		"unknown props": {
			input("t", "r", "x", map[string]any{"forwardedProps": map[string]any{"skandha": map[string]any{"x": 1}}}),
			"forwardedProps.skandha",
		},
		"a resume of none": {input("t", "r", "", resume("", "resolved", nil)), "resume[0].interruptId"},
		"a status":         {input("t", "r", "", resume("c", "maybe", nil)), "resume[0].status"},
		"no answer":        {input("t", "r", "", resume("c", "resolved", map[string]any{})), "resume[0].payload"},
		"other arguments": {
			input("t", "r", "", resume("c", "resolved", map[string]any{"approved": true, "editedArgs": map[string]any{}})),
			"resume.payload",
		},
		"two answers": {
			input("t", "r", "", resume("c", "resolved", map[string]any{"approved": false, "Approved": true})), "resume.payload",
		},
		"not asked": {input("t", "r", "", resume("c", "cancelled", nil)), "resume[0].interruptId"},
		"too much":  {input("t", "r", strings.Repeat("x", 5000)), "body"},
	} {
		t.Run(name, func(t *testing.T) {
			c := *c
			c.t = t
			if s := c.ask(ctx(t), x.in); s.Code < 400 || s.Code >= 500 || s.Error.Field != x.field {
				t.Errorf("got %d %+v", s.Code, s.Error)
			}
		})
	}
	if len(b.Log()) > 0 {
		t.Errorf("something was taken: %v", b.Log())
	}
}

func TestToolsOfTheClientAreRefused(t *testing.T) {
	b := transporttest.New()
	last := newClient(t, b, agui.Config{}).ask(ctx(t),
		input("t", "r", "x",
			map[string]any{
				"tools": []any{map[string]any{"name": "x", "description": "y", "parameters": map[string]any{}}},
			})).last()
	if last.Type != "RUN_ERROR" || last.Code != "unsupported_tools" || len(b.Log()) > 0 {
		t.Errorf("got %+v, %v", last, b.Log())
	}
}

func TestWhatReachesTheAgent(t *testing.T) {
	b := transporttest.New()
	c := newClient(t, b, agui.Config{})
	in := input("a thread", "run", "", map[string]any{
		"context":        []any{map[string]any{"description": "page", "value": "42"}},
		"forwardedProps": map[string]any{"other": 1, "skandha": map[string]any{"mode": "interrupt"}},
		"messages": []any{
			map[string]any{"id": "m1", "role": "user", "content": "before"},
			map[string]any{"id": "m2", "role": "user", "content": []any{map[string]any{"type": "text", "text": "now"}}},
		},
	})
	s := c.ask(ctx(t), in)
	s.until("RUN_STARTED")
	want := []any{contract.Submission{
		Ref: subject.Ref{Agent: "main", Session: "agui-a-20thread"}, Text: "now\n\n<context>\npage: 42\n</context>",
		ID: "run", Mode: event.ModeInterrupt, Source: "agui",
	}}
	if got := b.Log(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
}

func TestTheClientsStateStaysBesideOurs(t *testing.T) {
	c := newClient(t, transporttest.New(), agui.Config{})
	s := c.ask(ctx(t), input("t", "r", "x", map[string]any{"state": map[string]any{"mine": 1}}))
	if got := string(s.until("STATE_SNAPSHOT").Snapshot); !strings.Contains(got, `"mine":1`) ||
		!strings.Contains(got, `"session":"t"`) {
		t.Errorf("got %s", got)
	}
}

// A feed that ends is reported in the protocol's way; one that was too slow continues.
func TestAFeedThatEnds(t *testing.T) {
	b := transporttest.New()
	c := newClient(t, b, agui.Config{})
	s := c.ask(ctx(t), input("s", "r", "x"))
	s.until("STATE_SNAPSHOT")
	b.Break(transporttest.Main("s"), &contract.Error{Code: contract.CodeSlow, Message: "slow"})
	b.Tell(transporttest.Main("s"), contract.OnPlanRequested, requested("p1", "a", 1))
	s.until("STEP_STARTED")
	b.Break(transporttest.Main("s"), &contract.Error{Code: contract.CodeUnavailable, Message: "the log cannot be read"})
	if last := s.last(); last.Type != "RUN_ERROR" || last.Code != "unavailable" {
		t.Errorf("got %+v", last)
	}
}

func TestRightsAreNeeded(t *testing.T) {
	c := newClient(t, transporttest.New(), agui.Config{})
	for name, x := range map[string]struct {
		p    contract.Principal
		code int
	}{
		"nobody":        {contract.Principal{}, http.StatusUnauthorized},
		"one who talks": {transporttest.Principal(contract.Talk), http.StatusForbidden},
		"one who looks": {transporttest.Principal(contract.See), http.StatusForbidden},
		"another agent": {
			contract.Principal{Name: "x", Rights: contract.AllRights(), Agents: []subject.Agent{"other"}}, http.StatusForbidden,
		},
	} {
		c.server.As(x.p)
		if s := c.ask(ctx(t), input("t", "r", "x")); s.Code != x.code {
			t.Errorf("%s: %d %+v", name, s.Code, s.Error)
		}
	}
}

func TestOnlyJSONByPost(t *testing.T) {
	c := newClient(t, transporttest.New(), agui.Config{})
	for _, x := range []struct {
		method, kind string
		want         int
	}{
		{http.MethodGet, "application/json", 405},
		{http.MethodPost, "text/plain", 415},
		{http.MethodPost, "application/json", 400},
	} {
		r, err := http.NewRequestWithContext(ctx(t), x.method, c.url, bytes.NewReader([]byte("{")))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", x.kind)
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != x.want {
			t.Errorf("%s of %s: %d, want %d", x.method, x.kind, answer.StatusCode, x.want)
		}
	}
}

// The check of the order detects faults.
func TestOrderCheckFindsWhatIsIllegal(t *testing.T) {
	start, end := wire{Type: "RUN_STARTED", ThreadID: "t", RunID: "r", Timestamp: 1}, wire{
		Type: "RUN_FINISHED", ThreadID: "t", RunID: "r", Timestamp: 1,
	}
	end.Outcome.Type = "success"
	text := json.RawMessage(`"x"`)
	for name, middle := range map[string][]wire{
		"a step that is not ended":    {{Type: "STEP_STARTED", StepName: "s"}},
		"a step that has not begun":   {{Type: "STEP_FINISHED", StepName: "s"}},
		"a text outside of a message": {{Type: "TEXT_MESSAGE_CONTENT", MessageID: "m", Delta: text}},
		"an open message":             {{Type: "TEXT_MESSAGE_START", MessageID: "m", Role: "assistant"}},
		"a result of no call":         {{Type: "TOOL_CALL_RESULT", MessageID: "m", ToolCallID: "c"}},
		"reasoning without its frame": {{Type: "REASONING_MESSAGE_START", MessageID: "m"}},
		"a patch of no state":         {{Type: "STATE_DELTA", Delta: json.RawMessage(`[]`)}},
		"an unknown event":            {{Type: "THINKING"}},
		"two ends":                    {end},
		"two starts":                  {start},
	} {
		events := []wire{start}
		for _, e := range middle {
			e.Timestamp = 1
			events = append(events, e)
		}
		if bad := check(append(events, end)); len(bad) == 0 {
			t.Errorf("%s was not found", name)
		}
	}
	if bad := check([]wire{start, end}); len(bad) > 0 {
		t.Errorf("a run in order has %q", bad)
	}
	if bad := check([]wire{start}); len(bad) == 0 {
		t.Error("a run without an end was not found")
	}
}

func TestThreadsAndSessions(t *testing.T) {
	seen := map[subject.Session]string{}
	for _, thread := range []string{
		"main-1", "0b0e8a9c-1111-4222-8333-123456789abc", "a b", "a-20b", "agui-a-20b", "agui-x", "aguih-x", "a/b", "..", "*",
		">", "ü", strings.Repeat("x", 64),
		strings.Repeat("x", 65), strings.Repeat("x", 66), strings.Repeat("ü", 30), "\x00", " ", "a.b.c",
	} {
		s := agui.SessionOf(thread)
		if !subject.Valid(string(s)) {
			t.Errorf("%q is the session %q, which is none", thread, s)
		}
		if other, taken := seen[s]; taken {
			t.Errorf("%q and %q share the session %s", thread, other, s)
		}
		seen[s] = thread
		if back, ok := threadOf(s); ok && back != thread {
			t.Errorf("%q comes back as %q", thread, back)
		} else if !ok && len(thread) < 40 {
			t.Errorf("%q does not come back", thread)
		}
	}
	if s := agui.SessionOf("main-1"); s != "main-1" {
		t.Errorf("a thread that can be a session is %s", s)
	}
}

// threadOf returns the thread of a session; false if its name was hashed.
func threadOf(s subject.Session) (string, bool) {
	if strings.HasPrefix(string(s), "aguih-") {
		return "", false
	}
	if rest, ok := strings.CutPrefix(string(s), "agui-"); ok {
		thread, err := subject.Decode(rest)
		return thread, err == nil && agui.SessionOf(thread) == s
	}
	return string(s), true
}
