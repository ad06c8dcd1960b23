package uibridge_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/test/transporttest"
	"skandha.dev/services/uibridge"
	"skandha.dev/services/uibridge/access"
	"skandha.dev/services/uibridge/contract"
)

const ownerToken = "owner-0123456789abcdef"

// bridge is a bridge that runs until the test ends, without a core.
type bridge struct {
	*uibridge.Service
	t    *testing.T
	bus  *journal.Journal
	stop func() error
}

func start(t *testing.T, cfg uibridge.Config, dataDir string) *bridge {
	t.Helper()
	b := natstest.Connect(t, natstest.Start(t))
	if cfg.Listen == "" {
		cfg.Listen = "127.0.0.1:0"
	}
	return startOn(t, b, cfg, dataDir)
}

func startOn(t *testing.T, b *journal.Journal, cfg uibridge.Config, dataDir string) *bridge {
	t.Helper()
	s, err := uibridge.New(cfg, uibridge.Options{}, uibridge.Deps{Bus: b, Log: natstest.Logger(t), DataDir: dataDir})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	br := &bridge{Service: s, t: t, bus: b, stop: func() error { cancel(); err := <-done; done <- err; return err }}
	t.Cleanup(func() {
		if err := br.stop(); err != nil {
			t.Errorf("the bridge ended with %v", err)
		}
	})
	natstest.Eventually(t, "the bridge is ready", func() bool { return s.Ready() == nil })
	return br
}

func owned() uibridge.Config { return uibridge.Config{Config: access.Config{Owner: ownerToken}} }

// ask sends a request with a client, nil for a new one; a body is posted as JSON.
func (b *bridge) ask(c *http.Client, path, body string, headers ...string) answer {
	b.t.Helper()
	method := http.MethodGet
	var in io.Reader
	if body != "" {
		method, in = http.MethodPost, strings.NewReader(body)
	}
	q, err := http.NewRequestWithContext(natstest.Context(b.t), method, b.URL()+path, in)
	if err != nil {
		b.t.Fatal(err)
	}
	if body != "" {
		q.Header.Set("Content-Type", "application/json")
		q.Header.Set("Origin", b.URL())
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		q.Header.Set(name, value)
	}
	if c == nil {
		c = &http.Client{}
		defer c.CloseIdleConnections()
	}
	res, err := c.Do(q)
	if err != nil {
		b.t.Fatal(err)
	}
	defer res.Body.Close()
	out, err := io.ReadAll(res.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return answer{res.StatusCode, res.ProtoMajor, res.Header, res.Cookies(), string(out)}
}

type answer struct {
	status  int
	proto   int // HTTP's
	header  http.Header
	cookies []*http.Cookie
	body    string
}

func TestEveryAnswerIsSecured(t *testing.T) {
	b := start(t, owned(), "")
	for path, status := range map[string]int{
		"/": 200, "/assets/app.js": 200, "/none": 404, "/v1/none": 401, "/v1/auth/me": 401, "/?token=x": 400,
	} {
		res := b.ask(nil, path, "")
		if res.status != status {
			t.Errorf("%s is answered %d, want %d", path, res.status, status)
		}
		csp := res.header.Get("Content-Security-Policy")
		for _, want := range []string{
			"default-src 'none'", "script-src 'self'", "connect-src 'self'", "base-uri 'none'", "form-action 'none'",
			"frame-ancestors 'none'",
		} {
			if !strings.Contains(csp, want) || strings.Contains(csp, "unsafe") || strings.Contains(csp, "http") {
				t.Errorf("%s: the policy is %q, want %s in it", path, csp, want)
			}
		}
		for name, want := range map[string]string{
			"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cross-Origin-Opener-Policy": "same-origin",
			"Cross-Origin-Resource-Policy": "same-origin", "X-Frame-Options": "DENY",
		} {
			if got := res.header.Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", path, name, got, want)
			}
		}
	}
	if res := b.ask(nil, "/v1/none", "", "Authorization: Bearer "+ownerToken); res.status != 404 ||
		!strings.Contains(res.body, `"not_found"`) || !strings.Contains(res.body, "deploy/docs/api.md") {
		t.Errorf("an unknown path is answered %d %s", res.status, res.body)
	}
	// OpenAI's clients show the message of an error only if it has the API's shape.
	for path, want := range map[string]int{"/v1/models": 401, "/v1/responses": 401, "/v1/chat/none": 401} {
		if res := b.ask(nil, path, "", "Authorization: Bearer wrong"); res.status != want ||
			!strings.Contains(res.body, `"error":{"message":"unknown token`) {
			t.Errorf("%s with a wrong key is answered %d %s", path, res.status, res.body)
		}
	}
	if res := b.ask(nil, "/v1/chat/none", "", "Authorization: Bearer "+ownerToken); res.status != 404 ||
		!strings.Contains(res.body, `"error":{"message":`) {
		t.Errorf("an unknown path of OpenAI's is answered %d %s", res.status, res.body)
	}
}

// Every client on the bus can ask for a link; it opens the page once, and the browser
// stays logged in through a restart.
func TestALinkOfTheBusOpensThePageOnce(t *testing.T) {
	dir := t.TempDir()
	b := start(t, uibridge.Config{Listen: fmt.Sprintf("127.0.0.1:%d", natstest.FreePort(t))}, dir)
	if b.Made() == "" {
		t.Error("no token was made")
	}
	link, err := uibridge.AskLink(natstest.Context(t), b.bus)
	if err != nil {
		t.Fatal(err)
	}
	page, code, ok := strings.Cut(link.URL, "#code=")
	if !ok || page != b.URL()+"/" || link.Page != page || time.Until(link.Expires) > access.CodeLife {
		t.Fatalf("the link is %+v", link)
	}
	c := transporttest.Browser(t, nil)
	body := `{"code": "` + code + `"}`
	if res := b.ask(c, "/v1/auth/code", body); res.status != 200 || !strings.Contains(res.body, `"owner"`) {
		t.Fatalf("the code is answered %d %s", res.status, res.body)
	}
	if res := b.ask(nil, "/v1/auth/code", body); res.status != 401 {
		t.Errorf("a second time it is answered %d", res.status)
	}
	if res := b.ask(c, "/v1/auth/me", ""); res.status != 200 {
		t.Errorf("the browser is answered %d %s", res.status, res.body)
	}
	caller, err := b.bus.NewCaller()
	if err != nil {
		t.Fatal(err)
	}
	defer caller.Close()
	said, err := caller.Request(natstest.Context(t), subject.Service(uibridge.ServiceName, uibridge.VerbStatus),
		uibridge.ServiceName, nil)
	var st uibridge.Status
	if err != nil || json.Unmarshal(said, &st) != nil || st.Page != page || st.Version == "" ||
		st.Instance != b.bus.Instance() {
		t.Errorf("its status is %s, %v", said, err)
	}
	if err := b.stop(); err != nil {
		t.Fatal(err)
	}
	if b.Ready() == nil {
		t.Error("it is ready, and does not run")
	}
	again := startOn(t, b.bus, uibridge.Config{Listen: b.Addr()}, dir)
	if again.Made() != "" {
		t.Error("the token is shown again")
	}
	if res := again.ask(c, "/v1/auth/me", ""); res.status != 200 {
		t.Errorf("after a restart the browser is answered %d %s", res.status, res.body)
	}
}

func TestLinksLeadToWhereBrowsersReachTheBridge(t *testing.T) {
	b := natstest.Connect(t, natstest.Start(t))
	for want, cfg := range map[string]uibridge.Config{
		"http://127.0.0.1:":         {Listen: "0.0.0.0:0"},
		"http://agent.lan:":         {Listen: ":0", Config: access.Config{Hosts: []string{"agent.lan"}}},
		"https://agent.example.org": {Listen: "127.0.0.1:0", Config: access.Config{URL: "https://agent.example.org"}},
	} {
		cfg.Owner = ownerToken
		s, err := uibridge.New(cfg, uibridge.Options{}, uibridge.Deps{Bus: b, Log: natstest.Logger(t)})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Link(t.Context()); err == nil {
			t.Error("a link leads to a port that is not taken")
		}
		if err := s.Listen(t.Context()); err != nil {
			t.Fatal(err)
		}
		if l, err := s.Link(t.Context()); err != nil || !strings.HasPrefix(l.URL, want) {
			t.Errorf("the link is %+v, %v; want %s", l, err, want)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestAnotherPortIsTakenIfThatIsAllowed(t *testing.T) {
	first := start(t, owned(), "")
	cfg := owned()
	cfg.Listen = first.Addr()
	for _, anyPort := range []bool{false, true} {
		s, err := uibridge.New(cfg, uibridge.Options{AnyPort: anyPort},
			uibridge.Deps{Bus: first.bus, Log: natstest.Logger(t)})
		if err != nil {
			t.Fatal(err)
		}
		err = s.Listen(t.Context())
		if (err == nil) != anyPort || s.Moved() != anyPort || s.Addr() == first.Addr() ||
			err != nil && !strings.Contains(err.Error(), "ui.listen") {
			t.Errorf("any port %t: %v, at %q", anyPort, err, s.Addr())
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Requests that proxies, caches and parsers might read differently.
func TestAmbiguousRequestsAreRefused(t *testing.T) {
	b := start(t, owned(), "")
	_, port, _ := net.SplitHostPort(b.Addr())
	me, auth := "GET /v1/auth/me HTTP/1.1\r\n", "Authorization: Bearer "+ownerToken+"\r\n"
	own := "Host: localhost:" + port + "\r\n"
	for about, c := range map[string]struct {
		text string
		want string
	}{
		"as it should be":         {me + own + auth + "\r\n", "200"},
		"no Host":                 {me + auth + "\r\n", "400"},
		"two Hosts":               {me + own + "Host: evil.example\r\n" + auth + "\r\n", "400"},
		"HTTP/1.0 without a Host": {"GET /v1/auth/me HTTP/1.0\r\n" + auth + "\r\n", "421"},
		"an absolute target":      {"GET http://evil.example/v1/auth/me HTTP/1.1\r\n" + own + auth + "\r\n", "421"},
		"a target of two slashes": {"GET //evil.example/v1/auth/me HTTP/1.1\r\n" + own + auth + "\r\n", "400"},
		"CONNECT": {
			"CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\n" + auth + "\r\n", "421",
		},
		"a space before the colon": {me + own + "Authorization : Bearer " + ownerToken + "\r\n\r\n", "400"},
		"a header twice":           {me + own + auth + auth + "\r\n", "401"},
		"an underscore for the dash": {
			"POST /v1/rpc/x HTTP/1.1\r\n" + own + auth + "Content_Type: application/json\r\nContent-Length: 2\r\n\r\n{}", "415",
		},
		"a NUL": {me + own + "X: \x00\r\n" + auth + "\r\n", "400"},
		"two lengths": {
			"POST /v1/rpc/x HTTP/1.1\r\n" + own + auth + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}x", "400",
		},
		"a negative length": {"POST /v1/rpc/x HTTP/1.1\r\n" + own + auth + "Content-Length: -1\r\n\r\n", "400"},
		"an unknown transfer coding": {
			"POST /v1/rpc/x HTTP/1.1\r\n" + own + auth + "Transfer-Encoding: xchunked\r\n\r\n", "501",
		},
		"two transfer codings": {
			"POST /v1/rpc/x HTTP/1.1\r\n" + own + auth + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n",
			"501",
		},
		"headers without end": {me + own + "X: " + strings.Repeat("x", 64<<10) + "\r\n" + auth + "\r\n", "431"},
		"a proxy's headers of strangers": {
			me + "Host: evil.example\r\nX-Forwarded-Host: localhost\r\n" + auth + "\r\n", "421",
		},
	} {
		t.Run(about, func(t *testing.T) {
			conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", b.Addr())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if err := conn.SetDeadline(time.Now().Add(natstest.Patience)); err != nil {
				t.Fatal(err)
			}
			_, _ = io.WriteString(conn, c.text) // it may be refused before it is whole
			line, err := bufio.NewReader(conn).ReadString('\n')
			if f := strings.Fields(line); len(f) < 2 || f[1] != c.want {
				t.Errorf("answered %q, %v; want %s", line, err, c.want)
			}
		})
	}
}

func TestHTTPS(t *testing.T) {
	cfg := owned()
	pool := certificate(t, &cfg)
	b := start(t, cfg, "")
	c := transporttest.Browser(t,
		&http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true})
	res := b.ask(c, "/v1/auth/token", `{"token": "`+ownerToken+`"}`)
	if res.status != http.StatusOK || len(res.cookies) != 1 || !res.cookies[0].Secure ||
		!strings.HasPrefix(res.cookies[0].Name, "__Host-") || res.header.Get("Strict-Transport-Security") == "" {
		t.Fatalf("answered %d %s, cookies %v", res.status, res.body, res.cookies)
	}
	if res := b.ask(c, "/v1/auth/me", ""); res.status != 200 || res.proto != 2 {
		t.Errorf("answered HTTP/%d %d %s", res.proto, res.status, res.body)
	}
}

// certificate makes a certificate for 127.0.0.1, and the pool that trusts it.
func certificate(t *testing.T, cfg *uibridge.Config) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	of := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		IPAddresses: []net.IP{netip.MustParseAddr("127.0.0.1").AsSlice()},
	}
	der, err := x509.CreateCertificate(rand.Reader, of, of, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, kind string, b []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	cfg.TLSCert, cfg.TLSKey = write("cert.pem", "CERTIFICATE", der), write("key.pem", "PRIVATE KEY", private)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	return pool
}

// Without core, requests that need it are refused as unavailable, and the bridge keeps
// running.
func TestWithoutACore(t *testing.T) {
	b := start(t, owned(), "")
	res := b.ask(nil, "/v1/rpc/getStatus", `{}`, "Authorization: Bearer "+ownerToken)
	var e contract.Error
	if err := json.Unmarshal([]byte(res.body), &e); err != nil || res.status != http.StatusServiceUnavailable ||
		e.Code != contract.CodeUnavailable {
		t.Errorf("answered %d %s", res.status, res.body)
	}
	if n := b.Counters()["uibridge_http_failed_total"]; n != 1 {
		t.Errorf("counters: %v", b.Counters())
	}
}
