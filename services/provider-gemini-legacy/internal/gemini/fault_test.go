package gemini_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/provider"
	"skandha.dev/provider-gemini-legacy/internal/gemini"
)

// fails wants a failure of the contract, without the key.
func fails(t *testing.T, err error) *provider.Error {
	t.Helper()
	var e *provider.Error
	if !errors.As(err, &e) {
		t.Fatalf("want a failure of the contract, got %v", err)
	}
	if strings.Contains(e.Message, key) || e.Message == "" {
		t.Errorf("the message is %q", e.Message)
	}
	return e
}

// refusal is an error as the API writes it, in the array that the SDK asks for.
func refusal(code int, status, message, detail string) http.HandlerFunc {
	return refuses(code, fmt.Sprintf("[{\"error\": {\"code\": %d, \"message\": %q, \"status\": %q, \"details\": [%s]}}\n]",
		code, message, status, detail), "Content-Type", "application/json")
}

func TestRefusalsBecomeCodes(t *testing.T) {
	const badKey = `{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}`
	const full = "The input token count (9) exceeds the maximum number of tokens allowed (8)."
	const wait = `{"@type": "type.googleapis.com/google.rpc.Help", "links": [{}]}, {"@type": "x", "retryDelay": "2.5s"}`
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		code    provider.ErrorCode
		retryMS int64
		words   string
	}{
		"a bad key":         {refusal(400, "INVALID_ARGUMENT", "not valid: "+key, badKey), provider.ErrAuth, 0, "[key]"},
		"not permitted":     {refusal(403, "PERMISSION_DENIED", "no", ""), provider.ErrAuth, 0, "403"},
		"a bad request":     {refusal(400, "INVALID_ARGUMENT", "bad", ""), provider.ErrBadRequest, 0, "bad"},
		"an unknown model":  {refusal(404, "NOT_FOUND", "no model", ""), provider.ErrBadRequest, 0, "GEMINI_MODEL"},
		"a full context":    {refusal(400, "INVALID_ARGUMENT", full, ""), provider.ErrTooLong, 0, "token"},
		"a large request":   {refuses(413, "too large"), provider.ErrTooLong, 0, "413"},
		"too many requests": {refusal(429, "RESOURCE_EXHAUSTED", "slow down", wait), provider.ErrRateLimited, 2500, "slow"},
		"Retry-After":       {refuses(429, "", "Retry-After", "7"), provider.ErrRateLimited, 7000, "429"},
		"overloaded":        {refusal(503, "UNAVAILABLE", "overloaded", ""), provider.ErrUnavailable, 0, "overloaded"},
		"a fault":           {refusal(500, "INTERNAL", "oops", ""), provider.ErrUnavailable, 0, "oops"},
		"too slow":          {refusal(504, "DEADLINE_EXCEEDED", "late", ""), provider.ErrTimeout, 0, "late"},
		"a proxy's page":    {refuses(200, "<html>", "Content-Type", "text/html"), provider.ErrGarbage, 0, "text/html"},
		"a redirect":        {refuses(307, "", "Location", "/elsewhere"), provider.ErrBadRequest, 0, "redirects"},
		"no array":          {writes(`{"candidates": []}`), provider.ErrGarbage, 0, "array"},
		"no JSON":           {writes(`[{"candidates": [}]`), provider.ErrGarbage, 0, "JSON"},
		"another type":      {writes(`[{"candidates": 7}]`), provider.ErrGarbage, 0, "JSON"},
		"half an event":     {writes(`[{"candidates": [`), provider.ErrUnavailable, 0, "broke"},
		"half an array":     {writes(`[{"candidates": []}`), provider.ErrUnavailable, 0, "broke"},
		"nothing":           {writes(``), provider.ErrUnavailable, 0, "broke"},
		"no events":         {writes(`[]`), provider.ErrGarbage, 0, "finishReason"},
		"an error among the events": {
			writes(`[{"candidates": [{"content": {"parts": [{"text": "x"}]}}]}, ` +
				`{"error": {"code": 503, "message": "gone ` + key + `"}}]`),
			provider.ErrUnavailable, 0, "gone [key]",
		},
		"an odd error among the events": {writes(`[{"error": "odd"}]`), provider.ErrUnavailable, 0, "broke off"},
		"a refused conversation": {
			writes(`[{"promptFeedback": {"blockReason": "SAFETY", "blockReasonMessage": "` + key + `"}}]`),
			provider.ErrBadRequest, 0, "SAFETY: [key]",
		},
		"refused for a new reason": {
			writes(`[{"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}}]`), provider.ErrBadRequest, 0,
			"PROHIBITED_CONTENT",
		},
		"a withheld answer":      {answers("SAFETY"), provider.ErrBadRequest, 0, "SAFETY"},
		"withheld otherwise":     {answers("PROHIBITED_CONTENT"), provider.ErrBadRequest, 0, "PROHIBITED_CONTENT"},
		"a call that is none":    {answers("MALFORMED_FUNCTION_CALL", `{"text":"x"}`), provider.ErrGarbage, 0, "MALFORMED"},
		"a call without a name":  {answers("STOP", `{"functionCall": {}}`), provider.ErrGarbage, 0, "call 0"},
		"no room for the answer": {answers("MAX_TOKENS"), provider.ErrTooLong, 0, "max_tokens"},
		"only a thought":         {answers("STOP", `{"thought": true, "text": "hm"}`), provider.ErrGarbage, 0, "neither"},
		"too many calls": {
			answers("STOP", slices.Repeat([]string{`{"functionCall": {"name": "a"}}`}, 65)...),
			provider.ErrTooLong, 0, "64",
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, m := serve(t, c.handler)
			_, err := ask(t, m, request(user("hello")))
			e := fails(t, err)
			if e.Code != c.code || e.RetryInMS != c.retryMS || !strings.Contains(e.Message, c.words) {
				t.Errorf("the failure is %+v", e)
			}
			if a.count() != 1 {
				t.Errorf("the request was sent %d times", a.count())
			}
		})
	}
}

// Text that a filter cut is an answer.
func TestStopReasons(t *testing.T) {
	for reason, want := range map[string]provider.StopReason{
		"STOP": provider.StopEnd, "MAX_TOKENS": provider.StopLength, "SAFETY": provider.StopFilter,
		"RECITATION": provider.StopFilter, "LANGUAGE": provider.StopFilter, "OTHER": provider.StopOther,
	} {
		_, m := serve(t, answers(reason, `{"text":"half"}`, `{"text":" an answer"}`))
		if r := mustAsk(t, m, user("hello")); r.StopReason != want || r.TextContent != "half an answer" ||
			r.Model != "some-model-001" {
			t.Errorf("%s is %+v", reason, r)
		}
	}
}

// hangs never answers.
func hangs(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// hangsLater never ends its answer.
func hangsLater(w http.ResponseWriter, r *http.Request) {
	writes(`[{"candidates": [{"content": {"parts": [{"text": "x"}]}}]}`)(w, r)
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

func TestASilentServerIsGivenUp(t *testing.T) {
	for name, h := range map[string]http.HandlerFunc{"at once": hangs, "in an answer": hangsLater} {
		a, _ := serve(t, h)
		_, err := ask(t, a.model(gemini.Config{Stall: 20 * time.Millisecond}), request(user("hello")))
		if e := fails(t, err); e.Code != provider.ErrTimeout || !strings.Contains(e.Message, "20ms") {
			t.Errorf("%s: %+v", name, e)
		}
	}
}

func TestItEndsWithItsContext(t *testing.T) {
	for name, h := range map[string]http.HandlerFunc{"at once": hangs, "in an answer": hangsLater} {
		begun := make(chan struct{}, 2)
		_, m := serve(t, func(w http.ResponseWriter, r *http.Request) {
			begun <- struct{}{}
			h(w, r)
		})
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-begun
			cancel()
		}()
		if _, err := m.Generate(ctx, provider.Call{Request: request(user("hello"))}); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: it ends with %v", name, err)
		}
		ctx, cancel = context.WithTimeout(t.Context(), 10*time.Millisecond)
		_, err := m.Generate(ctx, provider.Call{Request: request(user("hello"))})
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: it ends with %v", name, err)
		}
	}
}

// An answer without end is cut off, whatever it consists of.
func TestAnswersAreBounded(t *testing.T) {
	for name, c := range map[string]struct{ begin, piece string }{
		"text":      {`[`, `{"candidates": [{"content": {"parts": [{"text": "` + strings.Repeat("x", 1000) + `"}]}}]},`},
		"one event": {`[{"candidates": [{"content": {"parts": [`, `{"text": "` + strings.Repeat("x", 100_000) + `"},`},
		"space":     {`[`, strings.Repeat(" ", 1<<20)},
	} {
		_, m := serve(t, func(w http.ResponseWriter, r *http.Request) {
			writes(c.begin)(w, r)
			for r.Context().Err() == nil {
				if _, err := io.WriteString(w, c.piece); err != nil {
					return
				}
			}
		})
		_, err := ask(t, m, request(user("hello")))
		if e := fails(t, err); e.Code != provider.ErrTooLong || e.Retryable {
			t.Errorf("%s: %+v", name, e)
		}
	}
}

// A server that cannot prove who it is does not get the key, and waiting does not help.
func TestACertificateIsChecked(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("it was asked")
	}))
	t.Cleanup(s.Close)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	m, err := gemini.New(gemini.Config{APIKey: key, BaseURL: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	_, err = ask(t, m, request(user("hello")))
	if e := fails(t, err); e.Code != provider.ErrUnavailable || e.Retryable ||
		!strings.Contains(e.Message, "certificate") {
		t.Errorf("%+v", e)
	}
}

func TestNobodyAnswers(t *testing.T) {
	s := httptest.NewServer(nil)
	s.Close()
	m, err := gemini.New(gemini.Config{APIKey: key, BaseURL: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	_, err = ask(t, m, request(user("hello")))
	if e := fails(t, err); e.Code != provider.ErrUnavailable || !e.Retryable || strings.Contains(e.Message, "/v1beta") {
		t.Errorf("%+v", e)
	}
}
