package web

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/toolrunner/tools"
)

func TestAllowList(t *testing.T) {
	l, err := ParseAllow([]string{
		"api.example.com", "*.Example.org.", "other.net:8443", "*.svc.test:8080", "2001:db8::1", "[2606:4700::1]:444",
	})
	if err != nil {
		t.Fatal(err)
	}
	for raw, want := range map[string]bool{
		"https://api.example.com/x":           true,
		"http://API.example.com./x":           true,
		"https://api.example.com:443/":        true,
		"https://api.example.com:80/":         false,
		"https://api.example.com:8443/":       false,
		"https://example.com/":                false,
		"https://evil-api.example.com/":       false,
		"https://api.example.com.evil.com/":   false,
		"https://a.example.org/":              true,
		"https://a.b.example.org/":            true,
		"https://example.org/":                false,
		"https://evilexample.org/":            false,
		"https://other.net:8443/":             true,
		"https://other.net/":                  false,
		"http://a.svc.test:8080/":             true,
		"http://[2001:db8::1]/":               true,
		"http://[2001:DB8:0::1]/":             true,
		"https://[2606:4700::1]:444/":         true,
		"ftp://api.example.com/":              false,
		"file:///etc/passwd":                  false,
		"https:api.example.com":               false,
		"https://user:pw@api.example.com/":    false,
		"https://api.example.com@evil.com/":   false,
		"https://evil.com#@api.example.com/":  false,
		"https://evil.com\\@api.example.com/": false,
		"https://ex%61mple.org/":              false,
		"https:///path":                       false,
		"https://ａpi.example.com/":            false,
	} {
		u, err := url.Parse(raw)
		if got := err == nil && l.check(u) == nil; got != want {
			t.Errorf("%s: allowed %v, want %v (%v)", raw, got, want, err)
		}
	}
	if !(AllowList{}).Empty() || l.Empty() {
		t.Error("Empty is wrong")
	}
	u, _ := url.Parse("https://example.com/")
	if (AllowList{}).check(u) == nil {
		t.Error("the empty list allows something")
	}
}

func TestAllowListRefusesWhatItCannotKeep(t *testing.T) {
	for _, p := range []string{
		"", "*", "*.com", "*.*.example.com", "a b", "example.com:0", "example.com:99999", "https://example.com",
		"exämple.com", "*.127.0.0.1", "a..b",
	} {
		if _, err := ParseAllow([]string{p}); err == nil || !strings.Contains(err.Error(), "http_allow") {
			t.Errorf("%q: got %v", p, err)
		}
	}
}

func TestOnlyPublicAddressesAreConnectedTo(t *testing.T) {
	for addr, want := range map[string]bool{
		"93.184.216.34": true, "1.1.1.1": true, "2606:4700:4700::1111": true,
		"127.0.0.1": false, "127.8.8.8": false, "0.0.0.0": false, "10.1.2.3": false, "172.16.0.1": false,
		"172.31.255.255": false,
		"192.168.1.1":    false, "169.254.169.254": false, "100.100.100.200": false, "168.63.129.16": false,
		"192.0.0.192": false,
		"224.0.0.1":   false, "255.255.255.255": false, "240.0.0.1": false, "198.18.0.1": false, "203.0.113.9": false,
		"::1": false, "::": false, "fe80::1": false, "fc00::1": false, "fd00:ec2::254": false, "ff02::1": false,
		"fec0::1":          false,
		"::ffff:127.0.0.1": false, "::ffff:93.184.216.34": false, "::127.0.0.1": false,
		"64:ff9b::7f00:1": false, "64:ff9b:1::1": false, "2002:7f00:1::": false, "2001:0:1::1": false, "2001:db8::1": false,
	} {
		if got := public(netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s: public %v, want %v", addr, got, want)
		}
	}
	for address, want := range map[string]bool{
		"1.1.1.1:80": true, "127.0.0.1:80": false, "[::ffff:10.0.0.1]:80": false, "[fe80::1%eth0]:80": false,
		"localhost:80": false,
	} {
		network := "tcp4"
		if strings.HasPrefix(address, "[") {
			network = "tcp6"
		}
		if got := control(network, address, nil) == nil; got != want {
			t.Errorf("%s: allowed %v, want %v", address, got, want)
		}
	}
	if control("udp4", "1.1.1.1:80", nil) == nil {
		t.Error("udp is allowed")
	}
}

// loopback lets a test reach its own server. Only tests can ask for it.
func loopback(_, address string, _ syscall.RawConn) error {
	if ap, err := netip.ParseAddrPort(address); err != nil || !ap.Addr().IsLoopback() {
		return fmt.Errorf("a test wants to connect to %s", address)
	}
	return nil
}

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
	r := tl.Run(t.Context(), tools.Call{Args: raw})
	var a answer
	if r.Success {
		if err := json.Unmarshal(r.Data, &a); err != nil {
			t.Fatal(err)
		}
	}
	return a, r
}

func local(t *testing.T, allow ...string) tools.Tool {
	t.Helper()
	l, err := ParseAllow(allow)
	if err != nil {
		t.Fatal(err)
	}
	return request(l, loopback)
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
	l, err := ParseAllow([]string{"localhost:" + port, "127.0.0.1:" + port, "[::ffff:127.0.0.1]:" + port})
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range []string{"localhost", "127.0.0.1", "[::ffff:127.0.0.1]"} {
		_, r := call(t, Request(l), requestArgs{URL: "http://" + h + ":" + port + "/"})
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
	s := Request(AllowList{}).Spec
	if s.Idempotent || s.Risk != tool.RiskHigh || len(s.Permissions) != 1 || s.Permissions[0] != "network.request" {
		t.Fatalf("got %+v", s)
	}
}
