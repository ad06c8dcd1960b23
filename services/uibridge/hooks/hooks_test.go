package hooks_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"skandha.dev/pkg/bus"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/uibridge/hooks"
)

// core answers as core does, or fails.
type core struct {
	asked []coreapi.Occurrence
	err   error
}

func (c *core) Ask(_ context.Context, verb string, question, answer any) error {
	q, ok := question.(coreapi.Occurrence)
	if verb != coreapi.VerbOccur || !ok {
		return errors.New("asked for " + verb)
	}
	c.asked = append(c.asked, q)
	if c.err != nil {
		return c.err
	}
	return json.Unmarshal([]byte(`{"sequence":7}`), answer)
}

// call calls a webhook; change prepares the request.
func (c *core) call(t *testing.T, method, body string, change func(http.Header)) (status int, answer map[string]any, h http.Header) {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle(hooks.Pattern, hooks.New(c, slog.New(slog.DiscardHandler)))
	r := httptest.NewRequestWithContext(t.Context(), method, "/hooks/abc123", strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer hook_key")
	if change != nil {
		change(r.Header)
	}
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, r)
	said, err := io.ReadAll(w.Result().Body)
	if err == nil {
		err = json.Unmarshal(said, &answer)
	}
	if err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	return w.Code, answer, w.Result().Header
}

func TestACallIsPassedOnAndAcknowledged(t *testing.T) {
	for name, c := range map[string]struct {
		change func(http.Header)
		want   coreapi.Occurrence
	}{
		"a key":             {nil, coreapi.Occurrence{Hook: "abc123", Key: "hook_key", Body: "{}"}},
		"Standard Webhooks": {func(h http.Header) { h.Set("Webhook-Id", "m1") }, coreapi.Occurrence{Hook: "abc123", Key: "hook_key", ID: "m1", Body: "{}"}},
		"GitHub": {func(h http.Header) {
			h.Del("Authorization")
			h.Set("X-Hub-Signature-256", "sha256=00")
			h.Set("X-Github-Delivery", "d1")
		}, coreapi.Occurrence{Hook: "abc123", Signature: "sha256=00", ID: "d1", Body: "{}"}},
	} {
		var core core
		status, answer, _ := core.call(t, http.MethodPost, "{}", c.change)
		if status != http.StatusAccepted || answer["sequence"] != 7.0 || len(core.asked) != 1 || core.asked[0] != c.want {
			t.Errorf("%s: %d %v, asked %+v", name, status, answer, core.asked)
		}
	}
}

func TestWhatIsWrongWithACallIsSaid(t *testing.T) {
	without := func(h http.Header) { h.Del("Authorization") }
	for name, c := range map[string]struct {
		method, body string
		change       func(http.Header)
		err          error
		status       int
		message      string
		again        bool
	}{
		"a method":  {method: http.MethodGet, status: 405, message: "want POST"},
		"no key":    {change: without, status: 401, message: "send Authorization: Bearer hook_"},
		"size":      {body: strings.Repeat("x", 64<<10+1), status: 413, message: "larger than 64 KiB"},
		"key":       {err: bus.Errorf(bus.CodeDenied, "wrong key"), status: 401, message: "wrong key"},
		"unknown":   {err: bus.Errorf(bus.CodeNotFound, "no such webhook"), status: 404, message: "no such webhook"},
		"no JSON":   {err: bus.Errorf(bus.CodeInvalidArgument, "not JSON"), status: 400, message: "not JSON"},
		"too long":  {err: bus.Errorf(bus.CodeTooLarge, "too long"), status: 413, message: "too long"},
		"too often": {err: bus.Errorf(bus.CodeOverloaded, "too often"), status: 429, message: "too often", again: true},
		"core away": {err: context.DeadlineExceeded, status: 503, message: "send it again with the same id", again: true},
		"bus full":  {err: bus.Errorf(bus.CodeUnavailable, "the disk is full"), status: 503, message: "the disk is full", again: true},
		"a fault":   {err: bus.Errorf(bus.CodeInternal, "secret details"), status: 500, message: "internal error"},
	} {
		core := core{err: c.err}
		method := c.method
		if method == "" {
			method = http.MethodPost
		}
		status, answer, h := core.call(t, method, c.body, c.change)
		message, _ := answer["message"].(string)
		if status != c.status || !strings.Contains(message, c.message) || (h.Get("Retry-After") != "") != c.again {
			t.Errorf("%s: %d %v, Retry-After %q", name, status, answer, h.Get("Retry-After"))
		}
	}
}
