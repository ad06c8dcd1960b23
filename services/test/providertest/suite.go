package providertest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/provider/adapter"
)

// patience is the limit of each wait; nothing is measured.
const patience = time.Minute

type testCase struct {
	name string
	test func(*testing.T, adapter.Adapter)
}

func (s *suite) cases() []testCase {
	return []testCase{
		{"describes itself", saysWhoItIs},
		{"lists its models", listsModels},
		{"answers with text", s.answersWithText},
		{byDeltas, s.streams},
		{"makes one call", makesOneCall},
		{"makes parallel calls with distinct ids", makesParallelCalls},
		{"makes calls distinct whose ids are not", separatesTwins},
		{"says something beside a call", s.commentsACall},
		{"goes from call to result to answer", roundTrip},
		{"carries a failed result", carriesFailure},
		{"keeps arguments that are not JSON", keepsBrokenArgs},
		{"keeps arguments of every type", keepsOddArgs},
		{"calls without arguments are objects", emptyArgs},
		{"passes on an unknown tool", unknownTool},
		{"carries a long conversation of any characters", s.anyCharacters},
		{"shows the files of a message", showsFiles},
		{"names the files that it cannot show", namesFiles},
		{"shows the files of results", showsResultFiles},
		{bySchema, asksBySchema},
		{bySchemaAndTools, asksBySchemaBesideTools},
		{"reports usage", reportsUsage},
		{"reports cached and reasoning tokens", reportsDetails},
		{"says that nothing was counted", reportsUnknown},
		{"accepts every parameter", acceptsParameters},
		{"treats an empty answer as garbage", emptyAnswer},
		{"maps failures", mapsFailures},
		{"refuses messages that are none", refusesBadMessages},
		{"bounds the text", boundsText},
		{"bounds a text that never ends", boundsEndless},
		{"bounds the calls", boundsCalls},
		{"returns when it is cancelled", cancelHang},
		{cancelsMidway, s.cancelStream},
		{"returns at the deadline", deadline},
		{"does not begin when it is too late", tooLate},
		{"answers many at once", s.answersMany},
	}
}

// wantDeltas compares the deltas of an answer with its text.
func (s *suite) wantDeltas(t *testing.T, deltas, text string) {
	t.Helper()
	switch {
	case s.NoDeltas != "" && deltas != "":
		t.Errorf("the deltas are %q, but the adapter declares that it has none", deltas)
	case s.NoDeltas == "" && deltas != text:
		t.Errorf("the deltas are %q, and the answer %q", deltas, text)
	}
}

// Offered are the tools that the suite's questions offer.
var Offered = []contract.ToolSpec{
	{
		Name: "math:evaluate", Description: "Evaluates an expression.",
		Args: json.RawMessage(`{"type":"object","properties":{"expression":{"type":"string"}},"required":["expression"]}`),
	},
	{Name: "odd-name_1:do it", Args: json.RawMessage(`{"type":"object"}`)},
}

func user(text string) contract.Message {
	return contract.Message{Role: contract.RoleUser, Text: text}
}

func question(t testing.TB, messages ...contract.Message) contract.Request {
	t.Helper()
	req := contract.Request{System: "You obey.", Tools: Offered}
	for _, m := range messages {
		b, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		req.Messages = append(req.Messages, b)
	}
	return req
}

// ask returns the answer and the pieces it came in; the answer keeps the contract.
func ask(t testing.TB, a adapter.Adapter, messages ...contract.Message) (contract.Response, []string) {
	t.Helper()
	var pieces []string
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	resp, err := a.Generate(ctx, question(t, messages...), func(text, _ string) { pieces = append(pieces, text) })
	if err != nil {
		t.Fatalf("asking: %v", err)
	}
	if err := (adapter.Limits{}).Check(resp); err != nil {
		t.Fatalf("the answer %+v breaks the contract: %v", resp, err)
	}
	if resp.IsFinal != (len(resp.ToolCalls) == 0) || resp.Model == "" || resp.StopReason == "" {
		t.Errorf("is_final %v, model %q, stop_reason %q with %d calls", resp.IsFinal, resp.Model, resp.StopReason,
			len(resp.ToolCalls))
	}
	return resp, pieces
}

// refused returns the failure of a question that must have one.
func refused(t testing.TB, a adapter.Adapter, messages ...contract.Message) *contract.Error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	resp, err := a.Generate(ctx, question(t, messages...), func(string, string) {})
	var e *contract.Error
	if !errors.As(err, &e) {
		t.Fatalf("want a failure of the contract, got %+v, %v", resp, err)
	}
	return e
}

func saysWhoItIs(t *testing.T, a adapter.Adapter) {
	if i := a.Info(); !subject.Valid(i.Name) || i.Model == "" {
		t.Errorf("info is %+v, want an id as name and a model", i)
	}
}

func (s *suite) answersWithText(t *testing.T, a adapter.Adapter) {
	resp, pieces := ask(t, a, user("hello, world"))
	if resp.TextContent != "echo: hello, world" || !resp.IsFinal || resp.StopReason != contract.StopEnd {
		t.Errorf("answer is %+v", resp)
	}
	s.wantDeltas(t, strings.Join(pieces, ""), resp.TextContent)
}

func (s *suite) streams(t *testing.T, a adapter.Adapter) {
	resp, pieces := ask(t, a, user("stream 50 words"))
	if !strings.HasPrefix(resp.TextContent, "word1 word2 ") || !strings.HasSuffix(resp.TextContent, " word50") {
		t.Errorf("text is %q", resp.TextContent)
	}
	s.wantDeltas(t, strings.Join(pieces, ""), resp.TextContent)
	if s.NoDeltas != "" {
		t.Log("NOT TESTED: that deltas come while the answer is written: " + s.NoDeltas)
		return
	}
	if len(pieces) < 10 {
		t.Errorf("the answer came in %d pieces", len(pieces))
	}
}

func wantCall(t *testing.T, c contract.ToolCall, tool, args string) {
	t.Helper()
	var have, want bytes.Buffer
	if json.Compact(&have, c.Args) != nil || json.Compact(&want, []byte(args)) != nil || have.String() != want.String() ||
		c.Tool != tool {
		t.Errorf("call is %s %s, want %s %s", c.Tool, c.Args, tool, args)
	}
}

func makesOneCall(t *testing.T, a adapter.Adapter) {
	resp, _ := ask(t, a, user(`call math:evaluate {"expression":"1+1 \"ä\" \\ {}"}`))
	if len(resp.ToolCalls) != 1 || resp.StopReason != contract.StopToolCalls || resp.IsFinal {
		t.Fatalf("answer is %+v", resp)
	}
	wantCall(t, resp.ToolCalls[0], "math:evaluate", `{"expression":"1+1 \"ä\" \\ {}"}`)
	resp, _ = ask(t, a, user(`call odd-name_1:do%20it {"deep":{"list":[1,2.50,1e400,null,true]}}`))
	wantCall(t, resp.ToolCalls[0], "odd-name_1:do%20it", `{"deep":{"list":[1,2.50,1e400,null,true]}}`)
}

func makesParallelCalls(t *testing.T, a adapter.Adapter) {
	resp, _ := ask(t, a, user(`call2 math:evaluate {"expression":"1"} ; math:evaluate {"expression":"2"}`))
	if len(resp.ToolCalls) != 2 {
		t.Fatalf("answer is %+v", resp)
	}
	wantCall(t, resp.ToolCalls[0], "math:evaluate", `{"expression":"1"}`)
	wantCall(t, resp.ToolCalls[1], "math:evaluate", `{"expression":"2"}`)
	if resp, _ := ask(t, a, user(`calls 64 math:evaluate {"expression":"1"}`)); len(resp.ToolCalls) != 64 {
		t.Errorf("%d calls, want 64", len(resp.ToolCalls))
	}
}

func (s *suite) commentsACall(t *testing.T, a adapter.Adapter) {
	resp, pieces := ask(t, a, user(`comment Let me see :: math:evaluate {}`))
	if resp.TextContent != "Let me see" || len(resp.ToolCalls) != 1 || resp.IsFinal {
		t.Errorf("answer is %+v", resp)
	}
	s.wantDeltas(t, strings.Join(pieces, ""), resp.TextContent)
}

// turn is the conversation after an answer with calls and their results.
func turn(resp contract.Response, results ...contract.Message) []contract.Message {
	out := []contract.Message{{
		Role: contract.RoleAssistant, Text: resp.TextContent, ToolCalls: resp.ToolCalls, ProviderState: resp.ProviderState,
	}}
	for i, r := range results {
		r.Role, r.CallID, r.Tool = contract.RoleTool, resp.ToolCalls[i].ID, resp.ToolCalls[i].Tool
		out = append(out, r)
	}
	return out
}

func roundTrip(t *testing.T, a adapter.Adapter) {
	talk := []contract.Message{user(`call2 math:evaluate {"expression":"1+1"} ; time:now {}`)}
	resp, _ := ask(t, a, talk...)
	talk = append(talk, turn(resp, contract.Message{Text: "2"}, contract.Message{Text: `"noon"`})...)
	last, _ := ask(t, a, talk...)
	if want := "math:evaluate: 2\n\ntime:now: \"noon\""; last.TextContent != want || !last.IsFinal {
		t.Errorf("answer is %+v, want %q", last, want)
	}
	talk = append(talk, contract.Message{Role: contract.RoleAssistant, Text: last.TextContent}, user("thanks"))
	if again, _ := ask(t, a, talk...); again.TextContent != "echo: thanks" {
		t.Errorf("the next turn's answer is %+v", again)
	}
}

func carriesFailure(t *testing.T, a adapter.Adapter) {
	talk := []contract.Message{user(`call math:evaluate {"expression":"1/0"}`)}
	resp, _ := ask(t, a, talk...)
	failed := contract.Message{Text: `{"error":{"code":"tool_failed","message":"division by zero"}}`, Failed: true}
	last, _ := ask(t, a, append(talk, turn(resp, failed)...)...)
	if want := "math:evaluate failed: tool_failed: division by zero"; last.TextContent != want {
		t.Errorf("answer is %q, want %q", last.TextContent, want)
	}
}

func keepsBrokenArgs(t *testing.T, a adapter.Adapter) {
	talk := []contract.Message{user(`call math:evaluate {"expression": "1`)}
	resp, _ := ask(t, a, talk...)
	wantCall(t, resp.ToolCalls[0], "math:evaluate", `"{\"expression\": \"1"`)

	refusal := contract.Message{Text: `{"error":{"code":"invalid_arguments","message":"no JSON"}}`, Failed: true}
	if last, _ := ask(t, a, append(talk, turn(resp, refusal)...)...); !strings.Contains(last.TextContent,
		"invalid_arguments") {
		t.Errorf("after the refusal the answer is %+v", last)
	}
}

// Models write arguments that are no object. Core says so to them.
func keepsOddArgs(t *testing.T, a adapter.Adapter) {
	for _, args := range []string{`[1,"2"]`, `7`, `null`, `"text"`} {
		talk := []contract.Message{user("call math:evaluate " + args)}
		resp, _ := ask(t, a, talk...)
		if len(resp.ToolCalls) != 1 || string(resp.ToolCalls[0].Args) != args {
			t.Fatalf("%s became %+v", args, resp.ToolCalls)
		}
		refusal := contract.Message{Text: `{"error":{"code":"invalid_arguments","message":"no object"}}`, Failed: true}
		if last, _ := ask(t, a, append(talk, turn(resp, refusal)...)...); !strings.Contains(last.TextContent, "no object") {
			t.Errorf("after the refusal of %s the answer is %+v", args, last)
		}
	}
}

func separatesTwins(t *testing.T, a adapter.Adapter) {
	talk := []contract.Message{user(`twins math:evaluate {"expression":"1"}`)}
	resp, _ := ask(t, a, talk...) // checks the ids
	if len(resp.ToolCalls) != 2 {
		t.Fatalf("answer is %+v", resp)
	}
	last, _ := ask(t, a, append(talk, turn(resp, contract.Message{Text: "1"}, contract.Message{Text: "2"})...)...)
	if want := "math:evaluate: 1\n\nmath:evaluate: 2"; last.TextContent != want {
		t.Errorf("answer is %q, want %q", last.TextContent, want)
	}
}

func emptyArgs(t *testing.T, a adapter.Adapter) {
	resp, _ := ask(t, a, user(`call time:now`))
	wantCall(t, resp.ToolCalls[0], "time:now", `{}`)
}

func unknownTool(t *testing.T, a adapter.Adapter) {
	talk := []contract.Message{user("unknown tool")}
	resp, _ := ask(t, a, talk...)
	wantCall(t, resp.ToolCalls[0], "no:such_tool", `{}`)

	// A name of any length must not make every later question fail.
	talk = []contract.Message{user("call " + strings.Repeat("very_", 30) + "long {}")}
	resp, _ = ask(t, a, talk...)
	ask(t, a,
		append(talk,
			turn(resp, contract.Message{Text: `{"error":{"code":"unknown_tool","message":"?"}}`, Failed: true})...)...)
}

func (s *suite) anyCharacters(t *testing.T, a adapter.Adapter) {
	const odd = "ä 漢字 🧿 \u2028 \\ \" ' < & > \t tab"
	var talk []contract.Message
	for i := range 40 {
		talk = append(talk, user(fmt.Sprintf("%d %s", i, odd)), contract.Message{Role: contract.RoleAssistant, Text: odd})
	}
	resp, pieces := ask(t, a, append(talk, user(odd+"\nsecond line"))...)
	if want := "echo: " + odd + "\nsecond line"; resp.TextContent != want {
		t.Errorf("answer is %q, want %q", resp.TextContent, want)
	}
	s.wantDeltas(t, strings.Join(pieces, ""), resp.TextContent)
}

func reportsUsage(t *testing.T, a adapter.Adapter) {
	if resp, _ := ask(t, a, user("spend 1000 tokens")); resp.Usage.InputTokens != 1000 || resp.Usage.OutputTokens != 1000 {
		t.Errorf("usage is %+v, want 1000 tokens each way", resp.Usage)
	}
}

func reportsDetails(t *testing.T, a adapter.Adapter) {
	resp, _ := ask(t, a, user("spend 1000 tokens, 400 cached, 50 reasoning"))
	want := contract.Usage{InputTokens: 1000, OutputTokens: 1000, CachedTokens: 400, ReasoningTokens: 50}
	got := resp.Usage
	got.CostMicroUSD, got.Unpriced = 0, 0
	if got != want {
		t.Errorf("usage is %+v, want %+v", got, want)
	}
}

func reportsUnknown(t *testing.T, a adapter.Adapter) {
	resp, _ := ask(t, a, user("count nothing"))
	if want := (contract.Usage{Uncounted: 1, Unpriced: 1}); resp.Usage != want {
		t.Errorf("usage is %+v, want %+v", resp.Usage, want)
	}
}

func acceptsParameters(t *testing.T, a adapter.Adapter) {
	temperature := 0.5
	req := question(t, user("hello"))
	req.Temperature, req.MaxTokens, req.Model = &temperature, 100, "another-model"
	if resp, err := a.Generate(t.Context(), req, func(string, string) {}); err != nil ||
		resp.TextContent != "echo: hello" {
		t.Errorf("answer is %+v, %v", resp, err)
	}
	req = contract.Request{Messages: question(t, user("hello")).Messages}
	if _, err := a.Generate(t.Context(), req, func(string, string) {}); err != nil {
		t.Errorf("without a system prompt and tools: %v", err)
	}
}

func emptyAnswer(t *testing.T, a adapter.Adapter) {
	if e := refused(t, a, user("garbage")); e.Code != contract.ErrGarbage || !e.Retryable {
		t.Errorf("neither text nor calls is %+v, want garbage, retryable", e)
	}
}

func mapsFailures(t *testing.T, a adapter.Adapter) {
	for _, c := range []struct {
		code      contract.ErrorCode
		retryable bool
	}{
		{contract.ErrAuth, false},
		{contract.ErrRateLimited, true},
		{contract.ErrUnavailable, true},
		{contract.ErrTimeout, true},
		{contract.ErrBadRequest, false},
		{contract.ErrGarbage, true},
		{contract.ErrTooLong, false},
	} {
		e := refused(t, a, user("fail "+string(c.code)))
		if e.Code != c.code || e.Retryable != c.retryable || e.Message == "" {
			t.Errorf("%s became %+v", c.code, e)
		}
	}
	if e := refused(t, a, user("fail rate_limited retry 90000 ms")); e.RetryInMS != 90000 {
		t.Errorf("the API's wish of 90 s became %+v", e)
	}
}

func refusesBadMessages(t *testing.T, a adapter.Adapter) {
	req := contract.Request{Messages: []json.RawMessage{json.RawMessage(`{"role":`)}}
	_, err := a.Generate(t.Context(), req, func(string, string) {})
	var e *contract.Error
	if !errors.As(err, &e) || e.Code != contract.ErrBadRequest || e.Retryable {
		t.Errorf("a message that is no JSON gives %v, want bad_request", err)
	}
}

func boundsText(t *testing.T, a adapter.Adapter) {
	if resp, _ := ask(t, a, user("text 200000 bytes")); len(resp.TextContent) != 200000 {
		t.Errorf("the text has %d bytes, want 200000", len(resp.TextContent))
	}
	for _, n := range []int{300_000, 10_000_000} {
		if e := refused(t, a, user(fmt.Sprintf("text %d bytes", n))); e.Code != contract.ErrTooLong || e.Retryable {
			t.Errorf("%d bytes of text are %+v, want too_long", n, e)
		}
	}
}

func boundsEndless(t *testing.T, a adapter.Adapter) {
	if e := refused(t, a, user("never ends")); e.Code != contract.ErrTooLong || e.Retryable {
		t.Errorf("a text without end is %+v, want too_long", e)
	}
}

func boundsCalls(t *testing.T, a adapter.Adapter) {
	for _, n := range []int{65, 20_000} {
		order := fmt.Sprintf(`calls %d math:evaluate {"expression":"1"}`, n)
		if e := refused(t, a, user(order)); e.Code != contract.ErrTooLong || e.Retryable {
			t.Errorf("%d calls are %+v, want too_long", n, e)
		}
	}
}

// begin asks in the background; the channel gets the error.
func begin(ctx context.Context, t *testing.T, a adapter.Adapter, text string, delta func(string, string)) <-chan error {
	t.Helper()
	req := question(t, user(text))
	done := make(chan error, 1)
	go func() {
		_, err := a.Generate(ctx, req, delta)
		done <- err
	}()
	return done
}

func wantCancelled(t *testing.T, done <-chan error) {
	t.Helper()
	select {
	case err := <-done:
		var e *contract.Error
		if !errors.Is(err, context.Canceled) && !errors.As(err, &e) {
			t.Errorf("a cancelled question ends with %v", err)
		}
	case <-time.After(patience):
		t.Fatal("the request continues after it was cancelled")
	}
}

func cancelHang(t *testing.T, a adapter.Adapter) {
	ctx, cancel := context.WithCancel(t.Context())
	done := begin(ctx, t, a, "hang", func(string, string) {})
	cancel()
	wantCancelled(t, done)
}

func (s *suite) cancelStream(t *testing.T, a adapter.Adapter) {
	if s.NoDeltas != "" {
		t.Log("NOT TESTED: an answer that is cancelled after its first delta: " + s.NoDeltas)
		return
	}
	ctx, cancel := context.WithCancel(t.Context())
	var once sync.Once
	wantCancelled(t, begin(ctx, t, a, "stream 10000 words every 20 ms", func(string, string) { once.Do(cancel) }))
}

func deadline(t *testing.T, a adapter.Adapter) {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	select {
	case err := <-begin(ctx, t, a, "hang", func(string, string) {}):
		if e := adapter.Failure(err); e == nil || e.Code != contract.ErrTimeout || !e.Retryable {
			t.Errorf("the deadline gives %v, want timeout, retryable", err)
		}
	case <-time.After(patience):
		t.Fatal("the request continues after its deadline")
	}
}

func tooLate(t *testing.T, a adapter.Adapter) {
	ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	_, err := a.Generate(ctx, question(t, user("hello")), func(string, string) {})
	if e := adapter.Failure(err); e == nil || e.Code != contract.ErrTimeout {
		t.Errorf("a deadline in the past gives %v, want timeout", err)
	}
}

func (s *suite) answersMany(t *testing.T, a adapter.Adapter) {
	var wg sync.WaitGroup
	for i := range 16 {
		text := fmt.Sprintf("number %d", i)
		req := question(t, user(text))
		wg.Go(func() {
			var pieces strings.Builder
			resp, err := a.Generate(t.Context(), req, func(piece, _ string) { pieces.WriteString(piece) })
			if err != nil || resp.TextContent != "echo: "+text {
				t.Errorf("%q is answered by %q, %v", text, resp.TextContent, err)
			}
			s.wantDeltas(t, pieces.String(), resp.TextContent)
		})
	}
	wg.Wait()
}
