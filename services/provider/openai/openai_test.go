package openai_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/services/provider/openai"
	"skandha.dev/services/test/openaitest"
)

func request(t testing.TB, messages ...contract.Message) contract.Request {
	t.Helper()
	var req contract.Request
	for _, m := range messages {
		b, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		req.Messages = append(req.Messages, b)
	}
	return req
}

func calls(r contract.Response) string {
	var b strings.Builder
	for _, c := range r.ToolCalls {
		fmt.Fprintf(&b, "%s %s %s; ", c.ID, c.Tool, c.Args)
	}
	return b.String()
}

// Servers put the pieces of calls on the wire in many ways.
func TestPiecesOfCalls(t *testing.T) {
	for _, c := range []struct {
		name   string
		deltas []string
		want   string
	}{
		{"in turn", []string{
			`{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"x--y","arguments":""}}]}`,
			`{"tool_calls":[{"index":0,"function":{"arguments":"{\"k\":\"ä"}}]}`,
			`{"tool_calls":[{"index":0,"function":{"arguments":"\\"}}]}`,
			`{"tool_calls":[{"index":0,"function":{"arguments":"n\"}"}}]}`,
			`{"tool_calls":[{"index":1,"id":"b","type":"function","function":{"name":"z","arguments":"{}"}}]}`,
		}, `a x:y {"k":"ä\n"}; b z {}; `},
		{"interleaved", []string{
			`{"tool_calls":[{"index":0,"id":"a","function":{"name":"x"}},{"index":1,"id":"b","function":{"name":"y"}}]}`,
			`{"tool_calls":[{"index":1,"function":{"arguments":"{\"n\":"}},{"index":0,"function":{"arguments":"{\"n\":"}}]}`,
			`{"tool_calls":[{"index":0,"function":{"arguments":"0}"}},{"index":1,"function":{"arguments":"1}"}}]}`,
		}, `a x {"n":0}; b y {"n":1}; `},
		{"all numbered 0, with ids", []string{
			`{"tool_calls":[{"index":0,"id":"a","function":{"name":"x","arguments":"{}"}}]}`,
			`{"tool_calls":[{"index":0,"id":"b","function":{"name":"x","arguments":"{"}}]}`,
			`{"tool_calls":[{"index":0,"function":{"arguments":"}"}}]}`,
		}, `a x {}; b x {}; `},
		{"all numbered 0, without ids", []string{
			`{"tool_calls":[{"index":0,"function":{"name":"x","arguments":"{}"}}]}`,
			`{"tool_calls":[{"index":0,"function":{"name":"y","arguments":"{}"}}]}`,
		}, `call_0 x {}; call_1 y {}; `},
		{"one id for two", []string{
			`{"tool_calls":[{"index":0,"id":"a","function":{"name":"x","arguments":"{}"}}]}`,
			`{"tool_calls":[{"index":1,"id":"a","function":{"name":"y","arguments":"{}"}}]}`,
		}, `a x {}; call_1 y {}; `},
		{"id and name in every piece", []string{
			`{"tool_calls":[{"index":0,"id":"a","function":{"name":"x","arguments":"{\"n\""}}]}`,
			`{"tool_calls":[{"index":0,"id":"a","function":{"name":"x","arguments":":1}"}}]}`,
		}, `a x {"n":1}; `},
		{"sparse indexes", []string{
			`{"tool_calls":[{"index":9000000000,"id":"a","function":{"name":"x","arguments":"{}"}}]}`,
			`{"tool_calls":[{"index":-1,"id":"b","function":{"name":"y","arguments":"{}"}}]}`,
		}, `a x {}; b y {}; `},
		{
			"no arguments",
			[]string{`{"tool_calls":[{"index":0,"id":"a","function":{"name":"x","arguments":" "}}]}`},
			`a x {}; `,
		},
		{
			"arguments that are an object",
			[]string{`{"tool_calls":[{"index":0,"id":"a","function":{"name":"x","arguments":{"n":1.50}}}]}`},
			`a x {"n":1.50}; `,
		},
		{
			"broken arguments",
			[]string{`{"tool_calls":[{"index":0,"id":"a","function":{"name":"x","arguments":"{\"n\":"}}]}`},
			`a x "{\"n\":"; `,
		},
		{"invented names", []string{
			`{"tool_calls":[{"index":0,"id":"a","function":{"name":"functions.x--y","arguments":"{}"}}]}`,
			`{"tool_calls":[{"index":1,"id":"b","function":{"name":"x:y","arguments":"{}"}}]}`,
			`{"tool_calls":[{"index":2,"id":"c","function":{"name":"bad-FFname","arguments":"{}"}}]}`,
		}, `a functions.x--y {}; b x:y {}; c bad-FFname {}; `},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := openaitest.New(t)
			s.Next(events("tool_calls", c.deltas...))
			resp, _, err := generate(t, client(t, s), "hello")
			if err != nil || calls(resp) != c.want || resp.StopReason != contract.StopToolCalls {
				t.Errorf("calls are %s (%s), %v; want %s", calls(resp), resp.StopReason, err, c.want)
			}
		})
	}
}

func TestStopReasons(t *testing.T) {
	const text, call = `{"content":"x"}`, `{"tool_calls":[{"index":0,"id":"a","function":{"name":"x","arguments":"{}"}}]}`
	for _, c := range []struct {
		finish, delta string
		want          contract.StopReason
	}{
		{"stop", text, contract.StopEnd},
		{"stop", call, contract.StopToolCalls},
		{"tool_calls", call, contract.StopToolCalls},
		{"function_call", call, contract.StopToolCalls},
		{"length", text, contract.StopLength},
		{"length", call, contract.StopLength},
		{"content_filter", text, contract.StopFilter},
		{"stop", `{"refusal":"I can't"}`, contract.StopFilter},
		{"eos_of_some_server", text, contract.StopOther},
	} {
		s := openaitest.New(t)
		s.Next(events(c.finish, c.delta))
		resp, pieces, err := generate(t, client(t, s), "hello")
		if err != nil || resp.StopReason != c.want || pieces != resp.TextContent {
			t.Errorf("%s after %s: %+v (%q), %v; want %s", c.finish, c.delta, resp, pieces, err, c.want)
		}
	}
}

func TestRefusalIsTheAnswer(t *testing.T) {
	s := openaitest.New(t)
	s.Next(events("stop", `{"refusal":"I can't "}`, `{"refusal":"do that."}`))
	resp, _, err := generate(t, client(t, s), "hello")
	if err != nil || resp.TextContent != "I can't do that." || !resp.IsFinal {
		t.Errorf("answer is %+v, %v", resp, err)
	}
}

// Not every server sends [DONE] or the usage.
func TestStreamWithoutTrimmings(t *testing.T) {
	s := openaitest.New(t)
	s.Next(raw("text/event-stream", ": a comment\n\n"+
		`data:{"choices":[{"index":0,"delta":{"content":"bare"}}]}`+"\n\n"+
		`data:{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`+"\n\n"))
	resp, _, err := generate(t, client(t, s), "hello")
	if err != nil || resp.TextContent != "bare" || resp.Model != openaitest.Model {
		t.Errorf("answer is %+v, %v", resp, err)
	}
}

func TestChoicesThatNobodyAskedForAreIgnored(t *testing.T) {
	s := openaitest.New(t)
	s.Next(raw("text/event-stream",
		`data: {"choices":[{"index":1,"delta":{"content":"other"},"finish_reason":"length"},{"index":0,"delta":{"content":"asked"}}]}`+"\n\n"+
			`data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"},{"index":1,"delta":{"content":"other"}}]}`+
			"\n\ndata: [DONE]\n\n"))
	resp, pieces, err := generate(t, client(t, s), "hello")
	if err != nil || resp.TextContent != "asked" || pieces != "asked" || resp.StopReason != contract.StopEnd {
		t.Errorf("answer is %+v (%q), %v", resp, pieces, err)
	}
}

func TestThoughtsAreStreamedAndGoBackWithinTheTurn(t *testing.T) {
	s := openaitest.New(t)
	s.Next(events("tool_calls", `{"reasoning_content":"I had "}`, `{"reasoning_content":"better look"}`,
		`{"tool_calls":[{"index":0,"id":"a","function":{"name":"x","arguments":"{}"}}]}`))
	a := client(t, s)
	var thoughts strings.Builder
	question := contract.Message{Role: contract.RoleUser, Text: "call x {}"}
	resp, err := a.Generate(t.Context(), request(t, question),
		func(_, reasoning string) { thoughts.WriteString(reasoning) })
	if err != nil || thoughts.String() != "I had better look" || resp.TextContent != "" {
		t.Fatalf("thoughts %q, answer %+v, %v", thoughts.String(), resp, err)
	}
	talk := []contract.Message{
		question,
		{Role: contract.RoleAssistant, ToolCalls: resp.ToolCalls, ProviderState: resp.ProviderState},
		{Role: contract.RoleTool, CallID: "a", Tool: "x", Text: "1"},
	}
	for _, c := range []struct {
		talk []contract.Message
		want string
	}{
		{talk, "I had better look"},
		{append(talk, contract.Message{Role: contract.RoleUser, Text: "thanks"}), ""},
	} {
		if _, err := a.Generate(t.Context(), request(t, c.talk...), func(string, string) {}); err != nil {
			t.Fatal(err)
		}
		seen := s.Seen()
		if got := seen[len(seen)-1].Messages[1].ReasoningContent; got != c.want {
			t.Errorf("after %d messages the thoughts %q went back, want %q", len(c.talk), got, c.want)
		}
	}
}

func TestStateOfAnotherProviderIsIgnored(t *testing.T) {
	s := openaitest.New(t)
	_, err := client(t, s).Generate(t.Context(), request(t,
		contract.Message{Role: contract.RoleUser, Text: "call x {}"},
		contract.Message{
			Role: contract.RoleAssistant, ProviderState: json.RawMessage(`["thoughtSignature"]`),
			ToolCalls: []contract.ToolCall{{ID: strings.Repeat("long", 20), Tool: "x", Args: json.RawMessage(`{}`)}},
		},
		contract.Message{Role: contract.RoleTool, CallID: strings.Repeat("long", 20), Tool: "x", Text: "1"},
	), func(string, string) {})
	if err != nil {
		t.Error(err)
	}
}

func TestRequestOnTheWire(t *testing.T) {
	s := openaitest.New(t)
	a := client(t, s, func(c *openai.Config) { c.Organization, c.Project = "org-1", "proj-1" })
	temperature := 0.0
	req := request(t, contract.Message{Role: contract.RoleUser, Text: "hello"})
	req.System, req.Temperature, req.MaxTokens = "Be brief.", &temperature, 50
	req.Tools = []contract.ToolSpec{
		{
			Name: "python:execute", Description: "Runs.",
			Args: json.RawMessage(`{"type":"object","properties":{"z":{},"a":{"maximum":1.50}}}`),
		},
	}
	if _, err := a.Generate(t.Context(), req, func(string, string) {}); err != nil {
		t.Fatal(err)
	}
	got := s.Seen()[0]
	if got.Messages[0].Role != "system" || got.Messages[0].Content.Text != "Be brief." || *got.Temperature != 0 ||
		*got.MaxTokens != 50 {
		t.Errorf("request is %+v", got)
	}
	tool := got.Tools[0].Function
	if tool.Name != "python--execute" || tool.Description != "Runs." ||
		string(tool.Parameters) != `{"type":"object","properties":{"z":{},"a":{"maximum":1.50}}}` {
		t.Errorf("tool is %s %q %s", tool.Name, tool.Description, tool.Parameters)
	}
	if got.Header.Get("OpenAI-Organization") != "org-1" || got.Header.Get("OpenAI-Project") != "proj-1" {
		t.Errorf("headers are %v", got.Header)
	}

	bare := request(t, contract.Message{Role: contract.RoleUser, Text: "hello"})
	if _, err := client(t, s).Generate(t.Context(), bare, func(string, string) {}); err != nil {
		t.Fatal(err)
	}
	if got := s.Seen()[1]; got.Temperature != nil || got.MaxTokens != nil || got.MaxCompletionTokens != nil ||
		len(got.Tools) != 0 || len(got.Messages) != 1 {
		t.Errorf("what was not asked for is sent: %+v", got)
	}
}

// The SDK would send the environment's key, headers and organization to any server.
func TestEnvironmentStaysHere(t *testing.T) {
	t.Setenv("OPENAI_API_KEY", "sk-from-the-environment")
	t.Setenv("OPENAI_ORG_ID", "org-env")
	t.Setenv("OPENAI_CUSTOM_HEADERS", "X-Secret: 1")
	t.Setenv("OPENAI_BASE_URL", "http://no-such-host.invalid")
	s := openaitest.New(t)
	s.Next(events("stop", `{"content":"x"}`))
	a := client(t, s, func(c *openai.Config) { c.APIKey = "" })
	if _, _, err := generate(t, a, "hello"); err != nil {
		t.Fatal(err)
	}
	h := s.Seen()[0].Header
	for _, name := range []string{"Authorization", "OpenAI-Organization", "X-Secret"} {
		if v := h.Get(name); v != "" {
			t.Errorf("%s: %s was sent", name, v)
		}
	}
}

func TestUsage(t *testing.T) {
	s := openaitest.New(t)
	s.Next(raw("text/event-stream", `data: {"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop"}],`+
		`"usage":{"prompt_tokens":1000,"completion_tokens":500,"prompt_tokens_details":{"cached_tokens":400}}}`+"\n\n"))
	resp, _, err := generate(t, client(t, s), "hello")
	if want := (contract.Usage{InputTokens: 1000, OutputTokens: 500, CachedTokens: 400, Unpriced: 1}); err != nil ||
		resp.Usage != want {
		t.Errorf("usage is %+v, %v; want %+v", resp.Usage, err, want)
	}
}

func TestKeyNeverPrints(t *testing.T) {
	cfg := openai.Config{APIKey: openaitest.Key, BaseURL: "http://h/v1", Model: "m"}
	j, err := json.Marshal(cfg) //nolint:staticcheck // it has no HTTPClient, whose func cannot be marshalled
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("config", "key", cfg.APIKey, "cfg", cfg)
	a, err := openai.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{
		fmt.Sprint(cfg), fmt.Sprintf("%+v %#v %q %s", cfg, cfg, cfg.APIKey, cfg.APIKey), string(j), log.String(),
		fmt.Sprint(a.Info()),
	} {
		if strings.Contains(s, "0123456789") {
			t.Errorf("the key is in %s", s)
		}
	}
}

func TestSecretsInErrorsAreRedacted(t *testing.T) {
	s := openaitest.New(t)
	s.Next(func(w http.ResponseWriter, _ *http.Request) {
		openaitest.Refuse(w, 400, "", "",
			"you sent Bearer abcdef and sk-proj-A1b2C3d4 and "+openaitest.Key+"\r\n\x1b[31m"+strings.Repeat("long ", 1000))
	})
	_, _, err := generate(t, client(t, s), "hello")
	e := failure(t, err)
	for _, secret := range []string{"abcdef", "A1b2", "0123456789", "\n", "\x1b"} {
		if strings.Contains(e.Message, secret) {
			t.Errorf("%q is in %q", secret, e.Message)
		}
	}
	if len(e.Message) > 600 {
		t.Errorf("the message has %d bytes", len(e.Message))
	}

	const odd = "0a1b2c3d4e5f" // a key that does not look like one
	s.Next(status(401, "", "", "who is "+odd+"?"))
	_, _, err = generate(t, client(t, s, func(c *openai.Config) { c.APIKey = odd }), "hello")
	if e := failure(t, err); strings.Contains(e.Message, odd) || !strings.Contains(e.Message, "who is [key]?") {
		t.Errorf("the message is %q", e.Message)
	}
}

func TestConfigNamesTheField(t *testing.T) {
	ok := openai.Config{BaseURL: "http://localhost:1/v1", Model: "m"}
	for _, c := range []struct {
		field  string
		change func(*openai.Config)
	}{
		{"base_url", func(c *openai.Config) { c.BaseURL = "localhost:1" }},
		{"base_url", func(c *openai.Config) { c.BaseURL = "ftp://x" }},
		{"base_url", func(c *openai.Config) { c.BaseURL = "http://user:secret@x/v1" }},
		{"base_url", func(c *openai.Config) { c.BaseURL = "http://x/v1?key=1" }},
		{"base_url", func(c *openai.Config) { c.BaseURL = "http://\x7f" }},
		{"model", func(c *openai.Config) { c.Model = "" }},
		{"api is \"soap\", want chat or responses; set OPENAI_API", func(c *openai.Config) { c.API = "soap" }},
		{"stall", func(c *openai.Config) { c.Stall = -1 }},
		{"api_key", func(c *openai.Config) { c.APIKey = "a b" }},
		{"limits.calls", func(c *openai.Config) { c.Limits.Calls = -1 }},
		{"retry.tries", func(c *openai.Config) { c.Retry.Tries = -1 }},
	} {
		cfg := ok
		c.change(&cfg)
		if _, err := openai.New(cfg); err == nil || !strings.Contains(err.Error(), c.field) ||
			strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: error is %v", c.field, err)
		}
	}
	if a, err := openai.New(openai.Config{}); err != nil || a.Info().Model != openai.DefaultModel {
		t.Errorf("the zero configuration: %v", err)
	}
}
