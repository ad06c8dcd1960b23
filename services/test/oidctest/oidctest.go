// Package oidctest is a provider of OpenID Connect on the wire: discovery, authorization codes with
// PKCE, RS256 and its keys, and what a provider may do wrong.
package oidctest

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// ClientID and ClientSecret are those of the only client.
const (
	ClientID     = "bridge"
	ClientSecret = "a secret of the client"
)

// Provider is a provider that logs in one person without a question.
type Provider struct {
	*httptest.Server

	mu     sync.Mutex
	claims map[string]any // in addition to those of every token
	change func(map[string]any)
	alg    string // none: tokens are not signed
	denies bool
	down   bool
	keys   []jose.JSONWebKey // the last one signs; all but hidden are published
	hidden int
	codes  map[string]grant
}

type grant struct{ nonce, challenge, redirect string }

// Start starts a provider whose person has the claims.
func Start(t testing.TB, claims map[string]any) *Provider {
	t.Helper()
	p := &Provider{claims: claims, codes: map[string]grant{}}
	p.Rotate(t)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", p.discovery)
	mux.HandleFunc("GET /keys", p.published)
	mux.HandleFunc("GET /authorize", p.authorize)
	mux.HandleFunc("POST /token", p.token)
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.isDown() {
			http.Error(w, "down", http.StatusServiceUnavailable)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(p.Close)
	return p
}

// Rotate signs with a new key from now on.
func (p *Provider) Rotate(t testing.TB) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	p.set(func() {
		p.keys = append(p.keys, jose.JSONWebKey{Key: key, KeyID: rand.Text(), Algorithm: string(jose.RS256), Use: "sig"})
	})
}

// Hide leaves the last n keys out of those that are published.
func (p *Provider) Hide(n int) { p.set(func() { p.hidden = n }) }

// Says sets the claims of the person.
func (p *Provider) Says(claims map[string]any) { p.set(func() { p.claims = claims }) }

// Changes lets f change the claims of each token, such as its audience; nil ends it.
func (p *Provider) Changes(f func(map[string]any)) { p.set(func() { p.change = f }) }

// Unsigned lets the provider give tokens with the algorithm none.
func (p *Provider) Unsigned(is bool) {
	p.set(func() { p.alg = map[bool]string{true: "none"}[is] })
}

// Denies lets the provider log nobody in.
func (p *Provider) Denies(is bool) { p.set(func() { p.denies = is }) }

// Down lets the provider answer nothing but 503.
func (p *Provider) Down(is bool) { p.set(func() { p.down = is }) }

func (p *Provider) isDown() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.down
}

func (p *Provider) set(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

func (p *Provider) discovery(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, map[string]any{
		"issuer": p.URL, "authorization_endpoint": p.URL + "/authorize", "token_endpoint": p.URL + "/token",
		"jwks_uri": p.URL + "/keys", "id_token_signing_alg_values_supported": []string{"RS256", "none"},
		"response_types_supported": []string{"code"}, "subject_types_supported": []string{"public"},
		"code_challenge_methods_supported": []string{"S256"},
	})
}

func (p *Provider) published(w http.ResponseWriter, _ *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var set jose.JSONWebKeySet
	for _, k := range p.keys[:len(p.keys)-p.hidden] {
		set.Keys = append(set.Keys, k.Public())
	}
	answer(w, http.StatusOK, set)
}

// authorize leads back at once, as a provider does whose person is logged in already.
func (p *Provider) authorize(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	q := r.URL.Query()
	back, err := url.Parse(q.Get("redirect_uri"))
	if err != nil || q.Get("client_id") != ClientID || q.Get("response_type") != "code" ||
		q.Get("code_challenge_method") != "S256" || q.Get("state") == "" || q.Get("nonce") == "" {
		http.Error(w, "this is no request for a code with PKCE, state and nonce", http.StatusBadRequest)
		return
	}
	to := url.Values{"state": {q.Get("state")}, "iss": {p.URL}}
	if p.denies {
		to.Set("error", "access_denied")
	} else {
		code := rand.Text()
		p.codes[code] = grant{q.Get("nonce"), q.Get("code_challenge"), back.String()}
		to.Set("code", code)
	}
	back.RawQuery = to.Encode()
	http.Redirect(w, r, back.String(), http.StatusSeeOther)
}

func (p *Provider) token(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	id, secret, _ := r.BasicAuth()
	id, _ = url.QueryUnescape(id)
	secret, _ = url.QueryUnescape(secret)
	code := r.FormValue("code")
	g, known := p.codes[code]
	delete(p.codes, code) // once
	sum := sha256.Sum256([]byte(r.FormValue("code_verifier")))
	switch {
	case id != ClientID || secret != ClientSecret:
		answer(w, http.StatusUnauthorized, map[string]string{"error": "invalid_client"})
	case !known || g.redirect != r.FormValue("redirect_uri") ||
		g.challenge != base64.RawURLEncoding.EncodeToString(sum[:]):
		answer(w, http.StatusBadRequest, map[string]string{"error": "invalid_grant"})
	default:
		now := time.Now()
		claims := map[string]any{
			"iss": p.URL, "aud": ClientID, "sub": "nobody", "nonce": g.nonce, "iat": now.Unix(), "exp": now.Add(time.Hour).Unix(),
		}
		maps.Copy(claims, p.claims)
		if p.change != nil {
			p.change(claims)
		}
		answer(w, http.StatusOK, map[string]any{
			"access_token": rand.Text(), "token_type": "Bearer", "expires_in": 3600, "id_token": p.signed(claims),
		})
	}
}

func (p *Provider) signed(claims map[string]any) string {
	body, err := json.Marshal(claims)
	if err != nil {
		panic(err) // claims of a test
	}
	if p.alg == "none" {
		return base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`)) + "." + base64.RawURLEncoding.EncodeToString(body) + "."
	}
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: p.keys[len(p.keys)-1]}, nil)
	if err != nil {
		panic(err)
	}
	jws, err := s.Sign(body)
	if err != nil {
		panic(err)
	}
	text, err := jws.CompactSerialize()
	if err != nil {
		panic(err)
	}
	return text
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}
