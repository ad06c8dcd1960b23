package access_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/people"
	"skandha.dev/services/test/oidctest"
	"skandha.dev/services/uibridge/access"
	"skandha.dev/services/uibridge/contract"
)

const pageSecret = "a secret that only the page has"

// lodge has ann, whom the provider knows by the subject, and bob, by the address.
func lodge(p *oidctest.Provider) access.Config {
	cfg := usual()
	cfg.OIDC = access.OIDC{
		Issuer: p.URL, ClientID: oidctest.ClientID, ClientSecret: oidctest.ClientSecret, Label: "Example",
		Groups: map[string]map[string][]string{"oncall": {"ops": {"administer"}}},
	}
	cfg.People = people.Config{
		"ann": {OIDC: people.Login{Subject: "ann-1"}, Rights: map[string][]string{"*": {"see"}, "main": {"see", "talk", "approve"}}},
		"bob": {OIDC: people.Login{Email: "bob@example.org"}, Token: "bobs-token-0123456789abcdef"},
	}
	return cfg
}

// went is a browser's way through a login.
type went struct {
	*rig
	start, back *httptest.ResponseRecorder
	says        string
}

// goes begins a login and follows the provider to the answer that it brings back; change may change
// that.
func (r *rig) goes(change func(*url.URL)) *went {
	r.t.Helper()
	sum := sha256.Sum256([]byte(pageSecret))
	g := &went{rig: r}
	g.start = r.ask(http.MethodPost, "/v1/auth/oidc/start", `{"page":"`+base64.RawURLEncoding.EncodeToString(sum[:])+`"}`, page)
	var to struct{ URL string }
	if g.start.Code != http.StatusOK || json.Unmarshal(g.start.Body.Bytes(), &to) != nil {
		return g
	}
	r.keep(g.start)
	c := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	at, err := c.Get(to.URL)
	if err != nil {
		r.t.Fatal(err)
	}
	_ = at.Body.Close()
	back, err := at.Location()
	if err != nil {
		r.t.Fatalf("%s: %v", at.Status, err)
	}
	if change != nil {
		change(back)
	}
	g.comes(back)
	return g
}

// comes brings an answer of the provider, as a browser does.
func (g *went) comes(back *url.URL) {
	g.t.Helper()
	g.back = g.ask(http.MethodGet, back.RequestURI(), "", with("Sec-Fetch-Site", "cross-site"),
		with("Sec-Fetch-Mode", "navigate"), with("Sec-Fetch-Dest", "document"))
	to := g.back.Header().Get("Location")
	g.says = strings.TrimPrefix(to, "/#oidc=")
	if g.back.Code != http.StatusSeeOther || g.says == to {
		g.t.Fatalf("%d, to %q: %s", g.back.Code, to, g.back.Body)
	}
	g.keep(g.back)
}

func (g *went) finish(secret string) *httptest.ResponseRecorder {
	w := g.ask(http.MethodPost, "/v1/auth/oidc/finish", `{"secret":"`+secret+`"}`, page)
	if w.Code == http.StatusOK {
		g.key = w.Header().Get(access.KeyHeader)
		g.keep(w)
	}
	return w
}

// keep keeps the cookies of an answer, as a browser does.
func (r *rig) keep(w *httptest.ResponseRecorder) {
	for _, c := range w.Result().Cookies() {
		r.jar = slices.DeleteFunc(r.jar, func(o *http.Cookie) bool { return o.Name == c.Name })
		if c.MaxAge >= 0 {
			r.jar = append(r.jar, c)
		}
	}
}

func me(t *testing.T, r *rig) (p contract.Principal, status int) {
	t.Helper()
	w := r.ask(http.MethodGet, "/v1/auth/me", "")
	_ = json.Unmarshal(w.Body.Bytes(), &p)
	return p, w.Code
}

func TestAPersonLogsInWithTheProvider(t *testing.T) {
	p := oidctest.Start(t, map[string]any{"sub": "ann-1", "groups": []string{"oncall", "others"}})
	dir := t.TempDir()
	r := newRig(t, lodge(p), dir)
	g := r.goes(nil)
	if g.says != "ok" {
		t.Fatal(g.says, r.log.String())
	}
	if w := g.finish(pageSecret); w.Code != http.StatusOK {
		t.Fatal(w.Code, w.Body)
	}
	who, status := me(t, r)
	if status != http.StatusOK || who.Name != "ann" || who.Writer != "ui-ann" || !who.Person {
		t.Fatalf("%d %+v", status, who)
	}
	for _, c := range []struct {
		right contract.Right
		agent string
		may   bool
	}{
		{contract.See, "any", true},
		{contract.Talk, "any", false},
		{contract.Approve, "main", true},
		{contract.Administer, "main", false},
		{contract.Administer, "ops", true}, // by the group oncall
		{contract.See, "ops", true},
		{contract.Talk, "ops", false},
	} {
		if may := who.Require(c.right, subject.Agent(c.agent)) == nil; may != c.may {
			t.Errorf("%s with %s: %t", c.right, c.agent, may)
		}
	}
	if who.Everywhere(contract.See) != nil || who.Everywhere(contract.Administer) == nil {
		t.Error("what concerns all agents needs the right with all of them")
	}
	if left := time.Until(who.Expires); left > access.DefaultSession || left < access.DefaultSession-time.Minute {
		t.Errorf("the login ends in %s", left)
	}
	for _, secret := range []string{oidctest.ClientSecret, pageSecret, "id_token", r.jar[0].Value} {
		if strings.Contains(r.log.String(), secret) {
			t.Errorf("the log has %q", secret)
		}
	}
	again := newRig(t, lodge(p), dir) // the login survives a restart
	again.jar, again.key = r.jar, r.key
	if who, status := me(t, again); status != http.StatusOK || who.Name != "ann" {
		t.Fatalf("after a restart: %d", status)
	}
	gone := lodge(p) // but not the removal of the person, nor another subject
	delete(gone.People, "ann")
	other := lodge(p)
	other.People["ann"] = people.Person{OIDC: people.Login{Subject: "ann-2"}}
	for name, cfg := range map[string]access.Config{"removed": gone, "another subject": other} {
		now := newRig(t, cfg, dir)
		now.jar, now.key = r.jar, r.key
		if _, status := me(t, now); status != http.StatusUnauthorized {
			t.Errorf("%s: %d", name, status)
		}
	}
	if w := r.ask(http.MethodPost, "/v1/auth/logout", "", page); w.Code != http.StatusNoContent {
		t.Fatal(w.Code)
	}
	if _, status := me(t, r); status != http.StatusUnauthorized {
		t.Errorf("after logging out: %d", status)
	}
}

func TestWhomAnAddressIdentifies(t *testing.T) {
	p := oidctest.Start(t, nil)
	for name, c := range map[string]struct {
		claims map[string]any
		says   string
	}{
		"verified":                     {map[string]any{"sub": "b", "email": "Bob@example.org", "email_verified": true}, "ok"},
		"verified, as text":            {map[string]any{"sub": "b", "email": "bob@example.org", "email_verified": "true"}, "ok"},
		"not verified":                 {map[string]any{"sub": "b", "email": "bob@example.org", "email_verified": false}, "unknown"},
		"not said whether":             {map[string]any{"sub": "b", "email": "bob@example.org"}, "unknown"},
		"of somebody else":             {map[string]any{"sub": "b", "email": "eve@example.org", "email_verified": true}, "unknown"},
		"empty":                        {map[string]any{"sub": "b", "email": "", "email_verified": true}, "unknown"},
		"a subject that looks like it": {map[string]any{"sub": "bob@example.org"}, "unknown"},
		"groups that are no list":      {map[string]any{"sub": "ann-1", "groups": 7}, "invalid"},
	} {
		t.Run(name, func(t *testing.T) {
			p.Says(c.claims)
			if g := newRig(t, lodge(p), t.TempDir()).goes(nil); g.says != c.says {
				t.Errorf("%s, want %s", g.says, c.says)
			}
		})
	}
}

func TestWhatAProviderMayNotSay(t *testing.T) {
	p := oidctest.Start(t, map[string]any{"sub": "ann-1"})
	set := func(name string, v any) func(map[string]any) { return func(c map[string]any) { c[name] = v } }
	for name, c := range map[string]struct {
		change func(map[string]any)
		says   string
	}{
		"the truth":                     {nil, "ok"},
		"another audience":              {set("aud", "another"), "invalid"},
		"another issuer":                {set("iss", "https://evil.example"), "invalid"},
		"another nonce":                 {set("nonce", "another"), "invalid"},
		"no nonce":                      {func(c map[string]any) { delete(c, "nonce") }, "invalid"},
		"expired":                       {set("exp", time.Now().Add(-2*time.Minute).Unix()), "invalid"},
		"expired by less than the skew": {set("exp", time.Now().Add(-20*time.Second).Unix()), "ok"},
		"no subject":                    {set("sub", ""), "invalid"},
	} {
		t.Run(name, func(t *testing.T) {
			p.Changes(c.change)
			defer p.Changes(nil)
			if g := newRig(t, lodge(p), t.TempDir()).goes(nil); g.says != c.says {
				t.Errorf("%s, want %s", g.says, c.says)
			}
		})
	}
	t.Run("unsigned", func(t *testing.T) {
		p.Unsigned(true)
		defer p.Unsigned(false)
		if g := newRig(t, lodge(p), t.TempDir()).goes(nil); g.says != "invalid" {
			t.Error(g.says)
		}
	})
	t.Run("a key that is not published, and then is", func(t *testing.T) {
		r := newRig(t, lodge(p), t.TempDir())
		if g := r.goes(nil); g.says != "ok" {
			t.Fatal(g.says)
		}
		p.Rotate(t)
		p.Hide(1)
		if g := r.goes(nil); g.says != "invalid" {
			t.Error(g.says)
		}
		p.Hide(0)
		if g := r.goes(nil); g.says != "ok" {
			t.Error(g.says)
		}
	})
	t.Run("no", func(t *testing.T) {
		p.Denies(true)
		defer p.Denies(false)
		if g := newRig(t, lodge(p), t.TempDir()).goes(nil); g.says != "denied" {
			t.Error(g.says)
		}
	})
}

func TestALoginBelongsToThePageThatBeganIt(t *testing.T) {
	p := oidctest.Start(t, map[string]any{"sub": "ann-1"})
	query := func(name, value string) func(*url.URL) {
		return func(u *url.URL) {
			q := u.Query()
			q.Set(name, value)
			u.RawQuery = q.Encode()
		}
	}
	fresh := func(t *testing.T) *rig { return newRig(t, lodge(p), t.TempDir()) }
	for name, c := range map[string]struct {
		change func(*url.URL)
		says   string
	}{
		"a forged state":            {query("state", "forged"), "state"},
		"no state":                  {query("state", ""), "state"},
		"a forged code":             {query("code", "forged"), "invalid"},
		"another provider's":        {query("iss", "https://evil.example"), "invalid"},
		"a place to be led to":      {query("redirect", "https://evil.example"), "ok"}, // it is ignored
		"an error with a long tail": {query("error", strings.Repeat("<", 5000)), "denied"},
	} {
		t.Run(name, func(t *testing.T) {
			if g := fresh(t).goes(c.change); g.says != c.says {
				t.Errorf("%s, want %s", g.says, c.says)
			}
		})
	}
	t.Run("in another browser", func(t *testing.T) {
		r := fresh(t)
		var back *url.URL
		r.goes(func(u *url.URL) { c := *u; back = &c; query("state", "x")(u) })
		r.jar = nil
		g := &went{rig: r}
		if g.comes(back); g.says != "state" {
			t.Error(g.says)
		}
	})
	t.Run("twice", func(t *testing.T) {
		r := fresh(t)
		var back *url.URL
		g := r.goes(func(u *url.URL) { c := *u; back = &c })
		if g.says != "ok" {
			t.Fatal(g.says)
		}
		if g.comes(back); g.says != "state" { // the browser has dropped the cookie
			t.Error(g.says)
		}
		r.keep(g.start)
		if g.comes(back); g.says != "invalid" { // and the provider takes a code once
			t.Error(g.says)
		}
	})
	t.Run("by a page that did not begin it", func(t *testing.T) {
		if w := fresh(t).goes(nil).finish("guessed"); w.Code != http.StatusUnauthorized {
			t.Error(w.Code, w.Body)
		}
	})
	t.Run("by a page of another origin", func(t *testing.T) {
		g := fresh(t).goes(nil)
		if w := g.ask(http.MethodPost, "/v1/auth/oidc/finish", `{"secret":"`+pageSecret+`"}`,
			with("Origin", "https://evil.example")); w.Code != http.StatusForbidden {
			t.Error(w.Code, w.Body)
		}
	})
	t.Run("begun by a page of another origin", func(t *testing.T) {
		if w := fresh(t).ask(http.MethodPost, "/v1/auth/oidc/start", `{"page":"x"}`,
			with("Origin", "https://evil.example")); w.Code != http.StatusForbidden {
			t.Error(w.Code, w.Body)
		}
	})
	t.Run("with the cookie of another step", func(t *testing.T) {
		r := fresh(t)
		g := r.goes(func(u *url.URL) { query("state", "x")(u) })
		for _, c := range g.start.Result().Cookies() {
			c.Name = strings.Replace(c.Name, "-login", "-arrival", 1)
			r.jar = []*http.Cookie{c}
		}
		if w := g.finish(pageSecret); w.Code != http.StatusUnauthorized {
			t.Error(w.Code, w.Body)
		}
	})
}

func TestTheProviderIsDown(t *testing.T) {
	p := oidctest.Start(t, map[string]any{"sub": "ann-1"})
	r := newRig(t, lodge(p), t.TempDir())
	p.Down(true)
	if g := r.goes(nil); g.start.Code != http.StatusServiceUnavailable || !strings.Contains(g.start.Body.String(),
		"the login of Example does not answer; try again later, or log in with a token") {
		t.Fatal(g.start.Code, g.start.Body)
	}
	r.logIn("bobs-token-0123456789abcdef")
	if who, _ := me(t, r); who.Name != "bob" || who.Writer != "ui-bob" {
		t.Fatalf("%+v", who)
	}
	p.Down(false)
	r = newRig(t, lodge(p), t.TempDir())
	if g := r.goes(func(*url.URL) { p.Down(true) }); g.says != "unavailable" {
		t.Error(g.says)
	}
}

func TestWhatIsWrongWithPeopleOfTheBridge(t *testing.T) {
	for want, change := range map[string]func(*access.Config){
		`people.owner: this name is reserved`:                      func(c *access.Config) { c.People["owner"] = people.Person{} },
		`people.eve.oidc.subject: "ann-1" is that of ann, too`:     func(c *access.Config) { c.People["eve"] = people.Person{OIDC: people.Login{Subject: "ann-1"}} },
		`people.eve.rights.*: "rule": want see, talk`:              func(c *access.Config) { c.People["eve"] = people.Person{Rights: map[string][]string{"*": {"rule"}}} },
		`tokens[0].name: duplicate "bot"; a token or a person has`: func(c *access.Config) { c.People["bot"] = people.Person{} },
		`oidc.issuer is "http://login.example.org", want https`:    func(c *access.Config) { c.OIDC.Issuer = "http://login.example.org" },
		`oidc.client_id is missing`:                                func(c *access.Config) { c.OIDC.ClientID = "" },
		`oidc.groups.oncall.ops: "x": want see`:                    func(c *access.Config) { c.OIDC.Groups["oncall"]["ops"] = []string{"x"} },
		`people.ann.oidc: ui.oidc.issuer is missing`:               func(c *access.Config) { c.OIDC = access.OIDC{} },
	} {
		cfg := lodge(&oidctest.Provider{Server: &httptest.Server{URL: "http://127.0.0.1:1"}})
		change(&cfg)
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
