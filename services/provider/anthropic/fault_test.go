package anthropic_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/services/provider/anthropic"
	"skandha.dev/services/test/anthropictest"
)

// status answers with an error in the API's shape.
func status(code int, kind, message string, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		anthropictest.Refuse(w, code, kind, message)
	}
}

// raw answers with a body as it is.
func raw(contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		_, _ = fmt.Fprint(w, body)
	}
}

// stream answers with events as they are: names and data in turn.
func stream(events ...string) http.HandlerFunc {
	var b strings.Builder
	for i := 0; i+1 < len(events); i += 2 {
		fmt.Fprintf(&b, "event: %s\ndata: %s\n\n", events[i], events[i+1])
	}
	return raw("text/event-stream; charset=utf-8", b.String())
}

func times(n int, h http.HandlerFunc) []http.HandlerFunc {
	out := make([]http.HandlerFunc, n)
	for i := range out {
		out[i] = h
	}
	return out
}

const (
	begin = `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"It began"}}`
	end   = `{"type":"message_stop"}`
)

func errorEvent(kind string) http.HandlerFunc {
	return stream("error", `{"type":"error","error":{"type":"`+kind+`","message":"too much"},"request_id":"r"}`)
}

func proxy(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusBadGateway)
	_, _ = fmt.Fprint(w, "<html>")
}

func redirect(w http.ResponseWriter, r *http.Request) {
	http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
}

func TestFaults(t *testing.T) {
	const start, delta, stop, finish = "content_block_start", "content_block_delta", "message_stop", "message_delta"
	cut := func(w http.ResponseWriter, r *http.Request) {
		stream(start, begin)(w, r)
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	for name, c := range map[string]struct {
		server  http.HandlerFunc
		code    contract.ErrorCode
		tries   int
		message string
	}{
		"401":                          {status(401, "authentication_error", "invalid x-api-key "+anthropictest.Key), contract.ErrAuth, 1, "x-api-key [key]"},
		"402":                          {status(402, "billing_error", "pay"), contract.ErrAuth, 1, "pay"},
		"403":                          {status(403, "permission_error", "no"), contract.ErrAuth, 1, "no"},
		"404":                          {status(404, "not_found_error", "model: x"), contract.ErrBadRequest, 1, "usually without /v1"},
		"413":                          {status(413, "request_too_large", "big"), contract.ErrTooLong, 1, "big"},
		"400":                          {status(400, "invalid_request_error", "tools.0: bad"), contract.ErrBadRequest, 1, "tools.0"},
		"400, the prompt is too long":  {status(400, "invalid_request_error", "prompt is too long: 210042 tokens > 200000 maximum"), contract.ErrTooLong, 1, "210042"},
		"400, with the limit too long": {status(400, "invalid_request_error", "input length and `max_tokens` exceed context limit: 190000 + 16384 > 200000, decrease input length or `max_tokens`"), contract.ErrTooLong, 1, "190000"},
		"429":                          {status(429, "rate_limit_error", "slow"), contract.ErrRateLimited, 3, "slow"},
		"500":                          {status(500, "api_error", "oops"), contract.ErrUnavailable, 3, "oops"},
		"502 of a proxy":               {proxy, contract.ErrUnavailable, 3, "502"},
		"503":                          {status(503, "api_error", "away"), contract.ErrUnavailable, 3, "away"},
		"504":                          {status(504, "timeout_error", "late"), contract.ErrTimeout, 3, "late"},
		"529":                          {status(529, "overloaded_error", "Overloaded"), contract.ErrUnavailable, 3, "Overloaded"},
		"a redirect":                   {redirect, contract.ErrBadRequest, 1, "base_url"},
		"a page":                       {raw("text/html; charset=utf-8", "<html>login</html>"), contract.ErrGarbage, 3, "text/html"},
		"an error with status 200":     {raw("application/json", `{"type":"error","error":{"type":"overloaded_error","message":"x"}}`), contract.ErrUnavailable, 3, "overloaded"},
		"a whole message":              {raw("application/json", `{"type":"message","content":[]}`), contract.ErrGarbage, 3, "application/json"},
		"nothing":                      {raw("text/event-stream", ""), contract.ErrGarbage, 3, "broke off"},
		"the end at once":              {stream(stop, end), contract.ErrGarbage, 3, "broke off"},
		"half an event":                {stream(start, `{"type":"content_block_start","index":`), contract.ErrGarbage, 3, "not valid JSON"},
		"an event of a wrong type":     {stream(start, `{"type":"content_block_start","index":"x"}`), contract.ErrGarbage, 3, "not valid JSON"},
		"an event that is no object":   {stream(start, `42`), contract.ErrGarbage, 3, ""},
		"a block that is none":         {stream(start, `{"type":"content_block_start","index":0,"content_block":7}`), contract.ErrGarbage, 3, "not valid JSON"},
		"no block":                     {stream(start, `{"type":"content_block_start","index":0}`), contract.ErrGarbage, 3, "not valid JSON"},
		"a delta of no block":          {stream(delta, `{"type":"content_block_delta","index":4,"delta":{"type":"text_delta","text":"x"}}`), contract.ErrGarbage, 3, "block 4"},
		"a signature that is no text":  {stream(start, `{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":7}}`), contract.ErrGarbage, 3, "not a text"},
		"a call of nothing":            {stream(start, `{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"a","name":""}}`), contract.ErrGarbage, 3, "names no tool"},
		"a stream that ends early":     {stream(start, begin), contract.ErrGarbage, 1, "broke off"},
		"no end, but a reason":         {stream(start, begin, finish, `{"type":"message_delta","delta":{"stop_reason":"end_turn"}}`), contract.ErrGarbage, 1, "broke off"},
		"an end without a reason":      {stream(start, begin, stop, end), contract.ErrGarbage, 1, "broke off"},
		"a connection that breaks":     {cut, contract.ErrUnavailable, 1, "broke"},
		"overloaded within":            {errorEvent("overloaded_error"), contract.ErrUnavailable, 3, "too much"},
		"a limit within":               {errorEvent("rate_limit_error"), contract.ErrRateLimited, 3, "too much"},
		"a time-out within":            {errorEvent("timeout_error"), contract.ErrTimeout, 3, "too much"},
		"a refused key within":         {errorEvent("authentication_error"), contract.ErrAuth, 1, "too much"},
		"a refused request within":     {errorEvent("invalid_request_error"), contract.ErrBadRequest, 1, "too much"},
		"an error that says nothing":   {stream("error", `{}`), contract.ErrUnavailable, 3, "without a description"},
		"an error that is no JSON":     {stream("error", `<html>`), contract.ErrUnavailable, 3, "without a description"},
		"an error after the beginning": {stream(start, begin, "error", `{"type":"error","error":{"type":"overloaded_error","message":"x"}}`), contract.ErrUnavailable, 1, "overloaded"},
	} {
		t.Run(name, func(t *testing.T) {
			s := anthropictest.New(t)
			s.Next(times(3, c.server)...)
			e := refused(t, client(t, s), "hello")
			retryable := c.code == contract.ErrRateLimited || c.code == contract.ErrUnavailable || c.code == contract.ErrTimeout ||
				c.code == contract.ErrGarbage
			if e.Code != c.code || e.Retryable != retryable || !strings.Contains(e.Message, c.message) || e.Message == "" {
				t.Errorf("failure is %+v, want %s, %q", e, c.code, c.message)
			}
			if n := len(s.Seen()); n != c.tries {
				t.Errorf("asked %d times, want %d", n, c.tries)
			}
		})
	}
}

func TestRetryAfter(t *testing.T) {
	s := anthropictest.New(t)
	s.Next(status(429, "rate_limit_error", "slow", "Retry-After", "120"))
	if e := refused(t, client(t, s), "hello"); e.RetryInMS != 120_000 || len(s.Seen()) != 1 {
		t.Errorf("failure is %+v after %d requests", e, len(s.Seen()))
	}
	s.Next(status(429, "rate_limit_error", "slow", "Retry-After", "0.02"), status(529, "overloaded_error", "x"))
	if got := ask(t, client(t, s), request(t, says("hello"))).TextContent; got != "echo: hello" {
		t.Errorf("answered %q", got)
	}
}

// Why the model stopped, and what is made of what it has written.
func TestStopReasons(t *testing.T) {
	text := func(out *anthropictest.Stream) { out.Text("Half an ans") }
	half := func(out *anthropictest.Stream) { out.RawCall("t1", "a", `{"x": "1`) }
	for name, c := range map[string]struct {
		reason string
		write  func(out *anthropictest.Stream)
		want   contract.StopReason
		code   contract.ErrorCode
		calls  string
	}{
		"the end":                         {"end_turn", text, contract.StopEnd, "", ""},
		"a stop sequence":                 {"stop_sequence", text, contract.StopEnd, "", ""},
		"calls":                           {"tool_use", func(out *anthropictest.Stream) { out.RawCall("t1", "a", `{}`) }, contract.StopToolCalls, "", `{}`},
		"the limit, in a text":            {"max_tokens", text, contract.StopLength, "", ""},
		"the limit, in a call":            {"max_tokens", half, contract.StopLength, "", `"{\"x\": \"1"`},
		"the limit, before the arguments": {"max_tokens", func(out *anthropictest.Stream) { out.RawCall("t1", "a", "") }, contract.StopLength, "", `""`},
		"the limit, before anything":      {"max_tokens", nil, "", contract.ErrTooLong, ""},
		"the window, in a text":           {"model_context_window_exceeded", text, contract.StopLength, "", ""},
		"the window, before anything":     {"model_context_window_exceeded", nil, "", contract.ErrTooLong, ""},
		"a refusal, in a text":            {"refusal", text, contract.StopFilter, "", ""},
		"a refusal, in a call":            {"refusal", func(out *anthropictest.Stream) { text(out); half(out) }, contract.StopFilter, "", ""},
		"a refusal, of all":               {"refusal", half, "", contract.ErrBadRequest, ""},
		"a pause":                         {"pause_turn", text, contract.StopOther, "", ""},
		"a pause, before anything":        {"pause_turn", nil, "", contract.ErrGarbage, ""},
		"a reason of the future":          {"bored", text, contract.StopOther, "", ""},
		"the end, before anything":        {"end_turn", nil, "", contract.ErrGarbage, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := anthropictest.New(t)
			s.Next(times(3, s.Reply(func(out *anthropictest.Stream) {
				if c.write != nil {
					c.write(out)
				}
				out.Finish(c.reason, contract.Usage{})
			}))...)
			resp, _, _, err := generate(t, client(t, s), request(t, says("go")))
			var e *contract.Error
			if c.code != "" {
				if !errors.As(err, &e) || e.Code != c.code {
					t.Errorf("answered %+v, %v; want %s", resp, err, c.code)
				}
				return
			}
			var args []string
			for _, c := range resp.ToolCalls {
				args = append(args, string(c.Args))
			}
			if err != nil || resp.StopReason != c.want || strings.Join(args, ";") != c.calls || resp.IsFinal != (c.calls == "") {
				t.Errorf("answered %+v, %v", resp, err)
			}
		})
	}
}

func TestARefusalSaysWhy(t *testing.T) {
	s := anthropictest.New(t)
	s.Next(s.Reply(func(out *anthropictest.Stream) {
		out.Event("message_delta", `{"type":"message_delta","delta":{"stop_reason":"refusal","stop_details":{"type":"refusal",`+
			`"category":"bio","explanation":"no `+anthropictest.Key+strings.Repeat("x", 5000)+`"}},"usage":{"output_tokens":1}}`)
		out.Event("message_stop", end)
	}))
	if e := refused(t, client(t, s), "hello"); !strings.Contains(e.Message, "bio no") || len(e.Message) > 1000 {
		t.Errorf("it is %d bytes: %.100s", len(e.Message), e.Message)
	}
}

func TestAnswersAreBounded(t *testing.T) {
	for want, write := range map[string]func(out *anthropictest.Stream, done <-chan struct{}){
		"64 tool calls": func(out *anthropictest.Stream, _ <-chan struct{}) {
			for i := range 100 {
				out.RawCall(fmt.Sprintf("t%d", i), "a", "{}")
			}
		},
		"262144": func(out *anthropictest.Stream, done <-chan struct{}) {
			out.Open("tool_use", `{"type":"tool_use","id":"t","name":"a","input":{}}`)
			for piece := strings.Repeat(",1", 4000); ; {
				select {
				case <-done:
					return
				default:
					out.Delta(`{"type":"input_json_delta","partial_json":"` + piece + `"}`)
				}
			}
		},
	} {
		s := anthropictest.New(t)
		s.Next(func(w http.ResponseWriter, r *http.Request) { write(s.Stream(w, last(t, s)), r.Context().Done()) })
		if e := refused(t, client(t, s), "go"); e.Code != contract.ErrTooLong || !strings.Contains(e.Message, want) {
			t.Errorf("failure is %+v, want %s", e, want)
		}
	}
}

func TestASilentServerIsGivenUp(t *testing.T) {
	for name, c := range map[string]struct {
		write func(out *anthropictest.Stream)
		tries int
	}{
		"before its answer":   {func(*anthropictest.Stream) {}, 3},
		"after pings":         {func(out *anthropictest.Stream) { out.Event("ping", `{"type":"ping"}`) }, 3},
		"in the middle of it": {func(out *anthropictest.Stream) { out.Text("It began") }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := anthropictest.NewPiped(t)
				s.Next(times(3, func(w http.ResponseWriter, r *http.Request) {
					s.Reply(c.write)(w, r)
					<-r.Context().Done()
				})...)
				a := client(t, s, func(cfg *anthropic.Config) { cfg.Stall = 150 * time.Millisecond })
				if e := refused(t, a, "hello"); e.Code != contract.ErrTimeout || !strings.Contains(e.Message, "sent nothing for 150ms") {
					t.Errorf("failure is %+v", e)
				}
				if n := len(s.Seen()); n != c.tries {
					t.Errorf("asked %d times, want %d", n, c.tries)
				}
			})
		})
	}
}

func TestASlowServerIsNotGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := client(t, anthropictest.NewPiped(t), func(cfg *anthropic.Config) { cfg.Stall = time.Second })
		resp, _, _, err := generate(t, a, request(t, says("stream 40 words every 900 ms"))) // half a minute in all
		if err != nil || !strings.HasSuffix(resp.TextContent, "word40") {
			t.Errorf("answered %+v, %v", resp, err)
		}
	})
}

func TestCancelClosesTheRequest(t *testing.T) {
	s := anthropictest.New(t)
	gone := make(chan struct{})
	s.Next(func(w http.ResponseWriter, r *http.Request) {
		s.Reply(func(out *anthropictest.Stream) { out.Text("It began") })(w, r)
		<-r.Context().Done()
		close(gone)
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err := client(t, s).Generate(ctx, request(t, says("go")), func(string, string) { cancel() })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("it ends with %v", err)
	}
	<-gone
}

func TestABrokenServerIsAskedAgain(t *testing.T) {
	s := anthropictest.New(t)
	s.Next(status(529, "overloaded_error", "x"), stream("ping", `{"type":"ping"}`))
	resp, text, _, err := generate(t, client(t, s), request(t, says("hello")))
	if err != nil || resp.TextContent != "echo: hello" || text != resp.TextContent || len(s.Seen()) != 3 {
		t.Errorf("after %d requests: %+v (%q), %v", len(s.Seen()), resp, text, err)
	}
}
