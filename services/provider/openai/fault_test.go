package openai_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/services/provider/openai"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/test/openaitest"
)

// status answers with a status and an error in the API's shape.
func status(code int, kind, reason, message string, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		openaitest.Refuse(w, code, kind, reason, message)
	}
}

// raw answers with a body as it is.
func raw(contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		_, _ = fmt.Fprint(w, body)
	}
}

// events answers with a stream of deltas, and the finish reason unless it is empty.
func events(finish string, deltas ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		s := openaitest.NewStream(w)
		for _, d := range deltas {
			s.Delta(d)
		}
		if finish != "" {
			s.Finish(finish, contract.Usage{InputTokens: 7, OutputTokens: 3})
		}
	}
}

// cut sends the deltas and breaks the connection.
func cut(deltas ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		events("", deltas...)(w, r)
		panic(http.ErrAbortHandler)
	}
}

func times(n int, h http.HandlerFunc) []http.HandlerFunc {
	out := make([]http.HandlerFunc, n)
	for i := range out {
		out[i] = h
	}
	return out
}

func generate(t *testing.T, a *openai.Adapter, text string) (contract.Response, string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), natstest.Patience)
	defer cancel()
	var pieces strings.Builder
	resp, err := a.Generate(ctx, request(t, contract.Message{Role: contract.RoleUser, Text: text}),
		func(text, _ string) { pieces.WriteString(text) })
	return resp, pieces.String(), err
}

func failure(t *testing.T, err error) *contract.Error {
	t.Helper()
	var e *contract.Error
	if !errors.As(err, &e) {
		t.Fatalf("want a failure of the contract, got %v", err)
	}
	if strings.Contains(e.Message, openaitest.Key) || strings.Contains(e.Message, "http://") {
		t.Errorf("the message gives away the key or the URL: %s", e.Message)
	}
	return e
}

func TestFailuresOfTheServer(t *testing.T) {
	const text = `{"content":"It began"}`
	for _, c := range []struct {
		name      string
		server    http.HandlerFunc
		code      contract.ErrorCode
		retryable bool
		tries     int
		message   string
	}{
		{
			"401", status(401, "invalid_request_error", "invalid_api_key", "Incorrect API key provided: "+openaitest.Key),
			contract.ErrAuth, false, 1, "Incorrect API key provided: [key]",
		},
		{"403", status(403, "", "", "no"), contract.ErrAuth, false, 1, "no"},
		{"402", status(402, "", "", "pay"), contract.ErrAuth, false, 1, "pay"},
		{
			"404", status(404, "invalid_request_error", "model_not_found", "no such model"), contract.ErrBadRequest, false, 1,
			"base_url",
		},
		{"400", status(400, "invalid_request_error", "", "bad tools"), contract.ErrBadRequest, false, 1, "bad tools"},
		{
			"400 with a full context", status(400, "invalid_request_error", "context_length_exceeded", "too much"),
			contract.ErrTooLong, false, 1, "too much",
		},
		{
			"400 with a full context, in words", raw400("This model's maximum context length is 8192 tokens"),
			contract.ErrTooLong, false, 1, "maximum context",
		},
		{"413", status(413, "", "", "big"), contract.ErrTooLong, false, 1, "big"},
		{"429", status(429, "requests", "rate_limit_exceeded", "slow down"), contract.ErrRateLimited, true, 3, "slow down"},
		{
			"429 with an empty account", status(429, "insufficient_quota", "insufficient_quota", "pay"), contract.ErrRateLimited,
			false, 1, "pay",
		},
		{"500", status(500, "server_error", "", "oops"), contract.ErrUnavailable, true, 3, "oops"},
		{"502 of a proxy", raw502, contract.ErrUnavailable, true, 3, "answered 502"},
		{"504", status(504, "", "", "late"), contract.ErrTimeout, true, 3, "late"},
		{"redirect", redirect, contract.ErrBadRequest, false, 1, "base_url"},
		{
			"a page instead of a stream", raw("text/html; charset=utf-8", "<html>login</html>"), contract.ErrGarbage, true, 3,
			"text/html",
		},
		{
			"an error with status 200", raw("application/json", `{"error":{"message":"overloaded","code":503}}`),
			contract.ErrUnavailable, true, 3, "overloaded",
		},
		{"an empty stream", raw("text/event-stream", ""), contract.ErrGarbage, true, 3, "broke off"},
		{"[DONE] at once", raw("text/event-stream", "data: [DONE]\n\n"), contract.ErrGarbage, true, 3, "broke off"},
		{
			"a garbage chunk", raw("text/event-stream", "data: {\"choices\":[{\n\n"), contract.ErrGarbage, true, 3,
			"not valid JSON",
		},
		{
			"a chunk of another shape", raw("text/event-stream", "data: 42\n\ndata: [DONE]\n\n"), contract.ErrGarbage, true, 3,
			"",
		},
		{
			"an error in the stream",
			raw("text/event-stream", "data: {\"error\":{\"message\":\"too fast\",\"type\":\"rate_limit_error\"}}\n\n"),
			contract.ErrRateLimited, true, 3, "too fast",
		},
		{"a stream that ends early", events("", text), contract.ErrGarbage, true, 1, "broke off"},
		{"a connection that breaks", cut(text), contract.ErrUnavailable, true, 1, "broke"},
		{"a connection that breaks before anything", cut(), contract.ErrUnavailable, true, 3, ""},
		{"nothing but the token limit", events("length"), contract.ErrTooLong, false, 1, "max_tokens"},
		{"a filter", events("content_filter"), contract.ErrBadRequest, false, 1, "filter"},
		{
			"a call without a name", events("tool_calls", `{"tool_calls":[{"index":0,"id":"a","function":{"arguments":"{}"}}]}`),
			contract.ErrGarbage, true, 3, "names no function",
		},
		{"too many calls", manyCalls, contract.ErrTooLong, false, 1, "64"},
		{"arguments without end", endlessArgs, contract.ErrTooLong, false, 1, "262144"},
		{"a text without end", endlessText, contract.ErrTooLong, false, 1, "204800"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := openaitest.New(t)
			s.Next(times(3, c.server)...)
			_, _, err := generate(t, client(t, s), "hello")
			e := failure(t, err)
			if e.Code != c.code || e.Retryable != c.retryable || !strings.Contains(e.Message, c.message) {
				t.Errorf("failure is %+v, want %s, retryable %v, %q", e, c.code, c.retryable, c.message)
			}
			if n := len(s.Seen()); n != c.tries {
				t.Errorf("asked %d times, want %d", n, c.tries)
			}
		})
	}
}

func raw400(message string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = fmt.Fprintf(w, `{"message":%q}`, message)
	}
}

func raw502(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusBadGateway)
	_, _ = fmt.Fprint(w, "<html><body>Bad Gateway</body></html>")
}

func redirect(w http.ResponseWriter, r *http.Request) {
	http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
}

func manyCalls(w http.ResponseWriter, _ *http.Request) {
	s := openaitest.NewStream(w)
	for i := range 1000 {
		s.Delta(fmt.Sprintf(`{"tool_calls":[{"index":%d,"id":"c%d","function":{"name":"f","arguments":"{}"}}]}`, i, i))
	}
}

func endlessArgs(w http.ResponseWriter, r *http.Request) {
	s := openaitest.NewStream(w)
	s.Delta(`{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"[1"}}]}`)
	piece := `{"tool_calls":[{"index":0,"function":{"arguments":"` + strings.Repeat(",1", 4000) + `"}}]}`
	for r.Context().Err() == nil {
		s.Delta(piece)
	}
}

func endlessText(w http.ResponseWriter, r *http.Request) {
	s := openaitest.NewStream(w)
	for r.Context().Err() == nil {
		s.Text(strings.Repeat("and on ", 500))
	}
}

func TestRecovery(t *testing.T) {
	for _, c := range []struct {
		name   string
		server http.HandlerFunc
	}{
		{"500, then well", status(500, "server_error", "", "oops")},
		{"429 with Retry-After, then well", status(429, "requests", "", "slow down", "Retry-After-Ms", "20")},
		{"garbage, then well", raw("text/event-stream", "data: {\n\n")},
		{"a broken connection, then well", cut()},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := openaitest.New(t)
			s.Next(c.server, c.server)
			resp, pieces, err := generate(t, client(t, s), "hello")
			if err != nil || resp.TextContent != "echo: hello" || pieces != resp.TextContent || len(s.Seen()) != 3 {
				t.Errorf("after %d tries: %+v (%q), %v", len(s.Seen()), resp, pieces, err)
			}
		})
	}
}

func TestRetryAfterOfTheServerReachesCore(t *testing.T) {
	for _, c := range []struct {
		header, value string
		least, most   int64
	}{
		{"Retry-After", "120", 120_000, 120_000},
		{"Retry-After", "1.5", 1500, 1500},
		{"Retry-After-Ms", "60000", 60_000, 60_000},
		{"Retry-After", time.Now().Add(time.Hour).UTC().Format(http.TimeFormat), 3_500_000, 3_600_000},
		{"Retry-After", "1e300", 86_400_000, 86_400_000},
		{"Retry-After", "-5", 0, 0},
		{"Retry-After", "soon", 0, 0},
	} {
		s := openaitest.New(t)
		s.Next(times(3, status(429, "requests", "", "slow down", c.header, c.value))...)
		_, _, err := generate(t, client(t, s), "hello")
		if e := failure(t, err); e.RetryInMS < c.least || e.RetryInMS > c.most {
			t.Errorf("%s: %s becomes %d ms", c.header, c.value, e.RetryInMS)
		}
	}
}

func TestSilentServerIsGivenUp(t *testing.T) {
	for _, c := range []struct {
		name  string
		send  string
		tries int
	}{{"before its answer", "", 3}, {"in the middle of it", `{"content":"It began"}`, 1}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := openaitest.NewPiped(t)
				s.Next(times(3, func(w http.ResponseWriter, r *http.Request) {
					if c.send != "" {
						openaitest.NewStream(w).Delta(c.send)
					}
					<-r.Context().Done()
				})...)
				a := client(t, s, func(cfg *openai.Config) { cfg.Stall = 150 * time.Millisecond })
				_, _, err := generate(t, a, "hello")
				if e := failure(t, err); e.Code != contract.ErrTimeout || !e.Retryable ||
					!strings.Contains(e.Message, "sent nothing for 150ms") {
					t.Errorf("failure is %+v", e)
				}
				if n := len(s.Seen()); n != c.tries {
					t.Errorf("asked %d times, want %d", n, c.tries)
				}
			})
		})
	}
}

func TestSlowServerIsNotGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := client(t, openaitest.NewPiped(t), func(cfg *openai.Config) { cfg.Stall = time.Second })
		resp, _, err := generate(t, a, "stream 40 words every 900 ms") // half a minute in all
		if err != nil || !strings.HasSuffix(resp.TextContent, "word40") {
			t.Errorf("answer is %+v, %v", resp, err)
		}
	})
}

func TestUnreachableServer(t *testing.T) {
	server := knowsNoName(t)
	nobody := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", server)
	}}
	for _, base := range []string{"http://127.0.0.1:1/v1", "http://no-such-host.invalid/v1"} {
		a, err := openai.New(openai.Config{BaseURL: base, Model: "m", Retry: quick, HTTPClient: &http.Client{
			Transport: &http.Transport{DialContext: (&net.Dialer{Resolver: nobody}).DialContext},
		}})
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = generate(t, a, "hello")
		if e := failure(t, err); e.Code != contract.ErrUnavailable || !e.Retryable {
			t.Errorf("%s: %+v", base, e)
		}
	}
}

// knowsNoName is the address of a name server that says so. The machine's own may
// be away, or slow.
func knowsNoName(t *testing.T) string {
	t.Helper()
	c, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	go func() {
		for buf := make([]byte, 512); ; {
			n, from, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			const answer, noSuchName = 0x80, 3
			buf[2] |= answer
			buf[3] = buf[3]&0xf0 | noSuchName
			_, _ = c.WriteTo(buf[:n], from) // who lost it asks again
		}
	}()
	return c.LocalAddr().String()
}

func TestUntrustedCertificate(t *testing.T) {
	ts := httptest.NewUnstartedServer(http.NotFoundHandler())
	ts.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo) // it complains about the handshake
	ts.StartTLS()
	defer ts.Close()
	a, err := openai.New(openai.Config{BaseURL: ts.URL + "/v1", Model: "m", APIKey: openaitest.Key, Retry: quick})
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = generate(t, a, "hello")
	if e := failure(t, err); e.Code != contract.ErrUnavailable || e.Retryable ||
		!strings.Contains(e.Message, "certificate") {
		t.Errorf("failure is %+v", e)
	}
}

func TestBreakerOpensForADeadServer(t *testing.T) {
	s := openaitest.New(t)
	s.Next(times(100, status(503, "server_error", "", "down"))...)
	a := client(t, s, func(cfg *openai.Config) { cfg.Retry.TripAfter, cfg.Retry.OpenFor = 4, time.Hour })
	for range 4 {
		_, _, err := generate(t, a, "hello")
		if e := failure(t, err); e.Code != contract.ErrUnavailable {
			t.Errorf("failure is %+v", e)
		}
	}
	_, _, err := generate(t, a, "hello")
	if e := failure(t, err); e.Code != contract.ErrUnavailable ||
		!strings.Contains(e.Message, "answered 503: down (4 questions failed") || e.RetryInMS == 0 {
		t.Errorf("failure is %+v, want the server's own words", e)
	}
	if n := len(s.Seen()); n != 12 {
		t.Errorf("the server was asked %d times, want 3 tries at each of 4 questions", n)
	}
}
