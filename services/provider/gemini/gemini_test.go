package gemini_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log" //nolint:depguard // the SDK prints with it
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/services/provider/gemini"
	"skandha.dev/services/test/geminitest"
)

func request(t testing.TB, messages ...contract.Message) contract.Request {
	t.Helper()
	req := contract.Request{Tools: []contract.ToolSpec{{
		Name: "3d:render", Args: json.RawMessage(`{"type":"object","properties":{"z":{"type":"number"},"a":{"type":"string"}}}`),
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

func result(call contract.ToolCall, text string) contract.Message {
	return contract.Message{Role: contract.RoleTool, CallID: call.ID, Tool: call.Tool, Text: text}
}

func ask(t testing.TB, a *gemini.Adapter, req contract.Request) contract.Response {
	t.Helper()
	resp, err := a.Generate(t.Context(), req, func(string, string) {})
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

func refused(t testing.TB, a *gemini.Adapter, text string) *contract.Error {
	t.Helper()
	resp, err := a.Generate(t.Context(), request(t, says(text)), func(string, string) {})
	var e *contract.Error
	if !errors.As(err, &e) {
		t.Fatalf("answered %+v, %v; want a failure", resp, err)
	}
	return e
}

// replay streams parts as they are.
func replay(parts ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		out := geminitest.NewStream(w)
		for _, p := range parts {
			out.Part(p)
		}
		out.Finish("STOP", contract.Usage{InputTokens: 10, OutputTokens: 5})
	}
}

// Parts go back as they came: fields, numbers and spaces of this package's future included.
func TestPartsGoBackByteForByte(t *testing.T) {
	s := geminitest.New(t)
	a := client(t, s)
	parts := []string{
		`{"text":"Let me think.","thought":true}`,
		`{"text":"I look ","thoughtSignature":"c2lnMQ=="}`,
		`{"text":"it up."}`,
		`{"functionCall":{"name":"_3d.render","args":{"n":1.50,"big":12345678901234567890,"ü":"<&>"},"id":"x-1"},"thoughtSignature":"c2lnMg==","newField":{"a":[1,2]}}`,
		`{"functionCall":{"name":"other","args":{}}}`,
	}
	s.Next(replay(parts...), replay(`{"text":"done"}`))
	var thoughts strings.Builder
	resp, err := a.Generate(t.Context(), request(t, says("go")), func(_, r string) { thoughts.WriteString(r) })
	if err != nil {
		t.Fatal(err)
	}
	if resp.TextContent != "I look it up." || thoughts.String() != "Let me think." || len(resp.ToolCalls) != 2 ||
		resp.ToolCalls[0].ID != "x-1" || resp.ToolCalls[1].ID != "call_1" {
		t.Fatalf("answered %+v, thoughts %q", resp, thoughts.String())
	}
	if got := string(resp.ToolCalls[0].Args); got != `{"n":1.50,"big":12345678901234567890,"ü":"<&>"}` {
		t.Errorf("the arguments are %s", got)
	}
	ask(t, a, request(t, says("go"), contract.Message{
		Role: contract.RoleAssistant, Text: resp.TextContent, ToolCalls: resp.ToolCalls, ProviderState: resp.ProviderState,
	}, result(resp.ToolCalls[0], "1"), result(resp.ToolCalls[1], "2")))

	sent := s.Seen()[1].Contents
	if len(sent) != 3 || len(sent[1].Parts) != 4 {
		t.Fatalf("sent %+v", sent)
	}
	for i, want := range parts[1:] { // a thought without a signature stays here
		if got := plain(t, sent[1].Parts[i]); got != want {
			t.Errorf("part %d went back as\n%s, it came as\n%s", i, got, want)
		}
	}
	for i, want := range []string{
		`{"functionResponse":{"id":"x-1","name":"_3d.render","response":{"output":"1"}}}`,
		`{"functionResponse":{"name":"other","response":{"output":"2"}}}`,
	} {
		if got := string(sent[2].Parts[i]); got != want {
			t.Errorf("result %d is %s, want %s", i, got, want)
		}
	}
}

// plain undoes the escapes of < > & that encoding/json adds; they mean the same.
func plain(t *testing.T, raw json.RawMessage) string {
	t.Helper()
	return strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&").Replace(string(raw))
}

// A turn that another provider began has no signatures. The test's server refuses calls
// without one, as Gemini 3 does.
func TestATurnOfAnotherProviderGoesOn(t *testing.T) {
	s := geminitest.New(t)
	call := contract.ToolCall{ID: "call_9", Tool: "math:evaluate", Args: json.RawMessage(`{"expression":"1+1"}`)}
	other := contract.Message{
		Role: contract.RoleAssistant, ToolCalls: []contract.ToolCall{call},
		ProviderState: json.RawMessage(`{"reasoning_content":"secret of another provider"}`),
	}
	ask(t, client(t, s), request(t, says("add"), other, result(call, "2")))
	open, err := json.Marshal(s.Seen()[0].Contents)
	if err != nil || !strings.Contains(string(open), "math:evaluate") || strings.Contains(string(open), "functionCall") ||
		strings.Contains(string(open), "secret of another provider") {
		t.Errorf("sent %s, %v", open, err)
	}
	// Once it is answered, the calls are calls again.
	ask(t, client(t, s), request(t, says("add"), other, result(call, "2"),
		contract.Message{Role: contract.RoleAssistant, Text: "2"}, says("thanks")))
	if past, err := json.Marshal(s.Seen()[1].Contents); err != nil || !strings.Contains(string(past), "functionCall") {
		t.Errorf("sent %s, %v", past, err)
	}
}

func TestToolsAreDeclaredAsTheyAre(t *testing.T) {
	s := geminitest.New(t)
	resp := ask(t, client(t, s), request(t, says(`call 3d:render {"z":1}`)))
	if resp.ToolCalls[0].Tool != "3d:render" {
		t.Errorf("called %+v", resp.ToolCalls)
	}
	d := s.Seen()[0].Tools[0].FunctionDeclarations[0]
	if !strings.HasPrefix(d.Name, "_3d") || !strings.HasPrefix(string(d.Parameters), `{"type":"object","properties":{"z"`) {
		t.Errorf("declared %+v %s", d, d.Parameters)
	}
}

func TestStatesAreBounded(t *testing.T) {
	s := geminitest.New(t)
	a := client(t, s, func(c *gemini.Config) { c.Limits.StateBytes = 400 })
	text := strings.Repeat("x", 500)
	call := `{"functionCall":{"name":"t","args":{}},"thoughtSignature":"c2ln"}`
	s.Next(replay(`{"text":"`+text+`"}`, call), replay(`{"text":"done"}`))
	resp := ask(t, a, request(t, says("go")))
	ask(t, a, request(t, says("go"), contract.Message{
		Role: contract.RoleAssistant, Text: resp.TextContent, ToolCalls: resp.ToolCalls, ProviderState: resp.ProviderState,
	}, result(resp.ToolCalls[0], "1")))
	if p := s.Seen()[1].Contents[1].Parts; len(p) != 2 || string(p[1]) != call || !strings.Contains(string(p[0]), text) {
		t.Errorf("sent %s", p)
	}
}

func TestFaults(t *testing.T) {
	raw := func(kind, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			_, _ = fmt.Fprint(w, body)
		}
	}
	finish := func(reason string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { geminitest.NewStream(w).Finish(reason, contract.Usage{}) }
	}
	refuse := func(code int, status string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			geminitest.Refuse(w, code, status, "as the test asked", "")
		}
	}
	const stream = "text/event-stream"
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		code    contract.ErrorCode
	}{
		"429":                        {refuse(429, "RESOURCE_EXHAUSTED"), contract.ErrRateLimited},
		"500":                        {refuse(500, "INTERNAL"), contract.ErrUnavailable},
		"503":                        {refuse(503, "UNAVAILABLE"), contract.ErrUnavailable},
		"529":                        {refuse(529, "OVERLOADED"), contract.ErrUnavailable},
		"403":                        {refuse(403, "PERMISSION_DENIED"), contract.ErrAuth},
		"a page":                     {raw("text/html", "<html>login</html>"), contract.ErrGarbage},
		"half an event":              {raw(stream, `data: {"candidates":[{"content"`), contract.ErrGarbage},
		"a stream that breaks off":   {raw(stream, `data: {"candidates":[{"content":{"parts":[{"text":"x"}]}}]}`+"\n\n"), contract.ErrGarbage},
		"parts of a wrong type":      {raw(stream, `data: {"candidates":[{"content":{"parts":[{"text":7}]}}]}`+"\n\n"), contract.ErrGarbage},
		"an error within":            {raw(stream, `data: {"error":{"code":503,"message":"x","status":"UNAVAILABLE"}}`+"\n\n"), contract.ErrUnavailable},
		"an error between events":    {raw(stream, "data: {\"candidates\":[]}\n\n{\n  \"error\": {\n    \"code\": 401,\n    \"message\": \"x\",\n    \"status\": \"UNAUTHENTICATED\"\n  }\n}\n"), contract.ErrAuth},
		"an error that is a text":    {raw(stream, `data: {"error":"quota is over"}`+"\n\n"), contract.ErrUnavailable},
		"a null candidate":           {raw(stream, `data: {"candidates":[null],"citationMetadata":"x"}`+"\n\n"), contract.ErrGarbage},
		"metadata of a wrong type":   {raw(stream, `data: {"candidates":[{"citationMetadata":"x","groundingMetadata":7,"finishReason":"STOP"}]}`+"\n\n"), contract.ErrGarbage},
		"usage of a wrong type":      {raw(stream, `data: {"usageMetadata":"x"}`+"\n\n"), contract.ErrGarbage},
		"an error with status 200":   {raw("application/json", `{"error":{"code":429,"message":"x","status":"RESOURCE_EXHAUSTED"}}`), contract.ErrRateLimited},
		"a blocked prompt":           {raw(stream, `data: {"promptFeedback":{"blockReason":"SAFETY"}}`+"\n\n"), contract.ErrBadRequest},
		"a withheld answer":          {finish("SAFETY"), contract.ErrBadRequest},
		"a malformed call":           {finish("MALFORMED_FUNCTION_CALL"), contract.ErrGarbage},
		"no token left":              {finish("MAX_TOKENS"), contract.ErrTooLong},
		"nothing":                    {raw(stream, ""), contract.ErrGarbage},
		"an event of more than 8 MB": {raw(stream, "data: {\"x\":\""+strings.Repeat("x", 9<<20)+"\"}\n\n"), contract.ErrTooLong},
	} {
		t.Run(name, func(t *testing.T) {
			s := geminitest.New(t)
			s.Next(c.handler, c.handler, c.handler)
			if e := refused(t, client(t, s), "hello"); e.Code != c.code || e.Message == "" {
				t.Errorf("it is %+v, want %s", e, c.code)
			}
		})
	}
}

// Comments and fields without a meaning, which the SDK takes for errors, are passed over.
func TestAStreamMayHoldComments(t *testing.T) {
	s := geminitest.New(t)
	s.Next(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = fmt.Fprint(w, ": keep-alive\n\nid: 1\nevent: x\ndata:{\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"fine\"}]},\"finishReason\":\"STOP\"}]}\n\n")
	})
	if resp := ask(t, client(t, s), request(t, says("hello"))); resp.TextContent != "fine" {
		t.Errorf("answered %+v", resp)
	}
}

// The SDK prints errors of the connection, and takes from the environment what it is not given.
func TestTheSDKIsQuietAndFollowsTheConfiguration(t *testing.T) {
	for _, name := range []string{"GOOGLE_API_KEY", "GOOGLE_GEMINI_BASE_URL", "GOOGLE_GENAI_USE_VERTEXAI"} {
		t.Setenv(name, "true")
	}
	var out bytes.Buffer
	log.SetOutput(&out)
	t.Cleanup(func() { log.SetOutput(os.Stderr) })
	s := geminitest.New(t)
	a := client(t, s, func(c *gemini.Config) { c.Stall = 50 * time.Millisecond })
	if e := refused(t, a, "hang"); e.Code != contract.ErrTimeout || !strings.Contains(e.Message, "sent nothing for") {
		t.Errorf("a stall is %+v", e)
	}
	ctx, cancel := context.WithCancel(t.Context())
	begun := false
	_, err := a.Generate(ctx, request(t, says("stream 1000 words every 5 ms")), func(string, string) { begun = true; cancel() })
	if !errors.Is(err, context.Canceled) || !begun {
		t.Errorf("cancelling in the middle: %v", err)
	}
	if got := s.Seen()[0].Header.Get("X-Goog-Api-Key"); got != geminitest.Key {
		t.Errorf("the key that was sent is %q", got)
	}
	if out.Len() > 0 {
		t.Errorf("printed %s", out.String())
	}
}

func TestTheKeyAppearsNowhere(t *testing.T) {
	s := geminitest.New(t)
	a := client(t, s)
	echo := func(w http.ResponseWriter, r *http.Request) {
		geminitest.Refuse(w, 400, "INVALID_ARGUMENT", "bad key "+r.Header.Get("X-Goog-Api-Key"), "")
	}
	s.Next(echo)
	e := refused(t, a, "hello")
	for _, text := range []string{e.Message, fmt.Sprintf("%v %+v %#v", a.Info(), gemini.Config{APIKey: geminitest.Key}, gemini.Config{APIKey: geminitest.Key})} {
		if strings.Contains(text, geminitest.Key) {
			t.Errorf("the key is in %s", text)
		}
	}
	if _, err := gemini.New(gemini.Config{}); err == nil || !strings.Contains(err.Error(), "GEMINI_API_KEY") {
		t.Errorf("without a key: %v", err)
	}
}

func TestUsage(t *testing.T) {
	s := geminitest.New(t)
	a := client(t, s)
	s.Next(func(w http.ResponseWriter, _ *http.Request) {
		geminitest.NewStream(w).Event(`{"candidates":[{"content":{"parts":[{"text":"x"}]},"finishReason":"STOP"}],` +
			`"usageMetadata":{"promptTokenCount":1000,"cachedContentTokenCount":400,"candidatesTokenCount":100,"thoughtsTokenCount":50}}`)
	})
	if u := ask(t, a, request(t, says("x"))).Usage; u != (contract.Usage{
		InputTokens: 1000, OutputTokens: 150, CachedTokens: 400, ReasoningTokens: 50, Unpriced: 1,
	}) {
		t.Errorf("usage is %+v", u)
	}
}

// A hook after the plan may change what the model has written. Then its parts are not sent:
// they would bring back what the hook took away.
func TestAMessageThatAHookHasChanged(t *testing.T) {
	s := geminitest.New(t)
	a := client(t, s)
	s.Next(replay(`{"text":"my password is x"}`,
		`{"functionCall":{"name":"a","args":{},"id":"1"},"thoughtSignature":"c2ln"}`, `{"functionCall":{"name":"b","args":{},"id":"2"}}`))
	resp := ask(t, a, request(t, says("go")))
	whole := contract.Message{
		Role: contract.RoleAssistant, Text: resp.TextContent, ToolCalls: resp.ToolCalls, ProviderState: resp.ProviderState,
	}
	fewer, final, redacted := whole, whole, whole
	fewer.ToolCalls = whole.ToolCalls[:1]
	final.ToolCalls, final.Text = nil, "no"
	redacted.Text = "my password is [hidden]"
	for name, talk := range map[string][]contract.Message{
		"one call less":     {says("go"), fewer, result(fewer.ToolCalls[0], "done")},
		"a final answer":    {says("go"), final, says("and now?")},
		"the text redacted": {says("go"), redacted, result(whole.ToolCalls[0], "1"), result(whole.ToolCalls[1], "2")},
	} {
		before := len(s.Seen())
		ask(t, a, request(t, talk...)) // the test's server refuses calls without results
		b, err := json.Marshal(s.Seen()[before].Contents[1])
		if err != nil || strings.Contains(string(b), "c2ln") || name == "the text redacted" && strings.Contains(string(b), "password is x") {
			t.Errorf("%s: sent %s, %v", name, b, err)
		}
	}
}

// Arguments that do not fit into the state are an answer all the same.
func TestLargeArgumentsHaveNoState(t *testing.T) {
	s := geminitest.New(t)
	big := `{"functionCall":{"name":"write","args":{"text":"` + strings.Repeat("<&>", 60<<10) + `"}},"thoughtSignature":"c2ln"}`
	s.Next(replay(big))
	if resp := ask(t, client(t, s), request(t, says("go"))); len(resp.ToolCalls) != 1 || resp.ProviderState != nil {
		t.Errorf("%d calls, a state of %d bytes", len(resp.ToolCalls), len(resp.ProviderState))
	}
}

func TestAModelThatIsNoName(t *testing.T) {
	s := geminitest.New(t)
	req := request(t, says("go"))
	req.Model = "../x?y"
	var e *contract.Error
	if _, err := client(t, s).Generate(t.Context(), req, func(string, string) {}); !errors.As(err, &e) ||
		e.Code != contract.ErrBadRequest || len(s.Seen()) > 0 {
		t.Errorf("%v, %d requests", err, len(s.Seen()))
	}
}

func TestWhatTheFilterSaysIsCleaned(t *testing.T) {
	s := geminitest.New(t)
	s.Next(func(w http.ResponseWriter, _ *http.Request) {
		geminitest.NewStream(w).Event(`{"promptFeedback":{"blockReason":"X","blockReasonMessage":"` + geminitest.Key +
			strings.Repeat("x", 5000) + `"}}`)
	})
	if e := refused(t, client(t, s), "go"); strings.Contains(e.Message, geminitest.Key) || len(e.Message) > 1000 {
		t.Errorf("it is %d bytes: %.100s", len(e.Message), e.Message)
	}
}
