package access

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"skandha.dev/services/internal/hosts"
	"skandha.dev/services/uibridge/contract"
)

// KeyHeader carries the browser's key: a login's answer contains it, and the page sends it
// with every request. A WebSocket carries it as a subprotocol that begins with [KeyPrefix].
const (
	KeyHeader = "Skandha-Key"
	KeyPrefix = "skandha.key."
)

// claims are a cookie's content, signed with the token's key together with the browser's
// key. A browser sends a cookie to every port of a host, so a cookie proves nothing by
// itself; the browser's key stays in the page's storage, which belongs to one origin, port
// included.
type claims struct {
	Token   string `json:"t"`           // its name
	Login   string `json:"l"`           // random; a logout ends it
	Expires int64  `json:"e"`           // Unix seconds
	Began   int64  `json:"b,omitempty"` // Unix seconds: when the person has shown who they are
	// Until is set if the provider of OpenID Connect logged the person in: then the login ends at the
	// latest, in Unix seconds. Groups are those of the provider that give rights.
	Until  int64    `json:"u,omitempty"`
	Groups []string `json:"g,omitempty"`
}

var encoding = base64.RawURLEncoding.Strict()

// sign returns nil if the token has no key for such logins.
func (t *token) sign(c claims, payload, browserKey string) []byte {
	key := t.key
	if c.Until != 0 {
		key = t.oidc
	}
	if len(key) == 0 {
		return nil
	}
	m := hmac.New(sha256.New, key)
	m.Write([]byte(payload + "." + browserKey)) // a payload contains no dot
	return m.Sum(nil)
}

func (t *token) cookie(c claims, browserKey string) string {
	b, err := json.Marshal(c)
	if err != nil {
		panic(err) // three plain fields
	}
	payload := encoding.EncodeToString(b)
	return payload + "." + encoding.EncodeToString(t.sign(c, payload, browserKey))
}

// readCookie returns the cookie's token, if the cookie belongs to the browser's key.
func (a *Access) readCookie(value, browserKey string) (*token, claims, *contract.Error) {
	bad := unauthenticated("the cookie and " + KeyHeader + " do not match, or their token was replaced; log in again")
	payload, signature, ok := strings.Cut(value, ".")
	if !ok || len(value) > 1024 {
		return nil, claims{}, bad
	}
	b, err := encoding.DecodeString(payload)
	sum, err2 := encoding.DecodeString(signature)
	var c claims
	if err != nil || err2 != nil || json.Unmarshal(b, &c) != nil {
		return nil, claims{}, bad
	}
	t := a.named(c.Token)
	if t == nil || len(sum) == 0 || !hmac.Equal(sum, t.sign(c, payload, browserKey)) {
		return nil, claims{}, bad
	}
	if a.logouts.has(c.Login) {
		return nil, claims{}, unauthenticated("this browser has logged out; log in again")
	}
	return t, c, expired(a.loggedIn(t, c))
}

// loggedIn returns the principal of a browser's login.
func (a *Access) loggedIn(t *token, c claims) contract.Principal {
	p := t.Principal
	p.Login, p.Began = c.Login, time.Unix(c.Began, 0)
	for _, g := range c.Groups {
		p = granted(p, a.cfg.OIDC.Groups[g])
	}
	if until := time.Unix(c.Expires, 0); p.Expires.IsZero() || until.Before(p.Expires) {
		p.Expires = until
	}
	return p
}

// secure reports whether the browser uses TLS: to the bridge itself, or to a trusted proxy
// that says so, or because the host is that of an https ui.url. In the last case, a browser
// that comes without TLS drops the Secure cookie that it is given.
func (a *Access) secure(r *http.Request) bool {
	return r.TLS != nil || a.behindProxy(r) && strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https") ||
		strings.EqualFold("https://"+r.Host, a.cfg.URL)
}

// cookieName contains the port, because browsers share cookies among all ports of a host.
func (a *Access) cookieName(r *http.Request) string {
	_, port, _ := hosts.Split(r.Host)
	switch {
	case a.secure(r) && port == "":
		return "__Host-skandha-443"
	case a.secure(r):
		return "__Host-skandha-" + port
	case port == "":
		return "skandha-80"
	}
	return "skandha-" + port
}

// logIn gives the browser a cookie and the matching key.
func (a *Access) logIn(w http.ResponseWriter, r *http.Request, t *token, c claims) contract.Principal {
	a.count.logins.Add(1)
	browserKey := rand.Text()
	w.Header().Set(KeyHeader, browserKey)
	c.Token, c.Login, c.Began = t.Name, rand.Text(), time.Now().Unix()
	return a.setCookie(w, r, t, c, browserKey)
}

func (a *Access) setCookie(
	w http.ResponseWriter, r *http.Request, t *token, c claims, browserKey string,
) contract.Principal {
	c.Expires = time.Now().Add(a.cfg.Cookie).Unix()
	if c.Until != 0 {
		c.Expires = min(c.Expires, c.Until)
	}
	p := a.loggedIn(t, c)
	http.SetCookie(w, &http.Cookie{
		Name: a.cookieName(r), Value: t.cookie(c, browserKey), Path: "/", HttpOnly: true,
		SameSite: http.SameSiteStrictMode, Secure: a.secure(r),
		MaxAge: max(int(time.Until(p.Expires)/time.Second), 1),
	})
	return p
}

// slide renews a cookie after a twentieth of its lifetime.
func (a *Access) slide(w http.ResponseWriter, r *http.Request, t *token, c claims, browserKey string) {
	if c.Expires != c.Until && time.Until(time.Unix(c.Expires, 0)) < a.cfg.Cookie*19/20 {
		a.setCookie(w, r, t, c, browserKey)
	}
}

// logOut ends a browser's login and its open connections.
func (a *Access) logOut(w http.ResponseWriter, r *http.Request, p contract.Principal) error {
	http.SetCookie(w, &http.Cookie{
		Name: a.cookieName(r), Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: a.secure(r), MaxAge: -1,
	})
	if p.Login == "" {
		return nil // a token is not a login
	}
	err := a.logouts.add(p.Login, time.Now().Add(a.cfg.Cookie))
	a.open.requests.End(func(c connection) bool { return c.Login == p.Login }, unauthenticated("this browser has logged out"))
	if err != nil {
		return fmt.Errorf("remembering a logout: %w", err)
	}
	return nil
}
