package access_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/uibridge/access"
	"skandha.dev/services/uibridge/contract"
)

func TestTokens(t *testing.T) {
	cfg := usual()
	cfg.Tokens = append(cfg.Tokens,
		access.Token{Name: "old", Token: "old-0123456789abcdef", Expires: access.Instant{Time: time.Now().Add(-time.Second)}})
	r := newRig(t, cfg, "")
	for about, c := range map[string]struct {
		values []string
		want   string // who it is; empty: refused
	}{
		"the owner's":             {[]string{"Bearer " + ownerToken}, "owner"},
		"another's":               {[]string{"Bearer " + botToken}, "bot"},
		"the scheme in any case":  {[]string{"bearer " + botToken}, "bot"},
		"none":                    {nil, ""},
		"a wrong one":             {[]string{"Bearer " + ownerToken + "x"}, ""},
		"the beginning of one":    {[]string{"Bearer " + ownerToken[:20]}, ""},
		"another case":            {[]string{"Bearer " + strings.ToUpper(ownerToken)}, ""},
		"an empty one":            {[]string{"Bearer "}, ""},
		"without a scheme":        {[]string{ownerToken}, ""},
		"another scheme":          {[]string{"Basic " + ownerToken}, ""},
		"one that has expired":    {[]string{"Bearer old-0123456789abcdef"}, ""},
		"a right and a wrong one": {[]string{"Bearer " + ownerToken, "Bearer x"}, ""},
		"two in one":              {[]string{"Bearer " + ownerToken + ", Bearer " + botToken}, ""},
		"a name":                  {[]string{"Bearer owner"}, ""},
	} {
		w := r.ask(http.MethodGet, "/v1/auth/me", "", with("Authorization", c.values...))
		switch {
		case c.want == "" &&
			(w.Code != 401 || refusal(t, w).Code != contract.CodeUnauthenticated || w.Header().Get("WWW-Authenticate") == ""):
			t.Errorf("%s: %d %s", about, w.Code, w.Body)
		case c.want != "" && principal(t, w).Name != c.want:
			t.Errorf("%s is %s", about, w.Body)
		}
	}
	// A wrong token is not made good by a cookie.
	r.logIn(ownerToken)
	if w := r.ask(http.MethodGet, "/v1/x", "", bearer("wrong-0123456789abcdef")); w.Code != 401 {
		t.Errorf("a wrong token beside a cookie is answered %d", w.Code)
	}
	if log := r.log.String(); strings.Contains(log, ownerToken) || strings.Contains(log, botToken) {
		t.Error("the log holds a token")
	}
}

func TestRights(t *testing.T) {
	cfg := access.Config{Owner: ownerToken, Tokens: []access.Token{
		{Name: "usual", Token: "usual-0123456789"},
		{Name: "looker", Token: "looker-0123456789", Rights: []contract.Right{contract.See}},
		{
			Name: "talker", Token: "talker-0123456789", Rights: []contract.Right{contract.Talk}, Agents: []subject.Agent{"main"},
		},
	}}
	r := newRig(t, cfg, "")
	for token, want := range map[string]string{
		ownerToken: "see talk approve administer", "usual-0123456789": "see talk approve", "looker-0123456789": "see",
		"talker-0123456789": "talk",
	} {
		p := principal(t, r.ask(http.MethodGet, "/v1/auth/me", "", bearer(token)))
		var got []string
		for _, right := range contract.AllRights() {
			err := p.Require(right, "main")
			if err == nil {
				got = append(got, string(right))
			} else if contract.ErrorOf(err).Code != contract.CodeForbidden {
				t.Errorf("%s: %v", p.Name, err)
			}
		}
		if strings.Join(got, " ") != want || string(p.Writer) != "ui-"+p.Name {
			t.Errorf("%s, who writes as %s, may %v, want %s", p.Name, p.Writer, got, want)
		}
		if err := p.Require(p.Rights[0], "other"); (err == nil) != (p.Name != "talker") {
			t.Errorf("%s and another agent: %v", p.Name, err)
		}
	}
}

func TestTheOwnersTokenIsMadeOnceAndKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "dir")
	first := newRig(t, access.Config{}, dir)
	made := first.Made()
	if len(made) < 50 || !strings.HasPrefix(made, "skandha_ui_") {
		t.Fatalf("made %q", made)
	}
	info, err := os.Stat(filepath.Join(dir, access.TokenFile))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("it is kept as %v, %v", info, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("the directory holds %v, %v", left, err)
	}
	if err := os.Chmod(filepath.Join(dir, access.TokenFile), 0o644); err != nil {
		t.Fatal(err)
	}
	again := newRig(t, access.Config{}, dir)
	if again.Made() != "" {
		t.Error("it is shown again")
	}
	if info, err := os.Stat(filepath.Join(dir, access.TokenFile)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("others may read it: %v %v", info.Mode(), err)
	}
	if w := again.ask(http.MethodGet, "/v1/x", "", bearer(made)); w.Body.String() != "owner" {
		t.Errorf("it is answered %d", w.Code)
	}
	other := newRig(t, access.Config{}, t.TempDir())
	if other.Made() == made {
		t.Error("two bridges have one token")
	}
	// The cookie lives through the restart, and dies with the token.
	cookie := first.logIn(made)
	again.jar, other.jar = []*http.Cookie{cookie}, []*http.Cookie{cookie}
	again.key, other.key = first.key, first.key
	if w := again.ask(http.MethodGet, "/v1/x", ""); w.Code != 200 {
		t.Errorf("after a restart the cookie is answered %d", w.Code)
	}
	if w := other.ask(http.MethodGet, "/v1/x", ""); w.Code != 401 {
		t.Errorf("with another token the cookie is answered %d", w.Code)
	}
	if err := os.WriteFile(filepath.Join(dir, access.TokenFile), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := access.New(access.Config{}, access.Deps{DataDir: dir}); err == nil ||
		!strings.Contains(err.Error(), "remove the file") {
		t.Errorf("an empty file: %v", err)
	}
}

func TestCookies(t *testing.T) {
	r := newRig(t, usual(), "")
	c := r.logIn(botToken)
	if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || c.Domain != "" || c.Secure ||
		c.Name != "skandha-7070" || c.MaxAge < 7*24*3600-60 || c.MaxAge > 7*24*3600 {
		t.Errorf("the cookie is %+v", c)
	}
	if strings.Contains(c.Value, botToken) {
		t.Error("the cookie holds the token")
	}
	if w := r.ask(http.MethodGet, "/v1/auth/me", ""); principal(t, w).Name != "bot" {
		t.Errorf("it is %s", w.Body)
	}
	for about, change := range map[string]func(*http.Request){
		"posting without an origin":     with("X-None", ""),
		"upgrading without an origin":   upgrade,
		"posting from another port":     with("Origin", "http://localhost:8080"),
		"posting from another hostname": with("Origin", "http://127.0.0.1:7070"),
	} {
		method := http.MethodPost
		if strings.HasPrefix(about, "upgrading") {
			method = http.MethodGet
		}
		if w := r.ask(method, "/v1/x", "", change); w.Code != 403 {
			t.Errorf("%s is answered %d", about, w.Code)
		}
	}
	if w := r.ask(http.MethodPost, "/v1/x", "{}", page); w.Code != 200 {
		t.Errorf("the page posts and is answered %d %s", w.Code, w.Body)
	}
	// Another port has other cookies.
	if w := r.ask(http.MethodGet, "/v1/x", "", host("localhost:7071")); w.Code != 401 {
		t.Errorf("at another port it is answered %d", w.Code)
	}
	// A proxy that is not configured is not believed.
	w := r.ask(http.MethodPost, "/v1/auth/token", `{"token": "`+botToken+`"}`, with("X-Forwarded-Proto", "https"))
	if w.Result().Cookies()[0].Secure {
		t.Error("a stranger made the cookie secure")
	}
}

// Behind a proxy the bridge itself does not see TLS.
func TestCookiesBehindAProxyWithTLSAreSecure(t *testing.T) {
	believed, named := usual(), usual()
	believed.Proxies = []string{"127.0.0.0/8"}
	named.URL = "https://agent.example.org"
	for about, c := range map[string]struct {
		cfg    access.Config
		host   string
		proto  string // what the proxy says
		secure bool
	}{
		"a proxy that is believed":           {believed, "localhost", "https", true},
		"one that is reached without TLS":    {believed, "localhost", "http", false},
		"the URL that browsers come by":      {named, "agent.example.org", "", true},
		"that in another case":               {named, "Agent.Example.Org", "", true},
		"another port of it":                 {named, "agent.example.org:7070", "", false},
		"this machine, past the proxy":       {named, "localhost:7070", "", false},
		"a client that claims to be a proxy": {named, "localhost:7070", "https", false},
		"no proxy, and nobody is believed":   {usual(), "localhost", "https", false},
	} {
		scheme, name := "http://", "skandha-"
		if c.secure {
			scheme, name = "https://", "__Host-skandha-"
		}
		r := newRig(t, c.cfg, "")
		at := []func(*http.Request){
			host(c.host), with("X-Forwarded-Proto", c.proto), with("Origin", scheme+strings.ToLower(c.host)),
		}
		w := r.ask(http.MethodPost, "/v1/auth/token", `{"token": "`+botToken+`"}`, at...)
		if w.Code != http.StatusOK {
			t.Errorf("%s: logging in is answered %d %s", about, w.Code, w.Body)
			continue
		}
		if r.jar, r.key = w.Result().Cookies(), w.Header().Get(access.KeyHeader); r.jar[0].Secure != c.secure ||
			!strings.HasPrefix(r.jar[0].Name, name) {
			t.Errorf("%s: the cookie is %+v", about, r.jar[0])
		}
		if w := r.ask(http.MethodPost, "/v1/x", "{}", at...); w.Code != http.StatusOK {
			t.Errorf("%s: the page posts and is answered %d %s", about, w.Code, w.Body)
		}
	}
}

// A browser sends a cookie to every port of the host, so any program there can have it.
func TestACookieAloneIsNoLogin(t *testing.T) {
	r := newRig(t, usual(), "")
	first := r.logIn(botToken)
	firstKey := r.key
	r.logIn(botToken)
	secondKey := r.key
	if firstKey == secondKey || len(firstKey) < 26 || strings.Contains(first.Value, firstKey) {
		t.Fatalf("the keys are %q and %q", firstKey, secondKey)
	}
	r.jar = []*http.Cookie{first}
	for about, c := range map[string]struct {
		key    string
		change func(*http.Request)
		want   int
	}{
		"the cookie alone":              {"", page, 401},
		"with another login's key":      {secondKey, page, 401},
		"with its key":                  {firstKey, page, 200},
		"with half of its key":          {firstKey[:13], page, 401},
		"a WebSocket without the key":   {"", func(q *http.Request) { page(q); upgrade(q) }, 401},
		"a WebSocket that shows it":     {"", wsKey(firstKey), 200},
		"a WebSocket with another's":    {"", wsKey(secondKey), 401},
		"the key without the cookie":    {firstKey, func(q *http.Request) { page(q); q.Header.Del("Cookie") }, 401},
		"a renewal cannot be asked for": {"", func(q *http.Request) { q.URL.Path = "/v1/auth/me" }, 401},
	} {
		r.key = c.key
		w := r.ask(http.MethodGet, "/v1/x", "", c.change)
		if w.Code != c.want || w.Header().Get(access.KeyHeader) != "" {
			t.Errorf("%s is answered %d %s, key %q, want %d", about, w.Code, w.Body, w.Header().Get(access.KeyHeader), c.want)
		}
	}
	if strings.Contains(r.log.String(), firstKey) {
		t.Error("the log holds a key")
	}
	r.key = firstKey
	r.then = func(_ http.ResponseWriter, q *http.Request) {
		if q.Header.Get(access.KeyHeader) != "" || strings.Contains(q.Header.Get("Sec-WebSocket-Protocol"), firstKey) {
			t.Errorf("the handler sees the key: %v", q.Header)
		}
	}
	r.ask(http.MethodGet, "/v1/x", "", wsKey(firstKey))
}

// wsKey is a WebSocket of the page that sends the browser's key.
func wsKey(key string) func(*http.Request) {
	return func(q *http.Request) {
		page(q)
		upgrade(q)
		q.Header.Set("Sec-WebSocket-Protocol", access.Protocol+", "+access.KeyPrefix+key)
	}
}

func TestATamperedCookieIsNone(t *testing.T) {
	r := newRig(t, usual(), "")
	good := r.logIn(botToken).Value
	payload, signature, _ := strings.Cut(good, ".")
	plain, err := base64.RawURLEncoding.DecodeString(payload)
	if err != nil {
		t.Fatal(err)
	}
	claim := func(name string, value any) string {
		var c map[string]any
		if err := json.Unmarshal(plain, &c); err != nil {
			t.Fatal(err)
		}
		c[name] = value
		b, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		return base64.RawURLEncoding.EncodeToString(b)
	}
	values := []string{
		"", ".", "x", payload, payload + ".", "." + signature, payload + "." + signature + "." + signature, good + "x",
		good + " ", "x" + good,
		claim("t", "owner") + "." + signature, claim("e", time.Now().Add(1e6*time.Hour).Unix()) + "." + signature,
		claim("l", "other") + "." + signature,
		claim("t", "nobody") + "." + signature, base64.RawURLEncoding.EncodeToString([]byte("null")) + "." + signature,
		strings.Repeat("x", 4000),
	}
	for i := range good { // a bit of anything
		b := []byte(good)
		b[i] ^= 1
		if string(b) != good && b[i] != ';' && b[i] != ',' {
			values = append(values, string(b))
		}
	}
	for _, v := range values {
		r.jar = []*http.Cookie{{Name: "skandha-7070", Value: v}}
		if w := r.ask(http.MethodGet, "/v1/x", ""); w.Code != 401 {
			t.Errorf("%q is answered %d", v, w.Code)
		}
	}
	r.jar = []*http.Cookie{{Name: "skandha-7070", Value: "x"}, {Name: "skandha-7070", Value: good}}
	if w := r.ask(http.MethodGet, "/v1/x", ""); w.Code != 200 {
		t.Errorf("a cookie that somebody put beside it locks out: %d", w.Code)
	}
}

func TestCookiesSlideAndExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := usual()
		cfg.Cookie = 30 * 24 * time.Hour
		cfg.Tokens[0].Expires.Time = time.Now().Add(50 * 24 * time.Hour)
		r := newRig(t, cfg, "")
		r.logIn(botToken)
		if w := r.ask(http.MethodGet, "/v1/x", ""); len(w.Result().Cookies()) != 0 {
			t.Error("a fresh cookie is renewed")
		}
		first := r.jar
		time.Sleep(20 * 24 * time.Hour)
		w := r.ask(http.MethodGet, "/v1/x", "")
		if len(w.Result().Cookies()) != 1 {
			t.Fatalf("it does not slide: %d", w.Code)
		}
		r.jar = w.Result().Cookies()
		time.Sleep(20 * 24 * time.Hour)
		late := r.ask(http.MethodGet, "/v1/x", "")
		if late.Code != 200 || len(late.Result().Cookies()) != 1 || late.Result().Cookies()[0].MaxAge != 10*24*3600 {
			t.Errorf("renewed, it is answered %d, cookies %v", late.Code, late.Result().Cookies())
		}
		r.jar = first
		if w := r.ask(http.MethodGet, "/v1/x", ""); w.Code != 401 {
			t.Errorf("the first one has expired, and is answered %d", w.Code)
		}
		r.jar = late.Result().Cookies() // it would live longer than its token
		time.Sleep(10 * 24 * time.Hour)
		if w := r.ask(http.MethodGet, "/v1/x", ""); w.Code != 401 {
			t.Errorf("the token has expired, and its cookie is answered %d", w.Code)
		}
	})
}

func TestLogout(t *testing.T) {
	dir := t.TempDir()
	r := newRig(t, usual(), dir)
	mine := r.logIn(botToken)
	myKey := r.key
	other := r.logIn(botToken)
	otherKey := r.key
	r.jar, r.key = []*http.Cookie{mine}, myKey
	began, ended := make(chan struct{}), make(chan error, 1)
	r.then = func(_ http.ResponseWriter, q *http.Request) {
		if q.URL.Path == "/v1/stream" {
			close(began)
			<-q.Context().Done()
			ended <- context.Cause(q.Context())
		}
	}
	go r.ask(http.MethodGet, "/v1/stream", "")
	<-began
	w := r.ask(http.MethodPost, "/v1/auth/logout", "", page)
	if c := w.Result().Cookies(); w.Code != 204 || len(c) != 1 || c[0].MaxAge >= 0 {
		t.Fatalf("logging out is answered %d %v", w.Code, c)
	}
	if err := <-ended; contract.ErrorOf(err).Code != contract.CodeUnauthenticated {
		t.Errorf("an open connection ended with %v", err)
	}
	again := newRig(t, usual(), dir) // it is remembered
	for _, r := range []*rig{r, again} {
		r.jar, r.key = []*http.Cookie{mine}, myKey
		if w := r.ask(http.MethodGet, "/v1/x", ""); w.Code != 401 {
			t.Errorf("the old cookie is answered %d", w.Code)
		}
		r.jar, r.key = []*http.Cookie{other}, otherKey
		if w := r.ask(http.MethodGet, "/v1/x", ""); w.Code != 200 {
			t.Errorf("another browser is answered %d", w.Code)
		}
	}
}

func TestOneTimeCodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, usual(), "")
		fresh := func() string {
			t.Helper()
			code, expires, err := r.Code(t.Context())
			if err != nil || time.Until(expires) != access.CodeLife {
				t.Fatalf("%q until %v, %v", code, expires, err)
			}
			return code
		}
		try := func(code string) int {
			r.jar = nil
			w := r.ask(http.MethodPost, "/v1/auth/code", `{"code": "`+code+`"}`, page)
			if w.Code == 200 && (principal(t, w).Name != access.Owner || len(w.Result().Cookies()) != 1) {
				t.Errorf("a code lets in %s", w.Body)
			}
			return w.Code
		}
		code := fresh()
		if len(strings.ReplaceAll(code, "-", "")) != 16 || strings.ContainsAny(code, "ILOU") {
			t.Errorf("the code is %q", code)
		}
		if got := try(code); got != 200 {
			t.Errorf("a code is answered %d", got)
		}
		if got := try(code); got != 401 {
			t.Errorf("a used code is answered %d", got)
		}
		if got := try(strings.ToLower(strings.ReplaceAll(fresh(), "-", " "))); got != 200 {
			t.Errorf("a code as people type it is answered %d", got)
		}
		for _, wrong := range []string{"", "-", "AAAA-AAAA-AAAA-AAAA", code + "A"} {
			if got := try(wrong); got != 401 {
				t.Errorf("%q is answered %d", wrong, got)
			}
		}
		code = fresh()
		time.Sleep(access.CodeLife)
		if got := try(code); got != 401 {
			t.Errorf("an old code is answered %d", got)
		}
		first := fresh()
		for range 16 {
			fresh()
		}
		if got := try(first); got != 401 {
			t.Errorf("there is no end of codes: the first of 17 is answered %d", got)
		}
	})
}

// A stranger's X-Forwarded-For does not identify it; a proxy's identifies its client.
func TestAddressesOfStrangersAreNotBelieved(t *testing.T) {
	synctest.Test(t, addressesOfStrangers) // no wrong token is forgiven meanwhile
}

func addressesOfStrangers(t *testing.T) {
	for about, proxies := range map[string][]string{"no proxy": nil, "a proxy": {"192.0.2.0/24"}} {
		cfg := usual()
		cfg.Proxies = proxies
		r := newRig(t, cfg, "")
		var got []int
		for i := range 12 {
			spoofed := string(rune('a'+i)) + ", 203.0.113." + string(rune('1'+i%9)) + ", 198.51.100.7"
			got = append(got,
				r.ask(http.MethodGet, "/v1/x", "", bearer("wrong-0123456789abcdef"), from("192.0.2.1:1"),
					with("X-Forwarded-For", spoofed)).Code)
		}
		if !slices.Equal(got[10:], []int{429, 429}) {
			t.Errorf("%s: twelve wrong tokens are answered %v", about, got)
		}
		other := r.ask(http.MethodGet, "/v1/x", "", bearer("wrong-0123456789abcdef"), from("192.0.2.1:1"),
			with("X-Forwarded-For", "198.51.100.8")).Code
		if want := map[bool]int{true: 401, false: 429}[proxies != nil]; other != want {
			t.Errorf("%s: another client is answered %d, want %d", about, other, want)
		}
	}
}

func TestLoginBodiesAreStrict(t *testing.T) {
	r := newRig(t, usual(), "")
	for body, want := range map[string]int{
		`{"token": "` + botToken + `"}`: 200, `{"token": "wrong"}`: 401, `{}`: 401, `{"token": null}`: 401,
		`[]`: 400, `{"token": 1}`: 400, `{"token": "x", "y": 1}`: 400, `{"token": "` + botToken + `"}{}`: 400,
		`nonsense`: 400,
	} {
		if w := r.ask(http.MethodPost, "/v1/auth/token", body); w.Code != want {
			t.Errorf("%s is answered %d %s, want %d", body, w.Code, w.Body, want)
		}
	}
	if w := r.ask(http.MethodGet, "/v1/auth/token", ""); w.Code != 404 {
		t.Errorf("GET is answered %d", w.Code)
	}
	if strings.Contains(r.log.String(), botToken) {
		t.Error("the log holds a token")
	}
}
