package main

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"

	"skandha.dev/services/test/anthropictest"
	"skandha.dev/services/test/embedtest"
	"skandha.dev/services/test/geminitest"
	"skandha.dev/services/test/openaitest"
)

// echo answers a request with a failure that repeats the key.
type echo func(w http.ResponseWriter, key string)

// vendors is a proxy, reached with a password, before servers of all APIs. Each request must
// carry the canary of its API, which the proxy replaces by the key that the server accepts.
type vendors struct {
	addr string

	mu    sync.Mutex
	fails echo            // answers instead of the servers; nil: they answer
	only  string          // the host that fails; empty: all
	left  int             // how many more requests fail
	seen  map[string]bool // the names of the canaries that came
}

// api is a server behind the proxy.
type api struct {
	url, header, key string // header is "" if the server wants no key
	canary           string // its name
}

func newVendors(t *testing.T) *vendors {
	openai, anthropic := openaitest.New(t), anthropictest.New(t)
	gemini, ollama := geminitest.New(t), embedtest.NewOllama(t)
	apis := map[string]api{
		"openai.test":    {strings.TrimSuffix(openai.URL, "/v1"), "Authorization", "Bearer " + openaitest.Key, "openai"},
		"anthropic.test": {anthropic.URL, "X-Api-Key", anthropictest.Key, "anthropic"},
		"gemini.test":    {gemini.URL, "X-Goog-Api-Key", geminitest.Key, "gemini"},
		"ollama.test":    {ollama.URL, "", "", "ollama"},
		"chroma.test":    {ollama.URL, "", "", "chroma"},
	}
	v := &vendors{seen: map[string]bool{}}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a, known := apis[r.Host]
		if !known {
			t.Errorf("a request came for %s", r.Host)
			return
		}
		v.note(r, a.canary)
		if fails := v.failing(r.Host); fails != nil {
			fails(w, deployment[a.canary])
			return
		}
		if a.header != "" {
			r.Header.Set(a.header, a.key)
		}
		to, err := url.Parse(a.url)
		if err != nil {
			t.Error(err)
			return
		}
		(&httputil.ReverseProxy{
			FlushInterval: -1, Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(to) },
		}).ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	v.addr = strings.TrimPrefix(s.URL, "http://")
	return v
}

// note records which canaries a request carries.
func (v *vendors) note(r *http.Request, canary string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, values := range r.Header {
		if strings.Contains(strings.Join(values, " "), deployment[canary]) {
			v.seen[canary] = true
		}
	}
	login := base64.StdEncoding.EncodeToString([]byte("user:" + deployment["proxy"]))
	if r.Header.Get("Proxy-Authorization") == "Basic "+login {
		v.seen["proxy"] = true
	}
}

func (v *vendors) failing(host string) echo {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.left == 0 || v.only != "" && v.only != host {
		return nil
	}
	v.left--
	return v.fails
}

// fail has the next requests for a host fail, or those for all hosts if it is "".
func (v *vendors) fail(host string, requests int, fails echo) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.only, v.left, v.fails = host, requests, fails
}

// came reports whether a request carried the canary.
func (v *vendors) came(canary string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.seen[canary]
}

// env returns the environment's addresses of the APIs, and the proxy.
func (v *vendors) env() []string {
	return []string{
		"HTTP_PROXY=http://user:" + deployment["proxy"] + "@" + v.addr,
		"OPENAI_BASE_URL=http://openai.test/v1", "OPENAI_MODEL=" + openaitest.Model,
		"ANTHROPIC_BASE_URL=http://anthropic.test", "ANTHROPIC_MODEL=" + anthropictest.Model,
		"GOOGLE_GEMINI_BASE_URL=http://gemini.test", "GEMINI_MODEL=" + geminitest.Model,
		"OLLAMA_BASE_URL=http://ollama.test", "SKANDHA_EMBEDDER=ollama/" + embedtest.Name,
	}
}

// answering returns a failure with a status, a content type and a body in which %[1]s is
// the key.
func answering(status int, media, body string) echo {
	return func(w http.ResponseWriter, key string) {
		for _, name := range []string{"X-Request-Id", "Www-Authenticate", "Location", "X-Debug"} {
			w.Header().Set(name, "Bearer "+key)
		}
		w.Header().Set("Content-Type", media)
		w.Header().Set("Retry-After-Ms", "1")
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, body, key)
	}
}

// echoes are the ways in which an API repeats a key that it was sent.
var echoes = map[string]echo{
	"a message": answering(401, "application/json",
		`{"type":"error","error":{"message":"Incorrect API key provided: %[1]s","type":"authentication_error","code":401}}`),
	"types and codes": answering(400, "application/json",
		`{"error":{"message":"bad","type":"%[1]s","code":"%[1]s","status":"%[1]s","details":[{"reason":"%[1]s"}]}}`),
	"a page":     answering(401, "text/html", `<html><title>%[1]s</title>Authorization: Bearer %[1]s</html>`),
	"plain text": answering(403, "text/plain", `x-api-key: %[1]s is not allowed`),
	"a redirect": answering(302, "text/plain", `%[1]s`),
	"a stream": answering(200, "text/event-stream", "event: error\n"+
		`data: {"type":"error","error":{"type":"%[1]s","message":"key %[1]s is revoked",`+
		`"code":"%[1]s","status":"%[1]s"}}`+"\n\n"),
	"half a chunk": answering(200, "text/event-stream", "event: message_start\n"+`data: {"id":"%[1]s", %[1]s`+"\n\n"),
	"an outage":    answering(503, "application/json", `{"error":"%[1]s, %[1]s"}`),
}
