package mail

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"skandha.dev/services/internal/secret"
	"skandha.dev/services/internal/text"
)

const (
	tokenTimeout  = 15 * time.Second
	maxTokenBytes = 64 << 10
	// tokenMargin is how long before its end a token is not used any more.
	tokenMargin = time.Minute
	// defaultTokenLife is how long a token is used if the server does not say how long it is
	// valid.
	defaultTokenLife = 5 * time.Minute
)

// tokens obtains access tokens with a refresh token (RFC 6749, section 6), and keeps each until
// shortly before it expires.
type tokens struct {
	config  OAuth2
	secret  string
	http    *http.Client
	turn    chan struct{} // holds one: who obtains a token
	mu      sync.Mutex
	refresh string // the server may replace it
	access  string
	until   time.Time
}

func openTokens(c OAuth2) (t *tokens, err error) {
	t = &tokens{config: c, turn: make(chan struct{}, 1), http: &http.Client{
		Timeout:       tokenTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	if t.refresh, err = secret.Read(c.RefreshToken); err != nil {
		return nil, fmt.Errorf("refresh_token: %w", err)
	}
	if c.ClientSecret != "" {
		if t.secret, err = secret.Read(c.ClientSecret); err != nil {
			return nil, fmt.Errorf("client_secret: %w", err)
		}
	}
	return t, nil
}

func (t *tokens) cached() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if time.Now().After(t.until) {
		return ""
	}
	return t.access
}

func (t *tokens) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.until = time.Time{}
}

// get returns a token that is valid for a while.
func (t *tokens) get(ctx context.Context) (string, error) {
	if token := t.cached(); token != "" {
		return token, nil
	}
	select {
	case t.turn <- struct{}{}:
		defer func() { <-t.turn }()
	case <-ctx.Done():
		return "", ctx.Err()
	}
	if token := t.cached(); token != "" { // another call was faster
		return token, nil
	}
	token, err := t.obtain(ctx)
	if err != nil {
		return "", fmt.Errorf("obtaining an access token from %s: %w", t.config.TokenURL, err)
	}
	return token, nil
}

// answer is the server's, in success and failure.
type answer struct {
	AccessToken  string  `json:"access_token"`
	RefreshToken string  `json:"refresh_token"`
	ExpiresIn    float64 `json:"expires_in"` // seconds
	Error        string  `json:"error"`
	Description  string  `json:"error_description"`
}

func (t *tokens) obtain(ctx context.Context) (string, error) {
	t.mu.Lock()
	form := url.Values{
		"grant_type": {"refresh_token"}, "refresh_token": {t.refresh}, "client_id": {t.config.ClientID},
	}
	t.mu.Unlock()
	if t.secret != "" {
		form.Set("client_secret", t.secret)
	}
	if t.config.Scope != "" {
		form.Set("scope", t.config.Scope)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.config.TokenURL, strings.NewReader(form.Encode()))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := t.http.Do(req)
	if err != nil {
		if u, ok := errors.AsType[*url.Error](err); ok { // its text repeats method and URL
			err = u.Err
		}
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	var a answer
	err = json.NewDecoder(io.LimitReader(resp.Body, maxTokenBytes)).Decode(&a)
	switch {
	case a.Error != "":
		return "", fmt.Errorf("the server answered %q: %s", text.Cut(a.Error, 100), text.Cut(a.Description, 300))
	case resp.StatusCode != http.StatusOK:
		return "", fmt.Errorf("the server answered %s", resp.Status)
	case err != nil:
		return "", errors.New("the server's answer is not JSON")
	case a.AccessToken == "":
		return "", errors.New("the server's answer has no access_token")
	}
	t.keep(a)
	return a.AccessToken, nil
}

func (t *tokens) keep(a answer) {
	life := time.Duration(a.ExpiresIn * float64(time.Second))
	if life <= 0 {
		life = defaultTokenLife
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.access, t.until = a.AccessToken, time.Now().Add(life-min(tokenMargin, life/2))
	if a.RefreshToken != "" {
		t.refresh = a.RefreshToken
	}
}

// xoauth2 is the mechanism that Google and Microsoft offer, beside or instead of OAUTHBEARER.
const xoauth2 = "XOAUTH2"

type xoauth2Client struct{ user, token string }

// Start implements sasl.Client.
func (c *xoauth2Client) Start() (mechanism string, initial []byte, err error) {
	return xoauth2, []byte("user=" + c.user + "\x01auth=Bearer " + c.token + "\x01\x01"), nil
}

// Next implements sasl.Client. A challenge describes an error; an empty answer makes the server
// report it.
func (c *xoauth2Client) Next([]byte) ([]byte, error) { return []byte{}, nil }
