package openai_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/services/provider/openai"
	"skandha.dev/services/test/openaitest"
)

var spent = contract.Usage{InputTokens: 7, OutputTokens: 3}

// items answers with items that are complete at once.
func items(all ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		s := openaitest.NewResponsesStream(w)
		for i, item := range all {
			s.Item(fmt.Sprint(i), item)
		}
		s.Event("response.completed", `"response":{"status":"completed","model":"m","usage":{"input_tokens":7,"output_tokens":3}}`)
	}
}

// written answers by a function.
func written(write func(s *openaitest.ResponsesStream)) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { write(openaitest.NewResponsesStream(w)) }
}

const (
	thought = `{"type":"reasoning","id":"rs_1","encrypted_content":"gAAA<&>=","summary":[],"new":{"n":1.50}}`
	comment = `{"type":"message","id":"msg_1","role":"assistant","status":"completed","phase":"commentary",` +
		`"content":[{"type":"output_text","annotations":[],"text":"I look it up."}]}`
	callX = `{"type":"function_call","id":"fc_1","status":"completed","call_id":"call_a","name":"x--y","arguments":"{\"n\": 1.50}"}`
	callZ = `{"type":"function_call","id":"fc_2","status":"completed","call_id":"call_b","name":"z","arguments":"{}"}`
	final = `{"type":"message","id":"msg_2","role":"assistant","status":"completed","phase":"final_answer",` +
		`"content":[{"type":"output_text","annotations":[],"text":"Done."}]}`
)

func said(resp contract.Response) contract.Message {
	return contract.Message{
		Role: contract.RoleAssistant, Text: resp.TextContent, ToolCalls: resp.ToolCalls, ProviderState: resp.ProviderState,
	}
}

func says(text string) contract.Message { return contract.Message{Role: contract.RoleUser, Text: text} }

func resultOf(c contract.ToolCall, text string) contract.Message {
	return contract.Message{Role: contract.RoleTool, CallID: c.ID, Tool: c.Tool, Text: text}
}

// askAll asks, and returns the input as it was sent.
func askAll(t *testing.T, s *openaitest.Server, a *openai.Adapter, talk ...contract.Message) (contract.Response, []string) {
	t.Helper()
	resp, err := a.Generate(t.Context(), request(t, talk...), func(string, string) {})
	if err != nil {
		t.Fatal(err)
	}
	seen := s.SeenResponses()
	var sent []string
	for _, raw := range seen[len(seen)-1].Input {
		sent = append(sent, plain(raw))
	}
	return resp, sent
}

// plain undoes the escapes of < > & that encoding/json adds; they mean the same.
func plain(raw json.RawMessage) string {
	return strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&").Replace(string(raw))
}

func TestItemsGoBackByteForByte(t *testing.T) {
	s := openaitest.New(t)
	a := client(t, s, speaking(openai.Responses))
	s.Next(items(thought, comment, callX, callZ), items(thought, final), items(final))
	resp, _ := askAll(t, s, a, says("go"))
	if resp.TextContent != "I look it up." || calls(resp) != `call_a x:y {"n": 1.50}; call_b z {}; ` ||
		resp.StopReason != contract.StopToolCalls {
		t.Fatalf("answered %+v, calls %s", resp, calls(resp))
	}
	talk := []contract.Message{says("go"), said(resp), resultOf(resp.ToolCalls[0], "1"), resultOf(resp.ToolCalls[1], "2")}
	// Core fills in defaults. That does not change what the model has written.
	talk[1].ToolCalls = slices.Clone(talk[1].ToolCalls)
	talk[1].ToolCalls[0].Args = json.RawMessage(`{"n":1.5,"unit":"m"}`)
	last, sent := askAll(t, s, a, talk...)
	want := []string{
		`{"type":"message","role":"user","content":"go"}`, thought, comment, callX, callZ,
		`{"type":"function_call_output","call_id":"call_a","output":"1"}`,
		`{"type":"function_call_output","call_id":"call_b","output":"2"}`,
	}
	if !slices.Equal(sent, want) {
		t.Errorf("sent\n%s\nwant\n%s", strings.Join(sent, "\n"), strings.Join(want, "\n"))
	}
	_, sent = askAll(t, s, a, append(talk, said(last), says("thanks"))...)
	if !slices.Equal(sent[7:9], []string{thought, final}) {
		t.Errorf("after the turn, sent %s", sent[7:])
	}
}

func TestAMessageThatAHookHasChangedIsBuiltAnew(t *testing.T) {
	s := openaitest.New(t)
	a := client(t, s, speaking(openai.Responses))
	s.Next(items(thought, comment, callX, callZ))
	resp, _ := askAll(t, s, a, says("go"))
	for name, change := range map[string]func(m *contract.Message){
		"the text":      func(m *contract.Message) { m.Text = "I look [hidden] up." },
		"an argument":   func(m *contract.Message) { m.ToolCalls[0].Args = json.RawMessage(`{"n":"[hidden]"}`) },
		"no argument":   func(m *contract.Message) { m.ToolCalls[0].Args = json.RawMessage(`{}`) },
		"one call less": func(m *contract.Message) { m.ToolCalls = m.ToolCalls[:1] },
		"one call more": func(m *contract.Message) { m.ToolCalls = append(m.ToolCalls, contract.ToolCall{ID: "c", Tool: "z"}) },
		"another tool":  func(m *contract.Message) { m.ToolCalls[1].Tool = "other" },
		"the order":     func(m *contract.Message) { slices.Reverse(m.ToolCalls) },
		"the state of another host": func(m *contract.Message) {
			m.ProviderState = swap(m.ProviderState, `"openai_host":"`, `"openai_host":"x`)
		},
		"a state that is cut":        func(m *contract.Message) { m.ProviderState = json.RawMessage(`{"openai_items":[7]}`) },
		"the state of chat":          func(m *contract.Message) { m.ProviderState = json.RawMessage(`{"reasoning_content":"x"}`) },
		"the state of another model": func(m *contract.Message) { m.ProviderState = json.RawMessage(`["signature"]`) },
		"no state":                   func(m *contract.Message) { m.ProviderState = nil },
	} {
		m := said(resp)
		m.ToolCalls = slices.Clone(m.ToolCalls)
		change(&m)
		talk := []contract.Message{says("go"), m}
		for _, c := range m.ToolCalls {
			talk = append(talk, resultOf(c, "1"))
		}
		_, sent := askAll(t, s, a, talk...) // the server refuses calls without results, and items that were changed
		if all := strings.Join(sent, "\n"); strings.Contains(all, "rs_1") || strings.Contains(all, `"id"`) ||
			!strings.Contains(all, `{"type":"function_call","call_id":"call_`) {
			t.Errorf("%s: sent %s", name, all)
		}
	}
}

func swap(raw json.RawMessage, from, to string) json.RawMessage {
	return json.RawMessage(strings.Replace(string(raw), from, to, 1))
}

// What cannot go back is no state: the message is built from its text and calls.
func TestStatesThatAreNotKept(t *testing.T) {
	big := `{"type":"function_call","id":"fc_1","call_id":"a","name":"z","arguments":"{\"x\":\"` + strings.Repeat("x", 200<<10) + `\"}"}`
	for name, all := range map[string][]string{
		"text and no more":      {strings.Replace(final, `"phase":"final_answer",`, "", 1)},
		"reasoning by name":     {`{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":null}`, callX},
		"an item broken off":    {thought, strings.Replace(callX, "completed", "incomplete", 1)},
		"two calls with one id": {thought, callX, callX},
		"a call without an id":  {thought, strings.Replace(callX, "call_a", "", 1)},
		"an impossible name":    {thought, strings.Replace(callX, "x--y", "functions.x", 1)},
		"large arguments":       {big},
	} {
		s := openaitest.New(t)
		s.Next(items(all...))
		resp, _, err := generate(t, client(t, s, speaking(openai.Responses)), "hello")
		if err != nil || resp.ProviderState != nil {
			t.Errorf("%s: %+v, %v", name, resp, err)
		}
	}
}

// Servers other than OpenAI's put the events on the wire in their own ways.
func TestEventsOfOtherServers(t *testing.T) {
	for name, c := range map[string]struct {
		write       func(s *openaitest.ResponsesStream)
		text, calls string
	}{
		"items without pieces": {func(s *openaitest.ResponsesStream) {
			s.Item("1", comment)
			s.Item("2", callX)
		}, "I look it up.", `call_a x:y {"n": 1.50}; `},
		"arguments that are an object": {func(s *openaitest.ResponsesStream) {
			s.Item("1", `{"type":"function_call","call_id":"a","name":"z","arguments":{"n":1.50}}`)
		}, "", `a z {"n":1.50}; `},
		"no arguments": {func(s *openaitest.ResponsesStream) { s.Item("1", `{"type":"function_call","call_id":"a","name":"z"}`) }, "", `a z {}; `},
		"broken arguments": {func(s *openaitest.ResponsesStream) {
			s.Call(contract.ToolCall{ID: "a", Tool: "z", Args: json.RawMessage(`"{\"n"`)})
		}, "", `call_a z "{\"n"; `},
		"two messages": {func(s *openaitest.ResponsesStream) {
			s.Item("1", comment)
			s.Item("2", final)
		}, "I look it up.\n\nDone.", ""},
		"items of other tools": {func(s *openaitest.ResponsesStream) {
			s.Item("1", `{"type":"web_search_call","id":"ws_1","content":"odd"}`)
			s.Item("2", final)
		}, "Done.", ""},
		"two calls at once": {func(s *openaitest.ResponsesStream) {
			for i, id := range []string{"a", "b"} {
				s.Event("response.output_item.added", fmt.Sprintf(`"output_index":%d,"item":{"type":"function_call","call_id":%q,"name":"z"}`, i, id))
			}
			s.Event("response.function_call_arguments.delta", `"output_index":1,"delta":"{\"n\":"`)
			s.Event("response.function_call_arguments.delta", `"output_index":0,"delta":"{}"`)
			s.Event("response.function_call_arguments.delta", `"output_index":1,"delta":"1}"`)
		}, "", `a z {}; b z {"n":1}; `},
	} {
		s := openaitest.New(t)
		s.Next(written(func(out *openaitest.ResponsesStream) {
			c.write(out)
			out.Event("response.completed", `"response":{"status":"completed"}`)
		}))
		resp, pieces, err := generate(t, client(t, s, speaking(openai.Responses)), "hello")
		if err != nil || resp.TextContent != c.text || pieces != c.text || calls(resp) != c.calls ||
			resp.Model != openaitest.Model || resp.Usage != (contract.Usage{Uncounted: 1, Unpriced: 1}) {
			t.Errorf("%s: %+v (%q), calls %s, %v", name, resp, pieces, calls(resp), err)
		}
	}
}

// A server may report its items at the end alone, also those that it has sent in pieces.
func TestItemsAtTheEnd(t *testing.T) {
	s := openaitest.New(t)
	s.Next(written(func(out *openaitest.ResponsesStream) {
		out.Event("response.output_text.delta", `"output_index":0,"delta":"I look it up."`)
		out.Event("response.completed", `"response":{"status":"completed","output":[`+comment+`,`+callX+`]}`)
	}))
	resp, pieces, err := generate(t, client(t, s, speaking(openai.Responses)), "hello")
	if err != nil || resp.TextContent != "I look it up." || pieces != resp.TextContent || calls(resp) != `call_a x:y {"n": 1.50}; ` {
		t.Errorf("%+v (%q), calls %s, %v", resp, pieces, calls(resp), err)
	}
}

func TestEndsOfResponses(t *testing.T) {
	text := func(s *openaitest.ResponsesStream) { s.Text("It began") }
	call := func(s *openaitest.ResponsesStream) {
		s.Call(contract.ToolCall{ID: "a", Tool: "z", Args: json.RawMessage(`{}`)})
	}
	for _, c := range []struct {
		status, reason string
		write          func(s *openaitest.ResponsesStream)
		want           contract.StopReason
	}{
		{"completed", "", text, contract.StopEnd},
		{"completed", "", call, contract.StopToolCalls},
		{"completed", "", func(s *openaitest.ResponsesStream) { s.Refusal("I can't") }, contract.StopFilter},
		{"incomplete", "max_output_tokens", text, contract.StopLength},
		{"incomplete", "max_output_tokens", call, contract.StopLength},
		{"incomplete", "content_filter", text, contract.StopFilter},
		{"incomplete", "max_messages", text, contract.StopOther},
	} {
		s := openaitest.New(t)
		s.Next(written(func(out *openaitest.ResponsesStream) {
			c.write(out)
			out.Finish(c.status, c.reason, spent)
		}))
		resp, pieces, err := generate(t, client(t, s, speaking(openai.Responses)), "hello")
		if err != nil || resp.StopReason != c.want || pieces != resp.TextContent ||
			(resp.ProviderState != nil) != (c.status == "completed") {
			t.Errorf("%s, %s: %+v (%q), %v; want %s", c.status, c.reason, resp, pieces, err, c.want)
		}
	}
}

func TestFailuresOfResponses(t *testing.T) {
	failed := func(code string) http.HandlerFunc {
		return written(func(s *openaitest.ResponsesStream) { s.Fail(code, "as the test asked") })
	}
	event := func(fields string) http.HandlerFunc {
		return written(func(s *openaitest.ResponsesStream) { s.Event("error", fields) })
	}
	nothing := func(status, reason string) http.HandlerFunc {
		return written(func(s *openaitest.ResponsesStream) { s.Finish(status, reason, spent) })
	}
	for name, c := range map[string]struct {
		server    http.HandlerFunc
		code      contract.ErrorCode
		retryable bool
		message   string
	}{
		"a failed response":      {failed("server_error"), contract.ErrUnavailable, true, "as the test asked"},
		"a limit":                {failed("rate_limit_exceeded"), contract.ErrRateLimited, true, "as the test asked"},
		"an invalid prompt":      {failed("invalid_prompt"), contract.ErrBadRequest, false, "invalid_prompt"},
		"an invalid picture":     {failed("unsupported_image_media_type"), contract.ErrBadRequest, false, "image"},
		"a full context":         {failed("context_length_exceeded"), contract.ErrTooLong, false, "as the test asked"},
		"an error":               {event(`"code":"server_error","message":"oops","param":null`), contract.ErrUnavailable, true, "oops"},
		"an error with nothing":  {event(`"code":null,"message":null`), contract.ErrUnavailable, true, "without a description"},
		"an error with a status": {event(`"code":429,"message":"slow down"`), contract.ErrRateLimited, true, "slow down"},
		"an error of a proxy":    {event(`"error":{"message":"key","type":"authentication_error"}`), contract.ErrAuth, false, "key"},
		"no token left":          {nothing("incomplete", "max_output_tokens"), contract.ErrTooLong, false, "max_tokens"},
		"a filter":               {nothing("incomplete", "content_filter"), contract.ErrBadRequest, false, "filter"},
		"only thoughts":          {nothing("completed", ""), contract.ErrGarbage, true, "neither text nor"},
		"a stream that ends":     {written(func(s *openaitest.ResponsesStream) { s.Begin() }), contract.ErrGarbage, true, "broke off"},
		"an empty stream":        {raw("text/event-stream", ""), contract.ErrGarbage, true, "broke off"},
		"half an event":          {raw("text/event-stream", "data: {\"type\":\"resp\n\n"), contract.ErrGarbage, true, "not valid JSON"},
		"an odd item":            {items(`{"type":"message","content":7}`), contract.ErrGarbage, true, "not valid JSON"},
		"a call without a name":  {items(`{"type":"function_call","call_id":"a"}`), contract.ErrGarbage, true, "names no function"},
		"404":                    {status(404, "", "", "no"), contract.ErrBadRequest, false, "base_url"},
		"401":                    {status(401, "", "", "who?"), contract.ErrAuth, false, "who?"},
	} {
		s := openaitest.New(t)
		s.Next(times(3, c.server)...)
		_, _, err := generate(t, client(t, s, speaking(openai.Responses)), "hello")
		if e := failure(t, err); e.Code != c.code || e.Retryable != c.retryable || !strings.Contains(e.Message, c.message) {
			t.Errorf("%s is %+v, want %s, retryable %v, %q", name, e, c.code, c.retryable, c.message)
		}
	}
}

func TestThoughtsOfResponsesAreStreamed(t *testing.T) {
	s := openaitest.New(t)
	s.Next(written(func(out *openaitest.ResponsesStream) {
		for part, pieces := range [][]string{{"First ", "this."}, {"Then that."}} {
			out.Event("response.reasoning_summary_part.added", fmt.Sprintf(`"output_index":0,"summary_index":%d`, part))
			for _, p := range pieces {
				out.Event("response.reasoning_summary_text.delta", fmt.Sprintf(`"summary_index":%d,"delta":%q`, part, p))
			}
		}
		out.Event("response.reasoning_text.delta", `"delta":" And so on."`)
		out.Item("1", final)
		out.Event("response.completed", `"response":{"status":"completed"}`)
	}))
	var thoughts strings.Builder
	_, err := client(t, s, speaking(openai.Responses)).Generate(t.Context(), request(t, says("go")),
		func(_, reasoning string) { thoughts.WriteString(reasoning) })
	if want := "First this.\n\nThen that. And so on."; err != nil || thoughts.String() != want {
		t.Errorf("thoughts are %q, %v; want %q", thoughts.String(), err, want)
	}
}

// Models that do not reason refuse the wish for encrypted reasoning. That is asked once.
func TestAModelWithoutReasoning(t *testing.T) {
	s := openaitest.New(t)
	a := client(t, s, speaking(openai.Responses))
	s.Next(status(400, "invalid_request_error", "", "Encrypted content is not supported with this model."), items(final), items(final))
	for range 2 {
		if resp, _, err := generate(t, a, "hello"); err != nil || resp.TextContent != "Done." {
			t.Fatalf("answered %+v, %v", resp, err)
		}
	}
	var asked []int
	for _, r := range s.SeenResponses() {
		asked = append(asked, len(r.Include))
	}
	if !slices.Equal(asked, []int{1, 0, 0}) {
		t.Errorf("asked for %v includes, want 1, then none", asked)
	}
}

// The reasoning of another account cannot be read. The conversation goes on without it.
func TestReasoningOfAnotherAccount(t *testing.T) {
	s := openaitest.New(t)
	a := client(t, s, speaking(openai.Responses))
	s.Next(items(thought, final),
		status(400, "invalid_request_error", "invalid_encrypted_content", "The encrypted content gAAA could not be verified."),
		items(final), items(final))
	resp, _ := askAll(t, s, a, says("go"))
	_, sent := askAll(t, s, a, says("go"), said(resp), says("on"))
	if all := strings.Join(sent, "\n"); strings.Contains(all, "gAAA") || !strings.Contains(all, `"content":"Done."`) {
		t.Errorf("sent %s", all)
	}
	askAll(t, s, a, says("anew"))
	if seen := s.SeenResponses(); len(seen[3].Include) != 1 {
		t.Error("the next conversation has no reasoning")
	}
}

func TestResponsesRequestOnTheWire(t *testing.T) {
	s := openaitest.New(t)
	a := client(t, s, speaking(openai.Responses), func(c *openai.Config) { c.Organization, c.Project = "org-1", "proj-1" })
	temperature := 0.0
	req := request(t, says("hello"))
	req.System, req.Temperature, req.MaxTokens = "Be brief.", &temperature, 50
	req.Tools = []contract.ToolSpec{
		{Name: "python:execute", Description: "Runs.", Args: json.RawMessage(`{"type":"object","properties":{"z":{},"a":{"maximum":1.50}}}`)},
		{Name: "time:now"},
	}
	if _, err := a.Generate(t.Context(), req, func(string, string) {}); err != nil {
		t.Fatal(err)
	}
	got := s.SeenResponses()[0]
	if got.Instructions != "Be brief." || *got.Temperature != 0 || *got.MaxOutputTokens != 50 || *got.Store ||
		got.Header.Get("OpenAI-Organization") != "org-1" || got.Header.Get("OpenAI-Project") != "proj-1" {
		t.Errorf("request is %+v", got)
	}
	if tool := got.Tools[0]; tool.Name != "python--execute" || tool.Description != "Runs." || *tool.Strict ||
		string(tool.Parameters) != `{"type":"object","properties":{"z":{},"a":{"maximum":1.50}}}` {
		t.Errorf("tool is %+v, %s", tool, tool.Parameters)
	}
}

func TestUsageOfResponses(t *testing.T) {
	s := openaitest.New(t)
	u := contract.Usage{InputTokens: 1000, OutputTokens: 500, CachedTokens: 400, CacheWriteTokens: 300, ReasoningTokens: 100}
	s.Next(written(func(out *openaitest.ResponsesStream) {
		out.Text("x")
		out.Finish("completed", "", u)
	}))
	resp, _, err := generate(t, client(t, s, speaking(openai.Responses)), "hello")
	u.Unpriced = 1
	if err != nil || resp.Usage != u {
		t.Errorf("usage is %+v, %v; want %+v", resp.Usage, err, u)
	}
}

func TestWhichAPI(t *testing.T) {
	for _, c := range []struct {
		base string
		api  openai.API
		want string
	}{
		{"", "", "responses at api.openai.com"},
		{"https://eu.api.openai.com/v1", "", "responses at eu.api.openai.com"},
		{"https://api.openai.com/v1/", openai.Chat, "chat completions at api.openai.com"},
		{"http://localhost:11434/v1", "", "chat completions at localhost:11434"},
		{"http://localhost:11434/v1", openai.Responses, "responses at localhost:11434"},
		{"https://notopenai.com/v1", "", "chat completions at notopenai.com"},
		{"https://x.openai.azure.com/v1", "", "chat completions at x.openai.azure.com"},
	} {
		a, err := openai.New(openai.Config{BaseURL: c.base, API: c.api, Model: "m"})
		if err != nil || a.Info().Note != c.want {
			t.Errorf("%s %s: %v, want %s", c.base, c.api, err, c.want)
		}
	}
}
