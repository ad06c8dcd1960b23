package access_test

import (
	"net/http"
	"strings"
	"testing"

	"skandha.dev/services/uibridge/access"
	"skandha.dev/services/uibridge/contract"
)

// A page whose name resolves to this machine still sends its own name.
func TestOtherHostNamesAreMisdirected(t *testing.T) {
	cfg := usual()
	cfg.Hosts, cfg.URL = []string{"agent.lan"}, "https://agent.example.org"
	r := newRig(t, cfg, "")
	for h, want := range map[string]int{
		"localhost": 200, "LOCALHOST:1": 200, "127.0.0.1:7070": 200, "[::1]:7070": 200, "agent.lan": 200, "Agent.LAN:80": 200,
		"agent.example.org": 200,
		"":                  421, "evil.example": 421, "localhost.": 421, "agent.lan.": 421, "localhost.evil.example": 421,
		"evil.example#localhost": 421,
		"user@localhost":         421, "localhost@evil.example": 421, "[::1": 421, "[::1%25eth0]": 421,
		"[::ffff:192.0.2.1]":  421,
		"localhost:7070:7070": 421,
		"0.0.0.0:7070":        421, "2130706433": 421, "localhost, evil.example": 421, "xagent.lan": 421,
	} {
		for _, path := range []string{"/", "/v1/auth/me", "/v1/auth/code"} {
			if path == "/v1/auth/code" && want == 200 {
				continue
			}
			if w := r.ask(http.MethodGet, path, "", bearer(ownerToken), host(h)); w.Code != want {
				t.Errorf("%s at host %q is answered %d, want %d", path, h, w.Code, want)
			}
		}
	}
	// A request in absolute form is for the host of its target, whatever it says besides.
	if w := r.ask(http.MethodGet, "http://evil.example/v1/auth/me", "", bearer(ownerToken),
		with("Host", "localhost")); w.Code != 421 {
		t.Errorf("an absolute target is answered %d", w.Code)
	}
	if w := r.ask(http.MethodGet, "/v1/auth/me", "", bearer(ownerToken), host("evil.example"),
		with("X-Forwarded-Host", "localhost"), with("Forwarded", "host=localhost")); w.Code != 421 {
		t.Errorf("a forwarded host is answered %d", w.Code)
	}
}

func TestPagesOfOthersAreKeptOut(t *testing.T) {
	cfg := usual()
	cfg.Origins, cfg.URL = []string{"https://app.example.org"}, "https://agent.example.org"
	r := newRig(t, cfg, "")
	site := func(s string) func(*http.Request) { return with("Sec-Fetch-Site", s) }
	mode := func(s string) func(*http.Request) { return with("Sec-Fetch-Mode", s) }
	origin := func(o ...string) func(*http.Request) { return with("Origin", o...) }
	for _, c := range []struct {
		about   string
		method  string
		path    string
		changes []func(*http.Request)
		want    int
	}{
		{"the page posts", "POST", "/v1/x", []func(*http.Request){page}, 200},
		{
			"the page at its public URL posts", "POST", "/v1/x", []func(*http.Request){origin("https://agent.example.org")}, 200,
		},
		{
			"a page that is let in posts", "POST", "/v1/x",
			[]func(*http.Request){origin("https://app.example.org"), site("cross-site")},
			200,
		},
		{"a program posts", "POST", "/v1/x", nil, 200},
		{"the page upgrades", "GET", "/v1/ws", []func(*http.Request){page, upgrade}, 200},
		{"a program upgrades", "GET", "/v1/ws", []func(*http.Request){upgrade}, 200},
		{"the page reads", "GET", "/v1/x", []func(*http.Request){site("same-origin")}, 200},
		{"somebody follows a link to the page", "GET", "/", []func(*http.Request){site("cross-site"), mode("navigate")}, 200},

		{"another origin posts", "POST", "/v1/x", []func(*http.Request){origin("https://evil.example")}, 403},
		{"another origin logs in", "POST", "/v1/auth/token", []func(*http.Request){origin("https://evil.example")}, 403},
		{"another origin reads", "GET", "/v1/x", []func(*http.Request){origin("https://evil.example")}, 403},
		{"another origin reads the page", "GET", "/", []func(*http.Request){origin("https://evil.example")}, 403},
		{"another origin upgrades", "GET", "/v1/ws", []func(*http.Request){origin("https://evil.example"), upgrade}, 403},
		{"a sandboxed frame posts", "POST", "/v1/x", []func(*http.Request){origin("null")}, 403},
		{"a sandboxed frame upgrades", "GET", "/v1/ws", []func(*http.Request){origin("null"), upgrade}, 403},
		{"an empty origin", "POST", "/v1/x", []func(*http.Request){origin("")}, 403},
		{"two origins", "POST", "/v1/x", []func(*http.Request){origin("http://localhost:7070", "https://evil.example")}, 403},
		{
			"two origins in one", "POST", "/v1/x",
			[]func(*http.Request){origin("http://localhost:7070 https://evil.example")},
			403,
		},
		{"another scheme", "POST", "/v1/x", []func(*http.Request){origin("https://localhost:7070")}, 403},
		{"another port", "POST", "/v1/x", []func(*http.Request){origin("http://localhost:7071")}, 403},
		{"no port", "POST", "/v1/x", []func(*http.Request){origin("http://localhost")}, 403},
		{"another loopback name", "POST", "/v1/x", []func(*http.Request){origin("http://127.0.0.1:7070")}, 403},
		{"a suffix", "POST", "/v1/x", []func(*http.Request){origin("http://localhost:7070.evil.example")}, 403},
		{"a longer port", "POST", "/v1/x", []func(*http.Request){origin("http://localhost:70700")}, 403},
		{"userinfo", "POST", "/v1/x", []func(*http.Request){origin("http://localhost:7070@evil.example")}, 403},
		{"a path", "POST", "/v1/x", []func(*http.Request){origin("http://localhost:7070/")}, 403},
		{
			"a subdomain of one that is let in", "POST", "/v1/x",
			[]func(*http.Request){origin("https://x.app.example.org")},
			403,
		},
		{
			"the prefix of one that is let in", "POST", "/v1/x",
			[]func(*http.Request){origin("https://app.example.org.evil.example")},
			403,
		},
		{"one that is let in without TLS", "POST", "/v1/x", []func(*http.Request){origin("http://app.example.org")}, 403},
		{"a browser hides where it comes from and posts", "POST", "/v1/x", []func(*http.Request){site("cross-site")}, 403},
		{
			"a browser hides where it comes from and upgrades", "GET", "/v1/ws",
			[]func(*http.Request){site("same-origin"), upgrade},
			403,
		},
		{
			"another page shows an answer as a picture", "GET", "/v1/x",
			[]func(*http.Request){site("cross-site"), mode("no-cors")},
			403,
		},
		{"a page at another port does", "GET", "/v1/x", []func(*http.Request){site("same-site"), mode("no-cors")}, 403},
		{
			"somebody follows a link to an answer", "GET", "/v1/x",
			[]func(*http.Request){site("cross-site"), mode("navigate")},
			403,
		},
		{
			"another page shows the page's script", "GET", "/assets/app.js",
			[]func(*http.Request){site("cross-site"), mode("no-cors")},
			403,
		},
	} {
		t.Run(c.about, func(t *testing.T) {
			body := ""
			if c.method == http.MethodPost {
				body = "{}"
			}
			w := r.ask(c.method, c.path, body, append([]func(*http.Request){bearer(ownerToken)}, c.changes...)...)
			if w.Code != c.want {
				t.Errorf("answered %d %s, want %d", w.Code, w.Body, c.want)
			}
			if allowed := w.Header().Get("Access-Control-Allow-Origin"); c.want != 200 && allowed != "" {
				t.Errorf("a refused page may read: %s", allowed)
			}
		})
	}
	if r.Counters()["uibridge_refused_origin"] == 0 || !strings.Contains(r.log.String(), "reason=origin") {
		t.Error("refusals are neither counted nor logged")
	}
}

func TestAPageThatIsLetInMayRead(t *testing.T) {
	cfg := usual()
	cfg.Origins = []string{"https://app.example.org"}
	r := newRig(t, cfg, "")
	app := with("Origin", "https://app.example.org")
	w := r.ask(http.MethodOptions, "/v1/x", "", app, with("Access-Control-Request-Method", "POST"))
	if h := w.Header(); w.Code != 204 || h.Get("Access-Control-Allow-Origin") != "https://app.example.org" ||
		!strings.Contains(h.Get("Access-Control-Allow-Headers"), "Authorization") {
		t.Errorf("a preflight is answered %d %v", w.Code, h)
	}
	w = r.ask(http.MethodOptions, "/v1/x", "", app, with("Access-Control-Request-Method", "POST"),
		with("Access-Control-Request-Headers", "authorization,x-other"))
	if got := w.Header().Get("Access-Control-Allow-Headers"); got != "authorization,x-other" {
		t.Errorf("it may send %q", got)
	}
	w = r.ask(http.MethodGet, "/v1/x", "", app)
	if w.Code != 401 || w.Header().Get("Access-Control-Allow-Origin") == "" ||
		w.Header().Get("Access-Control-Allow-Credentials") != "" {
		t.Errorf("without a token it is answered %d %v", w.Code, w.Header())
	}
	// Its cookies, if its browser sends any, are not for it.
	r.logIn(ownerToken)
	if w := r.ask(http.MethodPost, "/v1/x", "{}", app); w.Code != 403 {
		t.Errorf("with a cookie it is answered %d", w.Code)
	}
	// Its WebSockets show the token as a subprotocol, which goes no further.
	r.jar = nil
	r.then = func(w http.ResponseWriter, q *http.Request) {
		if got := q.Header.Get("Sec-WebSocket-Protocol"); got != access.Protocol ||
			contract.PrincipalOf(q.Context()).Name != "bot" {
			t.Errorf("%s is asked with the protocols %q", contract.PrincipalOf(q.Context()).Name, got)
		}
	}
	if w := r.ask(http.MethodGet, "/v1/ws", "", app, upgrade,
		with("Sec-WebSocket-Protocol", access.Protocol+", "+access.BearerPrefix+botToken)); w.Code != 200 {
		t.Errorf("a WebSocket is answered %d", w.Code)
	}
	// Nobody else's page may read anything, even without configured origins.
	if w := newRig(t, usual(), "").ask(http.MethodOptions, "/v1/x", "", app,
		with("Access-Control-Request-Method", "POST")); w.Code != 403 || w.Header().Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("another's preflight is answered %d %v", w.Code, w.Header())
	}
}

func TestSecretsInURLsAreRefused(t *testing.T) {
	r := newRig(t, usual(), "")
	for query, want := range map[string]int{
		"after=1.2&html=1": 200, "session=token": 200, "": 200, "tokens=1": 200,
		"token=" + ownerToken: 400, "access_token=" + ownerToken: 400, "x=1&TOKEN=y": 400, "t%6Fken=y": 400,
		"x=1;token=y": 400, "code=ABCD-EFGH": 400, "api_key=x": 400, "token": 400, "%74%6f%6b%65%6e=x": 400, "+token=x": 400,
	} {
		for _, path := range []string{"/", "/v1/x", "/v1/ws"} {
			if w := r.ask(http.MethodGet, path+"?"+query, "", bearer(ownerToken)); w.Code != want {
				t.Errorf("%s?%s is answered %d, want %d", path, query, w.Code, want)
			} else if want == 400 && !strings.Contains(refusal(t, w).Message, "Authorization") {
				t.Errorf("the refusal does not help: %s", w.Body)
			}
		}
	}
	if strings.Contains(r.log.String(), ownerToken) {
		t.Error("the log holds the token")
	}
}

func TestBodiesAreJSONAndOfBoundedSize(t *testing.T) {
	cfg := usual()
	cfg.Limits.Body = 1 << 10
	r := newRig(t, cfg, "")
	for kind, want := range map[string]int{
		"application/json": 200, "application/json; charset=utf-8": 200, "Application/JSON": 200,
		"": 415, "text/plain": 415, "application/x-www-form-urlencoded": 415, "multipart/form-data; boundary=x": 415,
		"text/plain; application/json": 415, "application/jsonx": 415,
	} {
		w := r.ask(http.MethodPost, "/v1/x", "{}", bearer(ownerToken), with("Content-Type", kind))
		if w.Code != want {
			t.Errorf("%q is answered %d, want %d", kind, w.Code, want)
		}
	}
	if w := r.ask(http.MethodPost, "/v1/x", "{}", bearer(ownerToken),
		with("Content-Type", "application/json", "text/plain")); w.Code != 415 {
		t.Errorf("two types are answered %d", w.Code)
	}
	if w := r.ask(http.MethodPost, "/v1/auth/token", `{"token": "`+strings.Repeat("x", 5000)+`"}`); w.Code != 413 ||
		refusal(t, w).Code != contract.CodeTooLarge {
		t.Errorf("a large body is answered %d %s", w.Code, w.Body)
	}
}

func TestABodyHasTheTypeOfItsPath(t *testing.T) {
	r := newRig(t, usual(), "")
	for path, c := range map[string]struct {
		kind string
		want int
	}{
		"/v1/pictures": {"image/jpeg", 200}, "/v1/x": {"image/jpeg", 415},
	} {
		if w := r.ask(http.MethodPost, path, "{}", bearer(ownerToken), with("Content-Type", c.kind)); w.Code != c.want {
			t.Errorf("%s, %s: %d, want %d", path, c.kind, w.Code, c.want)
		}
	}
	if w := r.ask(http.MethodPost, "/v1/pictures", "{}", bearer(ownerToken), with("Content-Type", "application/json")); w.Code != 415 {
		t.Errorf("JSON is answered %d", w.Code)
	}
}

func TestPathsAreInTheirShortestForm(t *testing.T) {
	r := newRig(t, usual(), "")
	for path, want := range map[string]int{
		"/": 200, "/v1/x": 401, "/v1": 401, "/v1/": 401, "/assets/app.js": 200, "/v1x": 200,
		"//v1/x": 400, "/assets/../v1/x": 400, "/assets/%2e%2e/v1/x": 400, "/./v1/x": 400, "/v1//x": 400, "/%76%31/x": 401,
		"/v1%2fx": 401, "/V1/x": 200,
	} {
		if w := r.ask(http.MethodGet, "http://localhost:7070"+path, ""); w.Code != want {
			t.Errorf("%s is answered %d, want %d", path, w.Code, want)
		}
	}
}

// A token pasted where it does not belong is refused, and not logged.
func TestARefusalLogsNothingThatAClientWrote(t *testing.T) {
	const secret = "skandha_ui_0123456789abcdefghijklmnopqrstuvwxyz"
	for about, change := range map[string]func(*http.Request){
		"the path":           func(q *http.Request) { q.URL.Path = "/v1/" + secret },
		"an agent's name":    func(q *http.Request) { q.URL.Path = "/v1/agents/" + secret + "/sessions/s/events" },
		"a path with dots":   func(q *http.Request) { q.URL.Path = "/./" + secret },
		"the host":           host(secret),
		"the host, escaped":  host("localhost:" + secret),
		"the origin":         with("Origin", "https://"+secret),
		"several origins":    with("Origin", "http://localhost:7070", secret),
		"the method":         func(q *http.Request) { q.Method = secret },
		"the query":          func(q *http.Request) { q.URL.RawQuery = "token=" + secret },
		"a query's name":     func(q *http.Request) { q.URL.RawQuery = secret + "=1" },
		"a wrong scheme":     with("Authorization", secret),
		"the cookie":         with("Cookie", "skandha-7070="+secret),
		"the browser's key":  with("Skandha-Key", secret),
		"a subprotocol":      with("Sec-WebSocket-Protocol", "skandha.bearer."+secret),
		"a forwarded client": with("X-Forwarded-For", secret),
	} {
		r := newRig(t, usual(), "")
		r.then = func(http.ResponseWriter, *http.Request) { t.Errorf("%s: the request is let in", about) }
		w := r.ask(http.MethodGet, "/v1/x", "", change)
		if w.Code < 400 || !strings.Contains(r.log.String(), "request refused") {
			t.Errorf("%s: it is answered %d, and logged as %s", about, w.Code, r.log.String())
		}
		if strings.Contains(r.log.String(), "0123456789") {
			t.Errorf("%s is logged: %s", about, r.log.String())
		}
	}
	r := newRig(t, usual(), "")
	for _, body := range []string{`{"` + secret + `": 1}`, `{"token": "x", "` + secret + `": 1}`, secret} {
		if w := r.ask(http.MethodPost, "/v1/auth/token", body); w.Code != 400 ||
			strings.Contains(r.log.String(), "0123456789") {
			t.Errorf("the body %s is answered %d, and logged as %s", body, w.Code, r.log.String())
		}
	}
	r.log.Reset()
	r.ask(http.MethodGet, "/v1/agents/main/sessions/s1/events", "", page)
	if got := r.log.String(); !strings.Contains(got,
		"path=/v1/agents/*/sessions/*/events host=localhost:7070 origin=http://localhost:7070") {
		t.Errorf("what is known is logged as %s", got)
	}
	for _, path := range []string{"/v1/audio/transcriptions", "/v1/audio/speech", "/v1/chat/completions"} {
		r.log.Reset()
		if r.ask(http.MethodPost, path, ""); !strings.Contains(r.log.String(), "path="+path+" ") {
			t.Errorf("%s is logged as %s", path, r.log.String())
		}
	}
}
