package access_test

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skandha.dev/services/uibridge/access"
	"skandha.dev/services/uibridge/contract"
)

// The secrets of the tests.
const (
	ownerToken = "owner-0123456789abcdef"
	botToken   = "bot-0123456789abcdef"
)

// rig is an access layer in front of a handler that returns the requester.
type rig struct {
	*access.Access
	t    *testing.T
	log  strings.Builder
	h    http.Handler
	jar  []*http.Cookie
	key  string                                       // that goes with the cookies
	then func(w http.ResponseWriter, r *http.Request) // instead
}

func newRig(t *testing.T, cfg access.Config, dataDir string) *rig {
	t.Helper()
	r := &rig{t: t}
	var err error
	r.Access, err = access.New(cfg, access.Deps{
		Log: slog.New(slog.NewTextHandler(&r.log, nil)), DataDir: dataDir, Body: func(path string) string {
			if path == "/v1/pictures" {
				return "image/jpeg"
			}
			return "application/json"
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/v1/auth/", r.Handler())
	mux.HandleFunc("/", func(w http.ResponseWriter, q *http.Request) {
		if r.then != nil {
			r.then(w, q)
			return
		}
		_, _ = io.WriteString(w, contract.PrincipalOf(q.Context()).Name)
	})
	r.h = r.Protect(mux)
	return r
}

func usual() access.Config {
	return access.Config{Owner: ownerToken, Tokens: []access.Token{{Name: "bot", Token: botToken}}}
}

// ask sends a request; each change is one of with's.
func (r *rig) ask(method, target, body string, changes ...func(*http.Request)) *httptest.ResponseRecorder {
	r.t.Helper()
	var in io.Reader
	if body != "" {
		in = strings.NewReader(body)
	}
	q := httptest.NewRequest(method, target, in)
	if strings.HasPrefix(target, "/") {
		q.Host = "localhost:7070"
	}
	q.RemoteAddr = "127.0.0.1:5555"
	if body != "" {
		q.Header.Set("Content-Type", "application/json")
	}
	for _, c := range r.jar {
		q.AddCookie(c)
	}
	if r.key != "" {
		q.Header.Set(access.KeyHeader, r.key)
	}
	for _, change := range changes {
		change(q)
	}
	w := httptest.NewRecorder()
	r.h.ServeHTTP(w, q)
	return w
}

// logIn logs in with a token, as a page does; later requests carry the cookie and its key.
func (r *rig) logIn(token string) *http.Cookie {
	r.t.Helper()
	w := r.ask(http.MethodPost, "/v1/auth/token", `{"token": "`+token+`"}`, page)
	if w.Code != http.StatusOK || len(w.Result().Cookies()) != 1 {
		r.t.Fatalf("logging in is answered %d %s", w.Code, w.Body)
	}
	r.jar, r.key = w.Result().Cookies(), w.Header().Get(access.KeyHeader)
	return r.jar[0]
}

// with sets a header; several values are several headers.
func with(name string, values ...string) func(*http.Request) {
	return func(q *http.Request) {
		q.Header.Del(name)
		for _, v := range values {
			q.Header.Add(name, v)
		}
	}
}

func bearer(token string) func(*http.Request) { return with("Authorization", "Bearer "+token) }

func from(addr string) func(*http.Request) {
	return func(q *http.Request) { q.RemoteAddr = addr }
}

func host(h string) func(*http.Request) { return func(q *http.Request) { q.Host = h } }

// page returns the header that a browser sends for the bridge's own page.
func page(q *http.Request) {
	q.Header.Set("Origin", "http://"+q.Host)
	q.Header.Set("Sec-Fetch-Site", "same-origin")
}

func upgrade(q *http.Request) {
	q.Header.Set("Connection", "Upgrade")
	q.Header.Set("Upgrade", "websocket")
}

// refusal returns the error of an answer.
func refusal(t *testing.T, w *httptest.ResponseRecorder) contract.Error {
	t.Helper()
	var e contract.Error
	if err := json.Unmarshal(w.Body.Bytes(), &e); err != nil || e.Code == "" || e.Message == "" {
		t.Fatalf("%d is no error: %s", w.Code, w.Body)
	}
	return e
}

func principal(t *testing.T, w *httptest.ResponseRecorder) contract.Principal {
	t.Helper()
	var p contract.Principal
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Code != http.StatusOK {
		t.Fatalf("%d %s: %v", w.Code, w.Body, err)
	}
	return p
}

func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
