package anthropic_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/services/internal/providerapi"
	"skandha.dev/services/provider/anthropic"
	"skandha.dev/services/provider/retry"
	"skandha.dev/services/test/anthropictest"
	"skandha.dev/services/test/natstest"
)

func request(t testing.TB, messages ...contract.Message) contract.Request {
	t.Helper()
	req := contract.Request{Tools: []contract.ToolSpec{{
		Name: "math:evaluate", Args: json.RawMessage(`{"type":"object","properties":{"z":{"type":"number"},"a":{"type":"string"}}}`),
	}}}
	for _, m := range messages {
		b, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		req.Messages = append(req.Messages, b)
	}
	return req
}

func says(text string) contract.Message { return contract.Message{Role: contract.RoleUser, Text: text} }

func answers(text string) contract.Message {
	return contract.Message{Role: contract.RoleAssistant, Text: text}
}

// message is an answer as the conversation holds it.
func message(r contract.Response) contract.Message {
	return contract.Message{
		Role: contract.RoleAssistant, Text: r.TextContent, ToolCalls: r.ToolCalls, ProviderState: r.ProviderState,
	}
}

func result(call contract.ToolCall, text string) contract.Message {
	return contract.Message{Role: contract.RoleTool, CallID: call.ID, Tool: call.Tool, Text: text}
}

func call(id, tool, args string) contract.ToolCall {
	return contract.ToolCall{ID: id, Tool: tool, Args: json.RawMessage(args)}
}

func calls(c ...contract.ToolCall) contract.Message {
	return contract.Message{Role: contract.RoleAssistant, ToolCalls: c}
}

// generate returns the answer, and what was streamed of its text and its reasoning.
func generate(t testing.TB, a *anthropic.Adapter, req contract.Request) (r contract.Response, text, thoughts string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), natstest.Patience)
	defer cancel()
	r, err = a.Generate(ctx, req, func(t, r string) { text, thoughts = text+t, thoughts+r })
	return r, text, thoughts, err
}

func ask(t testing.TB, a *anthropic.Adapter, req contract.Request) contract.Response {
	t.Helper()
	resp, _, _, err := generate(t, a, req)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

func refused(t testing.TB, a *anthropic.Adapter, text string) *contract.Error {
	t.Helper()
	resp, _, _, err := generate(t, a, request(t, says(text)))
	var e *contract.Error
	if !errors.As(err, &e) {
		t.Fatalf("answered %+v, %v; want a failure", resp, err)
	}
	if strings.Contains(e.Message, anthropictest.Key) || strings.Contains(e.Message, "http://") {
		t.Errorf("the message gives away the key or the URL: %s", e.Message)
	}
	return e
}

func last(t testing.TB, s *anthropictest.Server) anthropictest.Request {
	t.Helper()
	seen := s.Seen()
	if len(seen) == 0 {
		t.Fatal("nothing was asked")
	}
	return seen[len(seen)-1]
}

func TestRequestsSayOnlyWhatIsConfigured(t *testing.T) {
	for name, value := range map[string]string{
		"ANTHROPIC_API_KEY": "sk-ant-other", "ANTHROPIC_AUTH_TOKEN": "token", "ANTHROPIC_BASE_URL": "http://127.0.0.1:1",
		"ANTHROPIC_PROFILE": "none", "ANTHROPIC_CUSTOM_HEADERS": "X-Custom: 1",
	} {
		t.Setenv(name, value)
	}
	s := anthropictest.New(t)
	ask(t, client(t, s), request(t, says("hello")))
	h := last(t, s).Header
	if h.Get("X-Api-Key") != anthropictest.Key || h.Get("Anthropic-Version") == "" {
		t.Errorf("sent the headers %v", h)
	}
	for name := range h {
		if strings.HasPrefix(name, "X-Stainless") || name == "Authorization" || name == "X-Custom" || name == "Traceparent" {
			t.Errorf("sent %s: %s", name, h.Get(name))
		}
	}
}

func TestTheKeyAppearsNowhere(t *testing.T) {
	s := anthropictest.New(t)
	a := client(t, s)
	s.Next(func(w http.ResponseWriter, r *http.Request) {
		anthropictest.Refuse(w, 400, "invalid_request_error", "bad key "+r.Header.Get("X-Api-Key"))
	})
	cfg := anthropic.Config{APIKey: anthropictest.Key}
	for _, text := range []string{refused(t, a, "hello").Message, fmt.Sprintf("%v %+v %#v", a.Info(), cfg, cfg)} {
		if strings.Contains(text, anthropictest.Key) {
			t.Errorf("the key is in %s", text)
		}
	}
}

func TestConfigNamesTheField(t *testing.T) {
	for want, c := range map[string]anthropic.Config{
		"ANTHROPIC_API_KEY":        {},
		"base_url":                 {BaseURL: "localhost"},
		"thinking_tokens is 5,":    {ThinkingTokens: 5},
		"thinking_tokens is 5000,": {ThinkingTokens: 5000, MaxTokens: 5000},
		"max_tokens is -1":         {MaxTokens: -1},
		"stall":                    {Stall: -1},
		"retry.tries":              {Retry: retry.Config{Tries: -1}},
	} {
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if err := (anthropic.Config{APIKey: "k", ThinkingTokens: 50_000}).Validate(); err != nil {
		t.Errorf("a large budget: %v", err)
	}
}

func TestUsage(t *testing.T) {
	s := anthropictest.New(t)
	s.Next(s.Reply(func(out *anthropictest.Stream) {
		out.Text("x")
		out.Finish("end_turn", contract.Usage{
			InputTokens: 1000, OutputTokens: 100, CachedTokens: 500, CacheWriteTokens: 250, ReasoningTokens: 50,
		})
	}))
	want := contract.Usage{
		InputTokens: 1000, OutputTokens: 100, CachedTokens: 500, CacheWriteTokens: 250, ReasoningTokens: 50, Unpriced: 1,
	}
	if u := ask(t, client(t, s), request(t, says("x"))).Usage; u != want {
		t.Errorf("usage is %+v, want %+v", u, want)
	}
	s.Next(stream("x", begin, "x", `{"type":"message_delta","delta":{"stop_reason":"end_turn"}}`, "x", end))
	if u := ask(t, client(t, s), request(t, says("x"))).Usage; u != (contract.Usage{Uncounted: 1, Unpriced: 1}) {
		t.Errorf("without counts, usage is %+v", u)
	}
}

func TestModels(t *testing.T) {
	s := anthropictest.New(t)
	models, err := client(t, s).Models(t.Context())
	if err != nil || !slices.Equal(models, []string{anthropictest.Model, anthropictest.OldModel}) {
		t.Errorf("models are %v, %v", models, err)
	}
	a := client(t, s, func(c *anthropic.Config) { c.APIKey = "sk-ant-wrong" })
	var e *contract.Error
	if _, err := a.Models(t.Context()); !errors.As(err, &e) || e.Code != contract.ErrAuth ||
		strings.Contains(e.Message, "sk-ant-wrong") {
		t.Errorf("with a wrong key: %v", err)
	}
	if b := a.Breaker(); b.State != providerapi.Closed {
		t.Errorf("the breaker is %+v", b)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := a.Models(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// Servers with the same API give less: the counts at the beginning alone, arguments in one
// piece, no model.
func TestAnAnswerOfAnotherServer(t *testing.T) {
	s := anthropictest.New(t)
	s.Next(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, data := range []string{
			`{"type":"message_start","message":{"usage":{"input_tokens":7,"output_tokens":3}}}`,
			`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"Look: "}}`,
			`{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"a b","name":"time--now","input":{"x":1.50}}}`,
			`{"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"a b","name":"time--now","input":null}}`,
			`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":null}`, `{"type":"message_stop"}`,
		} {
			_, _ = fmt.Fprintf(w, "event:x\ndata:%s\n\n", data)
		}
	})
	resp := ask(t, client(t, s), request(t, says("go")))
	if resp.TextContent != "Look: " || len(resp.ToolCalls) != 2 || string(resp.ToolCalls[0].Args) != `{"x":1.50}` ||
		string(resp.ToolCalls[1].Args) != `{}` || resp.ToolCalls[1].ID != "call_1" || resp.ToolCalls[0].Tool != "time:now" ||
		resp.StopReason != contract.StopToolCalls || resp.Usage.InputTokens != 7 || resp.Usage.OutputTokens != 3 ||
		resp.Model != anthropictest.Model {
		t.Errorf("answered %+v", resp)
	}
	ask(t, client(t, s), request(t, says("go"), message(resp), result(resp.ToolCalls[0], "1"), result(resp.ToolCalls[1], "2")))
	wellFormed(t, s)
}
