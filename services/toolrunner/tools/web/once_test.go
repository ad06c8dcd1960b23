package web

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/toolrunner/tools"
)

// ledger is a server that honours Idempotency-Key and counts what it has done.
type ledger struct {
	mu      sync.Mutex
	answers map[string]string
	done    int
	lose    int // that many answers are lost: the connection is cut after the effect
}

func (l *ledger) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := r.Header.Get("Idempotency-Key")
	if key != "" && key != "k3y" {
		l.done = -100
	}
	if _, repeated := l.answers[key]; key == "" || !repeated {
		l.done++
		l.answers[key] = "effect of " + r.Method
	}
	if l.lose > 0 {
		l.lose--
		panic(http.ErrAbortHandler)
	}
	_, _ = w.Write([]byte(l.answers[key]))
}

func (l *ledger) effects() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.done
}

func (l *ledger) serve(t *testing.T) (tl tools.Tool, url string) {
	t.Helper()
	l.answers = map[string]string{}
	s := httptest.NewServer(l)
	t.Cleanup(s.Close)
	return local(t, strings.TrimPrefix(s.URL, "http://")), s.URL
}

func arguments(t *testing.T, a requestArgs) json.RawMessage {
	t.Helper()
	raw, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func codeOf(r tool.Result) tool.Code {
	if r.Error == nil {
		return ""
	}
	return r.Error.Code
}

// The answer of a request is lost after its effect, and that of its repetitions. The probe repeats it
// with the same key until it is answered, and the server has the effect once.
func TestAProbeRepeatsARequestThatHasItsEffectOnce(t *testing.T) {
	l := &ledger{lose: 3}
	tl, url := l.serve(t)
	c := callOf(arguments(t, requestArgs{Method: "POST", URL: url, Body: "pay", Once: true}))
	if r := tl.Run(t.Context(), c); codeOf(r) != tool.CodeOutcomeUnknown {
		t.Fatalf("got %+v", r)
	}
	r := tl.Probe(t.Context(), c, tools.Begun{})
	if !r.Success || !strings.Contains(string(r.Data), "effect of POST") || l.effects() != 1 {
		t.Fatalf("got %+v, %d effects", r, l.effects())
	}
}

func TestWithoutAKeyTheOutcomeStaysUnknown(t *testing.T) {
	l := &ledger{lose: 1}
	tl, url := l.serve(t)
	c := callOf(arguments(t, requestArgs{Method: "POST", URL: url}))
	if r := tl.Run(t.Context(), c); codeOf(r) != tool.CodeOutcomeUnknown {
		t.Fatalf("got %+v", r)
	}
	if r := tl.Probe(t.Context(), c, tools.Begun{}); codeOf(r) != tool.CodeOutcomeUnknown || l.effects() != 1 {
		t.Fatalf("got %+v, %d effects", r, l.effects())
	}
}

func TestRequestsThatReadAreRepeated(t *testing.T) {
	for _, method := range []string{"", "GET", "HEAD"} {
		l := &ledger{}
		tl, url := l.serve(t)
		if r := tl.Probe(t.Context(), callOf(arguments(t, requestArgs{Method: method, URL: url})), tools.Begun{}); !r.Success {
			t.Errorf("%q: got %+v", method, r)
		}
	}
}

// A probe that learns nothing says so: it cannot make a request fail that may have succeeded.
func TestAProbeThatFailsKnowsNothing(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusConflict)
	}))
	host := strings.TrimPrefix(s.URL, "http://")
	c := callOf(arguments(t, requestArgs{Method: "POST", URL: s.URL, Once: true}))
	tl := local(t, host)
	brief := func() context.Context { // long enough for one request
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		t.Cleanup(cancel)
		return ctx
	}
	if r := tl.Probe(brief(), c, tools.Begun{}); codeOf(r) != tool.CodeOutcomeUnknown {
		t.Errorf("in progress: got %+v", r)
	}
	s.Close()
	if r := tl.Probe(brief(), c, tools.Begun{}); codeOf(r) != tool.CodeOutcomeUnknown {
		t.Errorf("no server: got %+v", r)
	}
	if r := local(t, "other.example").Probe(t.Context(), c, tools.Begun{}); codeOf(r) != tool.CodeOutcomeUnknown {
		t.Errorf("not allowed any more: got %+v", r)
	}
}

func TestARequestThatMayNotBeginIsNotSent(t *testing.T) {
	l := &ledger{}
	tl, url := l.serve(t)
	c := callOf(arguments(t, requestArgs{Method: "POST", URL: url}))
	c.Begin = func(context.Context) error { return errors.New("given up") }
	if r := tl.Run(t.Context(), c); codeOf(r) != tool.CodeFailed || !strings.Contains(r.Error.Message, "was not sent") ||
		l.effects() != 0 {
		t.Fatalf("got %+v, %d effects", r, l.effects())
	}
}

// What cannot be connected to has certainly had no effect.
func TestARequestThatWasNotSentHasFailed(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	url := s.URL
	s.Close()
	tl := local(t, strings.TrimPrefix(url, "http://"))
	if r := tl.Run(t.Context(), callOf(arguments(t, requestArgs{Method: "POST", URL: url}))); codeOf(r) != tool.CodeFailed {
		t.Fatalf("got %+v", r)
	}
}

func TestTheKeyIsNotTheModels(t *testing.T) {
	l := &ledger{}
	tl, url := l.serve(t)
	a := requestArgs{Method: "POST", URL: url, Once: true, Headers: map[string]string{"idempotency-key": "mine"}}
	if r := tl.Run(t.Context(), callOf(arguments(t, a))); r.Success || l.effects() != 0 {
		t.Fatalf("got %+v", r)
	}
}
