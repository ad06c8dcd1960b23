// Package openaitest is a chat completions server for tests: the real wire
// protocol over a real socket, with the model of
// package scripted. It refuses what the real API refuses, so that a client
// which passes here sends well-formed requests.
package openaitest

import (
	"cmp"
	"context"
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
	"skandha.dev/services/test/pipenet"
	"skandha.dev/services/test/scripted"
)

// Key is the API key that the server accepts.
const Key = "sk-test-0123456789abcdef"

// Model is the model that the server offers.
const Model = "obedient-1"

// Server is a running server.
type Server struct {
	scripted.Queue[Request]

	URL    string       // the base URL for clients, with /v1
	Client *http.Client // what reaches a server of [NewPiped]; else nil, for any does

	Embedder *embedtest.Model // computes embeddings

	Audio Audio // hears and speaks

	model *scripted.Model
	mu    sync.Mutex
	asked []ResponsesRequest
	given map[string]givenItem // by id
}

// New starts a server that ends with the test.
func New(t testing.TB) *Server {
	t.Helper()
	s, mux := newServer(t)
	ts := httptest.NewServer(mux)
	t.Cleanup(func() {
		// Handlers that hang end with their connection.
		ts.CloseClientConnections()
		ts.Close()
	})
	s.URL = ts.URL + "/v1"
	return s
}

// NewPiped starts one within a bubble of testing/synctest, reached by its Client
// alone.
func NewPiped(t testing.TB) *Server {
	t.Helper()
	s, mux := newServer(t)
	s.URL, s.Client = "http://piped.invalid/v1", pipenet.Serve(t, mux)
	return s
}

// Obey replaces the model, before the first request.
func (s *Server) Obey(m *scripted.Model) { s.model = m }

func newServer(t testing.TB) (*Server, *http.ServeMux) {
	t.Helper()
	s := &Server{Embedder: &embedtest.Model{}, model: scripted.Unbounded(), given: map[string]givenItem{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/embeddings", s.embeddings)
	mux.HandleFunc("POST /v1/chat/completions", s.completions)
	mux.HandleFunc("POST /v1/responses", s.responses)
	mux.HandleFunc("POST /v1/audio/transcriptions", s.transcriptions)
	mux.HandleFunc("POST /v1/audio/speech", s.speech)
	mux.HandleFunc("GET /v1/models", s.models)
	return s, mux
}

func (s *Server) models(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"object":"list","data":[{"id":"text-embed","object":"model"},{"id":%q,"object":"model"}]}`,
		Model)
}

func (s *Server) completions(w http.ResponseWriter, r *http.Request) {
	var req Request
	err := decode(r, &req)
	req.Header = r.Header.Clone()
	if h := s.Note(req); h != nil {
		h(w, r)
		return
	}
	if refused(w, r, err, req.check) {
		return
	}
	q, err := req.question()
	if err != nil {
		Refuse(w, http.StatusBadRequest, "invalid_request_error", "", err.Error())
		return
	}
	s.answer(r.Context(), w, q)
}

func decode(r *http.Request, into any) error {
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	return d.Decode(into)
}

// refused answers a request that is not well-formed, or has no right key.
func refused(w http.ResponseWriter, r *http.Request, err error, check func() string) bool {
	authorization := r.Header.Get("Authorization")
	switch {
	case err != nil:
		Refuse(w, http.StatusBadRequest, "invalid_request_error", "", "the body cannot be read: "+err.Error())
		return true
	case authorization != "Bearer "+Key:
		Refuse(w, http.StatusUnauthorized, "invalid_request_error", "invalid_api_key",
			"Incorrect API key provided: "+strings.TrimPrefix(authorization, "Bearer "))
		return true
	}
	if why := check(); why != "" {
		Refuse(w, http.StatusBadRequest, "invalid_request_error", "", why)
		return true
	}
	return false
}

func (s *Server) answer(ctx context.Context, w http.ResponseWriter, q contract.Request) {
	out := NewStream(w)
	resp, err := s.generate(ctx, w, q, out.Text)
	if err != nil {
		return
	}
	for i, c := range resp.ToolCalls {
		if ctx.Err() != nil {
			return
		}
		out.Call(i, c)
	}
	out.Finish(finishReason(resp), resp.Usage)
}

// generate asks the model. What it fails with is answered, unless the client is gone.
func (s *Server) generate(
	ctx context.Context, w http.ResponseWriter, q contract.Request, say func(piece string),
) (contract.Response, error) {
	resp, err := s.model.Generate(ctx, q, func(text, _ string) {
		for _, piece := range scripted.Pieces(text) {
			if ctx.Err() == nil {
				say(piece)
			}
		}
	})
	var fault *contract.Error
	if ctx.Err() == nil && errors.As(err, &fault) {
		refuseAs(w, fault)
	}
	return resp, cmp.Or(err, ctx.Err())
}

func finishReason(r contract.Response) string {
	if len(r.ToolCalls) > 0 {
		return "tool_calls"
	}
	return "stop"
}

// refuseAs answers with the status of a code.
func refuseAs(w http.ResponseWriter, e *contract.Error) {
	if e.RetryInMS > 0 {
		w.Header().Set("Retry-After-Ms", fmt.Sprint(e.RetryInMS))
	}
	switch e.Code {
	case contract.ErrAuth:
		Refuse(w, http.StatusUnauthorized, "invalid_request_error", "invalid_api_key", e.Message)
	case contract.ErrRateLimited:
		Refuse(w, http.StatusTooManyRequests, "requests", "rate_limit_exceeded", e.Message)
	case contract.ErrUnavailable:
		Refuse(w, http.StatusServiceUnavailable, "server_error", "", e.Message)
	case contract.ErrTimeout:
		Refuse(w, http.StatusRequestTimeout, "timeout", "", e.Message)
	case contract.ErrTooLong:
		Refuse(w, http.StatusBadRequest, "invalid_request_error", "context_length_exceeded", e.Message)
	case contract.ErrGarbage:
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = fmt.Fprint(w, "data: {as the test asked\n\n")
	default:
		Refuse(w, http.StatusBadRequest, "invalid_request_error", "", e.Message)
	}
}

// Refuse answers with an error in the API's shape.
func Refuse(w http.ResponseWriter, status int, kind, code, message string) {
	body := map[string]any{"error": map[string]any{"message": message, "type": kind, "param": nil, "code": nil}}
	if code != "" {
		body["error"].(map[string]any)["code"] = code
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}
