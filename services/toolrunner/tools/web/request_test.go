package web

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/toolrunner/tools"
	"skandha.dev/services/toolrunner/tools/web/guard"
)

func serve(t *testing.T, h http.HandlerFunc) (base, host string) {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL, strings.TrimPrefix(s.URL, "http://")
}

func call(t *testing.T, tl tools.Tool, args requestArgs) (answer, tool.Result) {
	t.Helper()
	raw, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	r := tl.Run(t.Context(), callOf(raw))
	var a answer
	if r.Success {
		if err := json.Unmarshal(r.Data, &a); err != nil {
			t.Fatal(err)
		}
	}
	return a, r
}

// callOf returns a call that may begin.
func callOf(args json.RawMessage) tools.Call {
	return tools.Call{Args: args, Key: "k3y", Begin: func(context.Context) error { return nil }}
}

func local(t *testing.T, allow ...string) tools.Tool {
	t.Helper()
	l, err := guard.Parse("http_allow", allow)
	if err != nil {
		t.Fatal(err)
	}
	return Request(guard.AllowList{}, l)
}

func TestRequest(t *testing.T) {
	base, host := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "text/plain")
		w.Header().Set("Set-Cookie", "secret=1")
		w.WriteHeader(http.StatusTeapot)
		fmt.Fprintf(w, "%s %s %s %s %s", r.Method, r.URL.RequestURI(), r.Header.Get("X-Key"), r.UserAgent(), body)
	})
	a, r := call(t, local(t, host),
		requestArgs{Method: "POST", URL: base + "/p?q=1", Headers: map[string]string{"x-key": "k"}, Body: "hi"})
	if !r.Success || a.Status != http.StatusTeapot || a.Body != "POST /p?q=1 k skandha-toolrunner hi" ||
		a.Headers["Content-Type"] != "text/plain" || a.Headers["Set-Cookie"] != "" {
		t.Fatalf("got %+v %v", a, r.Error)
	}
}

func TestAnAllowedNameThatLeadsToThisMachineIsRefused(t *testing.T) {
	var reached atomic.Bool
	_, host := serve(t, func(http.ResponseWriter, *http.Request) { reached.Store(true) })
	_, port, _ := net.SplitHostPort(host)
	l, err := guard.Parse("http_allow", []string{"localhost:" + port, "127.0.0.1:" + port, "[::ffff:127.0.0.1]:" + port})
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range []string{"localhost", "127.0.0.1", "[::ffff:127.0.0.1]"} {
		_, r := call(t, Request(l, guard.AllowList{}), requestArgs{URL: "http://" + h + ":" + port + "/"})
		if r.Success || !strings.Contains(r.Error.Message, "is not public") {
			t.Errorf("%s: got %+v", h, r)
		}
	}
	if reached.Load() {
		t.Fatal("the server was reached")
	}
}

func TestNoProxyIsUsed(t *testing.T) {
	var reached atomic.Bool
	base, _ := serve(t, func(http.ResponseWriter, *http.Request) { reached.Store(true) })
	for _, k := range []string{"HTTP_PROXY", "http_proxy", "ALL_PROXY"} {
		t.Setenv(k, base)
	}
	if _, r := call(t, local(t, "nowhere.invalid"), requestArgs{URL: "http://nowhere.invalid/"}); r.Success ||
		reached.Load() {
		t.Fatalf("got %+v through a proxy", r)
	}
}

// Policy judges a call by its URL, so another URL takes another call.
func TestRedirectsAreNotFollowed(t *testing.T) {
	var reached atomic.Int32
	other, otherHost := serve(t, func(http.ResponseWriter, *http.Request) { reached.Add(1) })
	base, host := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/other":
			http.Redirect(w, r, other+"/x", http.StatusTemporaryRedirect)
		case "/here":
			http.Redirect(w, r, "/admin", http.StatusFound)
		case "/unchanged":
			w.WriteHeader(http.StatusNotModified)
		default:
			reached.Add(1)
		}
	})
	for path, c := range map[string]struct {
		status   int
		location string
	}{
		"/other": {http.StatusTemporaryRedirect, other + "/x"}, "/here": {http.StatusFound, base + "/admin"},
		"/unchanged": {http.StatusNotModified, ""},
	} {
		for _, method := range []string{"GET", "POST"} {
			a, r := call(t, local(t, host, otherHost), requestArgs{Method: method, URL: base + path, Body: "secret"})
			if a.Status != c.status || !strings.HasSuffix(a.Note, c.location) || (a.Note == "") != (c.location == "") ||
				reached.Load() != 0 {
				t.Errorf("%s %s: %+v %v, reached %d", method, path, a, r.Error, reached.Load())
			}
		}
	}
}

func TestHeadersOfTheConnectionMayNotBeSet(t *testing.T) {
	base, host := serve(t, func(http.ResponseWriter, *http.Request) {})
	for _, k := range []string{
		"Host", "content-length", "Transfer-Encoding", "Proxy-Authorization", "Connection", "Bad Name", "X\r\nY",
	} {
		if _, r := call(t, local(t, host), requestArgs{URL: base, Headers: map[string]string{k: "x"}}); r.Success {
			t.Errorf("%q was sent", k)
		}
	}
	if _, r := call(t, local(t, host), requestArgs{URL: base, Headers: map[string]string{"X": "a\r\nY: b"}}); r.Success {
		t.Error("a header value with a line break was sent")
	}
}

func TestBodies(t *testing.T) {
	base, host := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/large":
			for range maxBody/8 + 1 {
				_, _ = io.WriteString(w, "a€b€")
			}
		case "/latin1":
			w.Header().Set("Content-Type", "text/plain; charset=ISO-8859-1")
			_, _ = w.Write([]byte("caf\xe9"))
		case "/binary":
			_, _ = w.Write([]byte{0x89, 'P', 'N', 'G', 0, 0xff})
		}
	})
	tl := local(t, host)
	if a, _ := call(t, tl, requestArgs{URL: base + "/large"}); !a.Truncated || len(a.Body) > maxBody ||
		len(a.Body) < maxBody-4 || strings.Contains(a.Body, "\uFFFD") {
		t.Errorf("large: truncated %v, %d bytes, note %q", a.Truncated, len(a.Body), a.Note)
	}
	if a, _ := call(t, tl, requestArgs{URL: base + "/latin1"}); a.Body != "café" {
		t.Errorf("latin1: %+v", a)
	}
	if a, _ := call(t, tl, requestArgs{URL: base + "/binary"}); a.Body != "" || !strings.Contains(a.Note, "6 bytes") {
		t.Errorf("binary: %+v", a)
	}
}

func TestTheSpecIsHonest(t *testing.T) {
	s := Request(guard.AllowList{}, guard.AllowList{}).Spec
	if s.Idempotent || s.Risk != tool.RiskHigh || len(s.Permissions) != 1 || s.Permissions[0] != "network.request" {
		t.Fatalf("got %+v", s)
	}
}
