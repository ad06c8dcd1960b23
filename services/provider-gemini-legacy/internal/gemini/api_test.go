package gemini_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"skandha.dev/pkg/provider"
	"skandha.dev/provider-gemini-legacy/internal/gemini"
)

const key = "AIza-0123456789-secret"

// api is a server that answers each request with the next handler.
type api struct {
	t   *testing.T
	url string

	mu   sync.Mutex
	next []http.HandlerFunc
	seen []body
}

// body is a request as it arrived.
type body struct {
	header   http.Header
	url      string
	Contents []struct {
		Role  string            `json:"role"`
		Parts []json.RawMessage `json:"parts"`
	} `json:"contents"`
	System struct {
		Parts []json.RawMessage `json:"parts"`
	} `json:"systemInstruction"`
	Tools []struct {
		Functions []struct {
			Name       string          `json:"name"`
			Parameters json.RawMessage `json:"parametersJsonSchema"`
		} `json:"functionDeclarations"`
	} `json:"tools"`
	Settings json.RawMessage `json:"generationConfig"`
}

// serve starts a server, and a model that asks it.
func serve(t *testing.T, next ...http.HandlerFunc) (*api, *gemini.Model) {
	t.Helper()
	a := &api{t: t, next: next}
	s := httptest.NewServer(a)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	a.url = s.URL
	return a, a.model(gemini.Config{})
}

func (a *api) model(cfg gemini.Config) *gemini.Model {
	a.t.Helper()
	cfg.APIKey, cfg.BaseURL, cfg.Model = key, a.url, "some-model"
	m, err := gemini.New(cfg)
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() { _ = m.Close() })
	return m
}

// ServeHTTP implements [http.Handler].
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b := body{header: r.Header.Clone(), url: r.URL.String()}
	raw, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(raw, &b)
	}
	if err != nil {
		a.t.Errorf("the request %s: %v", raw, err)
	}
	a.mu.Lock()
	a.seen = append(a.seen, b)
	h := a.next[0]
	if len(a.next) > 1 {
		a.next = a.next[1:]
	}
	a.mu.Unlock()
	h(w, r)
}

// last returns the request that arrived last.
func (a *api) last() body {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.seen[len(a.seen)-1]
}

func (a *api) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.seen)
}

// writes answers with this body.
func writes(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json; charset=UTF-8")
		_, _ = io.WriteString(w, text)
	}
}

// answers answers with an event of these parts, which ends for this reason.
func answers(reason string, parts ...string) http.HandlerFunc {
	text := `[{"candidates": [{"content": {"parts": [`
	for i, p := range parts {
		if i > 0 {
			text += " ,\n"
		}
		text += p
	}
	return writes(text + `], "role": "model"}, "finishReason": "` + reason + `"}], "modelVersion": "some-model-001"}]`)
}

// refuses answers with a status, headers and a body.
func refuses(status int, text string, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	}
}

func user(text string) provider.Message { return provider.Message{Role: provider.RoleUser, Text: text} }

// request is a request with these messages.
func request(messages ...provider.Message) provider.Request {
	var r provider.Request
	for _, m := range messages {
		b, err := json.Marshal(m)
		if err != nil {
			panic(fmt.Sprintf("a message of a test: %v", err))
		}
		r.Messages = append(r.Messages, b)
	}
	return r
}

func ask(t *testing.T, m *gemini.Model, r provider.Request) (provider.Response, error) {
	t.Helper()
	return m.Generate(t.Context(), provider.Call{Request: r, Deadline: time.Now().Add(time.Minute)})
}

func mustAsk(t *testing.T, m *gemini.Model, messages ...provider.Message) provider.Response {
	t.Helper()
	resp, err := ask(t, m, request(messages...))
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// turn is an answer and the results of its calls as messages, after a journey through the log.
func turn(t *testing.T, resp provider.Response, results ...string) []provider.Message {
	t.Helper()
	b, err := json.Marshal(resp) // changes the space and the escapes of JSON
	if err != nil {
		t.Fatal(err)
	}
	resp = provider.Response{}
	if err := json.Unmarshal(b, &resp); err != nil {
		t.Fatal(err)
	}
	out := []provider.Message{{
		Role: provider.RoleAssistant, Text: resp.TextContent, ToolCalls: resp.ToolCalls, ProviderState: resp.ProviderState,
	}}
	for i, text := range results {
		c := resp.ToolCalls[i]
		out = append(out, provider.Message{Role: provider.RoleTool, CallID: c.ID, Tool: c.Tool, Text: text})
	}
	return out
}
