package embedtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

// Next has the next requests for embeddings answered by these handlers, one each; after them
// the model answers again.
func (m *Model) Next(handlers ...http.HandlerFunc) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.next = append(m.next, handlers...)
}

// Drop forgets the handlers that have not answered yet.
func (m *Model) Drop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.next = nil
}

// Serve has the next of the test's handlers answer, if there is one.
func (m *Model) Serve(w http.ResponseWriter, r *http.Request) bool {
	m.mu.Lock()
	m.requests++
	if len(m.next) == 0 {
		m.mu.Unlock()
		return false
	}
	h := m.next[0]
	m.next = m.next[1:]
	m.mu.Unlock()
	body, _ := io.ReadAll(r.Body) // else the server does not notice when the client goes
	r.Body = io.NopCloser(bytes.NewReader(body))
	h(w, r)
	return true
}

// Requests is how many requests came.
func (m *Model) Requests() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.requests
}

// Ollama is a running server with Ollama's own API.
type Ollama struct {
	URL      string // the base URL for clients
	Embedder *Model
}

// NewOllama starts a server that ends with the test.
func NewOllama(t testing.TB) *Ollama {
	t.Helper()
	s, mux := &Ollama{Embedder: &Model{}}, http.NewServeMux()
	mux.HandleFunc("POST /api/embed", s.embed)
	mux.HandleFunc("GET /api/tags", func(w http.ResponseWriter, _ *http.Request) {
		JSON(w, http.StatusOK, map[string]any{"models": []map[string]any{{"name": Name + ":latest", "size": 1}}})
	})
	ts := httptest.NewServer(mux)
	t.Cleanup(func() {
		// Handlers that hang end with their connection.
		ts.CloseClientConnections()
		ts.Close()
	})
	s.URL = ts.URL
	return s
}

func (s *Ollama) embed(w http.ResponseWriter, r *http.Request) {
	if s.Embedder.Serve(w, r) {
		return
	}
	var req struct {
		Model string   `json:"model"`
		Input []string `json:"input"`
	}
	if err := Decode(r, &req); err != nil {
		JSON(w, http.StatusBadRequest, map[string]any{"error": err.Error()})
		return
	}
	if req.Model != Name && req.Model != Name+":latest" {
		JSON(w, http.StatusNotFound, map[string]any{"error": fmt.Sprintf("model %q not found, try pulling it first", req.Model)})
		return
	}
	JSON(w, http.StatusOK, map[string]any{
		"model": req.Model, "embeddings": s.Embedder.Embed(req.Input), "total_duration": 1, "load_duration": 1,
		"prompt_eval_count": Tokens(req.Input),
	})
}

// Decode reads a request, and refuses fields that the API does not have.
func Decode(r *http.Request, into any) error {
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	return d.Decode(into)
}

// JSON answers with a status and a body.
func JSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}
