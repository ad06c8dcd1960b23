// Package anthropictest is a Messages API server for tests: the real wire protocol over a
// real socket, with the model of package scripted. It thinks and signs its thoughts, and
// refuses what the real API refuses, a changed or moved thought included, so that a client
// which passes here sends well-formed requests.
package anthropictest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/services/test/pipenet"
	"skandha.dev/services/test/scripted"
)

// Key is the API key that the server accepts.
const Key = "sk-ant-test-0123456789abcdef"

// The models that the server offers. Any other name is a model like OldModel.
const (
	Model    = "claude-obedient-5-5" // thinks by default, and has no temperature
	OldModel = "claude-obedient-4-5" // thinks within a budget, if it is asked to
)

// Server is a running server.
type Server struct {
	scripted.Queue[Request]

	URL    string       // the base URL for clients
	Client *http.Client // what reaches a server of [NewPiped]; else nil, for any does

	model  *scripted.Model
	mu     sync.Mutex
	wrong  []string
	signed map[string]thought // by signature
}

// thought is what a signature was given to.
type thought struct {
	block  string // as it was sent
	before string // the conversation that it belongs to
	model  string
}

// New starts a server that ends with the test.
func New(t testing.TB) *Server {
	t.Helper()
	s, mux := newServer()
	ts := httptest.NewServer(mux)
	t.Cleanup(func() {
		// Handlers that hang end with their connection.
		ts.CloseClientConnections()
		ts.Close()
	})
	s.URL = ts.URL
	return s
}

// NewPiped starts one within a bubble of testing/synctest, reached by its Client alone.
func NewPiped(t testing.TB) *Server {
	t.Helper()
	s, mux := newServer()
	s.URL, s.Client = "http://piped.invalid", pipenet.Serve(t, mux)
	return s
}

func newServer() (*Server, *http.ServeMux) {
	s, mux := &Server{model: scripted.Unbounded(), signed: map[string]thought{}}, http.NewServeMux()
	mux.HandleFunc("POST /v1/messages", s.messages)
	mux.HandleFunc("GET /v1/models", s.models)
	return s, mux
}

// Wrong lists why requests were refused that were not well-formed.
func (s *Server) Wrong() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.wrong...)
}

func (s *Server) refuse(w http.ResponseWriter, why string) {
	s.mu.Lock()
	s.wrong = append(s.wrong, why)
	s.mu.Unlock()
	refuse(w, why)
}

// sign returns the signature of a thinking block that answers a request; its text is a JSON
// string.
func (s *Server) sign(text string, r Request) string {
	b := make([]byte, 24)
	_, _ = rand.Read(b) // never fails
	signature := base64.StdEncoding.EncodeToString(b)
	s.remember(signature, thought{text, r.before(len(r.Messages)), r.Model})
	return signature
}

func (s *Server) remember(signature string, t thought) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.signed[signature] = t
}

func (s *Server) issued(signature string) (thought, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, ok := s.signed[signature]
	return t, ok
}

func (s *Server) models(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("X-Api-Key") != Key {
		Refuse(w, http.StatusUnauthorized, "authentication_error", "invalid x-api-key "+r.Header.Get("X-Api-Key"))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"data":[{"type":"model","id":%q},{"type":"model","id":%q}],"has_more":false}`, Model, OldModel)
}

func (s *Server) messages(w http.ResponseWriter, r *http.Request) {
	sent, _ := io.ReadAll(r.Body) // what could not be read is missing below
	req, err := decode(sent)
	req.Header = r.Header.Clone()
	if h := s.Note(req); h != nil {
		h(w, r)
		return
	}
	switch {
	case r.Header.Get("X-Api-Key") != Key:
		Refuse(w, http.StatusUnauthorized, "authentication_error", "invalid x-api-key")
		return
	case r.Header.Get("Anthropic-Version") != "2023-06-01":
		s.refuse(w, "anthropic-version: header is required")
		return
	case err != nil:
		s.refuse(w, err.Error())
		return
	}
	if why := s.check(req); why != "" {
		s.refuse(w, why)
		return
	}
	q, err := req.question()
	if err != nil {
		s.refuse(w, err.Error())
		return
	}
	s.answer(r.Context(), s.Stream(w, req), q)
}

func (s *Server) answer(ctx context.Context, out *Stream, q contract.Request) {
	began := false
	begin := func() {
		if !began && out.req.thinks() {
			out.Thinking("I think <so> & …")
		}
		began = true
	}
	resp, err := s.model.Generate(ctx, q, func(text, _ string) {
		begin()
		for _, piece := range scripted.Pieces(text) {
			if ctx.Err() == nil {
				out.Text(piece)
			}
		}
	})
	var fault *contract.Error
	switch {
	case err == nil:
		begin()
		reason := "end_turn"
		for _, c := range resp.ToolCalls {
			reason = "tool_use"
			if ctx.Err() != nil {
				return
			}
			out.Call(c)
		}
		out.Finish(reason, resp.Usage)
	case ctx.Err() != nil:
		// The client is gone.
	case errors.As(err, &fault):
		refuseAs(out.w, fault)
	}
}

// refuseAs answers as the API does for a code.
func refuseAs(w http.ResponseWriter, e *contract.Error) {
	switch e.Code {
	case contract.ErrAuth:
		Refuse(w, http.StatusForbidden, "permission_error", e.Message)
	case contract.ErrRateLimited:
		if e.RetryInMS > 0 {
			w.Header().Set("Retry-After", strconv.FormatInt(e.RetryInMS/1000, 10))
		}
		Refuse(w, http.StatusTooManyRequests, "rate_limit_error", e.Message)
	case contract.ErrUnavailable:
		Refuse(w, 529, "overloaded_error", e.Message)
	case contract.ErrTimeout:
		Refuse(w, http.StatusGatewayTimeout, "timeout_error", e.Message)
	case contract.ErrTooLong:
		refuse(w, "prompt is too long: 210042 tokens > 200000 maximum")
	case contract.ErrGarbage:
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		_, _ = fmt.Fprint(w, "event: content_block_delta\ndata: {as the test asked\n\n")
	default:
		refuse(w, e.Message)
	}
}

func refuse(w http.ResponseWriter, message string) {
	Refuse(w, http.StatusBadRequest, "invalid_request_error", message)
}

// Refuse answers with an error in the API's shape.
func Refuse(w http.ResponseWriter, code int, kind, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Request-Id", "req_test")
	w.WriteHeader(code)
	_, _ = fmt.Fprintf(w, `{"type":"error","error":{"type":%q,"message":%s},"request_id":"req_test"}`, kind,
		quote(message))
}

// quote is a text as JSON, with nothing escaped that need not be.
func quote(s string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		panic(err) // text always encodes
	}
	return strings.TrimSpace(b.String())
}
