package mail_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"skandha.dev/services/internal/mail"
)

// authority is a server that hands out access tokens.
type authority struct {
	mu    sync.Mutex
	forms []string
	reply func(n int) (status int, body any)
}

func (a *authority) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_ = r.ParseForm()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.forms = append(a.forms, r.PostForm.Encode())
	status, body := a.reply(len(a.forms))
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func (a *authority) account(t *testing.T) *mail.Account {
	t.Helper()
	srv := httptest.NewServer(a)
	t.Cleanup(srv.Close)
	t.Setenv("REFRESH", "refresh-secret")
	t.Setenv("CLIENT", "client-secret")
	c := good()
	c.Password, c.OAuth2 = "", &mail.OAuth2{
		TokenURL: srv.URL, ClientID: "skandha", ClientSecret: "env:CLIENT", RefreshToken: "env:REFRESH", Scope: "mail",
	}
	config := mail.Config{Accounts: map[string]mail.AccountConfig{"a": c}}
	if err := config.Validate(); err != nil {
		t.Fatal(err)
	}
	all, err := mail.Open(config)
	if err != nil {
		t.Fatal(err)
	}
	one, err := all.Get("a")
	if err != nil {
		t.Fatal(err)
	}
	return one
}

// token returns the initial response, which contains the access token.
func token(t *testing.T, a *mail.Account, offered ...string) string {
	t.Helper()
	c, err := a.Auth(t.Context(), offered)
	if err != nil {
		t.Fatal(err)
	}
	mechanism, initial, err := c.Start()
	if err != nil {
		t.Fatal(err)
	}
	return mechanism + " " + string(initial)
}

func TestATokenIsKeptUntilItExpires(t *testing.T) {
	s := &authority{reply: func(n int) (int, any) {
		return 200, map[string]any{"access_token": strings.Repeat("t", n), "expires_in": 3600, "refresh_token": "second-refresh"}
	}}
	a := s.account(t)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() { _, _ = a.Auth(t.Context(), []string{"XOAUTH2"}) })
	}
	all.Wait()
	if got := token(t, a, "PLAIN", "XOAUTH2"); got != "XOAUTH2 user=a@example.org\x01auth=Bearer t\x01\x01" {
		t.Errorf("XOAUTH2 is %q", got)
	}
	if got := token(t, a, "oauthbearer", "XOAUTH2"); !strings.HasPrefix(got, "OAUTHBEARER n,a=a@example.org,") || !strings.Contains(got, "auth=Bearer t\x01") {
		t.Errorf("OAUTHBEARER is %q", got)
	}
	if len(s.forms) != 1 || s.forms[0] != "client_id=skandha&client_secret=client-secret&grant_type=refresh_token&refresh_token=refresh-secret&scope=mail" {
		t.Errorf("the server was asked %q", s.forms)
	}
	a.Rejected()
	if got := token(t, a, "XOAUTH2"); !strings.Contains(got, "Bearer tt\x01") || !strings.Contains(s.forms[1], "second-refresh") {
		t.Errorf("after it was rejected: %q, asked with %q", got, s.forms[1])
	}
	if _, err := a.Auth(t.Context(), []string{"PLAIN"}); err == nil || !strings.Contains(err.Error(), "want OAUTHBEARER or XOAUTH2") {
		t.Errorf("a server without OAuth2: %v", err)
	}
}

func TestWhatAServerSaysInsteadOfAToken(t *testing.T) {
	for want, reply := range map[string]func(int) (int, any){
		`"invalid_grant": expired`: func(int) (int, any) {
			return 400, map[string]any{"error": "invalid_grant", "error_description": "expired"}
		},
		"500":             func(int) (int, any) { return 500, "oops" },
		"302":             func(int) (int, any) { return 302, nil },
		"not JSON":        func(int) (int, any) { return 200, 1 },
		"no access_token": func(int) (int, any) { return 200, map[string]any{} },
	} {
		a := (&authority{reply: reply}).account(t)
		_, err := a.Auth(t.Context(), []string{"XOAUTH2"})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
