package access

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"skandha.dev/services/internal/secret"
	"skandha.dev/services/internal/text"
	"skandha.dev/services/uibridge/contract"
	"skandha.dev/services/uibridge/request"
)

// Times of a login with the provider.
const (
	providerWait  = 10 * time.Second // for an answer of the provider
	providerPause = 3 * time.Second  // after a failure, before the provider is asked again
	discoveredFor = time.Hour        // after which the provider's configuration is read again
	flowLife      = 10 * time.Minute // from the button to the provider's answer
	finishLife    = 2 * time.Minute  // from the provider's answer to the page's
	clockSkew     = time.Minute      // between the provider and the bridge
)

// What the page reads after the provider's answer, in the fragment of its URL.
const (
	saysOK          = "ok"
	saysState       = "state"       // the answer belongs to no login that this browser began
	saysDenied      = "denied"      // the provider did not log the person in
	saysInvalid     = "invalid"     // the provider's answer is not valid
	saysUnknown     = "unknown"     // the person is not configured
	saysUnavailable = "unavailable" // the provider does not answer
)

// provider is the provider of OpenID Connect. Its configuration is read when the first person logs in.
type provider struct {
	conf   OIDC
	secret string
	key    []byte // signs what a browser keeps during a login
	client *http.Client

	mu     sync.Mutex
	found  *oidc.Provider
	since  time.Time
	failed error
	asked  time.Time
}

func newProvider(conf OIDC, key []byte) (*provider, error) {
	p := &provider{conf: conf, key: key, client: &http.Client{Timeout: providerWait}}
	if conf.ClientSecret != "" {
		var err error
		if p.secret, err = secret.Read(conf.ClientSecret); err != nil {
			return nil, fmt.Errorf("oidc.client_secret: %w", err)
		}
	}
	return p, nil
}

// discover returns the provider's configuration.
func (p *provider) discover(ctx context.Context) (*oidc.Provider, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch now := time.Now(); {
	case p.found != nil && now.Sub(p.since) < discoveredFor:
		return p.found, nil
	case p.failed != nil && now.Sub(p.asked) < providerPause:
		return nil, p.failed
	}
	ctx, cancel := context.WithTimeout(oidc.ClientContext(ctx, p.client), providerWait)
	defer cancel()
	found, err := oidc.NewProvider(ctx, p.conf.Issuer)
	if p.asked = time.Now(); err != nil {
		p.failed = err
		return nil, err
	}
	p.found, p.since, p.failed = found, p.asked, nil
	return found, nil
}

func (p *provider) oauth(found *oidc.Provider, origin string) *oauth2.Config {
	return &oauth2.Config{
		ClientID: p.conf.ClientID, ClientSecret: p.secret, Endpoint: found.Endpoint(),
		RedirectURL: origin + pathCallback, Scopes: append([]string{oidc.ScopeOpenID}, p.conf.Scopes...),
	}
}

// flow is what a browser keeps in a cookie while its person is at the provider. The nonce and PKCE's
// verifier are derived from it, so that the cookie does not reveal them.
type flow struct {
	State   string `json:"s"`
	Page    string `json:"p"` // hash of a secret that the page keeps
	Expires int64  `json:"e"` // Unix seconds
}

// of derives a secret of one login.
func (p *provider) of(state, purpose string) string {
	return base64.RawURLEncoding.EncodeToString(mac(p.key, purpose+"."+state))
}

// start answers with the URL of the provider. The page goes there, and remembers the secret whose hash
// it sends.
func (a *Access) start(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Page string `json:"page"`
	}
	if !a.read(w, r, "page", &body) {
		return
	}
	if len(body.Page) != base64.RawURLEncoding.EncodedLen(sha256.Size) {
		a.reject(w, r, &refusal{contract.Invalid("page", "want the SHA-256 of a secret, in base64url"), 0, "body"})
		return
	}
	found, err := a.provider.discover(r.Context())
	if err != nil {
		a.bursts.Log(slog.LevelWarn, "oidc", "the provider of logins does not answer", "issuer", a.cfg.OIDC.Issuer, "error", err)
		a.reject(w, r, &refusal{&contract.Error{
			Code: contract.CodeUnavailable, Message: "the login of " + a.cfg.OIDC.Label + " does not answer; " +
				"try again later, or log in with a token",
		}, 0, "oidc"})
		return
	}
	f := flow{State: rand.Text(), Page: body.Page, Expires: time.Now().Add(flowLife).Unix()}
	http.SetCookie(w, a.flowCookie(r, "login", seal(a.provider.key, "flow", f), http.SameSiteLaxMode, flowLife))
	to := a.provider.oauth(found, a.originOf(r)).AuthCodeURL(f.State, oidc.Nonce(a.provider.of(f.State, "nonce")),
		oauth2.S256ChallengeOption(a.provider.of(f.State, "verifier")))
	request.JSON(w, http.StatusOK, map[string]string{"url": to})
}

// landing is what the provider's answer came to, in a cookie until the page takes it.
type landing struct {
	Person  string   `json:"n"`
	Groups  []string `json:"g,omitempty"`
	Page    string   `json:"p"`
	Until   int64    `json:"u"`
	Expires int64    `json:"e"`
}

// callback takes the provider's answer, and always leads to the page.
func (a *Access) callback(w http.ResponseWriter, r *http.Request) {
	http.SetCookie(w, a.flowCookie(r, "login", "", http.SameSiteLaxMode, -1)) // once
	says := saysState
	var f flow
	if c, err := r.Cookie(a.flowName(r, "login")); err == nil && unseal(a.provider.key, "flow", c.Value, &f) &&
		time.Now().Before(time.Unix(f.Expires, 0)) &&
		subtle.ConstantTimeCompare([]byte(f.State), []byte(r.URL.Query().Get("state"))) == 1 {
		var come landing
		if come, says = a.arrive(r, f); says == saysOK {
			http.SetCookie(w, a.flowCookie(r, "arrival", seal(a.provider.key, "arrival", come), http.SameSiteStrictMode, finishLife))
		}
	}
	if says != saysOK {
		a.count.failed.Add(1)
	}
	w.Header().Set("Referrer-Policy", "no-referrer")
	http.Redirect(w, r, "/#oidc="+says, http.StatusSeeOther)
}

func (a *Access) arrive(r *http.Request, f flow) (come landing, says string) {
	q := r.URL.Query()
	if why := q.Get("error"); why != "" {
		a.log.Info("the provider logged nobody in", "error", text.Cut(why, 60), "description", text.Cut(q.Get("error_description"), 200))
		return come, saysDenied
	}
	if iss := q.Get("iss"); iss != "" && iss != a.cfg.OIDC.Issuer { // RFC 9207
		a.log.Warn("an answer of another provider is refused", "issuer", text.Cut(iss, 200))
		return come, saysInvalid
	}
	who, err := a.provider.exchange(r.Context(), a.originOf(r), f, q.Get("code"))
	switch {
	case errors.Is(err, errAway):
		a.log.Warn("the provider of logins does not answer", "issuer", a.cfg.OIDC.Issuer, "error", err)
		return come, saysUnavailable
	case err != nil:
		a.log.Warn("the answer of the provider of logins is not valid", "error", err)
		return come, saysInvalid
	}
	name := a.cfg.People.Who(who.Subject, who.email())
	if name == "" {
		a.log.Warn("a person logged in with the provider, but people names nobody with this subject or verified e-mail address",
			"subject", text.Cut(who.Subject, 200), "email", text.Cut(who.Email, 200), "verified", bool(who.Verified))
		return come, saysUnknown
	}
	now := time.Now()
	come = landing{Person: name, Page: f.Page, Until: now.Add(a.cfg.OIDC.Session).Unix(), Expires: now.Add(finishLife).Unix()}
	for _, g := range who.Groups {
		if _, gives := a.cfg.OIDC.Groups[g]; gives && !slices.Contains(come.Groups, g) {
			come.Groups = append(come.Groups, g)
		}
	}
	return come, saysOK
}

// errAway means that the provider does not answer.
var errAway = errors.New("no answer")

// exchange returns what the provider says about the person, for the code that it gave.
func (p *provider) exchange(ctx context.Context, origin string, f flow, code string) (who identity, err error) {
	found, err := p.discover(ctx)
	if err != nil {
		return who, fmt.Errorf("%w: %w", errAway, err)
	}
	ctx, cancel := context.WithTimeout(oidc.ClientContext(ctx, p.client), providerWait)
	defer cancel()
	t, err := p.oauth(found, origin).Exchange(ctx, code, oauth2.VerifierOption(p.of(f.State, "verifier")))
	refusal, refused := errors.AsType[*oauth2.RetrieveError](err)
	switch {
	case refused && refusal.Response.StatusCode < http.StatusInternalServerError:
		return who, fmt.Errorf("the provider refuses the code: %q", refusal.ErrorCode) // the rest may have the code
	case refused:
		return who, fmt.Errorf("%w: %s", errAway, refusal.Response.Status)
	case err != nil:
		return who, fmt.Errorf("%w: %w", errAway, err)
	}
	raw, _ := t.Extra("id_token").(string)
	verifier := found.VerifierContext(oidc.ClientContext(context.WithoutCancel(ctx), p.client), &oidc.Config{
		ClientID: p.conf.ClientID, Now: func() time.Time { return time.Now().Add(-clockSkew) },
	})
	id, err := verifier.Verify(ctx, raw)
	switch {
	case err != nil:
		return who, fmt.Errorf("id token: %w", err)
	case subtle.ConstantTimeCompare([]byte(id.Nonce), []byte(p.of(f.State, "nonce"))) != 1:
		return who, errors.New("id token: the nonce is not that of this login")
	case id.Subject == "":
		return who, errors.New("id token: it has no subject")
	}
	return identityOf(id, p.conf.GroupsClaim)
}

// land logs the browser in with the provider's answer, if it is the page that began the login.
func (a *Access) land(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Secret string `json:"secret"`
	}
	if !a.read(w, r, "secret", &body) {
		return
	}
	var come landing
	c, err := r.Cookie(a.flowName(r, "arrival"))
	http.SetCookie(w, a.flowCookie(r, "arrival", "", http.SameSiteStrictMode, -1))
	sum := sha256.Sum256([]byte(body.Secret))
	page := base64.RawURLEncoding.EncodeToString(sum[:])
	if err != nil || !unseal(a.provider.key, "arrival", c.Value, &come) || !time.Now().Before(time.Unix(come.Expires, 0)) ||
		subtle.ConstantTimeCompare([]byte(page), []byte(come.Page)) != 1 {
		a.finish(w, r, nil, claims{}, a.wrong(r, unauthenticated("this page did not begin the login, or it took too long; log in again")))
		return
	}
	t := a.named(come.Person)
	if t == nil || len(t.oidc) == 0 {
		a.finish(w, r, nil, claims{}, &refusal{unauthenticated("this person may not log in any more"), 0, "unauthenticated"})
		return
	}
	a.log.Info("a person logged in with the provider", "person", t.Name)
	a.finish(w, r, t, claims{Until: come.Until, Groups: come.Groups}, nil)
}

// originOf returns the origin of the bridge as the browser sees it. The host is one of the bridge's.
func (a *Access) originOf(r *http.Request) string {
	if a.cfg.URL != "" {
		return a.cfg.URL
	}
	u := url.URL{Scheme: "http", Host: strings.ToLower(r.Host)}
	if a.secure(r) {
		u.Scheme = "https"
	}
	return u.String()
}

func (a *Access) flowName(r *http.Request, purpose string) string {
	return a.cookieName(r) + "-" + purpose
}

// flowCookie returns the cookie of a step of a login; a negative life deletes it.
func (a *Access) flowCookie(r *http.Request, purpose, value string, site http.SameSite, life time.Duration) *http.Cookie {
	seconds := int(life / time.Second)
	if life < 0 {
		seconds = -1
	}
	return &http.Cookie{
		Name: a.flowName(r, purpose), Value: value, Path: "/", HttpOnly: true, SameSite: site, Secure: a.secure(r),
		MaxAge: seconds,
	}
}
