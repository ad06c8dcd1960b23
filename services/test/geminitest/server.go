// Package geminitest is a Gemini API server for tests: the real wire protocol over a real
// socket, with the model of package scripted. A stream is server-sent events if the request
// asks for alt=sse, else a JSON array, which also wraps errors. The server signs its calls, and refuses what the real
// API refuses, a missing or moved signature included, so that a client which passes here
// sends well-formed requests.
package geminitest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/services/test/embedtest"
	"skandha.dev/services/test/scripted"
)

// Key is the API key that the server accepts.
const Key = "AIza-test-0123456789abcdef"

// Model is the model that the server offers.
const Model = "obedient-flash"

// Server is a running server.
type Server struct {
	scripted.Queue[Request]

	URL string // the base URL for clients

	Embedder *embedtest.Model // computes embeddings

	model *scripted.Model
	mu    sync.Mutex
	signs map[string]string // the part that a signature was given to
}

// New starts a server that ends with the test.
func New(t testing.TB) *Server {
	t.Helper()
	s := &Server{Embedder: &embedtest.Model{}, model: scripted.Unbounded(), signs: map[string]string{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1beta/models/{call}", s.generate)
	mux.HandleFunc("GET /v1beta/models", listModels)
	ts := httptest.NewServer(mux)
	t.Cleanup(func() {
		// Handlers that hang end with their connection.
		ts.CloseClientConnections()
		ts.Close()
	})
	s.URL = ts.URL
	return s
}

// sign adds a signature to a part, a JSON object.
func (s *Server) sign(part string) string {
	b := make([]byte, 24)
	_, _ = rand.Read(b) // never fails
	signature := base64.StdEncoding.EncodeToString(b)
	signed := strings.TrimSuffix(part, "}") + `,"thoughtSignature":"` + signature + `"}`
	s.mu.Lock()
	defer s.mu.Unlock()
	s.signs[signature] = compact(json.RawMessage(signed))
	return signed
}

func (s *Server) issued(signature string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.signs[signature]
}

// compact is a part without the freedom that JSON leaves: white space, escapes, order.
func compact(raw json.RawMessage) string {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return string(raw)
	}
	b, err := json.Marshal(v)
	if err != nil {
		return string(raw)
	}
	return string(b)
}

func (s *Server) generate(w http.ResponseWriter, r *http.Request) {
	_, method, _ := strings.Cut(r.PathValue("call"), ":")
	if method == "batchEmbedContents" {
		s.embeddings(w, r)
		return
	}
	var req Request
	body := json.NewDecoder(r.Body)
	body.DisallowUnknownFields()
	err := body.Decode(&req)
	req.Header, req.Path = r.Header.Clone(), r.URL.Path
	if r.URL.Query().Get("alt") != "sse" {
		w = arrayWriter{w}
	}
	if h := s.Note(req); h != nil {
		h(w, r)
		return
	}
	switch {
	case method != "streamGenerateContent":
		Refuse(w, http.StatusNotFound, "NOT_FOUND", "this server wants streamGenerateContent", "")
		return
	case r.Header.Get("X-Goog-Api-Key") != Key:
		refuseAs(w, &contract.Error{Code: contract.ErrAuth, Message: "API key not valid. Please pass a valid API key."})
		return
	case err != nil:
		Refuse(w, http.StatusBadRequest, "INVALID_ARGUMENT", "Invalid JSON payload received: "+err.Error(), "")
		return
	}
	if why := s.check(req); why != "" {
		Refuse(w, http.StatusBadRequest, "INVALID_ARGUMENT", why, "")
		return
	}
	q, err := req.question()
	if err != nil {
		Refuse(w, http.StatusBadRequest, "INVALID_ARGUMENT", err.Error(), "")
		return
	}
	s.answer(r.Context(), w, q)
}

func (s *Server) answer(ctx context.Context, w http.ResponseWriter, q contract.Request) {
	out := NewStream(w)
	resp, err := s.model.Generate(ctx, q, func(text, _ string) {
		for _, piece := range scripted.Pieces(text) {
			if ctx.Err() == nil {
				out.Text(piece)
			}
		}
	})
	var fault *contract.Error
	switch {
	case err == nil:
		for i, c := range resp.ToolCalls {
			if ctx.Err() != nil {
				return
			}
			call := callPart(c)
			if i == 0 { // of parallel calls, only the first one is signed
				call = s.sign(call)
			}
			out.Part(call)
		}
		out.Finish("STOP", resp.Usage)
	case ctx.Err() != nil:
		// The client is gone.
	case errors.As(err, &fault):
		refuseAs(w, fault)
	}
}

// refuseAs answers as the API does for a code.
func refuseAs(w http.ResponseWriter, e *contract.Error) {
	switch e.Code {
	case contract.ErrAuth:
		Refuse(w, http.StatusBadRequest, "INVALID_ARGUMENT", e.Message,
			`{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"API_KEY_INVALID","domain":"googleapis.com"}`)
	case contract.ErrRateLimited:
		detail := ""
		if e.RetryInMS > 0 {
			detail = fmt.Sprintf(`{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"%gs"}`,
				float64(e.RetryInMS)/1000)
		}
		Refuse(w, http.StatusTooManyRequests, "RESOURCE_EXHAUSTED", e.Message, detail)
	case contract.ErrUnavailable:
		Refuse(w, http.StatusServiceUnavailable, "UNAVAILABLE", e.Message, "")
	case contract.ErrTimeout:
		Refuse(w, http.StatusGatewayTimeout, "DEADLINE_EXCEEDED", e.Message, "")
	case contract.ErrTooLong:
		Refuse(w, http.StatusBadRequest, "INVALID_ARGUMENT",
			"The input token count (1048577) exceeds the maximum number of tokens allowed (1048576).", "")
	case contract.ErrGarbage:
		NewStream(w).Event("{as the test asked")
	default:
		Refuse(w, http.StatusBadRequest, "INVALID_ARGUMENT", e.Message, "")
	}
}

// Refuse answers with an error in the API's shape; detail is a JSON object, or empty.
func Refuse(w http.ResponseWriter, code int, status, message, detail string) {
	body := fmt.Sprintf(`{"error":{"code":%d,"message":%s,"status":%q,"details":[%s]}}`, code, quote(message), status, detail)
	if _, array := w.(arrayWriter); array {
		body = "[" + body + "]"
	}
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	w.WriteHeader(code)
	_, _ = fmt.Fprint(w, body)
}

func listModels(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("X-Goog-Api-Key") != Key {
		refuseAs(w, &contract.Error{Code: contract.ErrAuth, Message: "API key not valid. Please pass a valid API key."})
		return
	}
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	_, _ = fmt.Fprintf(w, `{"models":[{"name":"models/%s","inputTokenLimit":1048576}],"nextPageToken":""}`, Model)
}
